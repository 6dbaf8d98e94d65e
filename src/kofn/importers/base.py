"""The `Importer` interface: `ReadOptions`, what a reader keeps, and the errors of malformed and damaged files."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kofn.core.table import Table
    from kofn.importers.recognition import Peek


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
