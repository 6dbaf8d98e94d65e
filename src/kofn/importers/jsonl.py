"""JSON lines, or a JSON array of objects, in long, wide or group form: the fast reader first, else the row reader.

Both readers give the same result. Uniform files go through polars (`jsonl_fast`); whatever polars refuses (mixed types,
groups, a broken line) goes through `json_records`, a line at a time, which names the line that is wrong.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import polars as pl

from kofn.errors import InputError
from kofn.importers.json_records import read_lines
from kofn.importers.jsonl_fast import MixedTypes, read_fast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.importers.reader_options import ReadOptions

LINE_LIMIT = 64 << 20  # bytes: a longer line is a file without line ends, not a record


def read(path: Path, options: ReadOptions) -> Table:
    """Read a JSON lines file in whatever form it is."""
    check_lines(path)
    try:
        return read_fast(path, options)
    except (MixedTypes, pl.exceptions.PolarsError):
        return read_lines(path, options)


def check_lines(path: Path) -> None:
    """Refuse a line too long to be a record before anything tries to hold it."""
    size = path.stat().st_size
    if size <= LINE_LIMIT:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = 0
        while size - start > LINE_LIMIT:
            newline = data.rfind(b"\n", start, start + LINE_LIMIT)
            if newline < 0:
                line = sum(1 for _ in _newlines(data, start)) + 1
                raise InputError(
                    f"{path}: line {line} is longer than {LINE_LIMIT >> 20} MiB: expected one JSON object a line"
                )
            start = newline + 1


def _newlines(data: mmap.mmap, stop: int) -> Iterator[int]:
    at = data.find(b"\n", 0, stop)
    while at >= 0:
        yield at
        at = data.find(b"\n", at + 1, stop)
