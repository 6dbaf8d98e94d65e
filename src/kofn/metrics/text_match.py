"""Metrics `exact_match`, `contains`, `regex_match` and `choice`: texts as they are, and options by their labels."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kofn.errors import InputError
from kofn.metrics.base import Metric, best_match, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Written out because Python and polars disagree on what whitespace is, and both must strip the same.
WHITESPACE = " \t\r\n\v\f\u00a0"

_ASCII_PUNCTUATION = frozenset(string.punctuation)
_DIGITS = str.maketrans("", "", string.digits)
# What people and models put around a label: (c), [C], **C**, "C.", `C`, $C$.
WRAPPING = WHITESPACE + "()[]{}*_`'\"$.:"

_LABEL = re.compile(r"[A-Za-z0-9]")
_LEADING_LABEL = re.compile(r"[(\[]?([A-Za-z0-9])[)\].:]+\s+\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(Metric):
    """1 when prediction and reference are the same text, else 0.

    Space around either is ignored, space inside counts. Then, in this order, what `regexes_to_ignore` match
    is removed, case is folded, punctuation (ASCII's, and Unicode's category P) and digits are removed. When
    nothing is left on both sides there was nothing to compare, so only texts that were equal before match.

    >>> ExactMatch()("Paris ", "Paris"), ExactMatch()("paris", "Paris")
    (1.0, 0.0)
    >>> ExactMatch(ignore_case=True, ignore_punctuation=True)("paris.", ["London", "Paris"])
    1.0
    >>> ExactMatch(ignore_numbers=True)("17", "42")
    0.0
    """

    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    regexes_to_ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        regexes: object = self.regexes_to_ignore
        patterns = (regexes,) if isinstance(regexes, str) else tuple(self.regexes_to_ignore)
        object.__setattr__(self, "regexes_to_ignore", patterns)
        for pattern in patterns:
            compile_pattern(pattern, "exact_match: regexes_to_ignore")

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(self._equal, prediction, reference)

    def _equal(self, prediction: str, reference: str) -> float:
        left, right = self._normalise(prediction), self._normalise(reference)
        if left or right:
            return float(left == right)
        return float(prediction.strip(WHITESPACE) == reference.strip(WHITESPACE))

    def _normalise(self, text: str) -> str:
        for pattern in self.regexes_to_ignore:
            text = re.sub(pattern, "", text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = without_punctuation(text)
        if self.ignore_numbers:
            text = text.translate(_DIGITS)
        return text.strip(WHITESPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contains(Metric, uses="text"):
    """1 when the reference occurs in the output, else 0. A blank reference occurs only in a blank output.

    >>> Contains()("It is Paris, of course.", "Paris"), Contains()("It is paris.", "Paris")
    (1.0, 0.0)
    >>> Contains(ignore_case=True)("It is paris.", "Paris")
    1.0
    """

    ignore_case: bool = False

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(self._contains, prediction, reference)

    def _contains(self, prediction: str, reference: str) -> float:
        if self.ignore_case:
            prediction, reference = prediction.casefold(), reference.casefold()
        expected = reference.strip(WHITESPACE)
        return float(expected in prediction if expected else not prediction.strip(WHITESPACE))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexMatch(Metric, uses="text"):
    """1 when a regular expression matches the output, else 0.

    The pattern is `pattern`, or the reference when `pattern` is None. It may match anywhere; `full` asks
    for the whole output. Patterns are Python's `re`, which backtracks: repetition inside repetition such
    as `(a+)+$` can take time exponential in the length of the output. Outputs longer than `max_chars` are
    cut there, which bounds a quadratic pattern but not an exponential one, so use patterns you wrote.

    >>> RegexMatch(pattern=r"\\b\\d{4}-\\d{2}-\\d{2}\\b")("due 2024-05-01", None)
    1.0
    >>> RegexMatch(full=True)("colour", ["colou?r", "hue"])
    1.0
    >>> RegexMatch(pattern="(")
    Traceback (most recent call last):
    kofn.errors.InputError: regex_match: pattern '(' is not a regular expression: missing ), ...
    """

    pattern: str | None = None
    full: bool = False
    ignore_case: bool = False
    max_chars: int = 100_000

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise InputError(f"regex_match: max_chars must be at least 1, not {self.max_chars}")
        if self.pattern is not None:
            compile_pattern(self.pattern, "regex_match: pattern")

    @property
    def needs_reference(self) -> bool:
        """False when the pattern is a parameter."""
        return self.pattern is None

    def __call__(self, prediction: object, reference: object = None) -> float | None:
        if self.pattern is None:
            return best_match(self._matches, prediction, reference)
        return 0.0 if prediction is None else self._matches(text_of(prediction), self.pattern)

    def _matches(self, prediction: str, pattern: str) -> float:
        flags = re.IGNORECASE if self.ignore_case else 0
        compiled = compile_pattern(pattern, "regex_match: pattern", flags)
        search = compiled.fullmatch if self.full else compiled.search
        return float(search(prediction, 0, self.max_chars) is not None)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, where: str, flags: int = 0) -> re.Pattern[str]:
    """Return the compiled pattern, or say in one line what is wrong with it and `where` it stands."""
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise InputError(f"{where} {pattern!r} is not a regular expression: {error}") from None


def without_punctuation(text: str) -> str:
    """Return `text` without ASCII punctuation and without Unicode's category P.

    >>> without_punctuation("¿Qué? It's $5!")
    'Qué Its 5'
    """
    return "".join(
        char
        for char in text
        if char not in _ASCII_PUNCTUATION and not (char > "\x7f" and unicodedata.category(char)[0] == "P")
    )


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
