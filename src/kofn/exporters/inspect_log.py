"""Graded candidates as an Inspect log (`.json`, version 2): a sample a candidate, its repeat as the epoch.

What Inspect has no place for (selector scores, weights, clusters) goes into each sample's store under `kofn`, where
kofn's own reader finds it again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from kofn.exporters.base import Exporter, options_of, unsaid
from kofn.report.files import atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kofn.opened import Opened
    from kofn.table import Table

_ROW = ("note", "candidate_weight", "facets")
_CASE = ("weight", "cluster", "required", "ideal")
_LESS = "less of "  # is better: this log says it, in the metadata of its header
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def write(opened: Opened, path: Path) -> list[str]:
    """Write a log that Inspect's `read_eval_log` reads. Every metric is a scorer, every estimate a result.

    A candidate that is not graded has no score, a failed one has its error; neither is a 0. The log is written sample
    by sample.
    """
    header = _header(opened)
    samples = _samples(opened, header["eval"]["model"])

    def fill(partial: Path) -> None:
        with partial.open("wb") as file:
            file.write(_json(header)[:-1] + b',"samples":[')
            for number, sample in enumerate(samples):
                file.write((b"," if number else b"") + b"\n" + _json(sample))
            file.write(b"\n]}\n")

    atomic(path, fill)
    return [line for line in unsaid(opened) if not line.startswith(_LESS)]


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=_OPTIONS, default=str)


def _header(opened: Opened) -> dict[str, Any]:
    """Everything of a log but its samples."""
    from kofn import __version__

    known, created = options_of(opened), _created(opened)
    spec = {
        "run_id": opened.name,
        "created": created,
        "task": known["task"],
        "dataset": _dataset(opened),
        "model": known["model"],
        "config": {"epochs": int(np.diff(opened.table.offsets).max(initial=1))},
        "packages": {"kofn": __version__},
        "scorers": [{"name": one.metric, "metrics": [{"name": "mean"}]} for one in opened.result.scored if one.metric],
        "metadata": {
            "lower_is_better": [
                one.metric for one in opened.result.scored if one.metric and not one.sets.higher_is_better
            ]
        },
    }
    return {
        "version": 2,
        "status": "success",
        "eval": spec,
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": _results(opened),
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
    }


def _created(opened: Opened) -> str:
    """When the run was made; of a file, when it was last written."""
    if stored := opened.manifest.get("created"):
        return str(stored)
    try:
        written = opened.path.stat().st_mtime
    except OSError:
        written = 0.0
    return datetime.fromtimestamp(written, tz=UTC).isoformat(timespec="seconds")


def _dataset(opened: Opened) -> dict[str, Any]:
    """The cases. Their ids say that each has all its epochs, so sets of unequal size go without."""
    table = opened.table
    named = {"name": opened.name, "samples": table.n_cases, "shuffled": False}
    equal = len(set(np.diff(table.offsets).tolist())) == 1
    return {**named, "sample_ids": table.cases["case_id"].to_list()} if equal else named


def _results(opened: Opened) -> dict[str, Any]:
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
        for estimate in opened.result.estimates
        if estimate.segment is None and estimate.point is not None and estimate.metric
    ]
    scores.sort(key=lambda score: score["reducer"] != "mean")  # the first is what Inspect shows as the result
    n, failed = opened.table.n_candidates, _failed(opened.table)
    return {"total_samples": n, "completed_samples": n - failed, "scores": scores}


def _failed(table: Table) -> int:
    rows = table.candidates
    return rows.height - rows["error"].null_count() if "error" in rows.columns else 0


def _samples(opened: Opened, model: str) -> Iterator[dict[str, Any]]:
    table, scored = opened.table, [one for one in opened.result.scored if one.metric]
    values = {one.metric: one.sets.values for one in scored}
    answers = scored[0].sets.answers if scored else None
    for at, (case, tags) in enumerate(zip(table.cases.iter_rows(named=True), _rows(table), strict=True)):
        start, end = int(table.offsets[at]), int(table.offsets[at + 1])
        for epoch, row in enumerate(table.candidates[start:end].iter_rows(named=True), 1):
            place = start + epoch - 1
            answer = None if answers is None else answers[place]
            graded = {name: float(column[place]) for name, column in values.items() if column[place] == column[place]}
            scores = {name: {"value": value, "answer": answer} for name, value in graded.items()}
            yield _sample(case, tags, row, scores, epoch, model)


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    yield from table.tags.iter_rows(named=True) if table.tags.width else ({} for _ in range(table.n_cases))


def _sample(
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
    if "score" not in scores:  # a score that grades nothing may still pick
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
    """Tokens and cost, those that are known; Inspect counts tokens in whole numbers."""
    tokens = {"output_tokens": row.get("tokens"), "input_tokens": row.get("tokens_in")}
    known = {name: round(value) for name, value in tokens.items() if value is not None}
    if known:
        known["total_tokens"] = sum(known.values())
    return {**known, **({} if row.get("cost") is None else {"total_cost": row["cost"]})}


EXPORTER = Exporter(
    name="inspect", what="an Inspect log: a sample a candidate", endings=(".inspect.json",), write=write
)
