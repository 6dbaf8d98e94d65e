"""The default extractor for a set of outputs, chosen from a sample of references and texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.numbers import parse_number
from kofn.extract.letter_answer import names_labelled_option
from kofn.extract.number_answer import has_labelled_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OPTION = re.compile(r"\s*\(?[A-J]\)?[.):]?\s*")
_LATEX = re.compile(r"\\[A-Za-z]+|[\^_]\{|\$[^$]+\$")
_SAMPLE = 300  # references and texts looked at: enough for shares of 0.1 and 0.9


class ExtractorChoice(NamedTuple):
    """An extractor's name, and why it was chosen in a few words."""

    name: str
    reason: str


def choose_extractor(references: Sequence[str], texts: Sequence[str], choices: bool = False) -> ExtractorChoice:
    r"""The default extractor for outputs with these references; without references, for these texts.

    Options, or references that are single letters A to J: `letter`. At least nine in ten references numbers
    (or solutions that end in "#### 18"): `number`. LaTeX in one reference of ten, or a box in most texts: `math`.
    Else `text`, which compares the whole output. Without references: what most texts hold, a
    box, a labelled number or a labelled letter. Only the first few hundred of each are looked at.

    >>> choose_extractor(["1,080", "3/4"], ["The answer is 1080."])
    ExtractorChoice(name='number', reason='2 of 2 references are numbers')
    >>> choose_extractor([], [r"so $\boxed{x}$", r"\boxed{y}"])
    ExtractorChoice(name='math', reason='2 of 2 outputs hold \\boxed')
    """
    references, texts = references[:_SAMPLE], texts[:_SAMPLE]
    if choices:
        return ExtractorChoice("letter", "the cases have options")
    return _by_references(references, texts) if references else _by_texts(texts)


def _by_references(references: Sequence[str], texts: Sequence[str]) -> ExtractorChoice:
    def share(test: Callable[[str], object]) -> int:
        return sum(bool(test(reference)) for reference in references)

    total = len(references)
    if (letters := share(_OPTION.fullmatch)) >= 0.9 * total:
        return ExtractorChoice("letter", f"{letters} of {total} references are single letters")
    if (numbers := share(_is_number)) >= 0.9 * total:
        return ExtractorChoice("number", f"{numbers} of {total} references are numbers")
    if (latex := share(_LATEX.search)) >= 0.1 * total:
        return ExtractorChoice("math", f"{latex} of {total} references hold LaTeX")
    if texts and _boxed(texts) > len(texts) / 2:
        return ExtractorChoice("math", f"{_boxed(texts)} of {len(texts)} outputs hold \\boxed")
    return ExtractorChoice("text", f"{numbers} of {total} references are numbers, {letters} are single letters")


def _is_number(reference: str) -> bool:
    """A number, or a whole solution that ends in "#### 18"."""
    return parse_number(reference.rpartition("####")[2]) is not None


def _by_texts(texts: Sequence[str]) -> ExtractorChoice:
    total = len(texts)
    kinds: tuple[tuple[str, str, int], ...] = (
        ("math", "hold \\boxed", _boxed(texts)),
        ("number", "label a number", sum(map(has_labelled_number, texts))),
        ("letter", "label an option", sum(map(names_labelled_option, texts))),
    )
    for name, what, count in kinds:
        if count > total / 2:
            return ExtractorChoice(name, f"{count} of {total} outputs {what}")
    return ExtractorChoice("text", "no references, and most outputs label no answer")


def _boxed(texts: Sequence[str]) -> int:
    return sum("\\boxed" in text for text in texts)
