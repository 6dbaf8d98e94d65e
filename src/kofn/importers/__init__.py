"""Outputs that other tools produced, read into a table. A file's content decides which importer reads it, not its name.

In: paths, patterns, folders, addresses or standard input, and `ReadOptions`. Out: a `kofn.core.table.Table`.
Imports core, extract and the registry, and nothing above them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.importers.base import Importer as Importer
    from kofn.importers.base import Peek as Peek
    from kofn.importers.base import ReadOptions as ReadOptions
    from kofn.importers.json_records import repeated_id as repeated_id
    from kofn.importers.reading import importer_of as importer_of
    from kofn.importers.reading import read as read
    from kofn.importers.sources import PLAIN as PLAIN
    from kofn.importers.sources import SEPARATORS as SEPARATORS
    from kofn.importers.sources import expand as expand
    from kofn.importers.sources import kind_of as kind_of

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.importers.base": (
            "Importer",
            "Peek",
            "ReadOptions",
        ),
        "kofn.importers.json_records": ("repeated_id",),
        "kofn.importers.reading": (
            "importer_of",
            "read",
        ),
        "kofn.importers.sources": (
            "PLAIN",
            "SEPARATORS",
            "expand",
            "kind_of",
        ),
    },
)
