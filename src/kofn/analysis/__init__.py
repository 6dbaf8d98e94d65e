"""Analyses of graded candidates and stored runs: comparisons, best of n, plans, trends, checks, audits.

In: results, candidate sets and stored runs. Out: report objects with numbers, which `kofn.render` shows.
Imports runs, scoring and the packages below them.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
