"""Exporters of plain rows: JSON lines with one case per line, Parquet and CSV with one candidate per row.

kofn reads all of them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from kofn.exporters.base import Exporter, candidate_frame, case_frame, long_frame, omissions
from kofn.runs.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.runs.load import GradedCandidates

_FORMULA = ("=", "+", "@", "\t", "\r")  # with which spreadsheets begin a formula (OWASP, CSV injection)
_BLOCK = 4096  # cases written at a time


def write_wide(graded: GradedCandidates, path: Path) -> list[str]:
    """One case per line: its fields, and `outputs`, a list of objects."""
    write_atomically(path, lambda partial: _write_lines(graded, partial))
    return [line for line in omissions(graded) if "no candidates" not in line]  # here such a case has an empty list


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
                line = {**_present(case), "outputs": [_output(one) for one in candidates[low:high]]}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS, default=str))


def _present(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _output(record: dict[str, Any]) -> dict[str, Any]:
    """One output; a missing grade is null, so that it differs from one that nobody meant to give."""
    names = {"output": "text"}
    return {
        names.get(name, name): value
        for name, value in record.items()
        if value is not None or name in ("output", "pass", "score") or name.startswith("label.")
    }


def write_long(graded: GradedCandidates, path: Path) -> list[str]:
    """Parquet with one candidate per row."""
    write_atomically(path, long_frame(graded).write_parquet)
    return omissions(graded)


def write_csv(graded: GradedCandidates, path: Path) -> list[str]:
    """CSV for spreadsheets, one candidate per row; lists are JSON, and no text begins like a formula.

    A cell that would be a formula gets an apostrophe in front, as spreadsheets write it; numbers keep their sign.
    """
    frame = long_frame(graded)
    lists = [c for c in frame.columns if frame[c].dtype.is_nested()]
    frame = frame.with_columns(
        pl.Series(c, [None if v is None else orjson.dumps(v).decode() for v in frame[c].to_list()], dtype=pl.String)
        for c in lists
    )
    changed = 0
    for column in [c for c in frame.columns if frame[c].dtype == pl.String]:
        risky = np.zeros(frame.height, dtype=np.bool_)
        for sign in _FORMULA:
            risky |= frame[column].str.starts_with(sign).fill_null(value=False).to_numpy()
        risky |= frame[column].str.contains(r"^-[^0-9.]").fill_null(value=False).to_numpy()
        if risky.any():
            changed += int(risky.sum())
            safe = pl.when(pl.Series(risky)).then(pl.concat_str(pl.lit("'"), pl.col(column))).otherwise(pl.col(column))
            frame = frame.with_columns(safe.alias(column))
    write_atomically(path, frame.write_csv)
    notes = [f"{changed:,} cells begin like a formula and have an apostrophe in front"] if changed else []
    return [*omissions(graded), *notes]


WIDE = Exporter(
    name="wide", what="JSON lines, a case a line with all its outputs", endings=(".jsonl", ".ndjson"), write=write_wide
)
LONG = Exporter(name="long", what="Parquet, a candidate a row", endings=(".parquet",), write=write_long)
CSV = Exporter(name="csv", what="CSV for spreadsheets, a candidate a row", endings=(".csv",), write=write_csv)
