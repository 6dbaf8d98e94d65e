"""Matchers of JSON: equal as data but for what the author declares irrelevant, or valid against a JSON Schema."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.format import format_count
from kofn.errors import InputError, import_extra
from kofn.problems.matchers import (
    RIGHT,
    BuiltinMatcher,
    NotComparable,
    decode_actual,
    describe_value,
    match_from_differences,
    mismatch,
    preview_lines,
    truncate,
    truncate_around_difference,
)
from kofn.problems.matchers.bounds import (
    IsolationLimitExceeded,
    StepBudget,
    check_limit,
    leftovers,
    run_isolated,
    unpaired,
)
from kofn.problems.matchers.plain_text import Closeness, parse_decimal, to_decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kofn.problems.matchers import Actual, Match


Path = tuple[str | int, ...]
ANY = None  # the step of a path that [*] and .* are; an item of a list without order has no other
Step = str | int | None

_LONG = 100

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'\s*]+)|\[(?P<index>[0-9]{1,9})\]|(?P<any>\[\*\]|\.\*)"""
    r"""|\[(?P<quoted>"(?:[^"\\]|\\.)*"|'[^'\\]*')\]"""
)


def format_path(path: Path) -> str:
    """A place as people write it.

    >>> format_path(("items", 2, "a b")), format_path(())
    ('$.items[2]["a b"]', '$')
    """
    text = "$" + "".join(map(_format_step, path))
    return text if len(text) <= 2 * _LONG else f"{text[:_LONG]}...{text[-_LONG // 2 :]}"


def parse_path(text: str, purpose: str) -> tuple[Step, ...]:
    """The steps of a path that an author wrote, `purpose` being what they wrote it for.

    >>> parse_path('$.items[*]["a b"][0]', "matcher json: ignore")
    ('items', None, 'a b', 0)
    >>> parse_path("time", "matcher json: ignore")
    Traceback (most recent call last):
    kofn.errors.InputError: matcher json: ignore: 'time' is no path such as $.time, $.items[*].id or $["a b"][0]
    """
    steps: list[Step] = []
    at = 1 if text.startswith("$") else len(text) + 1
    while at < len(text) and (match := _STEP.match(text, at)):
        quoted: str = match["quoted"] or ""
        if match["any"]:
            steps.append(ANY)
        elif match["index"]:
            steps.append(int(match["index"]))
        else:
            steps.append(json.loads(quoted) if quoted.startswith('"') else quoted[1:-1] or match["name"])
        at = match.end()
    if at != len(text):
        example = '$.time, $.items[*].id or $["a b"][0]'
        raise InputError(f"{purpose}: {truncate(text, 60)!r} is no path such as {example}")
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of an author's that lead on from a place in the data.

    >>> paths = Paths.parse(["$.items[*].id"], "ignore")
    >>> paths.at("items").at(3).at("id").here, paths.at("items").here
    (True, False)
    """

    remaining: tuple[tuple[Step, ...], ...] = ()
    everywhere: bool = False

    @classmethod
    def parse(cls, paths: bool | tuple[str, ...] | list[str], purpose: str) -> Paths:
        """From a list of paths, or true for every place there is."""
        if isinstance(paths, bool):
            return cls(everywhere=paths)
        return cls(tuple(parse_path(text, purpose) for text in paths))

    @property
    def here(self) -> bool:
        """Whether one of them ends here."""
        return self.everywhere or () in self.remaining

    def at(self, step: Step) -> Paths:
        """Those that lead on one step further."""
        if not self.remaining:
            return self
        return Paths(tuple(path[1:] for path in self.remaining if path and path[0] in (ANY, step)), self.everywhere)


def _format_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) <= _LONG and step.isidentifier():
        return f".{step}"
    return f"[{json.dumps(truncate(step, _LONG), ensure_ascii=False)}]"


MAX_DEPTH = 200
MAX_VALUES = 1_000_000
_FEW_DIGITS = 18
_STRUCTURE = re.compile(r"[^\[\]{},]+")


def read_actual(actual: Actual, number: Callable[[str], Any] | None = None) -> Any:
    """The data that a program wrote; NotComparable where it is none.

    >>> read_actual(b'{"a": [1, 2.50]}')
    {'a': [1, Decimal('2.50')]}
    >>> read_actual(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    kofn.problems.matchers.NotComparable: not JSON: key "a" is there twice
    """
    if isinstance(actual, bytes):
        try:
            actual.decode()
        except UnicodeDecodeError as problem:
            raise NotComparable(f"not JSON: byte {problem.start + 1:,} is not UTF-8") from None
    return read(decode_actual(actual), number)


def read(text: str, number: Callable[[str], Any] | None = None) -> Any:
    """The data of a text, its numbers exact (int or Decimal) or what `number` makes of them.

    Beyond what json refuses, refused are NaN and infinities, a key that an object has twice, and what is too deep or
    too much to compare.
    """
    text = text.removeprefix("\ufeff")
    _check_size(text)
    number = number or exact_number
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=number, parse_float=number, parse_constant=_constant
        )
    except json.JSONDecodeError as problem:
        raise NotComparable(f"not JSON: line {problem.lineno:,} column {problem.colno:,}: {problem.msg}") from None
    except RecursionError:
        raise NotComparable("JSON nested too deeply") from None


def exact_number(text: str) -> Any:
    """A number without loss: small ones as int, which takes a third of the memory."""
    if len(text) <= _FEW_DIGITS and text.lstrip("-").isdigit():
        return int(text)
    value = parse_decimal(text)
    if value is None:
        raise NotComparable(f"a number beyond all bounds: {truncate(text, 40)}")
    return value


def expected_data(matcher: BuiltinMatcher, expected: object) -> Any:
    """What an author expects, as data in the same form: given as data, or as text that is JSON."""
    if not isinstance(expected, (str, bytes)):
        return _plain(matcher, expected, ())
    try:
        return read_actual(expected)
    except NotComparable as problem:
        text = decode_actual(expected).lstrip()
        hint = "" if text.startswith(("{", "[", '"')) else "; a text that is itself the data goes in double quotes"
        raise InputError(f"matcher {matcher.name}: expected is {problem}{hint}") from None


def _plain(matcher: BuiltinMatcher, value: Any, path: Path) -> Any:
    if len(path) > MAX_DEPTH:
        raise InputError(f"matcher {matcher.name}: expected is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, (list, tuple)):
        return [_plain(matcher, item, (*path, at)) for at, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(
                    f"matcher {matcher.name}: keys are texts: write {key!r} at {format_path(path)} in quotes"
                )
        return {key: _plain(matcher, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, float) and isfinite(value):
        return to_decimal(value)
    if value is None or isinstance(value, (str, int)):
        return value
    where = f" at {format_path(path)}" if path else ""
    raise InputError(f"matcher {matcher.name}: expected has {describe_value(value)}{where}, which JSON cannot hold")


def _check_size(text: str) -> None:
    """Refuse what is too deep or too much before it is built; by counting characters, which takes milliseconds."""
    if not text.strip():
        raise NotComparable(f"not JSON: {'blank' if text else 'empty'}")
    if _values(text) <= MAX_DEPTH:
        return
    bare = _outside_strings(text)
    if _values(bare) > MAX_VALUES:
        raise NotComparable(f"JSON of more than {MAX_VALUES:,} values")
    depth = 0
    for one in bare:
        depth += (one in "[{") - (one in "]}")
        if depth > MAX_DEPTH:
            raise NotComparable(f"JSON nested more than {MAX_DEPTH} levels deep")


def _values(text: str) -> int:
    return 1 + sum(map(text.count, ",[{"))


def _outside_strings(text: str) -> str:
    r"""Only what structure there is. Right up to the first mistake in the text, and what follows is never built.

    >>> _outside_strings(r'{"a[": ["\"[", 1]}')
    '{[,]}'
    """
    unescaped = text.replace("\\\\", "").replace('\\"', "")
    return _STRUCTURE.sub("", "".join(unescaped.split('"')[::2]))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value] # add returns None
    raise NotComparable(f"not JSON: key {json.dumps(truncate(twice, 60), ensure_ascii=False)} is there twice")


def _constant(name: str) -> None:
    raise NotComparable(f"not JSON: {name} is no JSON number")


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

    def _parse_expected(self, expected: Any) -> Any:
        return expected_data(self, expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        target, text = self._parse_expected(expected), decode_actual(actual)
        try:
            found = read_actual(actual)
            comparison = _Comparison(Closeness.of(self.tolerance, self.relative), self.subset)
            return match_from_differences(comparison.differences(target, found, (), self._rules()))
        except NotComparable as reason:
            return mismatch(str(reason), *preview_lines(text))
        except RecursionError:
            return mismatch("too much to compare without order", *preview_lines(text))

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
            if len(expected) != len(found):
                yield f"{format_path(path)}: {format_count(len(expected), 'item')} expected, {len(found):,} found"
            free = rules.unordered.here and max(len(expected), len(found)) > 1
            compare = self._in_any_order if free else self._in_order
            yield from compare(expected, found, path, rules)
        elif not self._same_scalar(expected, found):
            if isinstance(expected, (dict, list)) or isinstance(found, (dict, list)):
                one, other = _display(expected), _display(found)
            else:
                one, other = truncate_around_difference(_display_scalar(expected), _display_scalar(found), _WIDTH)
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
        inner = rules.at(ANY)
        if inner.ignore.here or abs(len(expected) - len(found)) > _MANY:
            return
        before = self.budget.left
        left, right = ([(self._key(item, inner), item) for item in side] for side in (expected, found))
        if self.budget is not self.pairing:  # to compare everybody with one other is no more than a walk
            self.pairing.left += 3 * (before - self.budget.left)
        if self.close.exact and not self.subset:
            missing, extra = ([item for _, item in side] for side in leftovers(left, right, itemgetter(0)))
        elif len(expected) == len(found):
            one, other = ([item for _, item in sorted(side, key=itemgetter(0))] for side in (left, right))
            pair = _Comparison(self.close, self.subset, self.pairing, self.pairing)
            missing, extra = unpaired(
                one, other, lambda a, b: next(pair.differences(a, b, path, inner), None) is None, self.pairing
            )
        else:
            return  # who has no partner is worth finding out only where everybody might have one
        yield from (f"{format_path(path)}: missing {_display(item)}" for item in missing)
        yield from (f"{format_path(path)}: not expected {_display(item)}" for item in extra)

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
        if value is None:
            return 0, 0
        return 1 if isinstance(value, bool) else 3 if isinstance(value, str) else 2, value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


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


_MAX_VIOLATIONS = 10
_SHORT_TEXT = 20_000
_MANY_DIGITS = 4_000

# with these the time that a check takes is not bounded by the size of the schema times that of the text
_HARD_TO_BOUND = ('"pattern', '"uniqueItems"', 'Ref"', '$ref"')

_ISOLATED_CHECK = """
import json
job = json.loads(data)
sys.path[:] = job["path"]
sys.setrecursionlimit(5000)
from kofn.errors import InputError
from kofn.problems.matchers.json_data import violations
try:
    answer = {"violations": violations(job["schema"], job["text"].encode("utf-8", "surrogateescape"))}
except InputError as problem:
    answer = {"mistake": str(problem)}
sys.stdout.write(json.dumps(answer))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaMatcher(BuiltinMatcher):
    """The text is JSON that is valid against a JSON Schema, given as data or as JSON text.

    Its `$schema` picks the draft (the newest when absent). Nothing is fetched: a `$ref` to elsewhere is an error. A
    check that could take long runs in a process of its own, and one that takes longer than `limit` seconds is wrong.

    >>> person = {"type": "object", "required": ["name"], "properties": {"age": {"minimum": 0}}}
    >>> SchemaMatcher()(person, b'{"name": "Ada"}').correct
    True
    >>> print(SchemaMatcher()(person, b'{"age": -1}').diff)
    $: 'name' is a required property
    $.age: -1 is less than the minimum of 0
    """

    name: ClassVar[str] = "schema"
    limit: float = 5.0

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        check_limit(self.name, self.limit)
        import_extra("jsonschema", "schema", "matcher schema")

    def __call__(self, expected: Any, actual: Actual) -> Match:
        schema, text = self._parse_expected(expected), decode_actual(actual)
        try:
            lines = self._violations(schema, text)
        except NotComparable as problem:
            reason = f"checking {problem}" if isinstance(problem, IsolationLimitExceeded) else str(problem)
            return mismatch(reason, *preview_lines(text))
        return mismatch(*lines) if lines else RIGHT

    def _violations(self, schema: str, text: str) -> list[str]:
        actual = text.encode("utf-8", "surrogateescape")
        read_actual(actual, _number)
        if len(text) <= _SHORT_TEXT and not any(word in schema for word in _HARD_TO_BOUND):
            return violations(schema, actual)
        path = [folder for folder in sys.path if folder]
        job = json.dumps({"path": path, "schema": schema, "text": text}).encode()
        answer = json.loads(run_isolated(_ISOLATED_CHECK, job, self.limit))
        if "mistake" in answer:
            raise InputError(answer["mistake"])
        lines: list[str] = answer["violations"]
        return lines

    def _parse_expected(self, expected: Any) -> str:
        """The schema, checked, as JSON text, which is what checked schemas are remembered by."""
        text = self._text(expected)
        _validator(text)
        return text

    def _text(self, expected: Any) -> str:
        if isinstance(expected, (str, bytes)):
            expected_data(self, expected)
            return decode_actual(expected).removeprefix("\ufeff")
        if not isinstance(expected, (dict, bool)):
            raise self.type_error(expected, "a JSON Schema")
        try:
            return json.dumps(expected, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(f"matcher schema: expected is no JSON data: {problem}") from None


def violations(schema: str, actual: bytes) -> list[str]:
    """In what an actual value breaks a schema: a line for each of the first few."""
    unresolvable = importlib.import_module("referencing.exceptions").Unresolvable
    try:
        errors = list(islice(_validator(schema).iter_errors(read_actual(actual, _number)), _MAX_VIOLATIONS + 1))
    except unresolvable as error:
        ref = truncate(str(getattr(error, "ref", error)), 200)
        raise InputError(f"matcher schema: cannot resolve $ref {ref!r}: put it in $defs") from None
    except (ArithmeticError, RecursionError) as problem:
        return [f"cannot be checked: {type(problem).__name__}"]
    # a message begins with the value, however long, and ends with what is wrong: the middle is left out
    messages = [m if len(m) <= 200 else f"{m[:80]} ... {m[-110:]}" for m in (error.message for error in errors)]
    lines = [f"{format_path(tuple(e.absolute_path))}: {text}" for e, text in zip(errors, messages, strict=True)]
    return lines if len(lines) <= _MAX_VIOLATIONS else [*lines[:_MAX_VIOLATIONS], "... and more"]


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    jsonschema = import_extra("jsonschema", "schema", "matcher schema")
    registry = importlib.import_module("jsonschema_specifications").REGISTRY
    data = json.loads(schema)
    if not isinstance(data, (dict, bool)):
        raise InputError(f"matcher schema: expected must be a JSON Schema, not {describe_value(data)}")
    kind = jsonschema.validators.validator_for(data, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(data, format_checker=kind.FORMAT_CHECKER)  # which knows what is no regular expression
    except jsonschema.SchemaError as problem:
        where = format_path(tuple(problem.absolute_path))
        reason = truncate(" ".join(problem.message.split()), 200)
        raise InputError(f"matcher schema: expected is no JSON Schema: {where}: {reason}") from None
    return kind(data, registry=registry)


def _number(text: str) -> int | float:
    """A number as jsonschema knows them."""
    if text.lstrip("-").isdigit() and len(text) <= _MANY_DIGITS:
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise NotComparable(f"a number beyond what a schema can check: {truncate(text, 40)}")
    return value
