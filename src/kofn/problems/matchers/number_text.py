"""Matcher of numbers in text: exact or within a tolerance, for numbers of any size.

Values are decimals: 0.1 is a tenth, 1e400 is a number, and 1e999999999 costs no more than 1. A quotient such as 1/3 is
kept to a thousand digits, so that equal quotients are equal.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.problems.matchers import (
    RIGHT,
    BuiltinMatcher,
    NotComparable,
    decode_actual,
    mismatch,
    truncate_around_difference,
)

if TYPE_CHECKING:
    from kofn.problems.matchers import Match

# no traps: what leads beyond all bounds is an infinity, which is close to nothing, and not an exception
_CONTEXT = Context(prec=1000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = rf"(?P<top>[+-]?{_DECIMAL})(?:/(?P<bottom>{_DECIMAL}))?(?P<percent> ?%)?"
_WHOLE = re.compile(_NUMBER)
_ANYWHERE = re.compile(rf"(?<![\w.]){_NUMBER}")
_PLAIN = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANK = re.compile(r"\s")
_MAX_SEARCHED = 1_000_000  # characters, in which the last number is looked for


@dataclass(frozen=True, slots=True)
class Amount:
    """A number as it was written: its value, and whether a percent sign followed it."""

    value: Decimal
    percent: bool = False

    @property
    def share(self) -> Decimal:
        """The value that the percent sign, if any, makes of it: of 50%, 0.5."""
        return self.value.scaleb(-2, _CONTEXT) if self.percent else self.value

    def __str__(self) -> str:
        return f"{self.value}{'%' * self.percent}"


@dataclass(frozen=True, slots=True)
class Closeness:
    """How far a number may be from the one expected: |found - expected| <= max(tolerance, relative * |expected|).

    Relative to what is expected, so that no program widens its own bound by printing a larger number.

    >>> near = Closeness.of(tolerance=0.1)
    >>> near.holds(Decimal("0.3"), Decimal("0.4")), near.holds(Decimal("0.3"), Decimal("0.401"))
    (True, False)
    """

    tolerance: Decimal = Decimal(0)
    relative: Decimal = Decimal(0)

    @classmethod
    def of(cls, tolerance: float = 0.0, relative: float = 0.0) -> Closeness:
        """From the parameters of a matcher."""
        return cls(to_decimal(tolerance), to_decimal(relative))

    @property
    def exact(self) -> bool:
        """Whether only equal numbers are close."""
        return not self.tolerance and not self.relative

    def holds(self, expected: Decimal | int, found: Decimal | int) -> bool:
        """Whether the number found is close enough; an infinite distance never is."""
        if expected == found:
            return True
        if self.exact:
            return False
        expected_value, found_value = Decimal(expected), Decimal(found)
        distance = _CONTEXT.abs(_CONTEXT.subtract(expected_value, found_value))
        allowed = max(self.tolerance, _CONTEXT.multiply(self.relative, _CONTEXT.abs(expected_value)))
        return distance.is_finite() and distance <= allowed

    def __str__(self) -> str:
        parts = [f"within {self.tolerance}"] * bool(self.tolerance)
        parts += [f"within {self.relative:%} of it"] * bool(self.relative)
        return f" ({' or '.join(parts)})" if parts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberMatcher(BuiltinMatcher):
    """The text is one number, within `tolerance` or `relative` of the expected one.

    Read are -3, 1,234.5, 1e3, 3/4 and 50%; a percentage equals its number and its share (50% is 50 and 0.5). With
    `anywhere` the last number in the text counts. NaN and infinities are no numbers.

    >>> NumberMatcher()(1234.5, b"1,234.50"), NumberMatcher(relative=0.01)(100, b"100.9").correct
    (Match(correct=True, diff=''), True)
    >>> NumberMatcher(anywhere=True)(42, b"Of 50, the answer is 42.").correct
    True
    >>> print(NumberMatcher(tolerance=0.1)(3, b"3.2").diff)
    expected 3 (within 0.1), found 3.2: off by 0.2
    """

    name: ClassVar[str] = "number"
    tolerance: float = 0.0
    relative: float = 0.0
    anywhere: bool = False

    def _compare(self, target: Amount, text: str) -> Match:
        found = parse_last_amount(text) if self.anywhere else parse_amount(text)
        if found is None:
            raise NotComparable("no number in the text" if self.anywhere else "not a number")
        close = Closeness.of(self.tolerance, self.relative)
        pairs = [(target.value, found.value)]
        if target.percent != found.percent:  # a percent sign on one side only may stand for the share too
            pairs.append((target.share, found.share))
        if any(close.holds(*pair) for pair in pairs):
            return RIGHT
        expected_text, found_text = truncate_around_difference(str(target), str(found), 100)
        distance = _CONTEXT.abs(_CONTEXT.subtract(target.value, found.value))
        return mismatch(f"expected {expected_text}{close}, found {found_text}: off by {distance:.6g}")

    def _parse_expected(self, expected: Any) -> Amount:
        if isinstance(expected, bool) or not isinstance(expected, (int, float, str, bytes)):
            raise self.type_error(expected, "a number")
        if isinstance(expected, float) and not isfinite(expected):
            raise self.type_error(expected, "a finite number")
        text = decode_actual(expected) if isinstance(expected, bytes) else expected
        found = parse_amount(text) if isinstance(text, str) else Amount(to_decimal(text))
        if found is None:
            raise self.type_error(text, "a number")
        return found


def parse_amount(text: str) -> Amount | None:
    """The whole text as one number, or None.

    >>> parse_amount(" 1,234.5 "), parse_amount("12,34"), parse_amount("nan")
    (Amount(value=Decimal('1234.5'), percent=False), None, None)
    """
    match = _WHOLE.fullmatch(text.strip())
    return match and _read(match)


def parse_last_amount(text: str) -> Amount | None:
    """The last number in the last million characters of a text; one that is part of a word is none.

    >>> parse_last_amount("x2 is 3/4, v5").value
    Decimal('0.75')
    """
    if len(text) > _MAX_SEARCHED:  # cut at a blank, so that no number is cut in two
        blank = _BLANK.search(text, len(text) - _MAX_SEARCHED)
        text = text[blank.end() :] if blank else text[-_MAX_SEARCHED:]
    found = deque(_ANYWHERE.finditer(text), maxlen=1)
    return _read(found[0]) if found else None


def parse_plain_number(text: str) -> Decimal | None:
    """A number without separators, units or leading zeros, which an identifier such as 007 has; or None.

    >>> parse_plain_number("4.50"), parse_plain_number("007"), parse_plain_number("1,5")
    (Decimal('4.50'), None, None)
    """
    return parse_decimal(text) if _PLAIN.fullmatch(text) else None


def to_decimal(number: int | float) -> Decimal:  # noqa: PYI041 - an int is no float here
    """The value that the author wrote: 0.1 is a tenth, not the double nearest to it.

    >>> to_decimal(0.1), to_decimal(10**30)
    (Decimal('0.1'), Decimal('1000000000000000000000000000000'))
    """
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def parse_decimal(text: str) -> Decimal | None:
    """The value of digits, or None where the exponent is beyond what even decimals hold.

    >>> parse_decimal("1e400"), parse_decimal("1e99999999999999999999")
    (Decimal('1E+400'), None)
    """
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


def _read(match: re.Match[str]) -> Amount | None:
    top, bottom = (parse_decimal(match[part].replace(",", "")) if match[part] else None for part in ("top", "bottom"))
    if top is None or (match["bottom"] and not bottom):  # 1/0 is no number
        return None
    value = top if bottom is None else _CONTEXT.divide(top, bottom)
    return Amount(value, bool(match["percent"])) if value.is_finite() else None
