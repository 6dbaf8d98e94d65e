"""The interface of a matcher: parameters and their checks, expected and actual values as text."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Actual = bytes | int | str

_BYTES_THAT_ARE_NO_TEXT = re.compile("[\udc80-\udcff]+")
_BYTES_ONLY = re.compile("[^\ud800-\udc7f\udd00-\udfff]*")
_KINDS = {bool: "true or false", type(None): "nothing (null)", dict: "a mapping", list: "a list", bytes: "bytes"}


@dataclass(frozen=True, slots=True)
class Match:
    """Whether an actual value is right, and where it is not, how it differs: plain text, empty where it is right."""

    correct: bool
    diff: str = ""


RIGHT = Match(correct=True)


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
            value, parameter = getattr(self, one.name), _PARAMETER_TYPES[one.type]
            if not parameter.holds(value):
                raise InputError(f"matcher {self.name}: {one.name} must be {parameter.description}, not {_repr(value)}")
            if isinstance(value, list):  # a matcher is a value: equal and hashable
                object.__setattr__(self, one.name, tuple(value))

    def type_error(self, expected: object, description: str) -> InputError:
        """The error for an expected value that is not what the matcher wants."""
        return InputError(f"matcher {self.name}: expected must be {description}, not {describe_value(expected)}")


class _ParameterType(NamedTuple):
    description: str
    holds: Callable[[Any], bool]


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < inf


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


# by annotation, which `from __future__ import annotations` leaves as it is written
_PARAMETER_TYPES: Mapping[Any, _ParameterType] = {
    "bool": _ParameterType("true or false", _is_flag),
    "float": _ParameterType("a number of 0 or more", _is_amount),
    "str": _ParameterType("text", lambda value: isinstance(value, str)),
    "Sequence[str]": _ParameterType("a list of texts", _is_texts),
    "bool | Sequence[str]": _ParameterType(
        "true, false or a list of texts", lambda value: _is_flag(value) or _is_texts(value)
    ),
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
