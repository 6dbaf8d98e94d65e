"""Matchers: whether what a program did is what its author expected, and if not, a diff for people.

    matcher("json", {"tolerance": 0.01})({"pi": 3.14}, b'{"pi": 3.1416}')    # Match(correct=True, diff='')

Expected values are the author's: a wrong one is an `InputError`. Actual values come from programs that nobody trusts:
whatever they are, a matcher answers, in bounded time and memory. A family is loaded when one of its names is asked
for, and none loads more than the standard library (schema: and jsonschema).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from kofn.errors import InputError, UnknownName
from kofn.problems.matchers.diff_text import RIGHT, Match, bounded_diff, truncate

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MATCHERS", "Match", "Matcher", "default_matcher", "matcher", "text_of"]

MATCHERS = {
    "exact": "kofn.problems.matchers.plain_text:ExactMatcher",
    "stripped": "kofn.problems.matchers.plain_text:StrippedMatcher",
    "lines": "kofn.problems.matchers.plain_text:LinesMatcher",
    "contains": "kofn.problems.matchers.plain_text:ContainsMatcher",
    "regex": "kofn.problems.matchers.plain_text:RegexMatcher",
    "number": "kofn.problems.matchers.number_text:NumberMatcher",
    "json": "kofn.problems.matchers.json_data:JsonMatcher",
    "schema": "kofn.problems.matchers.json_schema:SchemaMatcher",
    "table": "kofn.problems.matchers.csv_tables:TableMatcher",
    "csv": "kofn.problems.matchers.csv_tables:TableMatcher",
    "hash": "kofn.problems.matchers.plain_text:HashMatcher",
}


def matcher(name: str, params: Mapping[str, Any] | None = None) -> Matcher:
    """The matcher of this name, made with these parameters; a name with ":" or "." is a function of the author's.

    That function is imported when first used, from wherever `sys.path` leads.

    >>> matcher("stripped", {"ignore_case": True})("Yes", b"yes  \\n")
    Match(correct=True, diff='')
    >>> matcher("striped")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown matcher 'striped': did you mean stripped?
    >>> matcher("stripped", {"case": False})
    Traceback (most recent call last):
    kofn.errors.InputError: matcher stripped has no parameter 'case': it takes ignore_case, collapse
    """
    settings = dict(params or {})
    if name in MATCHERS:
        module, _, attribute = MATCHERS[name].partition(":")
        built_in: Matcher = getattr(import_module(module), attribute).create(settings)
        return built_in
    if ":" in name or "." in name:
        return CustomMatcher(function=name, params=settings)
    hint = f"known: {', '.join(MATCHERS)}; a function of your own is my_module:function"
    raise UnknownName("matcher", name, list(MATCHERS), hint)


def default_matcher(attribute: str, expected: object) -> str:
    """The matcher where the author names none: by what is expected, and for numbers and headers by where.

    >>> default_matcher("stdout", "hello"), default_matcher("stdout", {"a": 1}), default_matcher("stdout", 3.5)
    ('stripped', 'json', 'number')
    >>> default_matcher("status_code", 0), default_matcher("headers/content-type", "text/html")
    ('exact', 'exact')
    """
    if isinstance(expected, (dict, list, bool)):
        return "json"
    if isinstance(expected, (int, float)):
        return "exact" if attribute == "status_code" else "number"
    if isinstance(expected, str) and attribute.startswith("headers/"):
        return "exact"
    return "stripped"


Actual = bytes | int | str

_BYTES_THAT_ARE_NO_TEXT = re.compile("[\udc80-\udcff]+")
_BYTES_ONLY = re.compile("[^\ud800-\udc7f\udd00-\udfff]*")
_KINDS = {bool: "true or false", type(None): "nothing (null)", dict: "a mapping", list: "a list", bytes: "bytes"}


class Matcher(Protocol):
    """Compares one actual value with one expected value.

    A mistake of the author's raises InputError, an actual value never does; only a function of the author's own may
    raise what it likes.
    """

    def __call__(self, expected: Any, actual: Any) -> Match:
        """Whether `actual` (bytes, an int or a str) is what is expected."""

    def check_expected(self, expected: Any) -> None:
        """Raise InputError if no actual value can ever match this expected value."""


class BuiltinMatcher:
    """What built-in matchers share: their parameters are the fields of a dataclass, checked when one is made."""

    __slots__ = ()
    name: ClassVar[str]

    @classmethod
    def create(cls, params: Mapping[str, Any]) -> Self:
        """One with these parameters; one that it does not have is named, with those that it has."""
        known = [one.name for one in fields(cls)]  # type: ignore[arg-type] # every subclass is a dataclass
        for key in params:
            if key not in known:
                takes = ", ".join(known) or "none"
                raise InputError(f"matcher {cls.name} has no parameter {key!r}: it takes {takes}")
        return cls(**params)

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type] # as above
            value, (description, holds) = getattr(self, one.name), _PARAMETER_TYPES[one.type]
            if not holds(value):
                raise InputError(f"matcher {self.name}: {one.name} must be {description}, not {_repr(value)}")
            if isinstance(value, list):  # a matcher is a value: equal and hashable
                object.__setattr__(self, one.name, tuple(value))

    def check_expected(self, expected: Any) -> None:
        """As of `Matcher`."""
        self._parse_expected(expected)

    def _parse_expected(self, expected: Any) -> Any:
        """An expected value as it is compared; InputError where it cannot be."""
        return expected_text(self, expected)

    def type_error(self, expected: object, description: str) -> InputError:
        """The error for an expected value that is not what the matcher wants."""
        return InputError(f"matcher {self.name}: expected must be {description}, not {describe_value(expected)}")


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < inf


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


# by annotation, which `from __future__ import annotations` leaves as it is written
_PARAMETER_TYPES: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("true or false", _is_flag),
    "float": ("a number of 0 or more", _is_amount),
    "str": ("text", lambda value: isinstance(value, str)),
    "Sequence[str]": ("a list of texts", _is_texts),
    "bool | Sequence[str]": ("true, false or a list of texts", lambda value: _is_flag(value) or _is_texts(value)),
}


def decode_actual(actual: Actual) -> str:
    r"""The text of an actual value, for comparing: a byte that is no UTF-8 becomes a surrogate, which no text has.

    >>> decode_actual(b"caf\xc3\xa9"), decode_actual(b"\xff") == r"\xff", decode_actual(3)
    ('café', False, '3')
    """
    if isinstance(actual, str):  # a header, which HTTP clients decode in this way too
        actual = actual.encode("utf-8", "surrogateescape" if _BYTES_ONLY.fullmatch(actual) else "backslashreplace")
    return actual.decode("utf-8", "surrogateescape") if isinstance(actual, bytes) else str(actual)


def decode_without_bom(actual: Actual) -> str:
    """The same without a byte order mark at its beginning."""
    return decode_actual(actual).removeprefix("\ufeff")


def text_of(actual: Actual) -> str:
    r"""The text of an actual value, for people: bytes that are no UTF-8 as backslash escapes, an int as its digits.

    >>> print(text_of(b"caf\xc3\xa9 \xff\xfe"), text_of(404))
    café \xff\xfe 404
    """
    return _BYTES_THAT_ARE_NO_TEXT.sub(_escaped, decode_actual(actual))


def expected_text(matcher: BuiltinMatcher, expected: object) -> str:
    r"""The text that an author expects: as written, of a number its digits, of an expected file its content.

    A lone surrogate (the escape "\udcff" in JSON, say) becomes a backslash escape: no program can print one, and
    `decode_actual` uses them for bytes that are no text.
    """
    if isinstance(expected, bytes):
        return decode_actual(expected)
    if isinstance(expected, str):
        return expected if expected.isascii() else expected.encode("utf-8", "backslashreplace").decode()
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return str(expected) if abs(expected) < 10**4000 else str(Decimal(expected))  # which has no limit of digits
    hint = '; write "" for empty text' if expected is None else "; write it in quotes"
    raise InputError(f"matcher {matcher.name}: expected must be text, not {describe_value(expected)}{hint}")


def describe_value(value: object) -> str:
    """What a value of the author's is, in words.

    >>> describe_value(None), describe_value({}), describe_value(1.5)
    ('nothing (null)', 'a mapping', 'the number 1.5')
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"the number {_repr(value)}"
    if isinstance(value, str):
        return f"the text {_repr(value)}"
    return _KINDS.get(type(value)) or f"a value of type {type(value).__name__}"


def _repr(value: object, width: int = 60) -> str:
    """A value in one line of a message. Authors' values are small, but nothing promises it.

    >>> _repr("a" * 100, width=12)
    "'aaaaaaaa..."
    """
    try:
        text = repr(value[: width + 1] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # an int of thousands of digits
        text = type(value).__name__
    return text if len(text) <= width else text[: width - 3] + "..."


def _escaped(run: re.Match[str]) -> str:
    raw = run[0].encode("utf-8", "surrogateescape")
    return "\\x" + raw.hex("|").replace("|", "\\x")


_RETURNS = "a bool, (bool, text), a Match or {'correct': bool, 'diff': text}"

_MAX_DIFF = 100_000  # characters, of which far fewer are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMatcher:
    """`module:function` or `package.module.function`, called with (expected, actual, **params).

    It is imported when first used, and what it raises goes to the caller. It may return a bool, (bool, diff), a Match
    or a mapping with `correct` (or `is_correct`) and `diff`.

    >>> CustomMatcher(function="operator:eq")(b"a", b"a"), CustomMatcher(function="operator.ne")(b"a", b"a").correct
    (Match(correct=True, diff=''), False)
    """

    function: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def check_expected(self, expected: Any) -> None:
        """Anything: only the function knows what it can be."""

    def load(self) -> Callable[..., Any]:
        """The function itself; InputError where there is none, or none that can be called so."""
        module, _, name = self.function.rpartition(":" if ":" in self.function else ".")
        try:
            function: Any = import_module(module) if module else None
        except Exception as problem:
            reason = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
            raise InputError(f"matcher {self.function}: cannot import {module} ({truncate(reason, 200)})") from problem
        for part in name.split("."):
            function = getattr(function, part, None)
        if not callable(function):
            raise InputError(f"matcher {self.function}: {module or 'no module'} has no function {name!r}")
        self._check_call(function)
        return function  # type: ignore[no-any-return] # it is callable

    def __call__(self, expected: Any, actual: Actual) -> Match:
        return normalize_result(self.load()(expected, actual, **self.params), self.function)

    def _check_call(self, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function)
        except ValueError:  # some functions written in C show none
            return
        try:
            signature.bind(None, None, **self.params)
        except TypeError as problem:
            arguments = ", ".join(["expected", "actual", *(f"{key}=" for key in self.params)])
            raise InputError(
                f"matcher {self.function} is called with ({arguments}), but takes {signature}: {problem}"
            ) from None


def normalize_result(result: object, function: str) -> Match:
    """What a function returned, as a Match: without a diff where it is right, with one where it is not.

    >>> normalize_result((False, "too short"), "my:check")
    Match(correct=False, diff='too short')
    >>> normalize_result("yes", "my:check")
    Traceback (most recent call last):
    kofn.errors.InputError: matcher my:check returned 'yes': it must return a bool, (bool, text), a Match or ...
    """
    correct, diff = _parts(result)
    if not isinstance(correct, bool) or not isinstance(diff, (str, type(None))):
        returned = truncate(" ".join(repr(result).split()), 80)
        raise InputError(f"matcher {function} returned {returned}: it must return {_RETURNS}")
    if correct:
        return RIGHT
    text = (diff or "")[:_MAX_DIFF].expandtabs().strip("\n")
    return Match(correct=False, diff=bounded_diff(text.split("\n")) if text.strip() else f"wrong, says {function}")


def _parts(result: object) -> tuple[object, object]:
    if isinstance(result, Match):
        return result.correct, result.diff
    if isinstance(result, Mapping):
        return result.get("correct", result.get("is_correct")), result.get("diff")
    if isinstance(result, tuple) and len(result) == 2:
        return result[0], result[1]
    return result, None
