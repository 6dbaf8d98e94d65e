"""Metrics on one candidate: callables `(prediction, reference) -> number | bool | mapping`.

In: an answer or a text, and one reference or several. Out: a score in [0, 1], or None for "not graded". The built-in
metrics are frozen dataclasses with traits (`higher_is_better`, `uses`). Imports core alone.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
