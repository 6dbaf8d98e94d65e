"""Texts: the same, the same but for spacing, line by line, or with certain parts in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.checkpoint.matchers.base import RIGHT, Settings, decoded, lenient, wanted_text
from kofn.checkpoint.matchers.linediff import MANY, WINDOW, compare_lines, first_lines
from kofn.checkpoint.matchers.shown import beginning, match_of, shortened, visible_end, wrong
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.checkpoint.matchers.base import Actual, Match

_CHUNK = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact(Settings):
    r"""The same text to the last space and newline; bytes as bytes, a status as a number.

    >>> Exact()("a\n", b"a\n").correct, Exact()(0, 0).correct, Exact()("0", 0).correct
    (True, True, True)
    >>> print(Exact()("a\n", b"a").diff)
    --- expected
    +++ found
    @@ line 2 @@
     a
    +\ no newline at the end
    """

    name: ClassVar[str] = "exact"

    def check_expected(self, expected: Any) -> None:
        """Text, bytes or a number."""
        wanted_text(self, expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        wanted, found = wanted_text(self, expected), decoded(actual)
        if isinstance(actual, int) and isinstance(expected, (int, float)):
            return RIGHT if expected == actual else wrong(f"expected {wanted}, found {found}")
        if wanted == found:
            return RIGHT
        lines, _ = first_lines(wanted, wanted.count("\n"))
        return compare_lines(lines, *first_lines(found, len(lines)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripped(Settings):
    r"""The same text but for whitespace at the ends of lines and blank lines at both ends; \r\n is \n.

    `ignore_case` compares without case; with `collapse` any run of whitespace, newlines too, is as one space.

    >>> Stripped()("a\nb", b"\na  \r\nb\n\n").correct, Stripped()("a b", b"a  b").correct
    (True, False)
    >>> Stripped(collapse=True, ignore_case=True)("a b", b" A\n B").correct
    True
    """

    name: ClassVar[str] = "stripped"
    ignore_case: bool = False
    collapse: bool = False

    def check_expected(self, expected: Any) -> None:
        """Text, bytes or a number."""
        wanted_text(self, expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        wanted, found = wanted_text(self, expected).removeprefix("\ufeff"), lenient(actual)
        if self.collapse:
            return self._compare_words(wanted.split(), found)
        lines, _ = self._lines(wanted, wanted.count("\n") + 1)
        return compare_lines(lines, *self._lines(found, len(lines)))

    def _lines(self, text: str, n: int) -> tuple[list[str], int]:
        """As `first_lines`: what lies beyond is never rid of its spaces, so that its size does not matter."""
        text = text.rstrip()
        blank = len(text) - len(text.lstrip())
        kept = text[text.rfind("\n", 0, blank) + 1 :]
        lines, unread = first_lines(f"{kept}\n" if kept else "", n)
        return [self._folded(line.rstrip()) for line in lines], unread

    def _compare_words(self, wanted: list[str], found: str) -> Match:
        words = found.split(None, len(wanted) + WINDOW)
        one, other = (self._folded(" ".join(side)) for side in (wanted, words))
        return compare_lines([one], [other.rstrip()])

    def _folded(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Settings):
    r"""The same lines, in order or (`ordered=False`) in any; expected is text or a list of lines.

    `strip` ignores whitespace around each line, `ignore_blank` lines with nothing on them, `ignore_case` case.

    >>> print(Lines(ordered=False)(["a", "b", "b"], b"b\nc\na\n").diff)
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
        self._wanted(expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        wanted = list(self._kept(self._wanted(expected)))
        found = self._kept(split_lines(lenient(actual)))
        if not self.ordered:
            return match_of(self._without_order(wanted, found))
        lines = list(islice(found, len(wanted) + WINDOW))
        return compare_lines(wanted, lines, sum(1 for _ in islice(found, MANY)))

    def _wanted(self, expected: Any) -> Iterable[str]:
        if isinstance(expected, (list, tuple)):
            return [line for item in expected for line in split_lines(f"{wanted_text(self, item)}\n")]
        return split_lines(wanted_text(self, expected).removeprefix("\ufeff"))

    def _kept(self, lines: Iterable[str]) -> Iterator[str]:
        kept = map(str.strip, lines) if self.strip else iter(lines)
        kept = filter(str.strip, kept) if self.ignore_blank else kept
        return map(str.casefold, kept) if self.ignore_case else kept

    def _without_order(self, wanted: Sequence[str], found: Iterator[str]) -> Iterator[str]:
        lines = list(islice(found, len(wanted) + MANY))
        missing, others = Counter(wanted), Counter(lines)
        missing, others = missing - others, others - missing
        if next(found, None) is not None:
            yield f"{len(wanted):,} line{'s' * (len(wanted) != 1)} expected, more than {len(lines):,} found"
            missing.clear()  # they may be among those not looked at
        yield from (f"missing: {_counted(line, times)}" for line, times in missing.items())
        yield from (f"not expected: {_counted(line, times)}" for line, times in others.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Contains(Settings):
    """Every expected part is in the text, and none of `absent` is; expected is a text or a list of them.

    >>> print(Contains(absent=["error"])(["total", "done"], b"total: 3; error").diff)
    missing: 'done'
    must not be there: 'error'
    the text begins:
      total: 3; error
    """

    name: ClassVar[str] = "contains"
    ignore_case: bool = False
    absent: Sequence[str] = ()

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if "" in self.absent:
            raise InputError("matcher contains: an empty text is in every text: absent must name others")

    def check_expected(self, expected: Any) -> None:
        """A text that is not empty, or a list of such."""
        self._wanted(expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        parts, found = self._wanted(expected), lenient(actual)
        text = self._folded(found)
        missing = [f"missing: {shortened(part, 200)!r}" for part in parts if self._folded(part) not in text]
        there = [f"must not be there: {shortened(part, 200)!r}" for part in self.absent if self._folded(part) in text]
        return wrong(*missing, *there, *beginning(found)) if missing or there else RIGHT

    def _wanted(self, expected: Any) -> list[str]:
        items = expected if isinstance(expected, (list, tuple)) else [expected]
        parts = [wanted_text(self, item) for item in items]
        if "" in parts:
            raise InputError("matcher contains: an empty text is in every text: expected must name others")
        if not parts and not self.absent:
            raise InputError("matcher contains: nothing is looked for: expected is an empty list, and so is absent")
        return parts

    def _folded(self, text: str) -> str:
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


def _counted(line: str, times: int) -> str:
    return f"{visible_end(shortened(line))}{f' ({times:,} times)' if times > 1 else ''}"
