"""Readers of outputs that other tools produced. The file's content decides which one, not its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.importers.rows import ReadOptions
    from kofn.table import Table

_COMPRESSED = {b"\x1f\x8b": "gzip", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}


SEPARATORS = {"csv": ",", "tsv": "\t", "csv with semicolons": ";"}


def read(paths: Sequence[str | Path], options: ReadOptions | None = None) -> Table:
    """Read one or more files into one table; candidates of the same id in several files are one set."""
    from kofn.importers.rows import ReadOptions

    options = options or ReadOptions()
    if not paths:
        raise InputError("no files given")
    places = [Path(path) for path in paths]
    for i, place in enumerate(places):
        if any(place.resolve() == other.resolve() for other in places[:i]):
            raise InputError(f"{place}: given twice: its candidates would count twice")
    tables = [_read_stream(place, options) if _is_stream(place) else _read_one(place, options) for place in places]
    return tables[0] if len(tables) == 1 else _together(tables, options)


def _is_stream(path: Path) -> bool:
    """Standard input or a pipe: can be read once and has no end to seek to."""
    return str(path) == "-" or path.is_fifo() or path.is_char_device()


def _read_stream(path: Path, options: ReadOptions) -> Table:
    """Read a stream by way of a file that is gone afterwards."""
    import shutil
    import sys
    import tempfile
    from dataclasses import replace

    name = "standard input" if str(path) == "-" else str(path)
    with tempfile.NamedTemporaryFile() as copy:
        with sys.stdin.buffer if str(path) == "-" else path.open("rb") as stream:
            shutil.copyfileobj(stream, copy)
        copy.flush()
        try:
            return replace(_read_one(Path(copy.name), options), sources=(name,))
        except InputError as problem:
            raise InputError(str(problem).replace(copy.name, name)) from None


def _read_one(path: Path, options: ReadOptions) -> Table:
    kind = kind_of(path)
    if kind == "parquet":
        from kofn.importers.tabular import read_parquet

        return read_parquet(path, options)
    if kind in SEPARATORS:
        from kofn.importers.tabular import read_csv

        return read_csv(path, options, SEPARATORS[kind])
    from kofn.importers import jsonl

    return jsonl.read(path, options)


def kind_of(path: Path) -> str:
    """jsonl, parquet or one of SEPARATORS, by the first bytes; anything else is refused with what was seen."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory: give its files, such as {path}/*.jsonl") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    if head.startswith(b"PAR1"):
        return "parquet"
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise InputError(f"{path}: {name}-compressed: decompress it first")
    if b"\0" in head:
        raise InputError(f"{path}: a binary file: expected JSON lines, CSV or Parquet")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start and not _has_content(path):
        raise InputError(f"{path}: the file is empty: expected JSON lines, CSV or Parquet")
    if not start or start[:1] in b"{[":
        return "jsonl"
    header = start.partition(b"\n")[0]
    kind = max(SEPARATORS, key=lambda name: header.count(SEPARATORS[name].encode()))
    if SEPARATORS[kind].encode() in header:
        return kind
    shown = header[:40].decode(errors="replace").strip()
    raise InputError(f"{path}: line 1: expected a JSON object, a CSV header or Parquet, found {shown!r}")


def _has_content(path: Path) -> bool:
    with path.open("rb") as file:
        return any(chunk.strip() for chunk in iter(lambda: file.read(1 << 20), b""))


def _together(tables: list[Table], options: ReadOptions) -> Table:
    """One table of several: rows appended file after file."""
    import numpy as np
    import polars as pl

    from kofn.importers.rows import constant_columns
    from kofn.table import CASE_COLUMNS, from_rows

    frames, tags = [], dict[str, None]()
    for table in tables:
        rows = table.candidates.drop("repeat", strict=False)
        owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
        own = [c for c in CASE_COLUMNS if c in table.cases.columns and c != "reference"]
        cases = pl.concat([table.cases.select(pl.col("case_id").alias("id"), *own), table.tags], how="horizontal")
        frames.append(pl.concat([cases[owner], rows], how="horizontal"))
        tags.update(dict.fromkeys(table.tags.columns))
    merged = pl.concat(frames, how="diagonal_relaxed")
    fields = {role: name for table in reversed(tables) for role, name in table.fields.items()}
    forms = " and ".join(dict.fromkeys(table.form for table in tables))
    sources = tuple(source for table in tables for source in table.sources)
    ends = np.cumsum([table.n_candidates for table in tables])
    names = [table.sources[0] for table in tables]
    return from_rows(
        merged,
        fields,
        list(tags),
        lambda row: names[int(np.searchsorted(ends, row, side="right"))],
        form=forms,
        sources=sources,
        constant=constant_columns(options, fields),
    )
