"""Questions to a judge: the candidates of a table, with what else fills the gaps of a rubric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.errors import InputError
from kofn.judge.client import JudgeQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from kofn.core.table import Table
    from kofn.judge.rubric import Rubric

CASE_FIELDS = ("input", "reference", "choices", "answer")  # gaps that are filled from the case or its candidate


def questions_of(table: Table, rubric: Rubric, path: Path) -> list[JudgeQuestion | None]:
    """One question per candidate; None where there is no output to look at (a failed call)."""
    rows = table.candidates
    if "text" not in rows.columns:
        raise InputError(f"{path}: there are no texts to judge")
    columns = field_columns(table, [n for n in rubric.names if n != "output"], rubric, path)
    cases = np.repeat(table.cases["case_id"].to_numpy(), np.diff(table.offsets)).tolist()
    missing = rows["error"].is_not_null().to_list() if "error" in rows.columns else [False] * rows.height
    texts = rows["text"].to_list()
    return [
        None
        if text is None or failed
        else JudgeQuestion(case_id=case, texts={"output": text}, fields={n: c[i] for n, c in columns.items()})
        for i, (case, text, failed) in enumerate(zip(cases, texts, missing, strict=True))
    ]


def field_columns(table: Table, names: Sequence[str], rubric: Rubric, path: Path) -> dict[str, list[str]]:
    """What fills the gaps of a rubric, one text per candidate."""
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    found = {}
    for name in names:
        column = _column(table, name)
        if column is None:
            there = [*(c for c in CASE_FIELDS if _column(table, c) is not None), *table.tags.columns]
            raise InputError(
                f"{path}: rubric {rubric.name} asks for {{{name}}} and its cases have none: "
                f"there is {', '.join(there) or 'nothing else'}; --field names a role, such as reference=gold"
            )
        of_candidate = column if len(column) == table.n_candidates and name == "answer" else column.gather(owner)
        found[name] = [_text(value) for value in of_candidate.to_list()]
    return found


def _column(table: Table, name: str) -> pl.Series | None:
    if name == "answer":
        return table.candidates["answer"] if "answer" in table.candidates.columns else None
    for frame in (table.cases, table.tags):
        if name in frame.columns:
            return frame[name]
    role = next((role for role, field_name in table.fields.items() if field_name == name), None)
    return table.cases[role] if role in table.cases.columns else None


def _text(value: Any) -> str:
    """A field as a judge reads it: several references or options are lines."""
    if value is None:
        return "(none)"
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)
