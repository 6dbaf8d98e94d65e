"""Statistics over cases: intervals, comparisons, judges against people, variance and power.

In: arrays with one value per case, their weights and clusters, a seed. Out: `Estimate`, `Interval`, `Comparison`, ...
Pure functions: no files, no clock, no global state. Imports core alone.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
