"""A strict, bounded JSON parser, for output of programs and for expected values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.problems.matchers.base import decode_actual, describe_value
from kofn.problems.matchers.diff_text import truncate
from kofn.problems.matchers.json_paths import format_path
from kofn.problems.matchers.number_text import parse_decimal, to_decimal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.problems.matchers.base import Actual, BuiltinMatcher
    from kofn.problems.matchers.json_paths import Path

MAX_DEPTH = 200
MAX_VALUES = 1_000_000
_FEW_DIGITS = 18
_STRUCTURE = re.compile(r"[^\[\]{},]+")


class UnreadableJson(Exception):
    """A text that is not JSON, or more of it than is read; the message says why."""


def read_actual(actual: Actual, number: Callable[[str], Any] | None = None) -> Any:
    """The data that a program wrote; Unreadable where it is none.

    >>> read_actual(b'{"a": [1, 2.50]}')
    {'a': [1, Decimal('2.50')]}
    >>> read_actual(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    kofn.problems.matchers.strict_json.UnreadableJson: not JSON: key "a" is there twice
    """
    if isinstance(actual, bytes):
        try:
            actual.decode()
        except UnicodeDecodeError as problem:
            raise UnreadableJson(f"not JSON: byte {problem.start + 1:,} is not UTF-8") from None
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
        raise UnreadableJson(f"not JSON: line {problem.lineno:,} column {problem.colno:,}: {problem.msg}") from None
    except RecursionError:
        raise UnreadableJson("JSON nested too deeply") from None


def exact_number(text: str) -> Any:
    """A number without loss: small ones as int, which takes a third of the memory."""
    if len(text) <= _FEW_DIGITS and text.lstrip("-").isdigit():
        return int(text)
    value = parse_decimal(text)
    if value is None:
        raise UnreadableJson(f"a number beyond all bounds: {truncate(text, 40)}")
    return value


def expected_data(matcher: BuiltinMatcher, expected: object) -> Any:
    """What an author expects, as data in the same form: given as data, or as text that is JSON."""
    if not isinstance(expected, (str, bytes)):
        return _plain(matcher, expected, ())
    try:
        return read_actual(expected)
    except UnreadableJson as problem:
        text = decode_actual(expected).lstrip()
        hint = "" if text.startswith(("{", "[", '"')) else "; a text that is itself the data goes in double quotes"
        raise InputError(f"matcher {matcher.name}: expected is {problem}{hint}") from None


def _plain(matcher: BuiltinMatcher, value: Any, path: Path) -> Any:
    if len(path) > MAX_DEPTH:
        raise InputError(f"matcher {matcher.name}: expected is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, (list, tuple)):
        return [_plain(matcher, item, (*path, at)) for at, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(matcher, key, path): _plain(matcher, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, float) and isfinite(value):
        return to_decimal(value)
    if value is None or isinstance(value, (str, int)):
        return value
    where = f" at {format_path(path)}" if path else ""
    raise InputError(f"matcher {matcher.name}: expected has {describe_value(value)}{where}, which JSON cannot hold")


def _key(matcher: BuiltinMatcher, key: object, path: Path) -> str:
    if isinstance(key, str):
        return key
    raise InputError(f"matcher {matcher.name}: keys are texts: write {key!r} at {format_path(path)} in quotes")


def _check_size(text: str) -> None:
    """Refuse what is too deep or too much before it is built; by counting characters, which takes milliseconds."""
    if not text.strip():
        raise UnreadableJson(f"not JSON: {'blank' if text else 'empty'}")
    if _values(text) <= MAX_DEPTH:
        return
    bare = _outside_strings(text)
    if _values(bare) > MAX_VALUES:
        raise UnreadableJson(f"JSON of more than {MAX_VALUES:,} values")
    depth = 0
    for one in bare:
        depth += (one in "[{") - (one in "]}")
        if depth > MAX_DEPTH:
            raise UnreadableJson(f"JSON nested more than {MAX_DEPTH} levels deep")


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
    raise UnreadableJson(f"not JSON: key {json.dumps(truncate(twice, 60), ensure_ascii=False)} is there twice")


def _constant(name: str) -> None:
    raise UnreadableJson(f"not JSON: {name} is no JSON number")
