"""Appends an evaluation to results.jsonl as one line."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.errors import InputError, WorldError
from kofn.metrics import trait
from kofn.registry import aggregator, metric
from kofn.runs.files import CANDIDATES, CASES
from kofn.runs.report_builder import apply_rule, verdicts_of
from kofn.runs.report_table import case_scores
from kofn.runs.run_tables import is_large, reference_to
from kofn.scoring.configuration import ReportConfig
from kofn.scoring.grade import find_answers, score_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    import polars as pl

    from kofn.core.candidate_sets import CandidateSets
    from kofn.core.table import Table
    from kofn.runs.record import Run
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult

MOST_CANDIDATES = 200_000  # beyond this the details stay in candidates.parquet, and the line says so
# the rules of the documented older scripts, whose numbers people still compare with
LEGACY = {"letter": "letter_first", "number": "number_simple"}


def results_line(run: Run, plan: ReportConfig | None = None, *, beside_tables: bool = False) -> dict[str, Any]:
    """The line: a summary, and what every case was asked, said and got.

    `accuracy` is the share of the verified cases that pass; `accuracy_legacy` the same with the answers that the older
    documented rule finds (`letter_first`, `number_simple`), none where there is no such rule. A case's
    `generated_answer`, `reasoning` and `predicted` are its first candidate's, `correct` is the case's verdict, and
    `repeats` holds every candidate. With `beside_tables` the line lies in the run directory: columns of texts that are
    large are not repeated, `texts_in` names the file and column of each, and repeats have the `index` to find them by.
    """
    plan = plan or ReportConfig()
    result = run.scored_result
    scores = case_scores(run.reports)
    verified = scores.filter(scores["score"].is_not_null())
    line: dict[str, Any] = {
        "timestamp": run.evaluation.timestamp.isoformat(),
        "task_type": run.task,
        **({} if plan.batch_index is None else {"batch_index": plan.batch_index}),
        "accuracy": verified["passed"].mean(),
        "accuracy_legacy": legacy_accuracy(result, plan),
    }
    if extraction := (run.manifest.get("generation") or {}).get("llm_extraction"):
        # these names are those of the older files, whatever model was asked
        line |= {f"haiku_{name}": extraction[name] for name in ("accuracy", "cost_usd", "num_calls")}
    line |= {
        "num_examples": result.n_cases,
        "num_unverified": scores.height - verified.height,
        "verdict": run.evaluation.verdict,
    }
    if result.n_candidates > MOST_CANDIDATES:
        return {**line, "detailed_results": [], "detailed_results_in": "candidates.parquet"}
    passed = scores.select(passed=scores["passed"].set(scores["score"].is_null(), None))["passed"]
    left_out = _texts_in(result) if beside_tables else {}
    if left_out:
        line["texts_in"] = left_out
    return {**line, "detailed_results": list(_case_details(result, passed, left_out))}


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Append one line and flush it to the disk. A last line that a killed writer left open is closed first."""
    import orjson

    text = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # append mode: two processes do not overwrite each other's lines
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                text = text if file.read(1) == b"\n" else b"\n" + text
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise WorldError(f"{path}: cannot append: {problem.strerror}") from None


def legacy_accuracy(result: ScoredResult, plan: ReportConfig) -> float | None:
    """The share of the verified cases that pass when answers are found by the older rule of the same kind.

    None where there is no such rule.
    """
    extractor = str(result.extraction.get("extractor")).partition("(")[0]
    if extractor not in LEGACY or "reference" not in result.table.candidates.columns:
        return None
    return accuracy_with(result, plan, find_answers(result.table, LEGACY[extractor]))


def accuracy_with(result: ScoredResult, plan: ReportConfig, answers: Graded) -> float | None:
    """The share of the verified cases that pass with other answers.

    The metrics, the verdict and the threshold stay what they are. None where a metric looks at something else than
    answers, and where nothing is verified.
    """
    table = result.table
    verdicts = verdicts_of(result, plan)
    try:
        again = _rescore(table, answers, [v.metric for v in verdicts], plan.threshold)
        verdict_values = [
            apply_rule(v.rule, aggregator(v.rule.name)(sets)) for v, sets in zip(verdicts, again, strict=True)
        ]
    except InputError:
        return None  # a function of the user's own has no name to find it by
    table_of = np.array(verdict_values).reshape(len(verdict_values), table.n_cases)
    known = np.flatnonzero((~np.isnan(table_of)).any(axis=0))
    # a case passes if every metric that has a verdict says so; NaN is no veto
    passes = np.nan_to_num(table_of, nan=1.0)[:, known].min(axis=0, initial=1.0)
    return float(passes.mean()) if known.size else None


def _rescore(table: Table, answers: Graded, metrics: list[str], threshold: float | None) -> list[CandidateSets]:
    """The sets under the same metrics with other answers; refused where a metric reads no answers."""
    for name in metrics:
        if name in ("pass", "score") or trait(metric(name), "uses") != "answer":
            raise InputError(f"metric {name} does not look at answers")
    return [one.sets for one in score_table(table, answers, metrics, threshold)]


def _texts_in(result: ScoredResult) -> dict[str, dict[str, str]]:
    """The fields of a case that are not repeated: where each is."""
    table = result.table
    columns = {
        "question": (table.cases, CASES, "input"),
        "reasoning": (table.candidates, CANDIDATES, "reasoning"),
        "generated_answer": (table.candidates, CANDIDATES, "text"),
        "answer": (table.cases, CASES, "reference"),
    }
    large = {
        field: reference_to(file, name)
        for field, (frame, file, name) in columns.items()
        if name in frame.columns and is_large(frame[name])
    }
    return large | (
        {"predicted": reference_to(CANDIDATES, "answer")} if is_large(result.scored[0].sets.answers) else {}
    )


def _case_details(result: ScoredResult, passed: pl.Series, left_out: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """A dictionary a case, without the fields that are left out."""
    table = result.table
    cases, rows = table.cases, table.candidates
    sets, offsets = result.scored[0].sets, table.offsets.tolist()
    columns = {
        "index": [j - start for start, end in pairwise(offsets) for j in range(start, end)],
        "reasoning": _values(rows, "reasoning"),
        "generated_answer": _values(rows, "text"),
        "predicted": [None] * rows.height if sets.answers is None else sets.answers.to_list(),
        "correct": [None if p < 0 else bool(p) for p in sets.passes.tolist()],
        "score": [None if v != v else v for v in sets.values.tolist()],
    }
    unused = left_out or ("index",)  # a line with all texts has them in order, and needs no index
    columns = {name: column for name, column in columns.items() if name not in unused}
    questions, answers = _values(cases, "input"), _values(cases, "reference")
    for i, (case_id, (start, end)) in enumerate(zip(cases["case_id"].to_list(), pairwise(offsets), strict=True)):
        repeats = [{name: column[j] for name, column in columns.items()} for j in range(start, end)]
        first = repeats[0] if repeats else dict.fromkeys(columns)
        fields = {
            "id": case_id,
            "question": questions[i],
            "reasoning": first.get("reasoning"),
            "generated_answer": first.get("generated_answer"),
            "predicted": first.get("predicted"),
            "answer": answers[i],
            "correct": passed[i],
            "repeats": repeats,
        }
        yield {name: value for name, value in fields.items() if name not in left_out}


def _values(frame: pl.DataFrame, name: str) -> list[Any]:
    return frame[name].to_list() if name in frame.columns else [None] * frame.height
