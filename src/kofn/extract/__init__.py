"""Text -> answer or none. An extractor is a callable `(text, choices=None) -> str | None`.

`letter`, `number`, `math`, `boxed` and `last_line` look outside reasoning blocks and answer canonically.
`Pattern` and `JsonField` take parameters; the compatible functions keep documented rules that much code uses.
`extract_column` runs any of them over a column, `choose_extractor` proposes one, `audit` compares several.
"""

from __future__ import annotations

from kofn.extract.audit import Audit, audit, same_answer
from kofn.extract.boxed import boxed
from kofn.extract.choose import Choice, choose_extractor
from kofn.extract.columns import extract_column
from kofn.extract.compatible import (
    extract_answer,
    extract_answer_simple,
    extract_answer_with_anchor,
    extract_letter_legacy,
    extract_letter_word_boundary,
    letter_first,
    letter_word_boundary,
    normalize_numeric,
    number_anchor,
    number_simple,
)
from kofn.extract.letter import letter
from kofn.extract.mathematical import math
from kofn.extract.number import number
from kofn.extract.pattern import JsonField, Pattern, last_line, none, text
from kofn.extract.reasoning import strip_reasoning

__all__ = [
    "Audit",
    "Choice",
    "JsonField",
    "Pattern",
    "audit",
    "boxed",
    "choose_extractor",
    "extract_answer",
    "extract_answer_simple",
    "extract_answer_with_anchor",
    "extract_column",
    "extract_letter_legacy",
    "extract_letter_word_boundary",
    "last_line",
    "letter",
    "letter_first",
    "letter_word_boundary",
    "math",
    "none",
    "normalize_numeric",
    "number",
    "number_anchor",
    "number_simple",
    "same_answer",
    "strip_reasoning",
    "text",
]
