"""Extractors: callables `(text, choices=None) -> str | None` that find the answer in an output, or none.

In: a text, or a column of texts, and the choices of the case. Out: canonical answers; `choose_extractor` picks an
extractor, `audit` compares several. Imports core alone.
"""

from kofn.core.lazy import lazy_exports

# No module of this package may have the name of an exported function (`letter`, `number`, `boxed`): importing it would
# put the module in the function's place.
__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
