r"""A unified diff of expected and actual lines, at a bounded cost whatever the text.

Both sides come as lists of lines. Where the last line of a text does not end in a newline, the list ends in NO_NEWLINE,
which no line can be. What a text has beyond the lines that are worth looking at is only counted: see `first_lines`.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from kofn.problems.matchers.base import RIGHT, Match
from kofn.problems.matchers.diff_text import (
    MAX_WIDTH,
    bounded_diff,
    common_prefix,
    escape_line,
    truncate,
    truncate_around_difference,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
