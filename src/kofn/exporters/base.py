"""What an exporter is, and the rows that most of them write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.errors import InputError
from kofn.fields import CANDIDATE_ROLES, CASE_ROLES, PREFIXES, SELECTORS, WIDE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kofn.opened import Opened

_CASE = ("input", "reference", "choices", "cluster", "weight", "required", "ideal")
_PLAIN = ("cost", "seconds", "tokens", "tokens_in", "reasoning", "error", "note", "facets", "candidate_weight")
_TAKEN = {
    *(name for names in (CASE_ROLES | CANDIDATE_ROLES).values() for name in names),
    *(*SELECTORS, *WIDE, "scores", "passes", "texts", "answers"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A writer of one form.

    name      what --as calls it
    what      one line for `kofn list exporters`
    endings   of file names that mean this form
    write     graded candidates to a path; returns what it could not say there, a line each
    """

    name: str
    what: str
    endings: tuple[str, ...]
    write: Callable[[Opened, Path], list[str]]


def case_frame(opened: Opened) -> pl.DataFrame:
    """A row a case: id, input, reference, options, weight, cluster, and its tags; one called like a role is `tag.X`."""
    table = opened.table
    known = [table.cases[name] for name in _CASE if name in table.cases.columns]
    tags = [column.alias(_tag_name(column.name)) for column in table.tags.iter_columns()]
    return pl.DataFrame([table.cases["case_id"].alias("id"), *known, *tags])


def _tag_name(name: str) -> str:
    """A name that no reader takes for something else.

    >>> _tag_name("level"), _tag_name("answer")
    ('level', 'tag.answer')
    """
    return f"tag.{name}" if name.strip().lower() in _TAKEN or name.startswith(PREFIXES) or name in _CASE else name


def candidate_frame(opened: Opened) -> pl.DataFrame:
    """A row a candidate: repeat, output, extracted answer, grades (pass, score, label.METRIC), selectors, what it cost.

    Answers are those that voted. A candidate that was not graded has null, never 0.
    """
    table = opened.table
    rows, sizes = table.candidates, np.diff(table.offsets)
    first = opened.result.scored[0].sets
    columns = [pl.Series("repeat", np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes))]
    if "text" in rows.columns:
        columns.append(rows["text"].alias("output"))
    if first.answers is not None:
        columns.append(first.answers.alias("extracted_answer"))
    for one in opened.result.scored:
        if one.metric:
            name = one.metric if one.metric in ("pass", "score") else f"label.{one.metric}"
            columns.append(pl.Series(name, one.sets.values, nan_to_null=True))
    taken = {column.name for column in columns}
    columns += [rows[name] for name in _PLAIN if name in rows.columns]
    columns += [c for c in rows.iter_columns() if c.name.startswith("selector.") and c.name not in taken]
    if "score" in rows.columns and "score" not in taken:
        columns.append(rows["score"].alias("selector.score"))
    return pl.DataFrame(columns)


def long_frame(opened: Opened) -> pl.DataFrame:
    """A row a candidate with everything its case says."""
    owner = np.repeat(np.arange(opened.table.n_cases), np.diff(opened.table.offsets))
    return pl.concat([case_frame(opened)[owner], candidate_frame(opened)], how="horizontal")


def unsaid(opened: Opened) -> list[str]:
    """What a file of rows cannot say: cases without candidates, thresholds, and metrics where less is better."""
    out = []
    empty = int((np.diff(opened.table.offsets) == 0).sum())
    if empty:
        out.append(f"{empty:,} cases have no candidates and so no row")
    for one in opened.result.scored:
        graded = one.sets.graded
        flags = one.sets.values[graded] >= 1
        if one.metric and not one.sets.higher_is_better:
            out.append(f"less of {one.metric} is better, which the file does not say")
        elif one.metric and bool((flags != (one.sets.passes[graded] == 1)).any()):
            out.append(f"{one.metric} does not pass from 1.0 here: score the file with --threshold, as this run was")
    return out


def options_of(opened: Opened) -> dict[str, Any]:
    """What is known of where the outputs came from: task, model, tool."""
    origin = dict(opened.table.origin)
    made = opened.manifest.get("generation") or {}
    models = ", ".join(dict.fromkeys(str(name) for name in (made.get("models") or {}).values()))
    task = opened.run.task if opened.run is not None else origin.get("task", opened.name)
    return {**origin, "task": str(task), "model": models or str(origin.get("model") or "unknown")}


def check_place(path: Path) -> None:
    """Refuse a place that cannot be written before any work is done."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory: give the name of a file to write")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}: make it, or give another name")
