"""Extraction rules of other evaluation code, kept with their documented results.

The functions named `extract_*` keep their documented markers for "no answer" ("X" and "[invalid]"); the
extractors `letter_word_boundary`, `letter_first`, `number_anchor` and `number_simple` say None instead. They
look at the whole text, reasoning included: that is their documented rule. New work wants `letter`, `number`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from kofn.core.numbers import normalize_numeric
from kofn.extract.letter_answer import DEFAULT_LABELS, parse_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
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
]

NO_LETTER = "X"
INVALID: Literal["[invalid]"] = "[invalid]"

_INTEGER = re.compile(r"-?\d+")
_MAX_DIGITS = 4000  # below the limit of `int(text)` in CPython, 4,300 digits


def extract_letter_word_boundary(text: str) -> str:
    """The first of A to E that stands alone in the upper-cased text, "X" when none does.

    >>> [extract_letter_word_boundary(t) for t in ("The answer is B", "The best choice", "answer: b")]
    ['B', 'X', 'B']
    """
    return letter_word_boundary(text) or NO_LETTER


def extract_letter_legacy(text: str) -> str:
    """The first of A to E anywhere in the upper-cased text, inside words too, "X" when there is none.

    >>> [extract_letter_legacy(t) for t in ("Select B", "The answer is D", "?")]
    ['E', 'E', 'X']
    """
    return letter_first(text) or NO_LETTER


def extract_answer_with_anchor(text: str) -> int | Literal["[invalid]"]:
    """The integer after the last "answer" that has one; else after the first "="; else the first integer.

    Commas are removed first. A text without any integer is "[invalid]".

    >>> [extract_answer_with_anchor(t) for t in ("10 = 10, Answer: 1,000", "x = 10, so 10 + 5 = 15")]
    [1000, 10]
    >>> extract_answer_with_anchor("5 is my guess. Answer: unknown"), extract_answer_with_anchor("Answer: unknown")
    (5, '[invalid]')
    """
    text = text.replace(",", "")
    anchors = [match.end() for match in re.finditer("answer", text, re.IGNORECASE)]
    last = max((match.start() for match in _INTEGER.finditer(text)), default=-1)
    if before := [anchor for anchor in anchors if anchor <= last]:
        return _first_integer(text, before[-1])
    found = _first_integer(text.partition("=")[2])
    return _first_integer(text) if found == INVALID else found


def extract_answer_simple(text: str) -> int | Literal["[invalid]"]:
    """The first integer after the last "=", or of the whole text when it has none. Commas are removed first.

    >>> [extract_answer_simple(t) for t in ("5 + 10 = 15", "42.5", "First 10, then Answer: 42", "x = ?")]
    [15, 42, 10, '[invalid]']
    """
    return _first_integer(text.replace(",", "").rpartition("=")[2])


def extract_answer(text: str, method: str = "anchor") -> int | Literal["[invalid]"]:
    """`extract_answer_with_anchor` or `extract_answer_simple` by name.

    >>> extract_answer("x = 1, y = 2"), extract_answer("x = 1, y = 2", method="simple")
    (1, 2)
    """
    if method == "anchor":
        return extract_answer_with_anchor(text)
    if method == "simple":
        return extract_answer_simple(text)
    raise ValueError(f"Unknown extraction method: {method!r} (anchor or simple)")


def letter_word_boundary(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_letter_word_boundary` over the case's own labels, None when there is no letter.

    >>> letter_word_boundary("Select option C"), letter_word_boundary("The best choice")
    ('C', None)
    """
    return None if text is None else _first(rf"\b([{_labels(choices)}])\b", text)


def letter_first(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_letter_legacy` over the case's own labels, None when there is no letter.

    >>> letter_first("Select B")
    'E'
    """
    return None if text is None else _first(f"([{_labels(choices)}])", text)


def number_anchor(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_answer_with_anchor` as text, None when there is no integer.

    >>> number_anchor("Answer: 42.5"), number_anchor("none")
    ('42', None)
    """
    return None if text is None else _text_or_none(extract_answer_with_anchor(text))


def number_simple(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_answer_simple` as text, None when there is no integer.

    >>> number_simple("5 + 10 = 15"), number_simple("none")
    ('15', None)
    """
    return None if text is None else _text_or_none(extract_answer_simple(text))


def _labels(choices: Sequence[str] | None) -> str:
    return "".join(DEFAULT_LABELS if choices is None else parse_choices(choices).labels)


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text.upper())
    return match[1] if match else None


def _first_integer(text: str, start: int = 0) -> int | Literal["[invalid]"]:
    match = _INTEGER.search(text, start)
    return int(match[0]) if match and len(match[0]) <= _MAX_DIGITS else INVALID


def _text_or_none(answer: int | Literal["[invalid]"]) -> str | None:
    return None if answer == INVALID else str(answer)
