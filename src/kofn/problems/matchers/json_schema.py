"""Matcher of JSON Schema: validates a program's output."""

from __future__ import annotations

import importlib
import json
import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError, import_extra
from kofn.problems.matchers import BuiltinMatcher, decode_actual, describe_value
from kofn.problems.matchers.bounds import IsolationLimitExceeded, check_limit, run_isolated
from kofn.problems.matchers.diff_text import RIGHT, mismatch, preview_lines, truncate
from kofn.problems.matchers.json_data import UnreadableJson, expected_data, format_path, read_actual

if TYPE_CHECKING:
    from kofn.problems.matchers import Actual
    from kofn.problems.matchers.diff_text import Match

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
from kofn.problems.matchers.json_schema import violations
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
        except (UnreadableJson, IsolationLimitExceeded) as problem:
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
        raise UnreadableJson(f"a number beyond what a schema can check: {truncate(text, 40)}")
    return value
