"""The `Exporter` interface, and the exporters of plain rows: JSON lines with one case each, Parquet and CSV.

kofn reads all of them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from kofn.core.fields import CANDIDATE_ROLES, CASE_ROLES, PREFIXES, SELECTORS
from kofn.core.fields import WIDE as WIDE_FIELDS
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.runs.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kofn.runs.load import GradedCandidates


_CASE = ("input", "reference", "choices", "cluster", "weight", "required", "ideal")
_PLAIN = ("cost", "seconds", "tokens", "tokens_in", "reasoning", "error", "note", "facets", "candidate_weight")
# names that a reader takes for a role: a tag with such a name is written as tag.NAME
_TAKEN = {
    *(name for names in (CASE_ROLES | CANDIDATE_ROLES).values() for name in names),
    *(*SELECTORS, *WIDE_FIELDS, "scores", "passes", "texts", "answers"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A writer of one format.

    name      what --as calls it
    what      one line for `kofn list exporters`
    endings   of file names that select this format
    write     writes graded candidates to a path; returns a warning for each thing that the format cannot say
    """

    name: str
    what: str
    endings: tuple[str, ...]
    write: Callable[[GradedCandidates, Path], Sequence[CodedWarning | str]]


def case_frame(graded: GradedCandidates) -> pl.DataFrame:
    """One row per case: id, input, reference, choices, weight, cluster, and tags (`tag.X` if X is also a role)."""
    table = graded.table
    columns = [table.cases[name] for name in _CASE if name in table.cases.columns]
    tags = [column.alias(_tag_name(column.name)) for column in table.tags.iter_columns()]
    return pl.DataFrame([table.cases["case_id"].alias("id"), *columns, *tags])


def _tag_name(name: str) -> str:
    """A name that no reader takes for a role.

    >>> _tag_name("level"), _tag_name("answer")
    ('level', 'tag.answer')
    """
    return f"tag.{name}" if name.strip().lower() in _TAKEN or name.startswith(PREFIXES) or name in _CASE else name


def candidate_frame(graded: GradedCandidates) -> pl.DataFrame:
    """One row per candidate: repeat, output, extracted answer, grades (pass, score, label.METRIC), selectors, cost.

    Answers are those that voted. A candidate that was not graded has null, never 0.
    """
    table = graded.table
    rows, sizes = table.candidates, np.diff(table.offsets)
    first = graded.result.scored[0].sets
    # the place in the set, from 0: readers of the file put candidates into this order
    columns = [pl.Series("repeat", np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes))]
    if "text" in rows.columns:
        columns.append(rows["text"].alias("output"))
    if first.answers is not None:
        columns.append(first.answers.alias("extracted_answer"))
    for one in graded.result.scored:
        if one.metric:
            name = one.metric if one.metric in ("pass", "score") else f"label.{one.metric}"
            columns.append(pl.Series(name, one.sets.values, nan_to_null=True))
    taken = {column.name for column in columns}
    columns += [rows[name] for name in _PLAIN if name in rows.columns]
    columns += [c for c in rows.iter_columns() if c.name.startswith("selector.") and c.name not in taken]
    if "score" in rows.columns and "score" not in taken:
        columns.append(rows["score"].alias("selector.score"))
    return pl.DataFrame(columns)


def long_frame(graded: GradedCandidates) -> pl.DataFrame:
    """One row per candidate with the columns of its case."""
    owner = np.repeat(np.arange(graded.table.n_cases), np.diff(graded.table.offsets))
    return pl.concat([case_frame(graded)[owner], candidate_frame(graded)], how="horizontal")


def omissions(graded: GradedCandidates) -> list[CodedWarning]:
    """What a file of rows cannot say: empty cases, thresholds, metrics that are better when lower."""
    out = []
    empty = int((np.diff(graded.table.offsets) == 0).sum())
    if empty:
        out.append(CodedWarning.of("cases-without-row", n=empty))
    for one in graded.result.scored:
        is_graded = one.sets.graded
        flags = one.sets.values[is_graded] >= 1
        if one.metric and not one.sets.higher_is_better:
            out.append(CodedWarning.of("direction-not-written", metric=one.metric))
        elif one.metric and bool((flags != (one.sets.passes[is_graded] == 1)).any()):
            out.append(CodedWarning.of("threshold-not-written", metric=one.metric))
    return out


def origin_of(graded: GradedCandidates) -> dict[str, Any]:
    """Where the outputs came from, as far as it is known: task, model, tool."""
    origin = dict(graded.table.origin)
    made = graded.manifest.get("generation") or {}
    models = ", ".join(dict.fromkeys(str(name) for name in (made.get("models") or {}).values()))
    task = graded.run.task if graded.run is not None else origin.get("task", graded.name)
    return {**origin, "task": str(task), "model": models or str(origin.get("model") or "unknown")}


def check_place(path: Path) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory: give the name of a file to write")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}: make it, or give another name")


_FORMULA = r"^([=+@\t\r]|-[^0-9.])"  # how spreadsheets begin a formula (OWASP, CSV injection)
_BLOCK = 4096  # cases written at a time


def write_wide(graded: GradedCandidates, path: Path) -> list[CodedWarning]:
    """One case per line: its fields, and `outputs`, a list of objects."""
    write_atomically(path, lambda partial: _write_lines(graded, partial))
    # here a case without candidates has an empty list
    return [w for w in omissions(graded) if w.code != "cases-without-row"]


def _write_lines(graded: GradedCandidates, path: Path) -> None:
    cases, rows = case_frame(graded), candidate_frame(graded)
    bounds = graded.table.offsets.tolist()
    with path.open("wb") as file:
        for start in range(0, cases.height, _BLOCK):
            some = cases[start : start + _BLOCK].to_dicts()
            last = min(start + _BLOCK, cases.height)
            candidates = rows[bounds[start] : bounds[last]].drop("repeat").to_dicts()
            for i, case in enumerate(some, start):
                low, high = bounds[i] - bounds[start], bounds[i + 1] - bounds[start]
                known = {name: value for name, value in case.items() if value is not None}
                line = {**known, "outputs": [_output(one) for one in candidates[low:high]]}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS, default=str))


def _output(record: dict[str, Any]) -> dict[str, Any]:
    """One output; a missing grade is null, so that it differs from one that nobody meant to give."""
    return {
        "text" if name == "output" else name: value
        for name, value in record.items()
        if value is not None or name in ("output", "pass", "score") or name.startswith("label.")
    }


def write_long(graded: GradedCandidates, path: Path) -> list[CodedWarning]:
    """Parquet with one candidate per row."""
    write_atomically(path, long_frame(graded).write_parquet)
    return omissions(graded)


def write_csv(graded: GradedCandidates, path: Path) -> list[CodedWarning]:
    """CSV for spreadsheets, one candidate per row; lists are JSON, and no text begins like a formula.

    A cell that would be a formula gets an apostrophe in front, as spreadsheets write it; numbers keep their sign.
    """
    frame = long_frame(graded)
    lists = [column for column in frame.iter_columns() if column.dtype.is_nested()]
    frame = frame.with_columns(
        pl.Series(c.name, [None if v is None else orjson.dumps(v).decode() for v in c.to_list()], dtype=pl.String)
        for c in lists
    )
    changed = frame.select(pl.col(pl.String).str.contains(_FORMULA).sum()).sum_horizontal().item()
    write_atomically(path, frame.with_columns(pl.col(pl.String).str.replace(_FORMULA, "'$1")).write_csv)
    notes = [CodedWarning.of("formulas-escaped", n=changed)] if changed else []
    return [*omissions(graded), *notes]


WIDE = Exporter(
    name="wide", what="JSON lines, a case a line with all its outputs", endings=(".jsonl", ".ndjson"), write=write_wide
)
LONG = Exporter(name="long", what="Parquet, a candidate a row", endings=(".parquet",), write=write_long)
CSV = Exporter(name="csv", what="CSV for spreadsheets, a candidate a row", endings=(".csv",), write=write_csv)
