"""The samples of an lm-evaluation-harness log as columns: most lines by the fast reader, the rest one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kofn.importers.jsonl import check_lines
from kofn.importers.jsonl_fast import MixedTypes
from kofn.importers.lm_eval_fast import read_fast
from kofn.importers.lm_eval_rows import LineNotes, frame_of_rows, read_by_row, rows_of_lines

if TYPE_CHECKING:
    from collections.abc import Collection

    from kofn.importers.base import Peek
    from kofn.importers.lm_eval_rows import LineSelection


def read_lines(peek: Peek, selection: LineSelection) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The lines of a log as columns, and notes on them."""
    check_lines(peek.path)
    try:
        regular, rest = read_fast(peek.path, selection)
        return _merge_in_order(regular, rest, peek, selection), ()
    except (MixedTypes, pl.exceptions.PolarsError):
        return read_by_row(peek, selection)


def _merge_in_order(regular: pl.DataFrame, rest: Collection[int], peek: Peek, selection: LineSelection) -> pl.DataFrame:
    """The lines of the fast reader and those it left out, each in its place."""
    if not rest:
        return regular
    notes = LineNotes()
    others = frame_of_rows(rows_of_lines(peek, selection, notes, only=rest))
    if not others.height:  # blank lines
        return regular
    # a column of another type, or a note, depends on all lines together: only the row reader sees them so
    if any(regular.schema.get(name) != kind for name, kind in others.schema.items()) or any(notes.messages()):
        raise MixedTypes
    return pl.concat([regular, others], how="diagonal").sort("line")
