"""Extractors: callables `(text, choices=None) -> str | None` that find the answer in an output, or none.

In: a text, or a column of texts, and the choices of the case. Out: canonical answers; `choose_extractor` picks an
extractor, `audit` compares several. Imports core alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.extract.answer_labels import strip_reasoning as strip_reasoning
    from kofn.extract.boxed_answer import boxed as boxed
    from kofn.extract.columnar_extraction import extract_column as extract_column
    from kofn.extract.compatible import extract_answer as extract_answer
    from kofn.extract.compatible import extract_answer_simple as extract_answer_simple
    from kofn.extract.compatible import extract_answer_with_anchor as extract_answer_with_anchor
    from kofn.extract.compatible import extract_letter_legacy as extract_letter_legacy
    from kofn.extract.compatible import extract_letter_word_boundary as extract_letter_word_boundary
    from kofn.extract.compatible import letter_first as letter_first
    from kofn.extract.compatible import letter_word_boundary as letter_word_boundary
    from kofn.extract.compatible import normalize_numeric as normalize_numeric
    from kofn.extract.compatible import number_anchor as number_anchor
    from kofn.extract.compatible import number_simple as number_simple
    from kofn.extract.extractor_choice import Audit as Audit
    from kofn.extract.extractor_choice import ExtractorChoice as ExtractorChoice
    from kofn.extract.extractor_choice import audit as audit
    from kofn.extract.extractor_choice import choose_extractor as choose_extractor
    from kofn.extract.extractor_choice import same_answer as same_answer
    from kofn.extract.letter_answer import letter as letter
    from kofn.extract.math_answer import math as math
    from kofn.extract.number_answer import number as number
    from kofn.extract.pattern import JsonField as JsonField
    from kofn.extract.pattern import Pattern as Pattern
    from kofn.extract.pattern import last_line as last_line
    from kofn.extract.pattern import none as none
    from kofn.extract.pattern import text as text

# No module of this package may have the name of an exported function (`letter`, `number`, `boxed`): importing it would
# put the module in the function's place.
__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.extract.answer_labels": ("strip_reasoning",),
        "kofn.extract.boxed_answer": ("boxed",),
        "kofn.extract.columnar_extraction": ("extract_column",),
        "kofn.extract.compatible": (
            "extract_answer",
            "extract_answer_simple",
            "extract_answer_with_anchor",
            "extract_letter_legacy",
            "extract_letter_word_boundary",
            "letter_first",
            "letter_word_boundary",
            "normalize_numeric",
            "number_anchor",
            "number_simple",
        ),
        "kofn.extract.extractor_choice": (
            "Audit",
            "ExtractorChoice",
            "audit",
            "choose_extractor",
            "same_answer",
        ),
        "kofn.extract.letter_answer": ("letter",),
        "kofn.extract.math_answer": ("math",),
        "kofn.extract.number_answer": ("number",),
        "kofn.extract.pattern": (
            "JsonField",
            "Pattern",
            "last_line",
            "none",
            "text",
        ),
    },
)
