"""Models that grade, and how often they err.

In: candidates and a rubric, or labels from people. Out: verdicts as a metric or selector, rates corrected by labels.
May import the packages up to `generate`, whose runner, store and limits every call of a judge goes through.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
