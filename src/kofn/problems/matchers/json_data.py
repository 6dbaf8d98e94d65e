"""Matcher of JSON data: equal as data, apart from what the author declares irrelevant."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.problems.matchers.base import BuiltinMatcher, decode_actual
from kofn.problems.matchers.diff_text import (
    match_from_differences,
    mismatch,
    preview_lines,
    truncate,
    truncate_around_difference,
)
from kofn.problems.matchers.json_paths import ANY, Paths, format_path
from kofn.problems.matchers.number_text import Closeness
from kofn.problems.matchers.pairing import StepBudget, StepsExceeded, leftovers, unpaired
from kofn.problems.matchers.strict_json import UnreadableJson, expected_data, read_actual

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.problems.matchers.base import Actual, Match
    from kofn.problems.matchers.json_paths import Path, Step

_WIDTH = 120
_ITEMS = 5
_NO_END = 10**12
_MANY = 10_000  # items too many or too few, of which nobody wants to read


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonMatcher(BuiltinMatcher):
    """The same JSON data: order of keys and spacing do not matter, 1 is 1.0, true is not 1.

    Numbers may differ by `tolerance`, or by `relative` times the expected one. `ignore` names places that are not
    compared ($.time, $.items[*].id); a list keeps its length all the same. With `unordered` lists are compared without
    order, all of them or those at the places named; with `subset` objects may have further keys.

    >>> JsonMatcher()({"a": [1, 2]}, b'{"a": [1.0, 2]}').correct
    True
    >>> print(JsonMatcher()({"name": "x", "items": [{"price": 3}]}, b'{"items": [{"price": 4}], "extra": 1}').diff)
    $.name: missing
    $.items[0].price: expected 3, found 4
    $.extra: not expected
    """

    name: ClassVar[str] = "json"
    tolerance: float = 0.0
    relative: float = 0.0
    ignore: Sequence[str] = ()
    unordered: bool | Sequence[str] = False
    subset: bool = False

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        self._rules()

    def check_expected(self, expected: Any) -> None:
        """JSON data, or text that is JSON."""
        expected_data(self, expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        target = expected_data(self, expected)
        try:
            found = read_actual(actual)
        except UnreadableJson as problem:
            return mismatch(str(problem), *preview_lines(decode_actual(actual)))
        comparison = _Comparison(Closeness.of(self.tolerance, self.relative), self.subset)
        try:
            return match_from_differences(comparison.differences(target, found, (), self._rules()))
        except (StepsExceeded, RecursionError):
            return mismatch("too much to compare without order", *preview_lines(decode_actual(actual)))

    def _rules(self) -> _Rules:
        ignore = Paths.parse(tuple(self.ignore), "matcher json: ignore")
        unordered = self.unordered if isinstance(self.unordered, bool) else tuple(self.unordered)
        return _Rules(ignore, Paths.parse(unordered, "matcher json: unordered"))


@dataclass(frozen=True, slots=True)
class _Rules:
    """What of the author's rules applies at a place."""

    ignore: Paths
    unordered: Paths

    def at(self, step: Step) -> _Rules:
        if not self.ignore.remaining and not self.unordered.remaining:
            return self
        return _Rules(self.ignore.at(step), self.unordered.at(step))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One walk through two pieces of data. Both are at most MAX_DEPTH deep, so it may call itself."""

    close: Closeness
    subset: bool
    pairing: StepBudget = field(default_factory=StepBudget)  # for all pairs there are
    budget: StepBudget = field(default_factory=lambda: StepBudget(_NO_END))  # a walk by itself is as long as the data

    def differences(self, expected: Any, found: Any, path: Path, rules: _Rules) -> Iterator[str]:
        self.budget.spend()
        if isinstance(expected, dict) and isinstance(found, dict):
            yield from self._in_objects(expected, found, path, rules)
        elif isinstance(expected, list) and isinstance(found, list):
            free = rules.unordered.here and max(len(expected), len(found)) > 1
            compare = self._in_any_order if free else self._in_order
            yield from compare(expected, found, path, rules)
        elif not self._same_scalar(expected, found):
            one, other = _display_pair(expected, found)
            yield f"{format_path(path)}: expected {one}, found {other}"

    def _in_objects(self, expected: dict[str, Any], found: dict[str, Any], path: Path, rules: _Rules) -> Iterator[str]:
        for key, value in expected.items():
            inner = rules.at(key)
            if inner.ignore.here:
                continue
            if key not in found:
                yield f"{format_path((*path, key))}: missing"
            else:
                yield from self.differences(value, found[key], (*path, key), inner)
        for key in found if not self.subset else ():
            if key not in expected and not rules.at(key).ignore.here:
                yield f"{format_path((*path, key))}: not expected"

    def _in_order(self, expected: list[Any], found: list[Any], path: Path, rules: _Rules) -> Iterator[str]:
        if len(expected) != len(found):
            yield _lengths(expected, found, path)
        for at, (one, other) in enumerate(zip(expected, found, strict=False)):
            inner = rules.at(at)
            if inner.ignore.here:
                continue
            differences = self.differences(one, other, (*path, at), inner)
            if (first := next(differences, None)) is None:
                continue
            yield first
            yield from differences
            if len(expected) != len(found):
                return  # an item too many or too few makes all that follow differ

    def _in_any_order(self, expected: list[Any], found: list[Any], path: Path, rules: _Rules) -> Iterator[str]:
        if len(expected) != len(found):
            yield _lengths(expected, found, path)
        inner = rules.at(ANY)
        if inner.ignore.here or abs(len(expected) - len(found)) > _MANY:
            return
        before = self.budget.left
        left, right = ([(self._key(item, inner), item) for item in side] for side in (expected, found))
        if self.budget is not self.pairing:  # to compare everybody with one other is no more than a walk
            self.pairing.left += 3 * (before - self.budget.left)
        if self.close.exact and not self.subset:
            missing, extra = ([item for _, item in side] for side in leftovers(left, right, _first))
        elif len(expected) == len(found):
            missing, extra = self._unpaired(left, right, path, inner)
        else:
            return  # who has no partner is worth finding out only where everybody might have one
        yield from (f"{format_path(path)}: missing {_display(item)}" for item in missing)
        yield from (f"{format_path(path)}: not expected {_display(item)}" for item in extra)

    def _unpaired(
        self, left: list[tuple[Any, Any]], right: list[tuple[Any, Any]], path: Path, rules: _Rules
    ) -> tuple[list[Any], list[Any]]:
        one, other = ([item for _, item in sorted(side, key=_first)] for side in (left, right))
        inner = _Comparison(self.close, self.subset, self.pairing, self.pairing)

        def same(i: int, j: int) -> bool:
            return next(inner.differences(one[i], other[j], path, rules), None) is None

        missing, extra = unpaired(len(one), same, self.pairing)
        return [one[i] for i in missing], [other[j] for j in extra]

    def _same_scalar(self, expected: Any, found: Any) -> bool:
        if _is_number(expected) and _is_number(found):
            return self.close.holds(expected, found)
        return isinstance(expected, bool) is isinstance(found, bool) and bool(expected == found)

    def _key(self, value: Any, rules: _Rules) -> tuple[int, Any]:
        """What is equal for equal data and sorts among all others: by kind, then by value."""
        self.budget.spend()
        if isinstance(value, dict):
            steps = ((key, item, rules.at(key)) for key, item in value.items())
            return 5, tuple(sorted((key, self._key(item, at)) for key, item, at in steps if not at.ignore.here))
        if isinstance(value, list):
            free = rules.unordered.here
            items = ((item, rules.at(ANY if free else at)) for at, item in enumerate(value))
            keys = [(6, 0) if at.ignore.here else self._key(item, at) for item, at in items]
            return 4, tuple(sorted(keys) if free else keys)
        return _rank(value), 0 if value is None else value


def _rank(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return 0 if value is None else 1
    return 3 if isinstance(value, str) else 2


def _is_number(value: object) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _lengths(expected: list[Any], found: list[Any], path: Path) -> str:
    return f"{format_path(path)}: {len(expected):,} item{'s' * (len(expected) != 1)} expected, {len(found):,} found"


def _display_pair(expected: Any, found: Any) -> tuple[str, str]:
    """Two values side by side; long ones so that their first difference shows."""
    if isinstance(expected, (dict, list)) or isinstance(found, (dict, list)):
        return _display(expected), _display(found)
    return truncate_around_difference(_display_scalar(expected), _display_scalar(found), _WIDTH)


def _display(value: Any, depth: int = 2) -> str:
    """The beginning of a value, as JSON.

    >>> _display({"a": [1, [2, [3]]], "b": list(range(9))})
    '{"a": [1, [...]], "b": [0, 1, 2, 3, 4, ...]}'
    """
    if isinstance(value, list):
        parts = [_display(item, depth - 1) for item in value[:_ITEMS]] if depth else []
        return f"[{', '.join(parts + ['...'] * (len(value) > len(parts)))}]"
    if isinstance(value, dict):
        pairs = list(islice(value.items(), _ITEMS)) if depth else []
        parts = [f"{_display_scalar(truncate(key, 60))}: {_display(item, depth - 1)}" for key, item in pairs]
        return f"{{{', '.join(parts + ['...'] * (len(value) > len(parts)))}}}"
    return truncate(_display_scalar(value), _WIDTH)


def _display_scalar(value: Any) -> str:
    if _is_number(value):
        return str(Decimal(value))  # which has no limit of digits
    return json.dumps(value, ensure_ascii=False)
