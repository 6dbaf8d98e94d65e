"""Matchers of text: equal, equal but for white space, line by line, or containing given parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError
from kofn.problems.matchers.base import RIGHT, BuiltinMatcher, decode_actual, decode_without_bom, expected_text
from kofn.problems.matchers.diff_text import escape_line, match_from_differences, mismatch, preview_lines, truncate
from kofn.problems.matchers.line_diff import MANY, WINDOW, compare_lines, first_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.problems.matchers.base import Actual, Match

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

    def check_expected(self, expected: Any) -> None:
        """Text, bytes or a number."""
        expected_text(self, expected)

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

    def check_expected(self, expected: Any) -> None:
        """Text, bytes or a number."""
        expected_text(self, expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        target, found = expected_text(self, expected).removeprefix("\ufeff"), decode_without_bom(actual)
        if self.collapse:
            return self._compare_words(target.split(), found)
        lines, _ = self._lines(target, target.count("\n") + 1)
        return compare_lines(lines, *self._lines(found, len(lines)))

    def _lines(self, text: str, n: int) -> tuple[list[str], int]:
        """As `first_lines`: what lies beyond is never rid of its spaces, so that its size does not matter."""
        text = text.rstrip()
        blank = len(text) - len(text.lstrip())
        kept = text[text.rfind("\n", 0, blank) + 1 :]
        lines, unread = first_lines(f"{kept}\n" if kept else "", n)
        return [self._fold_case(line.rstrip()) for line in lines], unread

    def _compare_words(self, target: list[str], found: str) -> Match:
        words = found.split(None, len(target) + WINDOW)
        one, other = (self._fold_case(" ".join(side)) for side in (target, words))
        return compare_lines([one], [other.rstrip()])

    def _fold_case(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text


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

    def check_expected(self, expected: Any) -> None:
        """Text, or a list of texts or numbers."""
        self._parse_expected(expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        target = list(self._kept_lines(self._parse_expected(expected)))
        found = self._kept_lines(split_lines(decode_without_bom(actual)))
        if not self.ordered:
            return match_from_differences(self._in_any_order(target, found))
        lines = list(islice(found, len(target) + WINDOW))
        return compare_lines(target, lines, sum(1 for _ in islice(found, MANY)))

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
            yield f"{len(target):,} line{'s' * (len(target) != 1)} expected, more than {len(lines):,} found"
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

    def check_expected(self, expected: Any) -> None:
        """A text that is not empty, or a list of such."""
        self._parse_expected(expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        parts, found = self._parse_expected(expected), decode_without_bom(actual)
        text = self._fold_case(found)
        missing = [f"missing: {truncate(part, 200)!r}" for part in parts if self._fold_case(part) not in text]
        there = [f"must not be there: {truncate(part, 200)!r}" for part in self.absent if self._fold_case(part) in text]
        return mismatch(*missing, *there, *preview_lines(found)) if missing or there else RIGHT

    def _parse_expected(self, expected: Any) -> list[str]:
        items = expected if isinstance(expected, (list, tuple)) else [expected]
        parts = [expected_text(self, item) for item in items]
        if "" in parts:
            raise InputError("matcher contains: an empty text is in every text: expected must name others")
        if not parts and not self.absent:
            raise InputError("matcher contains: nothing is looked for: expected is an empty list, and so is absent")
        return parts

    def _fold_case(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text


def split_lines(text: str) -> Iterator[str]:
    r"""The lines of a text, which end in \n or \r\n; a chunk at a time, so that a huge text is never a huge list.

    >>> list(split_lines("a\r\n\nb\n"))
    ['a', '', 'b']
    """
    return chain.from_iterable(_chunks_of_lines(text))


def _chunks_of_lines(text: str) -> Iterator[list[str]]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + _CHUNK)
        end = len(text.removesuffix("\n")) if end < 0 else end
        yield text[start:end].removesuffix("\r").replace("\r\n", "\n").split("\n")
        start = end + 1


def _format_count(line: str, times: int) -> str:
    return f"{escape_line(truncate(line))}{f' ({times:,} times)' if times > 1 else ''}"
