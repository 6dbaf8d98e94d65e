"""Aggregators: frozen dataclasses that map the candidate sets of all cases to one number per case.

In: `kofn.core.candidate_sets.CandidateSets`. Out: a float array with NaN where undefined. A name such as "pass@5" is
resolved by `kofn.registry.aggregator`. Imports core alone.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
