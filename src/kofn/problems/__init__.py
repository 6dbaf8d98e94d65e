"""Verifies programs against problems with checkpoints, and against data sets of functions with tests.

In: a problem or a data set, and submissions. Out: verdicts per attribute, correctness results, run directories.
May import what lies below `problems`; a worker imports parts of this package, so nothing is imported here.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
