"""Values as shown in a diff: invisible characters made visible, long texts cut."""

from __future__ import annotations

import re
from itertools import chain, islice
from typing import TYPE_CHECKING

from kofn.core.escape import escape_unprintable
from kofn.problems.matchers.base import RIGHT, Match

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_LINES = 60
MAX_CHARACTERS = 4_000
MAX_WIDTH = 300
MAX_COUNTED = 1_000  # differences beyond these are not even counted: finding them all may take long

_WIDEST = MAX_WIDTH + 100  # of a line of a diff: a text cut to MAX_WIDTH and what is said of it
_LAST_LINE = 120  # characters kept for the line that says how much was left out
_TRAILING_SPACES = re.compile(" +$")


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
    return (
        f"more than {MAX_COUNTED:,} more lines"
        if more > MAX_COUNTED
        else f"{more:,} more line{'s' if more > 1 else ''}"
    )
