"""Rows for anybody: JSON lines with a case a line, Parquet and CSV with a candidate a row. kofn reads them all back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from kofn.exporters.base import Exporter, candidate_frame, case_frame, long_frame, unsaid
from kofn.report.files import atomic

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.opened import Opened

_FORMULA = ("=", "+", "@", "\t", "\r")
_BLOCK = 4096


def write_wide(opened: Opened, path: Path) -> list[str]:
    """A case a line: its fields, and `outputs`, a list of objects."""
    atomic(path, lambda partial: _write_lines(opened, partial))
    return [line for line in unsaid(opened) if "no candidates" not in line]  # here such a case has an empty list


def _write_lines(opened: Opened, path: Path) -> None:
    cases, rows = case_frame(opened), candidate_frame(opened)
    bounds = opened.table.offsets.tolist()
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
    """One output; a grade that was not given stays a null, so that nobody takes it for forgotten."""
    names = {"output": "text"}
    return {
        names.get(name, name): value
        for name, value in record.items()
        if value is not None or name in ("output", "pass", "score") or name.startswith("label.")
    }


def write_long(opened: Opened, path: Path) -> list[str]:
    """Parquet, a candidate a row."""
    atomic(path, long_frame(opened).write_parquet)
    return unsaid(opened)


def write_csv(opened: Opened, path: Path) -> list[str]:
    """CSV for spreadsheets, a candidate a row; lists are JSON, and no cell of text begins as a formula does.

    A cell that would be a formula gets an apostrophe in front, as spreadsheets write it; numbers keep their sign.
    """
    frame = long_frame(opened)
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
    atomic(path, frame.write_csv)
    told = [f"{changed:,} cells begin like a formula and have an apostrophe in front"] if changed else []
    return [*unsaid(opened), *told]


WIDE = Exporter(
    name="wide", what="JSON lines, a case a line with all its outputs", endings=(".jsonl", ".ndjson"), write=write_wide
)
LONG = Exporter(name="long", what="Parquet, a candidate a row", endings=(".parquet",), write=write_long)
CSV = Exporter(name="csv", what="CSV for spreadsheets, a candidate a row", endings=(".csv",), write=write_csv)
