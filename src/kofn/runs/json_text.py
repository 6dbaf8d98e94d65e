"""Encodes columns as JSON texts, one column at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.runs.report_table import encode_json, nest_rows

if TYPE_CHECKING:
    from kofn.core.candidate_sets import Ints

_SPECIAL = r'[\x00-\x1f"\\]'  # what a JSON string must escape


def json_text(column: pl.Series) -> pl.Series:
    """Every value as JSON; null stays null.

    >>> json_text(pl.Series(["a", None, 'say "b"'])).to_list()
    ['"a"', None, '"say \\\\"b\\\\""']
    >>> json_text(pl.Series([1, None])).to_list()
    ['1', None]
    """
    if column.dtype == pl.String:
        return _quote(column)
    if column.dtype.is_integer():
        return column.cast(pl.String)
    if column.dtype == pl.Boolean:
        return column.replace_strict({True: "true", False: "false"}, return_dtype=pl.String)

    return pl.Series(column.name, [encode_json(_to_plain(v)) for v in column.to_list()], dtype=pl.String)


def json_list(column: pl.Series, offsets: Ints) -> pl.Series:
    """The strings of every set as one JSON text: a list, or the value itself where the set has one.

    >>> json_list(pl.Series(["a", None, "b"]), np.array([0, 2, 3])).to_list()
    ['["a",null]', '"b"']
    """
    sizes = np.diff(offsets)

    # nulls are the text "null" from here on, so that they can be joined
    lists = nest_rows(_quote(column).fill_null("null"), np.repeat(np.arange(len(sizes)), sizes), len(sizes))
    text = pl.col("items").list.join(",")
    alone = pl.when(text != "null").then(text)
    listed = pl.lit("[") + text + pl.lit("]")
    one = pl.col("items").list.len() == 1
    return lists.to_frame().select(pl.when(one).then(alone).otherwise(listed).alias("value")).to_series()


def _quote(column: pl.Series) -> pl.Series:
    import json

    special = column.str.contains(_SPECIAL).fill_null(value=False)
    # quoted as a whole; only the few texts with special characters go through the JSON encoder
    plain = pl.select(pl.lit('"') + column + pl.lit('"')).to_series().alias(column.name)
    if not special.any():
        return plain
    at = special.arg_true()
    escaped = [json.dumps(v, ensure_ascii=False) for v in column.gather(at).to_list()]
    return plain.scatter(at, escaped)


def _to_plain(value: Any) -> Any:
    """A value of a frame as JSON: a series as a list, a number that is none as null, a date as text."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, (list, pl.Series)):
        return [_to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _to_plain(v) for k, v in value.items()}
    return value if value is None or isinstance(value, (str, bool, int)) else str(value)
