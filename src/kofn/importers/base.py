"""The `Importer` interface: `ReadOptions`, what a reader keeps, and `Peek`, by which it recognises its files."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kofn.core.table import Table

_HEAD = 1 << 16  # bytes by which most tools' files are recognised
_LINE = 64 << 20  # the longest first line that is read to recognise a file
_DOCUMENT = 4 << 30  # `Peek.document` reads the whole file into memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a reader must keep: roles named by the user, fields to segment by, and whether to keep everything.

    format      the importer to use; None: the one that recognises the content
    where       field -> value: only these cases, such as one provider of an export that has several
    by_line     rows without an id are numbered: files of equal length hold the same cases in the same order
    present     columns that hold values somewhere: kept also by a part of the data that has none of them
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    everything: bool = False
    format: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    by_line: bool = False
    present: frozenset[str] = frozenset()


class Peek:
    """A file or folder about to be read. Each view of it is computed when first needed, and once.

    path      where it is: decompressed and local by now
    source    what to call it in messages
    """

    def __init__(self, path: Path, source: str | None = None) -> None:
        self.path, self.source = path, source or str(path)

    @cached_property
    def head(self) -> bytes:
        """The first bytes; none of a folder."""
        if self.path.is_dir():
            return b""
        with self.path.open("rb") as file:
            return file.read(_HEAD)

    @cached_property
    def start(self) -> bytes:
        """The first bytes without a byte order mark and blanks before them."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The entries of a folder or of a zip archive; empty for any other file, and for a broken archive."""
        if self.path.is_dir():
            return tuple(sorted(entry.name for entry in self.path.iterdir()))
        if not self.head.startswith(b"PK\x03\x04"):
            return ()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return tuple(archive.namelist())
        except (zipfile.BadZipFile, NotImplementedError, OSError):
            return ()

    @cached_property
    def columns(self) -> Mapping[str, Any]:
        """Column -> polars type of a Parquet file; empty for any other."""
        if not self.head.startswith(b"PAR1"):
            return {}
        import polars as pl

        try:
            return dict(pl.read_parquet_schema(self.path))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            return {}

    @cached_property
    def first(self) -> dict[str, Any] | None:
        """The first line as a JSON object; None where it is not one."""
        if not self.start.startswith(b"{"):
            return None
        with self.path.open("rb") as file:
            for line in iter(lambda: file.readline(_LINE), b""):
                if text := line.removeprefix(b"\xef\xbb\xbf").strip():
                    return _object(text)
        return None

    @cached_property
    def document(self) -> dict[str, Any] | None:
        """The whole file as one JSON object; None where it is not one, such as JSON lines."""
        if not self.start.startswith(b"{"):
            return None
        if self.first is not None and self._several_lines:
            return None
        if self.first is not None:
            return self.first
        if self.path.stat().st_size > _DOCUMENT:
            raise InputError(f"{self.source}: one JSON document of more than {_DOCUMENT >> 30} GiB: split it")
        return _object(self.path.read_bytes().removeprefix(b"\xef\xbb\xbf"))

    @cached_property
    def _several_lines(self) -> bool:
        with self.path.open("rb") as file:
            lines = (line for line in iter(lambda: file.readline(_LINE), b"") if line.strip())
            next(lines, None)
            return next(lines, None) is not None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def reject_malformed(where: str, tool: str) -> Iterator[None]:
    """Turn the error of a value that has another type than the tool writes there into an input error.

    Importers read a tool's files by its format, without checking each value: this is where a malformed one ends.

    >>> with reject_malformed("log.jsonl: line 3", "HELM"):
    ...     len(True)
    Traceback (most recent call last):
    kofn.errors.InputError: log.jsonl: line 3: not as HELM writes it (TypeError: object of type 'bool' has no len())
    """
    try:
        yield
    except InputError:
        raise
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, OverflowError) as problem:
        detail = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise InputError(f"{where}: not as {tool} writes it ({detail:.120})") from None


@contextmanager
def reject_damaged(where: str, kind: str = "Parquet") -> Iterator[None]:
    """Turn what polars says of a file that is not of its kind into an input error."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        detail = str(problem).strip().partition("\n")[0]
        raise InputError(f"{where}: not readable as {kind}: {detail:.160}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A reader of one tool's files.

    name          what --format calls it
    what          one line for `kofn list importers`
    recognises    whether a file or folder is this tool's, by its content
    read          the candidates in it; what cannot be read is an `InputError`, or a line of `Table.notes`
    """

    name: str
    what: str
    recognises: Callable[[Peek], bool]
    read: Callable[[Peek, ReadOptions], Table]

    def __str__(self) -> str:
        return self.name
