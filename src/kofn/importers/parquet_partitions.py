"""Parquet files with one candidate per row, read in partitions of whole cases, so that they need not fit into memory.

First the ids alone are read: where cases begin, and whether the rows of every case stand together. Where they do, a
partition is a range of rows. Where they do not, the rows are put into buckets by their case in a temporary folder, and
a partition is a bucket.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from kofn.core.fields import GROUP_LISTS, long_fields, wide_names
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, WorldError
from kofn.importers.base import reject_damaged
from kofn.importers.long_form import check_gradable, check_named_fields, long_table
from kofn.importers.reading import concatenate, needed_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions

_IDS = 4_000_000  # rows whose ids are looked at together
_SAMPLED_PLACES, _SAMPLED_ROWS = 64, 256  # where cases are sampled, and how many rows are read there
_HIVE = re.compile(r"([A-Za-z_]\w*)=(.*)")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # how such folders are called where the field is null
_GRADED_BY = ("text", "answer", "passed", "score", "reference")
_FILE, _ROW = "\0file", "\0row"  # where a row of a bucket stood; no column of a user's file begins with NUL


class Span(NamedTuple):
    """Rows start to stop of one of the files."""

    file: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Parquet files with the same kind of rows. `hive` are the values that a file's folders give: country=BR.

    Paths go by `folder`, so that a worker elsewhere on a shared disk finds them.
    """

    folder: str
    files: tuple[str, ...]
    rows: tuple[int, ...]
    schema: Mapping[str, Any]
    hive: tuple[Mapping[str, str | None], ...]
    notes: tuple[CodedWarning, ...] = ()

    @property
    def n_rows(self) -> int:
        return sum(self.rows)

    @property
    def source(self) -> str:
        more = len(self.files) - 1
        return self.files[0] if not more else f"{self.files[0]} and {more:,} more"


class Partition(NamedTuple):
    """Rows to be read together: spans of the files, or the files of a bucket."""

    spans: tuple[Span, ...] = ()
    bucket: tuple[str, ...] = ()


def parquet_files(place: Path) -> list[Path]:
    """The Parquet files in a folder and below it, in order; those whose name begins with . or _ are no data."""
    found = [p for p in sorted(place.rglob("*.parquet")) if not p.relative_to(place).as_posix().startswith((".", "_"))]
    return [p for p in found if p.is_file() and not p.name.startswith((".", "_"))]


def find_data_set(places: Sequence[str], options: ReadOptions) -> DataSet | None:
    """The files as one data set; None where they are no Parquet with a candidate a row."""
    files: list[tuple[Path, dict[str, str | None]]] = []
    notes: list[CodedWarning] = []
    for place in map(Path, places):
        if not place.is_dir():
            files.append((place, {}))
            continue
        paths = parquet_files(place)
        for path in paths:
            matches = filter(None, map(_HIVE.fullmatch, path.relative_to(place).parts[:-1]))
            files.append((path, {match[1]: None if match[2] == _NO_VALUE else match[2] for match in matches}))
        # files that are not Parquet are ignored, with a note; names that begin with . or _ are never data
        every = [p for p in sorted(place.rglob("*")) if p.is_file() and p not in set(paths)]
        others = [p for p in every if not any(part.startswith((".", "_")) for part in p.relative_to(place).parts)]
        if others and paths:
            more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            notes.append(CodedWarning.of("left-out-of-log", about="files", files=f"{others[0]}{more}"))
    schemas = [_schema(path) for path, _ in files]
    bad = [str(path) for (path, _), one in zip(files, schemas, strict=True) if one is None and str(path) not in places]
    if bad:
        raise InputError(f"{bad[0]}: not readable as Parquet: it does not begin as Parquet does")
    if not files or any(schema is None for schema in schemas):
        return None
    schema: dict[str, Any] = {}
    for one in reversed(schemas):
        schema |= one or {}
    if any(isinstance(schema.get(name), pl.List) for name in (*wide_names(options.fields), *GROUP_LISTS)):
        return None
    hive = {key: pl.String for _, keys in files for key in keys if key not in schema}
    by_file = [(str(path), one or {}) for (path, _), one in zip(files, schemas, strict=True)]
    return DataSet(
        folder=str(Path.cwd()),
        files=tuple(str(path) for path, _ in files),
        rows=tuple(int(pl.scan_parquet(path).select(pl.len()).collect().item()) for path, _ in files),
        schema=schema | hive,
        hive=tuple({key: value for key, value in keys.items() if key in hive} for _, keys in files),
        notes=(*notes, *_missing_field_notes(by_file, options)),
    )


def _missing_field_notes(schemas: Sequence[tuple[str, Mapping[str, Any]]], options: ReadOptions) -> list[CodedWarning]:
    """A warning for each field to grade by that some files lack; a file with nothing to score is refused."""
    roles = [(path, long_fields(schema, options.fields)) for path, schema in schemas]
    for path, fields in roles:
        check_gradable([*fields, *dict(schemas)[path]], f"{path}: row 1", dict(schemas)[path])
    notes = []
    for role in dict.fromkeys(role for _, fields in roles for role in fields):
        without = [path for path, fields in roles if role not in fields]
        if without and role in _GRADED_BY:
            notes.append(CodedWarning.of("missing-field", files=tuple(without), field=role))
    return notes


def _schema(path: Path) -> Mapping[str, Any] | None:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return None
    except OSError:
        return None
    with reject_damaged(str(path)):
        return pl.read_parquet_schema(path)


def columns_to_read(data: DataSet, options: ReadOptions) -> list[str]:
    """The columns that mean something here; those that the user named must exist."""
    check_named_fields(data.schema, data.source, options)
    return needed_columns(list(data.schema), options)


def read_rows(data: DataSet, columns: Sequence[str], span: Span) -> pl.DataFrame:
    """Some columns of some rows; a column that the file lacks is null."""
    path, hive = str(Path(data.folder, data.files[span.file])), data.hive[span.file]
    with reject_damaged(data.files[span.file]):
        schema = pl.read_parquet_schema(path)
        own = [c for c in columns if c in schema]
        frame = pl.scan_parquet(path).select(own).slice(span.start, span.stop - span.start).collect()
    missing = [pl.lit(hive.get(c), dtype=data.schema[c]).alias(c) for c in columns if c not in schema]
    return frame.with_columns(missing).select(columns)


class CaseLayout(NamedTuple):
    """Where cases stand: ranges of about the requested number of rows, and whether every case is in one of them."""

    spans: list[Span]
    together: bool


def find_case_layout(data: DataSet, id_column: str, size: int, engine: Any = None) -> CaseLayout:
    """Ranges of about `size` rows that end where a case ends, from one look at the ids, a file at a time.

    A case begins where the id differs from the one before, and with every file. Its 64-bit hash twice among the
    beginnings means rows that stand apart; two ids of one hash would mean it too, which costs time and nothing else.
    Of more than a hundred million rows only a part of the hashes is compared, which still finds every file that is not
    in order, and may miss a case or two in a billion.
    """
    shared = (data, id_column, size, _one_in(data.n_rows))
    files = range(len(data.files))
    if engine is None:
        layouts: Any = [case_layout_of_file(shared, file) for file in files]
    else:
        layouts = engine.map(case_layout_of_file, files, shared=shared)
    spans: list[Span] = []
    first_ids: list[Any] = []
    for file, layout in enumerate(layouts):
        if not isinstance(layout, tuple):  # the engine's record of a failed item
            raise (WorldError if layout.lost else InputError)(layout.reason.removeprefix("InputError: "))
        cuts, hashes = layout
        first_ids.append(hashes)
        ends = [*cuts[1:], data.rows[file]]
        spans += [Span(file, start, stop) for start, stop in zip(cuts, ends, strict=True) if stop > start]
    every = np.sort(np.concatenate(first_ids))
    return CaseLayout(spans, not bool((every[1:] == every[:-1]).any()))


def _one_in(rows: int) -> int:
    """Which share of the hashes is compared: all, up to so many rows that they take a gigabyte.

    >>> _one_in(1_000_000), _one_in(10**11)
    (1, 1024)
    """
    return 1 << max(0, (rows - 1).bit_length() - 27)


def case_layout_of_file(shared: tuple[DataSet, str, int, int], file: int) -> tuple[list[int], Any]:
    """Where ranges of about so many rows of a file begin, and the hashes of its cases, or of one in so many."""
    data, id_column, size, one_in = shared
    cuts, last, first_ids = [0], None, [np.zeros(0, dtype=np.uint64)]
    for start in range(0, data.rows[file], _IDS):
        ids = read_rows(data, [id_column], Span(file, start, min(data.rows[file], start + _IDS))).to_series()
        hashes = ids.cast(pl.String).hash().to_numpy()
        first = np.concatenate([[last is None or hashes[0] != last], hashes[1:] != hashes[:-1]])
        begins, last = np.flatnonzero(first), hashes[-1]
        heads = hashes[begins]
        # a share by the hash itself: the same cases are compared in every file
        first_ids.append(heads if one_in == 1 else heads[heads % np.uint64(one_in) == 0])
        while cuts[-1] + size < start + len(ids):
            after = begins[np.searchsorted(begins, cuts[-1] + size - start) :]
            if not len(after):
                break
            cuts.append(start + int(after[0]))
    return cuts, np.concatenate(first_ids)


def partitions_of(spans: Sequence[Span], size: int) -> list[Partition]:
    """Spans put together up to about `size` rows, so that a thousand small files are not a thousand partitions."""
    out: list[list[Span]] = []
    room = 0
    for span in spans:
        n = span.stop - span.start
        if not out or n > room:
            out.append([])
            room = size
        out[-1].append(span)
        room -= n
    return [Partition(spans=tuple(spans)) for spans in out]


@contextmanager
def buckets(data: DataSet, columns: Sequence[str], id_column: str, size: int) -> Iterator[list[Partition]]:
    """The rows in buckets of about `size` by their case, in files that are gone afterwards."""
    n = max(1, -(-data.n_rows // size))
    with tempfile.TemporaryDirectory(prefix="kofn-cases-") as folder:
        made: list[list[str]] = [[] for _ in range(n)]
        try:
            for file, rows in enumerate(data.rows):
                for start in range(0, rows, size):
                    _put(data, columns, id_column, Span(file, start, min(rows, start + size)), Path(folder), made)
        except OSError as problem:
            raise WorldError(
                f"{folder}: {problem.strerror}: cases stand apart in {data.source} and are put together there, which "
                "needs its size again: set TMPDIR to a larger disk, or sort the file by its ids"
            ) from None
        yield [Partition(bucket=tuple(files)) for files in made if files]


def _put(
    data: DataSet, columns: Sequence[str], id_column: str, span: Span, folder: Path, made: list[list[str]]
) -> None:
    frame = read_rows(data, columns, span)
    frame = frame.with_columns(
        pl.lit(span.file, dtype=pl.Int32).alias(_FILE),
        pl.int_range(span.start, span.stop, dtype=pl.Int64).alias(_ROW),
        pl.Series("bucket", frame[id_column].cast(pl.String).hash() % len(made)),
    )
    for (code,), part in frame.partition_by("bucket", as_dict=True, include_key=False, maintain_order=True).items():
        path = folder / f"{code}-{span.file}-{span.start}.parquet"
        part.write_parquet(path, compression="lz4")
        made[int(code)].append(str(path))


def read_partition(data: DataSet, columns: Sequence[str], partition: Partition, options: ReadOptions) -> Table:
    """The table of a partition; messages name file and row as in the files themselves."""
    if partition.bucket:
        frame = pl.concat([pl.read_parquet(path) for path in partition.bucket])
        files, rows = frame[_FILE].to_numpy(), frame[_ROW].to_numpy()
        frame = frame.drop(_FILE, _ROW)
        if len(data.files) > 1:
            return _by_file(data, frame, files, rows, options)
    else:
        frame = pl.concat([read_rows(data, columns, span) for span in partition.spans], how="vertical_relaxed")
        sizes = [span.stop - span.start for span in partition.spans]
        files = np.repeat([span.file for span in partition.spans], sizes)
        rows = np.concatenate([np.arange(span.start, span.stop) for span in partition.spans])
    return _table(data, frame, lambda row: (int(files[row]), int(rows[row])), options)


def _by_file(data: DataSet, frame: pl.DataFrame, files: Any, rows: Any, options: ReadOptions) -> Table:
    """The table of rows of several files: candidates of a case that is in several of them are one set, file by file."""

    def table_of(file: int) -> Table:
        at = np.flatnonzero(files == file)
        table = _table(data, frame[at], lambda row: (file, int(rows[at[row]])), options)
        return replace(table, sources=(data.files[file],))

    tables = [table_of(file) for file in np.unique(files).tolist()]
    return replace(concatenate(tables, options) if len(tables) > 1 else tables[0], sources=data.files)


def _table(data: DataSet, frame: pl.DataFrame, at: Callable[[int], tuple[int, int]], options: ReadOptions) -> Table:
    """The table of some rows; `at` says of which file each is, and which row there."""

    def where(row: int) -> str:
        file, place = at(row)
        return f"row {place + 1:,}" if len(data.files) == 1 else f"{data.files[file]}: row {place + 1:,}"

    return replace(long_table(frame, data.source, where, options, "parquet"), sources=data.files)


class CaseSample(NamedTuple):
    """Rows of the first whole cases at places spread over the data, and where each row stands."""

    frame: pl.DataFrame
    places: list[tuple[int, int]]

    @property
    def seen(self) -> list[str]:
        """The columns that hold a value here."""
        return [c.name for c in self.frame.iter_columns() if c.null_count() < len(c)]

    def table(self, data: DataSet, options: ReadOptions) -> Table:
        """The cases as a table."""
        return _table(data, self.frame, lambda row: self.places[row], options)


def sample_cases(data: DataSet, columns: Sequence[str], id_column: str, spans: Sequence[Span]) -> CaseSample:
    """Enough cases to choose an extractor by, and to look at, in the order in which they stand."""
    sampled = [spans[i] for i in np.unique(np.linspace(0, len(spans) - 1, _SAMPLED_PLACES).astype(int))]
    each = max(_SAMPLED_ROWS, _SAMPLED_PLACES * _SAMPLED_ROWS // len(sampled))
    frames, places = [], []
    for span in sampled:
        frame = read_rows(data, columns, span._replace(stop=min(span.stop, span.start + each)))
        if span.start + frame.height < span.stop:  # the last case may be cut
            ids = frame[id_column]
            whole = frame.filter((ids != ids[-1]).fill_null(value=True))
            frame = whole if whole.height else frame
        frames.append(frame)
        places += [(span.file, span.start + i) for i in range(frame.height)]
    return CaseSample(pl.concat(frames, how="vertical_relaxed"), places)


def columns_with_values(data: DataSet, columns: Sequence[str], seen: Sequence[str]) -> frozenset[str]:
    """The columns that hold a value anywhere, given those that do in a sample."""
    doubtful = [c for c in columns if c not in seen]
    filled = set(seen)
    for file, rows in enumerate(data.rows):
        for start in range(0, rows if doubtful else 0, _IDS):
            frame = read_rows(data, doubtful, Span(file, start, min(rows, start + _IDS)))
            filled |= {c.name for c in frame.iter_columns() if c.null_count() < len(c)}
    return frozenset(filled)
