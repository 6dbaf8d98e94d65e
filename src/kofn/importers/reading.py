"""Files, folders, patterns, addresses or standard input as one table: finds the importer of each and calls it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.errors import InputError, UnknownName
from kofn.importers import jsonl
from kofn.importers.base import Peek, ReadOptions
from kofn.importers.long_form import filter_cases
from kofn.importers.merge import combine, combine_repeats, with_size_note
from kofn.importers.sources import PLAIN, SEPARATORS, check_readable, expand, kind_of, local
from kofn.importers.tabular import read_csv, read_parquet
from kofn.registry import importers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.core.table import Table
    from kofn.importers.base import Importer


def read(
    paths: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    as_repeats: bool = False,
    of_run: Callable[[Path], Table | None] = lambda _: None,
) -> Table:
    """Read files, folders, patterns, addresses or standard input into one table.

    Candidates of the same id in several files are one set. With `as_repeats` the files are repeats of the same cases:
    rows without an id are matched by their place, and cases that some files lack are noted. `of_run` gives the table of
    a folder that holds a stored run, and None of any other.
    """
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
        return with_size_note(combine_repeats(tables, options))
    tables = [_read_place(place, options, of_run) for place in places]
    return with_size_note(tables[0] if len(tables) == 1 else combine(tables, options))


def _check_once(places: Sequence[str]) -> None:
    seen: set[str] = set()
    for place in places:
        real = place if "://" in place else str(Path(place).resolve())
        if real in seen:
            raise InputError(f"{place}: given twice: its candidates would count twice")
        seen.add(real)


def _read_place(place: str, options: ReadOptions, of_run: Callable[[Path], Table | None]) -> Table:
    if "://" not in place and Path(place).is_dir() and (table := of_run(Path(place))) is not None:
        return filter_cases(replace(table, sources=(place,), form="run"), options)
    with local(place) as (path, name):
        return replace(_read_one(Peek(path, name), options), sources=(name,))


def _read_one(peek: Peek, options: ReadOptions) -> Table:
    check_readable(peek.path)
    importer = importer_of(peek, options.format)
    if importer is not None:
        return importer.read(peek, options)
    kind = options.format if options.format in PLAIN else kind_of(peek.path)
    return filter_cases(_read_plain(peek.path, kind, options), options)


def _read_plain(path: Path, kind: str, options: ReadOptions) -> Table:
    if kind == "parquet":
        return read_parquet(path, options)
    if kind in SEPARATORS:
        # with --format csv the content may look like JSON, which has no separator: then it is a comma
        return read_csv(path, options, SEPARATORS.get(kind_of(path), ","))
    return jsonl.read(path, options)


def importer_of(peek: Peek, name: str | None = None) -> Importer | None:
    """The importer named, or the one that recognises this content; None for plain JSON lines, CSV or Parquet."""
    if name in PLAIN:
        return None
    known: dict[str, Importer] = importers()
    if name is not None:
        if name not in known:
            raise UnknownName("format", name, [*PLAIN, *known], hint="`kofn list importers` shows them all")
        return known[name]
    return next((one for one in known.values() if one.recognises(peek)), None)
