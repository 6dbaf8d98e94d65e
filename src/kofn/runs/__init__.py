"""The run directory: what is stored of an evaluation, and how it is read back.

In: a `Result`, or a directory. Out: report classes, `Run` objects, and the files of a run.
Imports scoring, importers and the packages below them.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
