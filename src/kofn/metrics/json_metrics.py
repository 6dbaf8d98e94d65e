"""Metrics `json_equal`, `literal_equal` and `schema`: outputs that are data, equal or valid against a JSON Schema."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache, partial
from typing import Any

from kofn.errors import InputError, import_extra
from kofn.metrics.base import Metric, ReferenceMetric, best_match, references_of, text_of
from kofn.metrics.numeric import check_tolerance

_UNREADABLE = object()
_DEEPEST = 50  # levels of a literal
_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
_JSON_WORD = re.compile(r"(?<![\w'\"])(?:true|false|null)(?![\w'\"])")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonEqual(ReferenceMetric, uses="text"):
    r"""1 when output and reference are the same JSON data, else 0.

    Key order and spacing do not matter, the order of a list does; 1 is 1.0 but not true; numbers may differ
    by `tolerance`. One Markdown code fence around the output is allowed. An output that is no JSON scores
    0; a reference that is none is an error. A reference may be a mapping instead of text; a list stands for
    several references, so write a reference that is itself a list as JSON text.

    >>> JsonEqual()('{"b": [1, 2], "a": 1.0}', '{"a": 1, "b": [1, 2]}')
    1.0
    >>> JsonEqual()('```json\n{"ok": true}\n```', {"ok": True}), JsonEqual()("ok", {"ok": True})
    (1.0, 0.0)
    >>> JsonEqual(tolerance=0.01)('{"pi": 3.14}', '{"pi": 3.1416}')
    1.0
    """

    tolerance: float = 0.0

    def __post_init__(self) -> None:
        check_tolerance("json_equal", "tolerance", self.tolerance)

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(self.score, prediction, [_as_json_text(item) for item in references_of(reference)])

    def score(self, prediction: str, reference: str) -> float:
        expected = _read_json(reference)
        if expected is _UNREADABLE:
            raise InputError(f"json_equal: the reference is not JSON: {_shortened(reference)}")
        data = _read_json(_unfenced(prediction))
        return float(_same_data(data, expected, Decimal(repr(float(self.tolerance)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralEqual(ReferenceMetric):
    """1 when both sides are the same Python literal (a text, number, list, tuple, set, mapping, True, None), else 0.

    Which quotes stand around a text, spacing and the order of keys do not matter; types do: "1" is not 1, [1] is not
    (1,). JSON's true, false and null are read as well. A side that is no literal is compared as text. Nothing is
    executed, and sides over `max_chars` are compared as text only.

    >>> LiteralEqual()("['a', 'b']", '["a", "b"]'), LiteralEqual()("{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}")
    (1.0, 1.0)
    >>> LiteralEqual()("'1'", "1"), LiteralEqual()("f(x)", "f(x)")
    (0.0, 1.0)
    """

    max_chars: int = 10_000

    def score(self, prediction: str, reference: str) -> float:
        left, right = prediction.strip(), reference.strip()
        if left == right:
            return 1.0
        values = [read_literal(side) for side in (left, right) if len(side) <= self.max_chars]
        return float(len(values) == 2 and None not in values and values[0] == values[1])


@lru_cache(maxsize=4096)  # most candidates of a case agree, and share its reference
def read_literal(text: str) -> str | None:
    """The canonical spelling of a Python or JSON literal, None for any other text.

    >>> read_literal('["a", true]'), read_literal("{2: 'x', 1: ()}"), read_literal("open('x')")
    ("['a', True]", "{1: (), 2: 'x'}", None)
    """
    # a quick look: most texts are no literals, and parsing one takes time
    if not text or not (
        text[0] in "'\"[({-" or text[0].isdigit() or text in ("True", "False", "None", "true", "false", "null")
    ):
        return None
    for spelling in (text, _JSON_WORD.sub(lambda word: _JSON_WORDS[word[0]], text)):
        try:
            return _spell(ast.literal_eval(spelling), 0)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


def _spell(value: Any, depth: int) -> str:
    """A literal with its keys and set items in order."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    inner = [_spell(item, depth + 1) for item in value] if isinstance(value, (list, tuple, set)) else []
    if isinstance(value, list):
        return f"[{', '.join(inner)}]"
    if isinstance(value, tuple):
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(inner))}}}"
    if isinstance(value, dict):
        pairs = sorted((_spell(k, depth + 1), _spell(v, depth + 1)) for k, v in value.items())
        return f"{{{', '.join(f'{k}: {v}' for k, v in pairs)}}}"
    return repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema(Metric, uses="text"):
    """1 when the output is JSON valid against a JSON Schema, else 0.

    The schema is `schema`, or the reference when that is None; a mapping or JSON text, kept as text. Its
    `$schema` picks the draft (the newest when absent). Nothing is fetched: a `$ref` to elsewhere is an
    error. One Markdown code fence around the output is allowed.

    >>> metric = Schema(schema={"type": "object", "required": ["name"]})
    >>> metric('{"name": "Ada"}', None), metric("{}", None)
    (1.0, 0.0)
    """

    schema: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        import_extra("jsonschema", "schema", "metric schema")
        if self.schema is not None:
            text = _as_json_text(self.schema)
            object.__setattr__(self, "schema", text)
            _validator(text)

    @property
    def needs_reference(self) -> bool:
        """False when the schema is a parameter."""
        return self.schema is None

    def __call__(self, prediction: object, reference: object = None) -> float | None:
        if self.schema is not None:
            return 0.0 if prediction is None else _valid(text_of(prediction), text_of(self.schema))
        return best_match(_valid, prediction, [_as_json_text(item) for item in references_of(reference)])


def _as_json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value)
    except (TypeError, ValueError) as error:
        raise InputError(f"not JSON data: {_shortened(repr(value))}: {error}") from None


def _read_json(text: str) -> Any:
    """Return the data with every number as int or Decimal, or `_UNREADABLE`."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=refuse)
    except (ValueError, ArithmeticError, RecursionError):
        return _UNREADABLE


def _unfenced(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```")
    return text


def _same_data(left: Any, right: Any, tolerance: Decimal) -> bool:
    same = partial(_same_data, tolerance=tolerance)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if _is_number(left) and _is_number(right):
        # 1e999999 is valid JSON; with no traps its difference is an infinity instead of an exception
        with localcontext(Context(prec=60, traps=[])):
            return bool(left == right or abs(Decimal(left) - Decimal(right)) <= tolerance)
    return type(left) is type(right) and bool(left == right)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _valid(prediction: str, schema: str) -> float:
    validator = _validator(schema)
    try:
        data = json.loads(_unfenced(prediction))
    except (ValueError, RecursionError):
        return 0.0
    unresolvable = importlib.import_module("referencing.exceptions").Unresolvable
    try:
        return float(validator.is_valid(data))
    except unresolvable as error:
        raise InputError(f"schema: cannot resolve $ref {getattr(error, 'ref', error)!r}: put it in $defs") from None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    jsonschema = import_extra("jsonschema", "schema", "metric schema")
    registry = importlib.import_module("jsonschema_specifications").REGISTRY
    try:
        data = json.loads(schema)
        kind = jsonschema.validators.validator_for(data, default=jsonschema.Draft202012Validator)
        kind.check_schema(data)
    except (ValueError, jsonschema.SchemaError) as error:
        reason = getattr(error, "message", error)
        raise InputError(f"schema: not a JSON Schema: {_shortened(schema)}: {reason}") from None
    return kind(data, registry=registry)


def _shortened(text: str, width: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."
