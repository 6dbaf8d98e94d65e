"""Matchers of text: exact, stripped, by lines, parts, a regular expression or its digest; and of the numbers in it.

Values of numbers are decimals: 0.1 is a tenth, 1e400 is a number, and 1e999999999 costs no more than 1. A quotient such
as 1/3 is kept to a thousand digits, so that equal quotients are equal.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import Counter, deque
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.format import format_count
from kofn.errors import InputError
from kofn.problems.matchers import (
    MANY,
    RIGHT,
    WINDOW,
    BuiltinMatcher,
    NotComparable,
    compare_lines,
    decode_actual,
    escape_line,
    expected_text,
    first_lines,
    match_from_differences,
    mismatch,
    preview_lines,
    truncate,
    truncate_around_difference,
)
from kofn.problems.matchers.bounds import IsolationLimitExceeded, check_limit, run_isolated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.problems.matchers import Actual, Match


_CHUNK = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatcher(BuiltinMatcher):
    r"""The same text to the last space and newline; bytes as bytes, a status as a number.

    >>> ExactMatcher()("a\n", b"a\n").correct, ExactMatcher()(0, 0).correct, ExactMatcher()("0", 0).correct
    (True, True, True)
    >>> print(ExactMatcher()("a\n", b"a").diff)
    --- expected
    +++ found
    @@ line 2 @@
     a
    +\ no newline at the end
    """

    name: ClassVar[str] = "exact"

    def __call__(self, expected: Any, actual: Actual) -> Match:
        target, found = expected_text(self, expected), decode_actual(actual)
        if isinstance(actual, int) and isinstance(expected, (int, float)):
            return RIGHT if expected == actual else mismatch(f"expected {target}, found {found}")
        if target == found:
            return RIGHT
        lines, _ = first_lines(target, target.count("\n"))
        return compare_lines(lines, *first_lines(found, len(lines)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StrippedMatcher(BuiltinMatcher):
    r"""The same text but for whitespace at the ends of lines and blank lines at both ends; \r\n is \n.

    `ignore_case` compares without case; with `collapse` any run of whitespace, newlines too, is as one space.

    >>> StrippedMatcher()("a\nb", b"\na  \r\nb\n\n").correct, StrippedMatcher()("a b", b"a  b").correct
    (True, False)
    >>> StrippedMatcher(collapse=True, ignore_case=True)("a b", b" A\n B").correct
    True
    """

    name: ClassVar[str] = "stripped"
    ignore_case: bool = False
    collapse: bool = False

    def _parse_expected(self, expected: Any) -> str:
        return expected_text(self, expected).removeprefix("\ufeff")

    def _compare(self, target: str, text: str) -> Match:
        if self.collapse:
            words = target.split()
            found = text.split(None, len(words) + WINDOW)
            one, other = (_fold_case(" ".join(side), self.ignore_case) for side in (words, found))
            return compare_lines([one], [other.rstrip()])
        lines, _ = self._lines(target, target.count("\n") + 1)
        return compare_lines(lines, *self._lines(text, len(lines)))

    def _lines(self, text: str, n: int) -> tuple[list[str], int]:
        """As `first_lines`: what lies beyond is never rid of its spaces, so that its size does not matter."""
        text = text.rstrip()
        blank = len(text) - len(text.lstrip())
        kept = text[text.rfind("\n", 0, blank) + 1 :]
        lines, unread = first_lines(f"{kept}\n" if kept else "", n)
        return [_fold_case(line.rstrip(), self.ignore_case) for line in lines], unread


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesMatcher(BuiltinMatcher):
    r"""The same lines, in order or (`ordered=False`) in any; expected is text or a list of lines.

    `strip` ignores whitespace around each line, `ignore_blank` lines with nothing on them, `ignore_case` case.

    >>> print(LinesMatcher(ordered=False)(["a", "b", "b"], b"b\nc\na\n").diff)
    missing: b
    not expected: c
    """

    name: ClassVar[str] = "lines"
    ordered: bool = True
    ignore_case: bool = False
    strip: bool = True
    ignore_blank: bool = True

    def _compare(self, target: Iterable[str], text: str) -> Match:
        expected, found = list(self._kept_lines(target)), self._kept_lines(split_lines(text))
        if not self.ordered:
            return match_from_differences(self._in_any_order(expected, found))
        lines = list(islice(found, len(expected) + WINDOW))
        return compare_lines(expected, lines, sum(1 for _ in islice(found, MANY)))

    def _parse_expected(self, expected: Any) -> Iterable[str]:
        if isinstance(expected, (list, tuple)):
            return [line for item in expected for line in split_lines(f"{expected_text(self, item)}\n")]
        return split_lines(expected_text(self, expected).removeprefix("\ufeff"))

    def _kept_lines(self, lines: Iterable[str]) -> Iterator[str]:
        kept = map(str.strip, lines) if self.strip else iter(lines)
        kept = filter(str.strip, kept) if self.ignore_blank else kept
        return map(str.casefold, kept) if self.ignore_case else kept

    def _in_any_order(self, target: Sequence[str], found: Iterator[str]) -> Iterator[str]:
        lines = list(islice(found, len(target) + MANY))
        missing, others = Counter(target), Counter(lines)
        missing, others = missing - others, others - missing
        if next(found, None) is not None:
            yield f"{format_count(len(target), 'line')} expected, more than {len(lines):,} found"
            missing.clear()  # they may be among those not looked at
        yield from (f"missing: {_format_count(line, times)}" for line, times in missing.items())
        yield from (f"not expected: {_format_count(line, times)}" for line, times in others.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainsMatcher(BuiltinMatcher):
    """Every expected part is in the text, and none of `absent` is; expected is a text or a list of them.

    >>> print(ContainsMatcher(absent=["error"])(["total", "done"], b"total: 3; error").diff)
    missing: 'done'
    must not be there: 'error'
    the text begins:
      total: 3; error
    """

    name: ClassVar[str] = "contains"
    ignore_case: bool = False
    absent: Sequence[str] = ()

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        if "" in self.absent:
            raise InputError("matcher contains: an empty text is in every text: absent must name others")

    def _compare(self, target: list[str], text: str) -> Match:
        def is_there(part: str) -> bool:
            return _fold_case(part, self.ignore_case) in folded

        folded = _fold_case(text, self.ignore_case)
        wrong = [f"missing: {truncate(part, 200)!r}" for part in target if not is_there(part)]
        wrong += [f"must not be there: {truncate(part, 200)!r}" for part in self.absent if is_there(part)]
        return mismatch(*wrong, *preview_lines(text)) if wrong else RIGHT

    def _parse_expected(self, expected: Any) -> list[str]:
        items = expected if isinstance(expected, (list, tuple)) else [expected]
        parts = [expected_text(self, item) for item in items]
        if "" in parts:
            raise InputError("matcher contains: an empty text is in every text: expected must name others")
        if not parts and not self.absent:
            raise InputError("matcher contains: nothing is looked for: expected is an empty list, and so is absent")
        return parts


def _fold_case(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text


def split_lines(text: str) -> Iterator[str]:
    r"""The lines of a text, which end in \n or \r\n; a chunk at a time, so that a huge text is never a huge list.

    >>> list(split_lines("a\r\n\nb\n"))
    ['a', '', 'b']
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start + _CHUNK)
        end = len(text.removesuffix("\n")) if end < 0 else end
        yield from text[start:end].removesuffix("\r").replace("\r\n", "\n").split("\n")
        start = end + 1


def _format_count(line: str, times: int) -> str:
    return f"{escape_line(truncate(line))}{f' ({times:,} times)' if times > 1 else ''}"


_FEW_STEPS = 300_000  # of backtracking: milliseconds, and megabytes of its stack
_LONG_PATTERN = 1_000

# what a bound on the steps cannot be read off from: a repeated group, a reference back, a condition, a large count
_HARD_TO_BOUND = re.compile(r"\)[*+?{]|\\[1-9]|\(\?P=|\(\?\(|[0-9]{3}")

_ISOLATED_MATCH = """
import re
size, flags, full = (int(word) for word in data[:100].split()[:3])
pattern = data[100:100 + size].decode("utf-8", "surrogatepass")
text = data[100 + size:].decode("utf-8", "surrogateescape")
compiled = re.compile(pattern, flags)
texts = [text, text.removesuffix("\\n").removesuffix("\\r")] if full else [text]
match = compiled.fullmatch if full else compiled.search
sys.stdout.write(str(any(match(one) for one in texts)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexMatcher(BuiltinMatcher):
    r"""The text matches a regular expression: all of it (a final newline aside), or with `full=False` any part.

    `ignore_case`, `multiline` and `dotall` are Python's flags. A match that could take long runs in a process of its
    own, and one that takes longer than `limit` seconds is wrong.

    >>> RegexMatcher()(r"\d+ items?", b"12 items\n").correct, RegexMatcher(full=False)("item", b"12 items").correct
    (True, True)
    >>> print(RegexMatcher()(r"\d+", b"12 items").diff)
    does not match \d+
    the text begins:
      12 items
    """

    name: ClassVar[str] = "regex"
    full: bool = True
    ignore_case: bool = False
    multiline: bool = False
    dotall: bool = False
    limit: float = 2.0

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        check_limit(self.name, self.limit)

    def _compare(self, target: re.Pattern[str], text: str) -> Match:
        pattern = truncate(target.pattern, 200)
        try:
            if self._matches(target, text):
                return RIGHT
        except IsolationLimitExceeded as reason:
            raise NotComparable(f"matching {pattern} {reason}") from None
        raise NotComparable(f"{'does not match' if self.full else 'no part matches'} {pattern}")

    def _parse_expected(self, expected: Any) -> re.Pattern[str]:
        if isinstance(expected, bytes):  # a file, which ends in a newline that is not meant
            expected = decode_actual(expected).removesuffix("\n").removesuffix("\r")
        if not isinstance(expected, str):
            raise self.type_error(expected, "a regular expression")
        flags = self.ignore_case * re.IGNORECASE | self.multiline * re.MULTILINE | self.dotall * re.DOTALL
        return _compile(expected, flags)

    def _matches(self, compiled: re.Pattern[str], text: str) -> bool:
        if _max_steps(compiled, len(text)) > _FEW_STEPS:
            pattern = compiled.pattern.encode("utf-8", "surrogatepass")
            header = f"{len(pattern)} {compiled.flags} {int(self.full)}".ljust(100).encode()
            data = header + pattern + text.encode("utf-8", "surrogateescape")
            return run_isolated(_ISOLATED_MATCH, data, self.limit, "-S") == b"True"
        if not self.full:
            return compiled.search(text) is not None
        without_end = text.removesuffix("\n").removesuffix("\r")
        return any(compiled.fullmatch(one) for one in (text, without_end))


def _max_steps(compiled: re.Pattern[str], characters: int) -> float:
    r"""A generous bound on the steps of a match: every repetition may end anywhere, every choice doubles.

    >>> _max_steps(re.compile(r"\d+"), 10), _max_steps(re.compile("(a+)+"), 10), _max_steps(re.compile("a|b"), 10)
    (144.0, inf, 24.0)
    """
    pattern = compiled.pattern
    verbose = bool(compiled.flags & re.VERBOSE)  # blanks may then stand between a group and its repetition
    if verbose or _HARD_TO_BOUND.search(pattern) or len(pattern) > _LONG_PATTERN:
        return float("inf")
    repetitions = sum(map(pattern.count, "*+{"))
    choices = sum(map(pattern.count, "?|"))
    return float(min((characters + 2) ** (1 + min(repetitions, 50)) * 2 ** min(choices, 50), 10**18))


@lru_cache(maxsize=64)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python may read otherwise; the author cannot see it here
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as problem:
        reason = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise InputError(f"matcher regex: {truncate(pattern, 60)!r} is no regular expression: {reason}") from None


_DIGITS = {"sha256": 64, "md5": 32, "sha1": 40, "sha512": 128}
_HEX = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMatcher(BuiltinMatcher):
    """The bytes have the expected digest, in hex; or, where bytes are expected (a file), the same digest as those.

    `algorithm` is sha256, sha512, sha1 or md5.

    >>> HashMatcher(algorithm="md5")("900150983cd24fb0d6963f7d28e17f72", b"abc").correct
    True
    >>> print(HashMatcher(algorithm="md5")(b"abc", b"abcd").diff)
    expected md5 900150983cd24fb0d6963f7d28e17f72 (3 bytes)
    found    md5 e2fc714c4727ee9395f324cd2e7f331f (4 bytes)
    """

    name: ClassVar[str] = "hash"
    algorithm: str = "sha256"

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        if self.algorithm not in _DIGITS:
            known = ", ".join(_DIGITS)
            raise InputError(f"matcher hash: algorithm must be one of {known}, not {self.algorithm!r:.40}")

    def __call__(self, expected: Any, actual: Actual) -> Match:
        content = actual if isinstance(actual, bytes) else decode_actual(actual).encode("utf-8", "surrogateescape")
        target, found = self._parse_expected(expected), self._digest(content)
        if target == found:
            return RIGHT
        size = f" ({len(expected):,} bytes)" if isinstance(expected, bytes) else ""
        shown = f"found    {self.algorithm} {found} ({len(content):,} bytes)"
        return mismatch(f"expected {self.algorithm} {target}{size}", shown)

    def _parse_expected(self, expected: Any) -> str:
        if isinstance(expected, bytes):
            return self._digest(expected)
        digits = _DIGITS[self.algorithm]
        text = expected.strip().lower() if isinstance(expected, str) else ""
        if len(text) != digits or not _HEX.fullmatch(text):
            raise self.type_error(expected, f"a {self.algorithm} digest of {digits} hex digits")
        return text

    def _digest(self, content: bytes) -> str:
        return hashlib.new(self.algorithm, content, usedforsecurity=False).hexdigest()


# no traps: what leads beyond all bounds is an infinity, which is close to nothing, and not an exception
_CONTEXT = Context(prec=1000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])

_GROUPED = r"(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)"
_DECIMAL = rf"(?:{_GROUPED}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
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
        wanted, shown = truncate_around_difference(str(target), str(found), 100)
        distance = _CONTEXT.abs(_CONTEXT.subtract(target.value, found.value))
        return mismatch(f"expected {wanted}{close}, found {shown}: off by {distance:.6g}")

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
