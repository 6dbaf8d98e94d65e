"""Metric `choice`, for multiple choice: labels compared as labels."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kofn.metrics.base import Metric, best_match
from kofn.metrics.text_match import WHITESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

# What people and models put around a label: (c), [C], **C**, "C.", `C`, $C$.
WRAPPING = WHITESPACE + "()[]{}*_`'\"$.:"

_LABEL = re.compile(r"[A-Za-z0-9]")
_LEADING_LABEL = re.compile(r"[(\[]?([A-Za-z0-9])[)\].:]+\s+\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Metric):
    """1 when both sides name the same option, else 0.

    A label is one letter or digit, in any case and with any wrapping: "(c)", "**C**" and "C." are C. With
    the `choices` of the case (a call's keyword) an option's text stands for its label, the first being A.
    A label in front of a text ("C. Paris") counts where the other side is a bare label. Two texts that are
    no labels are compared as text, ignoring case and spacing. A blank answer names no option and scores 0.

    >>> Choice()("(c)", "C"), Choice()("B", "C"), Choice()("C. Paris", "C")
    (1.0, 0.0, 1.0)
    >>> Choice()("paris", "C", choices=["Rome", "London", "Paris"])
    1.0
    """

    def __call__(self, prediction: object, reference: object, *, choices: Sequence[str] = ()) -> float | None:
        options = {_folded(text): letter for letter, text in zip(string.ascii_uppercase, choices, strict=False)}

        def same(left: str, right: str) -> float:
            return float(_same_option(left, right, options))

        return best_match(same, prediction, reference)


def _same_option(left: str, right: str, options: dict[str, str]) -> bool:
    labels = _label(left, options), _label(right, options)
    if labels[0] and labels[1]:
        return labels[0] == labels[1]
    if labels[0] or labels[1]:
        return (labels[0] or _leading_label(left)) == (labels[1] or _leading_label(right))
    return _folded(left) == _folded(right) != ""


def _label(text: str, options: dict[str, str]) -> str | None:
    """Return the label a text is, or stands for; an option's own text goes first ("A" may be an answer)."""
    if option := options.get(_folded(text)):
        return option
    bare = text.strip(WRAPPING)
    return bare.upper() if _LABEL.fullmatch(bare) else None


def _leading_label(text: str) -> str | None:
    found = _LEADING_LABEL.match(text.strip(WHITESPACE))
    return found[1].upper() if found else None


def _folded(text: str) -> str:
    return " ".join(text.strip(WRAPPING).casefold().split())
