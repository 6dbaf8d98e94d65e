"""Outputs that other tools produced, read into a table. A file's content decides which importer reads it, not its name.

In: paths, patterns, folders, addresses or standard input, and `ReadOptions`. Out: a `kofn.core.table.Table`.
Imports core, extract and the registry, and nothing above them.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
