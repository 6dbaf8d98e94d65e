"""Lays out text for a terminal: wrapped and labelled lines, and tables without the columns that have no room."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from kofn.core.document import Grid, display_width, grid_lines
from kofn.core.escape import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    Style = Callable[[str, str], str]

_ROLES = {"better": "good", "worse": "bad", "higher": "strong", "lower": "strong"}


def wrap_columns(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, broken at a space where the second half of a line has one.

    >>> wrap_columns("one two three", 8), wrap_columns("日本語日本語", 8)
    (['one two', 'three'], ['日本語日', '本語'])
    """
    lines = []
    while display_width(text) > width:
        end = _fitting_length(text, width)
        space = text.rfind(" ", (end + 1) // 2, end + 1)
        at = space if space > 0 else end
        lines.append(text[:at])
        text = text[at + (space > 0) :]
    return [*lines, text]


def shorten(text: str, width: int) -> str:
    """A text made safe, in at most `width` columns.

    >>> shorten("abcdef", 4), shorten("abcd", 4)
    ('abc…', 'abcd')
    """
    # only the beginning: a text may be megabytes long
    part = escape_controls(text[: 4 * width])
    if display_width(part) <= width and len(text) <= 4 * width:
        return part
    return part[: _fitting_length(part, width - 1)] + "…"


def shorten_name(text: str, width: int) -> str:
    """A name as a cell shows it: shortened, and seen where it is empty."""
    return shorten(text, width) or '""'


def _fitting_length(text: str, width: int) -> int:
    """How many characters of a text fit; at least one, so that whoever cuts gets on."""
    used = 0
    for i, c in enumerate(text):
        used += display_width(c)
        if used > width:
            return max(1, i)
    return len(text)


def styled_lines(text: str, style: Style, role: str, width: int) -> list[str]:
    """A text made safe and wrapped, every line in one style."""
    return [style(line, role) for line in wrap_columns(escape_controls(text), width)]


def hanging_lines(head: str, text: str, margin: int, width: int) -> list[str]:
    """A text made safe and wrapped, beside a head that takes the first `margin` columns."""
    first, *rest = wrap_columns(escape_controls(text), max(20, width - margin))
    return [head + first, *(" " * margin + line for line in rest)]


def labelled_lines(
    rows: Iterable[tuple[str, str]], style: Style, width: int, least: int = 12, indent: int = 0
) -> list[str]:
    """Lines of label and text, the texts aligned in a column that begins at `least` or further right."""
    pairs = list(rows)
    margin = max([least, *(display_width(label) + 2 for label, _ in pairs)])
    lines = []
    for label, text in pairs:
        head = " " * indent + style(label, "dim") + " " * (margin - display_width(label))
        lines += hanging_lines(head, text, indent + margin, width)
    return lines


def warning_lines(warnings: Iterable[object], style: Style, width: int) -> list[str]:
    """Every warning behind a mark."""
    return [line for w in warnings for line in hanging_lines(f"{style('!', 'warn')} ", str(w), 2, width)]


def color_mark(line: str, mark: str, word: str, style: Style) -> str:
    """A line of a table with its mark in the colour of better or worse; as it is for any other word."""
    if word not in _ROLES:
        return line
    before, found, after = line.rpartition(mark)  # the last: a name may look so too
    return before + style(found, _ROLES[word]) + after


def grid_width(grid: Grid) -> int:
    """How many columns of the terminal a table takes."""
    return max(map(display_width, grid_lines(grid, lambda text, _: text)))


def without_columns(grid: Grid, names: Collection[str]) -> Grid:
    """The table without the columns of these names."""
    keep = [name not in names for name in grid.header]
    rows = tuple(tuple(compress(row, keep)) for row in grid.rows)
    return Grid(grid.title, tuple(compress(grid.header, keep)), rows, tuple(compress(grid.right, keep)))


def insert_column(grid: Grid, at: int, name: str, cells: Sequence[str]) -> Grid:
    """The table with one more column of text before the column `at`."""
    rows = tuple((*row[:at], cell, *row[at:]) for row, cell in zip(grid.rows, cells, strict=True))
    header = (*grid.header[:at], name, *grid.header[at:])
    return Grid(grid.title, header, rows, (*grid.right[:at], False, *grid.right[at:]))


def fit_columns(grid: Grid, width: int, drop: Sequence[str]) -> Grid:
    """The table in at most `width` columns where it can be, without the first of `drop`, as many as it takes."""
    for name in drop:
        if grid_width(grid) <= width:
            break
        grid = without_columns(grid, {name})
    return grid
