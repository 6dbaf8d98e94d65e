"""What a reader is to keep: fields named by the user, tags to segment by, a filter of cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
