"""Exporter of Inspect logs (`.json`, version 2): one sample per candidate, its repeat as the epoch.

What Inspect has no place for (selector scores, weights, clusters) goes into each sample's store under `kofn`, where
kofn's own reader finds it again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from kofn._version import __version__
from kofn.exporters.base import Exporter, omissions, origin_of
from kofn.runs.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kofn.core.warnings import CodedWarning
    from kofn.runs.load import GradedCandidates

_ROW = ("note", "candidate_weight", "facets")
_CASE = ("weight", "cluster", "required", "ideal")
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def write(graded: GradedCandidates, path: Path) -> list[CodedWarning]:
    """Write a log that Inspect's `read_eval_log` reads. Every metric is a scorer, every estimate a result.

    A candidate that is not graded has no score, a failed one has its error; neither is a 0. The log is written sample
    by sample, so that memory does not grow with it.
    """
    header = _header(graded)
    samples = _samples(graded, header["eval"]["model"])

    def fill(partial: Path) -> None:
        with partial.open("wb") as file:
            file.write(_json(header)[:-1] + b',"samples":[')
            for number, sample in enumerate(samples):
                file.write((b"," if number else b"") + b"\n" + _json(sample))
            file.write(b"\n]}\n")

    write_atomically(path, fill)
    # which way a metric is better, this log does say: in its header's metadata
    return [w for w in omissions(graded) if w.code != "direction-not-written"]


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=_OPTIONS, default=str)


def _header(graded: GradedCandidates) -> dict[str, Any]:
    """A log without its samples."""
    known, created, table = origin_of(graded), _created(graded), graded.table
    dataset = {"name": graded.name, "samples": table.n_cases, "shuffled": False}
    sizes = np.diff(table.offsets)
    # the ids say that each case has all its epochs, so sets of unequal size go without
    if len(set(sizes.tolist())) == 1:
        dataset["sample_ids"] = table.cases["case_id"].to_list()
    scored = [one for one in graded.result.scored if one.metric]
    spec = {
        "run_id": graded.name,
        "created": created,
        "task": known["task"],
        "dataset": dataset,
        "model": known["model"],
        "config": {"epochs": int(sizes.max(initial=1))},
        "packages": {"kofn": __version__},
        "scorers": [{"name": one.metric, "metrics": [{"name": "mean"}]} for one in scored],
        "metadata": {"lower_is_better": [one.metric for one in scored if not one.sets.higher_is_better]},
    }
    return {
        "version": 2,
        "status": "success",
        "eval": spec,
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": _results(graded),
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
    }


def _created(graded: GradedCandidates) -> str:
    """When the run was made; for a file, when it was last written."""
    if stored := graded.manifest.get("created"):
        return str(stored)
    try:
        written = graded.path.stat().st_mtime
    except OSError:
        written = 0.0
    return datetime.fromtimestamp(written, tz=UTC).isoformat(timespec="seconds")


def _results(graded: GradedCandidates) -> dict[str, Any]:
    """The estimates over all cases: an aggregator is what Inspect calls a reducer, and the mean is over samples."""
    scores = [
        {
            "name": estimate.metric,
            "scorer": estimate.metric,
            "reducer": estimate.aggregator,
            "scored_samples": estimate.n,
            "unscored_samples": estimate.n_missing,
            "params": {},
            "metrics": {"mean": {"name": "mean", "value": estimate.point, "params": {}}},
            "metadata": {"low": estimate.low, "high": estimate.high, "level": estimate.level, "by": estimate.method},
        }
        for estimate in graded.result.estimates
        if estimate.segment is None and estimate.point is not None and estimate.metric
    ]
    scores.sort(key=lambda score: score["reducer"] != "mean")  # Inspect displays the first as the result
    rows = graded.table.candidates
    failed = rows.height - rows["error"].null_count() if "error" in rows.columns else 0
    return {"total_samples": rows.height, "completed_samples": rows.height - failed, "scores": scores}


def _samples(graded: GradedCandidates, model: str) -> Iterator[dict[str, Any]]:
    table, scored = graded.table, [one for one in graded.result.scored if one.metric]
    values = {one.metric: one.sets.values for one in scored}
    answers = scored[0].sets.answers if scored else None
    every = table.tags.iter_rows(named=True) if table.tags.width else ({} for _ in range(table.n_cases))
    for at, (case, tags) in enumerate(zip(table.cases.iter_rows(named=True), every, strict=True)):
        start, end = int(table.offsets[at]), int(table.offsets[at + 1])
        for epoch, row in enumerate(table.candidates[start:end].iter_rows(named=True), 1):
            place = start + epoch - 1
            answer = None if answers is None else answers[place]
            # NaN, which is not equal to itself, is a candidate that was not graded
            grades = {name: float(column[place]) for name, column in values.items() if column[place] == column[place]}
            scores = {name: {"value": value, "answer": answer} for name, value in grades.items()}
            yield sample_of(case, tags, row, scores, epoch, model)


def sample_of(
    case: Mapping[str, Any],
    tags: Mapping[str, Any],
    row: Mapping[str, Any],
    scores: Mapping[str, Any],
    epoch: int,
    model: str,
) -> dict[str, Any]:
    error, usage = row.get("error"), _usage(row)
    reference = case.get("reference")
    own = {name: row[name] for name in row if name in _ROW or name.startswith("selector.")}
    own |= {name: case.get(name) for name in _CASE}
    if "score" not in scores:  # a score that is not a grade may still be a selector
        own["selector.score"] = row.get("score")
    kept = {name: value for name, value in own.items() if value is not None}
    return {
        "id": case["case_id"],
        "epoch": epoch,
        "input": case.get("input") or "",
        **({"choices": case["choices"]} if case.get("choices") else {}),
        "target": reference if reference is not None else "",
        "messages": [],
        "output": _output(row, model, usage),
        "scores": scores,
        "metadata": {name: value for name, value in tags.items() if value is not None},
        "store": {"kofn": kept} if kept else {},
        "events": [],
        "model_usage": {model: usage} if usage else {},
        **({} if row.get("seconds") is None else {"total_time": row["seconds"], "working_time": row["seconds"]}),
        **({} if error is None else {"error": {"message": error, "traceback": "", "traceback_ansi": ""}}),
        "attachments": {},
    }


def _output(row: Mapping[str, Any], model: str, usage: Mapping[str, Any]) -> dict[str, Any]:
    text, reasoning = row.get("text"), row.get("reasoning")
    if text is None and reasoning is None:
        return {"model": model, "choices": [], "completion": ""}
    content: Any = text or ""
    if reasoning is not None:
        content = [{"type": "reasoning", "reasoning": reasoning}, {"type": "text", "text": text or ""}]
    message = {"role": "assistant", "content": content, "source": "generate"}
    output = {"model": model, "choices": [{"message": message, "stop_reason": "stop"}], "completion": text or ""}
    return {**output, "usage": usage} if usage else output


def _usage(row: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens and cost as far as they are known; Inspect counts tokens in whole numbers."""
    tokens = {"output_tokens": row.get("tokens"), "input_tokens": row.get("tokens_in")}
    usage = {name: round(value) for name, value in tokens.items() if value is not None}
    if usage:
        usage["total_tokens"] = sum(usage.values())
    return {**usage, **({} if row.get("cost") is None else {"total_cost": row["cost"]})}


EXPORTER = Exporter(
    name="inspect", what="an Inspect log: a sample a candidate", endings=(".inspect.json",), write=write
)
