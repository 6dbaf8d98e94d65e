"""Readers of outputs that other tools produced. The file's content decides which one, not its name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.importers.base import Importer, Peek
    from kofn.importers.rows import ReadOptions
    from kofn.table import Table

SEPARATORS = {"csv": ",", "tsv": "\t", "csv with semicolons": ";"}

SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?', re.IGNORECASE)

PLAIN = {
    "jsonl": "JSON lines (long, wide or parallel lists), or a JSON array of such objects",
    "csv": "CSV with a candidate a row; tabs and semicolons too",
    "parquet": "Parquet with a candidate a row, or a case a row with a list of outputs",
}


def read(
    paths: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    as_repeats: bool = False,
    of_run: Callable[[Path], Table | None] = lambda _: None,
) -> Table:
    """Read files, folders, patterns, addresses or standard input into one table.

    Candidates of the same id in several files are one set. With `as_repeats` the files are repeats of the same cases:
    rows without an id are matched by their place, and cases that some files lack are told. `of_run` gives the table of
    a folder that holds a stored run, and None of any other.
    """
    from kofn.importers.rows import ReadOptions
    from kofn.importers.sources import expand
    from kofn.importers.together import as_one, repeats, sizes_told

    options = options or ReadOptions()
    options = replace(options, keep=tuple(dict.fromkeys((*options.keep, *options.where))))
    if not paths:
        raise InputError("no files given")
    places = expand(paths)
    _check_once(places)
    if as_repeats:
        if len(places) < 2:
            raise InputError(f"{places[0]}: one file is no repeats: give two or more files")
        tables = [_read_place(place, replace(options, by_line=True), of_run) for place in places]
        return sizes_told(repeats(tables, options))
    tables = [_read_place(place, options, of_run) for place in places]
    return sizes_told(tables[0] if len(tables) == 1 else as_one(tables, options))


def _check_once(places: Sequence[str]) -> None:
    seen: set[str] = set()
    for place in places:
        real = place if "://" in place else str(Path(place).resolve())
        if real in seen:
            raise InputError(f"{place}: given twice: its candidates would count twice")
        seen.add(real)


def _read_place(place: str, options: ReadOptions, of_run: Callable[[Path], Table | None]) -> Table:
    from kofn.importers.base import Peek
    from kofn.importers.sources import local

    if "://" not in place and Path(place).is_dir() and (table := of_run(Path(place))) is not None:
        return only(replace(table, sources=(place,), form="run"), options)
    with local(place) as (path, shown):
        return replace(_read_one(Peek(path, shown), options), sources=(shown,))


def _read_one(peek: Peek, options: ReadOptions) -> Table:
    check_readable(peek.path)
    importer = importer_of(peek, options.format)
    if importer is not None:
        return importer.read(peek, options)
    kind = options.format if options.format in PLAIN else kind_of(peek.path)
    return only(_read_plain(peek.path, kind, options), options)


def _read_plain(path: Path, kind: str, options: ReadOptions) -> Table:
    if kind == "parquet":
        from kofn.importers.tabular import read_parquet

        return read_parquet(path, options)
    if kind in SEPARATORS:
        from kofn.importers.tabular import read_csv

        return read_csv(
            path, options, SEPARATORS.get(kind_of(path), ",")
        )  # it may look like JSON, and was said to be CSV
    from kofn.importers import jsonl

    return jsonl.read(path, options)


def only(table: Table, options: ReadOptions) -> Table:
    """The cases asked for with `options.where`."""
    import polars as pl

    from kofn.evaluate import case_column

    for name, value in options.where.items():
        kept = (case_column(table, name).cast(pl.String) == value).fill_null(value=False)
        if not kept.any():
            raise InputError(f"{', '.join(table.sources)}: no case has {name}={value}")
        table = table.of_cases(kept.to_numpy())
    return table


def importer_of(peek: Peek, name: str | None = None) -> Importer | None:
    """The importer asked for, or the one that knows this content; None: JSON lines, CSV or Parquet of nobody's."""
    from kofn.errors import UnknownName
    from kofn.registry import importers

    if name in PLAIN:
        return None
    known: dict[str, Importer] = importers()
    if name is not None:
        if name not in known:
            raise UnknownName("format", name, [*PLAIN, *known], hint="`kofn list importers` shows them all")
        return known[name]
    return next((one for one in known.values() if one.recognises(peek)), None)


def check_readable(path: Path) -> None:
    """Refuse what is not there or not ours to read."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            return
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def kind_of(path: Path) -> str:
    """jsonl, parquet or one of SEPARATORS, by the first bytes; anything else is refused with what was seen."""
    check_readable(path)
    if path.is_dir():
        if any(path.rglob("*.parquet")):
            raise InputError(
                f"{path}: a folder with Parquet in it is scored in parts, which keeps no candidate: give its files, "
                f"such as '{path}/**/*.parquet' (or, in Python, part_size='auto')"
            )
        raise InputError(f"{path}: is a directory of nothing that is known: give its files, such as {path}/*.jsonl")
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        raise InputError(f"{path}: a zip archive that is no Inspect log: unpack it and give its files")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):  # `read` has made it UTF-8 by now
        raise InputError(f"{path}: UTF-16 text: save the file as UTF-8")
    if b"\0" in head:
        raise InputError(f"{path}: a binary file: expected JSON lines, CSV or Parquet")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start and not _has_content(path):
        raise InputError(f"{path}: the file is empty: expected JSON lines, CSV or Parquet")
    if not start or start[:1] in b"{[":
        return "jsonl"
    header = start.partition(b"\n")[0]
    if named := SEPARATOR_LINE.fullmatch(header.strip(b"\r")):
        return _named_separator(path, named[1].decode(errors="replace"))
    kind = max(SEPARATORS, key=lambda name: header.count(SEPARATORS[name].encode()))
    if SEPARATORS[kind].encode() in header:
        return kind
    shown = header[:40].decode(errors="replace").strip()
    raise InputError(f"{path}: line 1: expected a JSON object, a CSV header or Parquet, found {shown!r}")


def _named_separator(path: Path, sign: str) -> str:
    """The kind of a CSV file whose first line names its separator, as Excel writes and reads it."""
    kind = next((kind for kind, separator in SEPARATORS.items() if separator == sign), None)
    if kind is None:
        raise InputError(
            f"{path}: line 1: sep={sign}: expected a comma, a semicolon or a tab: save it with one of these"
        )
    return kind


def _has_content(path: Path) -> bool:
    with path.open("rb") as file:
        return any(chunk.strip() for chunk in iter(lambda: file.read(1 << 20), b""))
