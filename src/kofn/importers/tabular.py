"""CSV, Parquet and data frames as a table: one row per candidate, or per case with a list of outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kofn.core.fields import GROUP_LISTS, PREFIXES, SELECTORS, long_fields, wide_names
from kofn.errors import InputError
from kofn.importers.base import reject_damaged
from kofn.importers.json_records import read_records
from kofn.importers.long_form import check_named_fields, long_table
from kofn.importers.sources import SEPARATOR_LINE

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions


def read_csv(path: Path, options: ReadOptions, separator: str = ",") -> Table:
    """Read CSV; every cell is text until its field's role says otherwise, so 007 stays 007."""

    with path.open("rb") as file:
        first = file.readline(16).removeprefix(b"\xef\xbb\xbf").strip(b"\r\n")  # room for a BOM and "sep=;"
    try:
        skipped = 1 if SEPARATOR_LINE.fullmatch(first) else 0
        raw = pl.read_csv(path, infer_schema=False, separator=separator, skip_lines=skipped)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as problem:
        detail = _not_utf8(path) or f"not readable as CSV: {str(problem).strip().partition(chr(10))[0]:.160}"
        raise InputError(f"{path}: {detail}") from None
    selectors = [c for c in raw.columns if c in SELECTORS]  # those called label. or selector. are numbers or an error
    raw = raw.with_columns([pl.col(c).cast(pl.Float64, strict=False) for c in selectors])
    return table_from_frame(raw, str(path), options, "csv")


def read_parquet(path: Path, options: ReadOptions) -> Table:
    """Read Parquet, only the columns that mean something here unless everything is wanted."""
    with reject_damaged(str(path)):
        columns = pl.read_parquet_schema(path)
        check_named_fields(columns, str(path), options)
        wide = any(isinstance(columns.get(name), pl.List) for name in wide_names(options.fields))
        raw = pl.read_parquet(path, columns=None if wide else needed_columns(list(columns), options))
    return table_from_frame(raw, str(path), options, "parquet")


def needed_columns(columns: list[str], options: ReadOptions) -> list[str]:
    """The columns that mean something here; all where everything is wanted."""
    if options.everything:
        return columns
    fields = long_fields(columns, options.fields)
    roles = {name for role, name in fields.items() if role != "input"}
    return [c for c in columns if c in roles or c in options.keep or c in SELECTORS or c.startswith(PREFIXES)]


def table_from_frame(raw: pl.DataFrame, source: str, options: ReadOptions, form: str) -> Table:
    """A table from a frame: a row a candidate, or a row a case with a list of outputs."""
    if not raw.height:
        raise InputError(f"{source}: no rows")
    check_named_fields(raw.columns, source, options)
    lists = (*wide_names(options.fields), *GROUP_LISTS)
    if any(isinstance(raw.schema.get(name), pl.List) for name in lists):
        return read_records(raw.iter_rows(named=True), options, source)
    return long_table(raw, source, lambda row: f"row {row + 1}", options, form)


def _not_utf8(path: Path) -> str | None:
    """Which line is not UTF-8, if that is what is wrong."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"line {number}: not UTF-8: save the file as UTF-8"
    return None
