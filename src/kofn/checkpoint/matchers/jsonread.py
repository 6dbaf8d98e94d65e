"""JSON read strictly and within bounds: from programs, where anything may come, and from authors, who are told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.matchers.base import decoded, kind_of
from kofn.checkpoint.matchers.jsonpaths import shown_path
from kofn.checkpoint.matchers.numeric import decimal, exactly
from kofn.checkpoint.matchers.shown import shortened
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.checkpoint.matchers.base import Actual, Settings
    from kofn.checkpoint.matchers.jsonpaths import Path

MAX_DEPTH = 200
MAX_VALUES = 1_000_000
_FEW_DIGITS = 18
_STRUCTURE = re.compile(r"[^\[\]{},]+")


class Unreadable(Exception):
    """A text that is not JSON, or more of it than is read; the message says why."""


def read_actual(actual: Actual, number: Callable[[str], Any] | None = None) -> Any:
    """The data that a program wrote; Unreadable where it is none.

    >>> read_actual(b'{"a": [1, 2.50]}')
    {'a': [1, Decimal('2.50')]}
    >>> read_actual(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    kofn.checkpoint.matchers.jsonread.Unreadable: not JSON: key "a" is there twice
    """
    if isinstance(actual, bytes):
        try:
            actual.decode()
        except UnicodeDecodeError as problem:
            raise Unreadable(f"not JSON: byte {problem.start + 1:,} is not UTF-8") from None
    return read(decoded(actual), number)


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
        raise Unreadable(f"not JSON: line {problem.lineno:,} column {problem.colno:,}: {problem.msg}") from None
    except RecursionError:
        raise Unreadable("JSON nested too deeply") from None


def exact_number(text: str) -> Any:
    """A number without loss: small ones as int, which takes a third of the memory."""
    if len(text) <= _FEW_DIGITS and text.lstrip("-").isdigit():
        return int(text)
    value = decimal(text)
    if value is None:
        raise Unreadable(f"a number beyond all bounds: {shortened(text, 40)}")
    return value


def author_data(matcher: Settings, expected: object) -> Any:
    """What an author expects, as data in the same form: given as data, or as text that is JSON."""
    if not isinstance(expected, (str, bytes)):
        return _plain(matcher, expected, ())
    try:
        return read_actual(expected)
    except Unreadable as problem:
        text = decoded(expected).lstrip()
        hint = "" if text.startswith(("{", "[", '"')) else "; a text that is itself the data goes in double quotes"
        raise InputError(f"matcher {matcher.name}: expected is {problem}{hint}") from None


def _plain(matcher: Settings, value: Any, path: Path) -> Any:
    if len(path) > MAX_DEPTH:
        raise InputError(f"matcher {matcher.name}: expected is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, (list, tuple)):
        return [_plain(matcher, item, (*path, at)) for at, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(matcher, key, path): _plain(matcher, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, float) and isfinite(value):
        return exactly(value)
    if value is None or isinstance(value, (str, int)):
        return value
    where = f" at {shown_path(path)}" if path else ""
    raise InputError(f"matcher {matcher.name}: expected has {kind_of(value)}{where}, which JSON cannot hold")


def _key(matcher: Settings, key: object, path: Path) -> str:
    if isinstance(key, str):
        return key
    raise InputError(f"matcher {matcher.name}: keys are texts: write {key!r} at {shown_path(path)} in quotes")


def _check_size(text: str) -> None:
    """Refuse what is too deep or too much before it is built; by counting characters, which takes milliseconds."""
    if not text.strip():
        raise Unreadable(f"not JSON: {'blank' if text else 'empty'}")
    if _values(text) <= MAX_DEPTH:
        return
    bare = _outside_strings(text)
    if _values(bare) > MAX_VALUES:
        raise Unreadable(f"JSON of more than {MAX_VALUES:,} values")
    depth = 0
    for one in bare:
        depth += (one in "[{") - (one in "]}")
        if depth > MAX_DEPTH:
            raise Unreadable(f"JSON nested more than {MAX_DEPTH} levels deep")


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
    raise Unreadable(f"not JSON: key {json.dumps(shortened(twice, 60), ensure_ascii=False)} is there twice")


def _constant(name: str) -> None:
    raise Unreadable(f"not JSON: {name} is no JSON number")
