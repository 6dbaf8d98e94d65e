"""Cases of programs: which attribute is wrong, and how each execution went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.format import MB, format_duration
from kofn.render.case_payload import first_failures
from kofn.runs.files import check_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy as np

    Bools = np.ndarray[Any, np.dtype[np.bool_]]

MAX_EXECUTIONS = 20  # of a case on one page


def failure_reasons(reports: pl.DataFrame, rows: Any) -> list[str]:
    """For each of these cases the first wrong attribute and the first difference; "" for one that passes."""
    flat = reports.select("results")[rows].with_row_index("row")
    flat = flat.filter(pl.col("results").list.len() > 0).explode("results").unnest("results")
    return first_failures(flat, len(rows))


def with_attribute(reports: pl.DataFrame, attribute: str, *values: str) -> Bools:
    """Which cases' reports hold this attribute of their execution, with one of these values; without values, any."""
    entry = pl.element().struct
    named = entry.field("attribute") == attribute
    fits = named & entry.field("value").is_in(values) if values else named
    flags = reports.select(pl.col("case").list.eval(fits).list.any().fill_null(value=False))
    return flags.to_series().to_numpy().astype(bool)


def executions(path: Path, group: str, case: str) -> list[dict[str, Any]]:
    """The first executions of a case in a run's executions.parquet: how each ended, what it used and wrote."""
    if not path.is_file():
        return []
    check_whole(path)
    is_case = (pl.col("group") == group) & (pl.col("case_id") == case)
    try:
        rows = pl.scan_parquet(path, glob=False).filter(is_case).head(MAX_EXECUTIONS + 1).collect()
    except pl.exceptions.PolarsError:  # written by another version: the page does without
        return []
    return [_execution(i, row) for i, row in enumerate(rows.iter_rows(named=True), 1)]


def _execution(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    signs = {True: ("pass", "pass"), False: ("fail", "fail"), None: ("none", "not verified")}
    sign, words = signs[row.get("passed")]
    return {
        "number": number,
        "sign": sign,
        "words": words,
        "facts": list(_usage(row)),
        "stopped": row.get("stopped"),
        "harness": row.get("harness"),
        "output": row.get("output"),
        "stderr": row.get("stderr"),
    }


def _usage(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if row.get("status_code") is not None:
        yield "exit status", str(row["status_code"])
    if row.get("seconds") is not None:
        yield "took", format_duration(row["seconds"])
    if row.get("cpu_seconds") is not None:
        yield "CPU", format_duration(row["cpu_seconds"])
    if row.get("peak_memory"):
        yield "memory", f"{row['peak_memory'] / MB:,.1f} MB"
