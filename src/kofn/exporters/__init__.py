"""Candidates and their grades, written as files for other tools.

In: `kofn.runs.load.GradedCandidates` and a path. Out: the file, and warnings of what its format cannot say.
Imports runs and what is below it.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
