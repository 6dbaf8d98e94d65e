"""Matcher of CSV tables: numbers compared by value, columns matched by name."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.format import format_count
from kofn.errors import InputError
from kofn.problems.matchers import (
    BuiltinMatcher,
    NotComparable,
    expected_text,
    match_from_differences,
    truncate,
    truncate_around_difference,
)
from kofn.problems.matchers.bounds import StepBudget, leftovers, unpaired
from kofn.problems.matchers.plain_text import Closeness, parse_plain_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.problems.matchers import Match

Row = list[str]

_MANY = 10_000  # rows beyond those expected: how many more there are interests nobody
_WIDTH = 80
_ANY_WIDTH = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMatcher(BuiltinMatcher):
    r"""The same table: cells without the blanks around them, numbers as numbers (4.5 is 4.50, 007 is not 7).

    Expected is text, a list of rows, or a list of mappings, whose keys are the header. The first row is the `header`
    unless there is none; with `columns_ordered=False` its columns may come in any order, with `ordered=False` the
    rows. Numbers may differ by `tolerance`. Rows with nothing in them do not count; the others are numbered from 1,
    below the header.

    >>> TableMatcher()("name,price\nink,4.50\n", b"name, price\nink, 4.5\n").correct
    True
    >>> print(TableMatcher()("name,price\nink,4.50\n", b"name,price\nink,4.5x\npen,2\n").diff)
    1 row expected, 2 found
    row 1, price: expected 4.50, found 4.5x
    """

    name: ClassVar[str] = "table"
    delimiter: str = ","
    header: bool = True
    columns_ordered: bool = True
    ordered: bool = True
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise InputError(f"matcher table: delimiter must be one character, not {self.delimiter!r:.20}")

    def _compare(self, target: list[Row], text: str) -> Match:
        try:
            found = list(islice(self._rows(text, max(map(len, target))), len(target) + _MANY))
        except csv.Error as problem:
            raise NotComparable(f"not a table: {problem}") from None
        if not found:
            raise NotComparable("not a table: no row has anything in it")
        names = target[0] if self.header else []
        if self.header:
            columns = match_from_differences(self._column_differences(names, found[0]))
            if not columns.correct:
                return columns
            if found[0] != names:
                places = [found[0].index(name) for name in names]
                found = [[row[at] for at in places] if len(row) == len(names) else row for row in found]
            target, found = target[1:], found[1:]
        return match_from_differences(self._row_differences(target, found, names))

    def _column_differences(self, target: Row, found: Row) -> Iterator[str]:
        there, expected = set(found), set(target)
        yield from (f"column {_truncate_cell(name)}: missing" for name in target if name not in there)
        yield from (f"column {_truncate_cell(name)}: not expected" for name in found if name not in expected)
        if len(found) > len(there):
            yield f"column {_truncate_cell(Counter(found).most_common(1)[0][0])}: there more than once"
        elif self.columns_ordered and target != found and there == expected:
            order, found_order = (_truncate_cell(", ".join(names)) for names in (target, found))
            yield f"columns in another order: expected {order}, found {found_order}"

    def _row_differences(self, target: list[Row], found: list[Row], names: Row) -> Iterator[str]:
        if len(target) != len(found):
            more = " or more" if len(found) >= len(target) + _MANY else ""
            yield f"{format_count(len(target), 'row')} expected, {len(found):,}{more} found"
        close = Closeness.of(self.tolerance)
        if self.ordered:
            for at, (one, other) in enumerate(zip(target, found, strict=False), 1):
                yield from (f"row {at:,}{text}" for text in _cell_differences(one, other, names, close))
            return
        if close.exact or len(target) != len(found):
            missing, extra = leftovers(target, found, _key)
        else:
            missing, extra = _unpaired(target, found, names, close)
        yield from (f"row missing: {_truncate_cell(self.delimiter.join(row))}" for row in missing)
        yield from (f"row not expected: {_truncate_cell(self.delimiter.join(row))}" for row in extra)

    def _parse_expected(self, expected: Any) -> list[Row]:
        if isinstance(expected, (list, tuple)):
            rows = list(filter(any, self._rows_of_data(expected)))
        else:
            text = expected_text(self, expected)
            try:
                rows = list(self._rows(text.removeprefix("\ufeff")))
            except csv.Error as problem:
                raise InputError(f"matcher table: expected is no table: {problem}") from None
        if not rows:
            raise InputError("matcher table: expected has no row")
        for name, times in Counter(rows[0] if self.header else ()).items():
            if times > 1:
                raise InputError(f"matcher table: expected has two columns {name!r:.60}; without names: header: false")
        return rows

    def _rows_of_data(self, rows: Sequence[Any]) -> Iterator[Row]:
        if rows and all(isinstance(row, Mapping) for row in rows):
            names = list(dict.fromkeys(name for row in rows for name in row))
            if self.header:
                yield [self._cell(name) for name in names]
            rows = [[row.get(name) for name in names] for row in rows]
        for row in rows:
            if not isinstance(row, (list, tuple)):
                raise self.type_error(row, "text, a list of lists or a list of mappings")
            yield [self._cell(cell) for cell in row]

    def _cell(self, cell: Any) -> str:
        return "" if cell is None else expected_text(self, cell).strip()

    def _rows(self, text: str, widest: int = _ANY_WIDTH) -> Iterator[Row]:
        """The rows with something in them; of one that is too wide, no more than shows that it is."""
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, skipinitialspace=True)
        for row in filter(any, reader):  # which skips blank lines fast
            cells = [cell.strip() for cell in row[: widest + 1]]
            if len(cells) > widest or any(cells):
                yield cells


def _cell_differences(target: Row, found: Row, names: Row, close: Closeness) -> Iterator[str]:
    if len(target) != len(found):
        number = f"{len(found):,}" if len(found) < len(target) else "more"
        yield f": {len(target):,} cells expected, {number} found: {_truncate_cell(', '.join(found))}"
        return
    for at, (one, other) in enumerate(zip(target, found, strict=True)):
        if one == other:
            continue
        left, right = parse_plain_number(one), parse_plain_number(other)
        if left is None or right is None or not close.holds(left, right):
            # a row may be longer than the header
            name = _truncate_cell(names[at]) if at < len(names) and names[at] else f"column {at + 1}"
            wanted, shown = truncate_around_difference(one, other, _WIDTH)
            yield f", {name}: expected {wanted or 'nothing'}, found {shown or 'nothing'}"


def _key(row: Row) -> tuple[Any, ...]:
    """Equal for rows that are, and sorted by numbers before texts."""
    numbers = [parse_plain_number(cell) for cell in row]
    return tuple((1, cell) if number is None else (0, number) for cell, number in zip(row, numbers, strict=True))


def _unpaired(target: list[Row], found: list[Row], names: Row, close: Closeness) -> tuple[list[Row], list[Row]]:
    budget = StepBudget()
    budget.left += sum(map(len, target))

    def same(one: Row, other: Row) -> bool:
        budget.spend(len(one))
        return next(_cell_differences(one, other, names, close), None) is None

    return unpaired(sorted(target, key=_key), sorted(found, key=_key), same, budget)


def _truncate_cell(text: str) -> str:
    return truncate(text, _WIDTH) or '""'
