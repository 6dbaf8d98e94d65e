"""The Python API: one function per verb of the command line, with its options as keywords.

In: paths, rows, frames or loaded runs. Out: results that print as tables and become plain data or frames.
Imports problems, judge, generate, analysis and the packages below them.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
