"""Diffs for people: values with invisible characters made visible, long texts cut, lines compared at a bounded cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, islice
from typing import TYPE_CHECKING

from kofn.core.escape import escape_unprintable
from kofn.core.format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_LINES = 60
MAX_CHARACTERS = 4_000
MAX_WIDTH = 300
MAX_COUNTED = 1_000  # differences beyond these are not even counted: finding them all may take long

_WIDEST = MAX_WIDTH + 100  # of a line of a diff: a text cut to MAX_WIDTH and what is said of it
_LAST_LINE = 120  # characters kept for the line that says how much was left out
_TRAILING_SPACES = re.compile(" +$")


@dataclass(frozen=True, slots=True)
class Match:
    """Whether an actual value is right, and where it is not, how it differs: plain text, empty where it is right."""

    correct: bool
    diff: str = ""


RIGHT = Match(correct=True)


def escape_line(text: str) -> str:
    """The same with trailing spaces as dots.

    >>> escape_line("a b  ")
    'a b··'
    """
    return _TRAILING_SPACES.sub(lambda spaces: "·" * len(spaces[0]), escape_unprintable(text))


def truncate(text: str, width: int = MAX_WIDTH) -> str:
    """The beginning of a long text, and how much is left out.

    >>> truncate("abcdefghij", 6), truncate("abc", 6)
    ('abcdef... (4 more characters)', 'abc')
    """
    return text if len(text) <= width else f"{text[:width]}... ({len(text) - width:,} more characters)"


def truncate_around_difference(one: str, other: str, width: int = MAX_WIDTH) -> tuple[str, str]:
    """Both texts, cut so that their first difference shows.

    >>> truncate_around_difference("x" * 500 + "a", "x" * 500 + "b", 30)
    ('...xxxxxxxxxxa', '...xxxxxxxxxxb')
    """
    if max(len(one), len(other)) <= width:
        return one, other
    start = max(0, common_prefix(one, other) - width // 3)
    before = "..." if start else ""
    return before + truncate(one[start:], width), before + truncate(other[start:], width)


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts begin with in common; by halves, so that megabytes take milliseconds.

    >>> common_prefix("abcd", "abxd"), common_prefix("ab", "abc")
    (2, 2)
    """
    same, limit = 0, min(len(one), len(other))
    while same < limit:
        middle = (same + limit + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            limit = middle - 1
    return same


def preview_lines(text: str, lines: int = 5) -> list[str]:
    r"""The first lines of an actual text, as lines of a diff.

    >>> preview_lines("one\ntwo"), preview_lines("")
    (['the text begins:', '  one', '  two'], ['the text is empty'])
    """
    if not text.strip():
        return ["the text is empty" if not text else "the text is blank"]
    *first, rest = [*text.lstrip("\r\n").split("\n", lines), ""][: lines + 1]
    more = ["  ..."] if rest else []
    return ["the text begins:", *(f"  {truncate(line)}" for line in first), *more]


def bounded_diff(lines: Iterable[str], unread: str = "") -> str:
    """The lines as a diff within its bounds; a last line says how many are left out, and what `unread` says.

    >>> print(bounded_diff(["one", "two"]))
    one
    two
    >>> bounded_diff(map(str, range(100))).splitlines()[-2:]
    ['58', '... 41 more lines']
    """
    kept: list[str] = []
    rest, room, more = iter(lines), MAX_CHARACTERS - _LAST_LINE, 0
    for line in rest:
        text = _fit_line(line)
        room -= len(text) + 1
        if room < 0 or len(kept) == MAX_LINES - 1:
            more = 1 + sum(1 for _ in islice(rest, MAX_COUNTED))
            break
        kept.append(text)
    last = "; ".join(text for text in (_omitted_lines(more), unread) if text)
    return "\n".join([*kept, f"... {last}"] if last else kept)


def match_from_differences(differences: Iterator[str]) -> Match:
    """Right where there is no difference, else wrong with as many of them as a diff holds."""
    first = next(differences, None)
    return RIGHT if first is None else Match(correct=False, diff=bounded_diff(chain([first], differences)))


def mismatch(*lines: str) -> Match:
    """Not right, for these reasons."""
    return Match(correct=False, diff=bounded_diff(lines))


def _fit_line(line: str) -> str:
    text = escape_unprintable(line[:_WIDEST])
    return text if len(line) <= _WIDEST and len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _omitted_lines(more: int) -> str:
    if not more:
        return ""
    return f"more than {MAX_COUNTED:,} more lines" if more > MAX_COUNTED else f"{format_count(more, 'more line')}"


NO_NEWLINE = "\n"
WINDOW = 200  # lines from the first difference on that difflib, which may take quadratic time, gets to see
CONTEXT = 2
MANY = 100_000  # lines beyond those expected: how many more there are interests nobody


def first_lines(text: str, n: int) -> tuple[list[str], int]:
    r"""The first n lines (and a window more, to show what follows), and how many there are beyond those.

    >>> first_lines("a\nb\n", 2), first_lines("a\nb", 2)
    ((['a', 'b'], 0), (['a', 'b', '\n'], 0))
    """
    *lines, rest = text.split("\n", n + WINDOW)
    if len(lines) == n + WINDOW and rest:
        return lines, rest.count("\n") + (not rest.endswith("\n"))
    return ([*lines, rest, NO_NEWLINE] if rest else lines), 0


def compare_lines(expected: Sequence[str], found: Sequence[str], unread: int = 0) -> Match:
    """Right where both sides have the same lines and none was left unread; else the diff.

    >>> print(compare_lines(["a", "b "], ["a", "b"]).diff)
    --- expected
    +++ found
    @@ line 2 @@
     a
    -b·
    +b
    """
    if not unread and expected == found:
        return RIGHT
    start = _common_lines(expected, found)
    end = 0 if unread else _common_lines(expected[start:][::-1], found[start:][::-1])
    one, other = expected[start : len(expected) - end], found[start : len(found) - end]
    before = [f" {_line(line)}" for line in expected[max(0, start - CONTEXT) : start]]
    where = f"@@ line {start + 1:,} @@"
    lines = ["--- expected", "+++ found", where, *before, *_changes(one[:WINDOW], other[:WINDOW])]
    left = (max(0, len(one) - WINDOW), max(0, len(other) - WINDOW) + unread)
    if left == (0, 0):
        lines += [f" {_line(line)}" for line in found[len(found) - end :][:CONTEXT]]
    return Match(correct=False, diff=bounded_diff(lines, _not_compared(*left)))


def _common_lines(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _changes(expected: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """The lines that differ as - and +, with a few that do not around them."""
    noted = False
    for tag, a, b, c, d in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from _unchanged(found[c:d])
            continue
        pairs = [_pair(*both) for both in zip(expected[a:b], found[c:d], strict=False)]
        yield from (f"-{one}" for one, _ in pairs)
        yield from (f"-{_line(line)}" for line in expected[a + len(pairs) : b])
        yield from (f"+{other}" for _, other in pairs)
        yield from (f"+{_line(line)}" for line in found[c + len(pairs) : d])
        if pairs and not noted:
            yield from _note(expected[a], found[c])
            noted = True


def _unchanged(lines: Sequence[str]) -> Iterator[str]:
    if len(lines) <= 2 * CONTEXT + 1:
        yield from (f" {_line(line)}" for line in lines)
        return
    yield from (f" {_line(line)}" for line in lines[:CONTEXT])
    yield f"@@ {len(lines) - 2 * CONTEXT:,} lines are the same @@"
    yield from (f" {_line(line)}" for line in lines[-CONTEXT:])


def _line(line: str) -> str:
    if line == NO_NEWLINE:
        return "\\ no newline at the end"
    return escape_line(line) if len(line) <= MAX_WIDTH else truncate(line)


def _pair(expected: str, found: str) -> tuple[str, str]:
    """A line and what stands in its place, cut alike."""
    if NO_NEWLINE in (expected, found):
        return _line(expected), _line(found)
    one, other = truncate_around_difference(expected, found)
    return escape_line(one), escape_line(other)


def _note(expected: str, found: str) -> Iterator[str]:
    """Which character differs first, where the eye may not see it."""
    at = common_prefix(expected, found)
    characters = expected[at : at + 1], found[at : at + 1]
    if NO_NEWLINE in (expected, found) or "" in characters or "".join(characters).isascii():
        return
    yield f"? column {at + 1:,}: {_name(characters[0])} is expected, {_name(characters[1])} is found"


def _name(character: str) -> str:
    point = ord(character)
    return f"byte {point - 0xDC00:02X}" if 0xDC80 <= point <= 0xDCFF else f"U+{point:04X}"


def _not_compared(expected: int, found: int) -> str:
    if not expected and not found:
        return ""
    return f"{expected:,} further lines expected and {found:,}{' or more' * (found >= MANY)} found were not compared"
