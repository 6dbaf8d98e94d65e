"""CSV and Parquet of the long form: a row a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kofn.errors import InputError
from kofn.fields import SELECTORS, long_fields
from kofn.importers.rows import check_given, long_table

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.importers.rows import ReadOptions
    from kofn.table import Table


def read_csv(path: Path, options: ReadOptions, separator: str = ",") -> Table:
    """Read CSV; every cell is text until its field's role says otherwise, so 007 stays 007."""
    try:
        raw = pl.read_csv(path, infer_schema=False, separator=separator)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: not readable as CSV: {_first_line(problem)}") from None
    selectors = [c for c in raw.columns if c in SELECTORS]
    raw = raw.with_columns([pl.col(c).cast(pl.Float64, strict=False) for c in selectors])
    return _table(raw, path, options, "csv")


def read_parquet(path: Path, options: ReadOptions) -> Table:
    """Read Parquet, only the columns that mean something here unless everything is wanted."""
    try:
        columns = list(pl.read_parquet_schema(path))
        check_given(columns, str(path), options)
        raw = pl.read_parquet(path, columns=_wanted(columns, options))
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise InputError(f"{path}: not readable as Parquet: {_first_line(problem)}") from None
    return _table(raw, path, options, "parquet")


def _wanted(columns: list[str], options: ReadOptions) -> list[str]:
    if options.everything:
        return columns
    fields = long_fields(columns, options.fields)
    roles = {name for role, name in fields.items() if role != "input"}
    return [c for c in columns if c in roles or c in options.keep or c in SELECTORS]


def _table(raw: pl.DataFrame, path: Path, options: ReadOptions, form: str) -> Table:
    if not raw.height:
        raise InputError(f"{path}: no rows")
    check_given(raw.columns, str(path), options)
    return long_table(raw, str(path), lambda row: f"row {row + 1}", options, form)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0][:160]
