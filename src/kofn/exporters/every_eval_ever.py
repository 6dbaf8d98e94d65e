"""Exporter of Every Eval Ever records (schema 0.2.1): a JSON file of results, a JSON lines file of candidates.

Every estimate is an evaluation result with its interval. A candidate is a row of the second file, `repeat` in its
metadata; that schema has one score per row and no way to say "not graded", so the row's score is that of the first
metric, those of others are in the metadata, and candidates without a grade are left out and counted.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from kofn._version import __version__
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.exporters.base import Exporter, candidate_frame, case_frame, origin_of
from kofn.registry import higher_is_better
from kofn.runs.files import digest, to_json, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.core.types import Estimate
    from kofn.runs.load import GradedCandidates

VERSION = "0.2.1"


def write(graded: GradedCandidates, path: Path) -> list[CodedWarning]:
    """PATH.json and, beside it, PATH_samples.jsonl."""
    first = graded.result.scored[0]
    if not first.metric:
        raise InputError(f"{graded.path}: nothing is graded: a record of results needs labels, scores or references")
    known = origin_of(graded)
    made = str(graded.manifest.get("created") or "")
    now = str(datetime.now(UTC).timestamp())
    evaluation_id = f"{known['task']}/{known['model']}/{now}"
    samples = path.with_name(f"{path.stem}_samples.jsonl")
    tool = " ".join(str(known[key]) for key in ("tool", "version") if known.get(key))
    n_left = _write_samples(graded, samples, evaluation_id, known)
    record = {
        "schema_version": VERSION,
        "evaluation_id": evaluation_id,
        **({"evaluation_timestamp": made} if made else {}),
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "kofn",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "kofn",
            "version": __version__,
            **({"additional_details": {"outputs_from": tool}} if tool else {}),
        },
        "model_info": {"name": known["model"], "id": known["model"]},
        "evaluation_results": [
            _result(graded, known["task"], e) for e in graded.result.estimates if e.point is not None
        ],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": samples.name,
            "hash_algorithm": "sha256",
            "checksum": digest(samples),
            "total_rows": graded.table.n_candidates - n_left,
        },
    }
    write_atomically(path, lambda partial: partial.write_bytes(to_json(record)))
    notes = [CodedWarning.of("ungraded-without-row", n=n_left, file=samples.name)] if n_left else []
    undefined = sum(e.point is None for e in graded.result.estimates)
    notes += [CodedWarning.of("undefined-numbers", n=undefined)] if undefined else []
    return [*notes, CodedWarning.of("source-not-known")]


def _result(graded: GradedCandidates, task: str, e: Estimate) -> dict[str, Any]:
    """One estimate; what has no field in that schema is in `details`."""
    what = f"{e.aggregator} over the candidates of a case, mean over cases; metric {e.metric}"
    name = f"{task} {e.metric} {e.aggregator}" + (f" ({e.segment})" if e.segment else "")
    uncertainty: dict[str, Any] = {"num_samples": e.n}
    if e.low is not None and e.high is not None:
        ends = {"lower": e.low, "upper": e.high}
        uncertainty["confidence_interval"] = {**ends, "confidence_level": e.level, "method": e.method}
    scored = next(one for one in graded.result.scored if one.metric == e.metric)
    values = graded.result.case_values.get((e.metric, e.aggregator))
    defined = np.array([]) if values is None else values[~np.isnan(values)]
    details = {"metric": e.metric, "aggregator": e.aggregator, "segment": e.segment, "missing_cases": e.n_missing}
    return {
        "evaluation_name": name,
        "source_data": {"dataset_name": task, "source_type": "other"},
        # how to read the number: continuous, within 0 and 1 unless the cases' values go further
        "metric_config": {
            "evaluation_description": what,
            "lower_is_better": higher_is_better(e.aggregator, scored.sets.higher_is_better) is False,
            "score_type": "continuous",
            "min_score": float(min(0.0, defined.min(initial=0.0))),
            "max_score": float(max(1.0, defined.max(initial=1.0))),
        },
        "score_details": {
            "score": e.point,
            "details": {key: str(value) for key, value in details.items() if value is not None},
            "uncertainty": uncertainty,
        },
    }


def _write_samples(graded: GradedCandidates, path: Path, evaluation_id: str, known: dict[str, Any]) -> int:
    """One row per graded candidate; returns how many were not graded."""
    cases, rows = case_frame(graded).to_dicts(), candidate_frame(graded).to_dicts()
    first = graded.result.scored[0]
    owner = np.repeat(np.arange(graded.table.n_cases), np.diff(graded.table.offsets)).tolist()
    is_graded: list[bool] = first.sets.graded.tolist()
    common = {"schema_version": f"instance_level_eval_{VERSION}", "evaluation_id": evaluation_id}
    common |= {"model_id": known["model"], "evaluation_name": known["task"], "interaction_type": "single_turn"}
    method = str(graded.result.extraction.get("extractor") or "given")

    def lines(partial: Path) -> None:
        with partial.open("wb") as file:
            for i, row in enumerate(rows):
                if is_graded[i]:
                    passed = bool(first.sets.passes[i] == 1)
                    line = {**common, **sample_of(cases[owner[i]], row, float(first.sets.values[i]), passed, method)}
                    file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    write_atomically(path, lines)
    return is_graded.count(False)


def sample_of(case: dict[str, Any], row: dict[str, Any], score: float, passed: bool, method: str) -> dict[str, Any]:
    reference = case.get("reference")
    references = [] if reference is None else reference if isinstance(reference, list) else [reference]
    text, prompt = row.get("output") or "", case.get("input") or ""
    answer = row.get("extracted_answer")
    plain = {"id", "input", "reference", "choices", "output", "extracted_answer", "reasoning", "error"}
    more = {**case, **row}
    metadata = {k: str(v) for k, v in more.items() if k not in plain and v is not None and not isinstance(v, list)}
    read, written = row.get("tokens_in"), row.get("tokens")
    usage = None
    if read is not None and written is not None:
        usage = {"input_tokens": int(read), "output_tokens": int(written), "total_tokens": int(read) + int(written)}
    attribution = {"turn_idx": 0, "source": "output.raw", "extracted_value": answer, "extraction_method": method}
    return {
        "sample_id": str(case["id"]),
        "sample_hash": hashlib.sha256((prompt + "".join(references)).encode()).hexdigest(),
        "input": {"raw": prompt, "reference": references, "choices": case.get("choices")},
        "output": {"raw": [text], "reasoning_trace": None if row.get("reasoning") is None else [row["reasoning"]]},
        "messages": None,
        "answer_attribution": [] if answer is None else [{**attribution, "is_terminal": True}],
        "evaluation": {"score": score, "is_correct": passed},
        "token_usage": usage,
        "performance": None if row.get("seconds") is None else {"latency_ms": 1000 * row["seconds"]},
        "error": row.get("error"),
        "metadata": metadata,
    }


EXPORTER = Exporter(
    name="every_eval_ever",
    what="An Every Eval Ever record: results with intervals, and a row a candidate beside it",
    endings=(".eee.json",),
    write=write,
)
