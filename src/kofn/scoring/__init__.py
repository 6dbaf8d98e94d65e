"""Scores a table of outputs: answers, metrics, candidate sets, estimates, diagnostics and warnings.

In: a `Table` and a `GradingConfig`. Out: a `Result`.
Imports core, extract, metrics, aggregators, stats, registry and importers.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
