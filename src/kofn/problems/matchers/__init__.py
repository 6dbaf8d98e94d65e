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
from difflib import SequenceMatcher
from importlib import import_module
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kofn.core.escape import escape_unprintable
from kofn.core.format import format_count
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


__all__ = ["MATCHERS", "Match", "Matcher", "default_matcher", "matcher", "text_of"]

MATCHERS = {
    "exact": "kofn.problems.matchers.plain_text:ExactMatcher",
    "stripped": "kofn.problems.matchers.plain_text:StrippedMatcher",
    "lines": "kofn.problems.matchers.plain_text:LinesMatcher",
    "contains": "kofn.problems.matchers.plain_text:ContainsMatcher",
    "regex": "kofn.problems.matchers.plain_text:RegexMatcher",
    "number": "kofn.problems.matchers.plain_text:NumberMatcher",
    "json": "kofn.problems.matchers.json_data:JsonMatcher",
    "schema": "kofn.problems.matchers.json_data:SchemaMatcher",
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
        built_in: BuiltinMatcher = getattr(import_module(module), attribute).create(settings)
        return built_in
    if is_custom(name):
        return CustomMatcher(function=name, params=settings)
    hint = f"known: {', '.join(MATCHERS)}; a function of your own is my_module:function"
    raise UnknownName("matcher", name, list(MATCHERS), hint)


def is_custom(name: str) -> bool:
    """Whether a matcher is a function of the author's: `module:function` or `package.module.function`."""
    return ":" in name or "." in name


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

_BYTES_ONLY = re.compile("[^\ud800-\udc7f\udd00-\udfff]*")
_KINDS = {bool: "true or false", type(None): "nothing (null)", dict: "a mapping", list: "a list", bytes: "bytes"}


class NotComparable(Exception):
    """An actual value is wrong before it can be compared, or too much to compare; the message says why."""


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

    def __call__(self, expected: Any, actual: Actual) -> Match:
        target, text = self._parse_expected(expected), decode_actual(actual).removeprefix("\ufeff")
        try:
            return self._compare(target, text)
        except NotComparable as reason:
            return mismatch(str(reason), *preview_lines(text))

    def _compare(self, target: Any, text: str) -> Match:
        """Compare an expected value, as `_parse_expected` gives it, with the text of an actual one."""
        raise NotImplementedError

    def check_expected(self, expected: Any) -> None:
        """Raise InputError if no actual value can ever match this expected value."""
        self._parse_expected(expected)

    def _parse_expected(self, expected: Any) -> Any:
        """An expected value as it is compared; InputError where it cannot be."""
        return expected_text(self, expected)

    def type_error(self, expected: object, description: str) -> InputError:
        """The error for an expected value that is not what the matcher wants."""
        return InputError(f"matcher {self.name}: expected must be {description}, not {describe_value(expected)}")


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < inf


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


# by annotation, which `from __future__ import annotations` leaves as it is written
_PARAMETER_TYPES: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "float": ("a number of 0 or more", _is_amount),
    "str": ("text", lambda value: isinstance(value, str)),
    "Sequence[str]": ("a list of texts", _is_texts),
    "bool | Sequence[str]": (
        "true, false or a list of texts",
        lambda value: isinstance(value, bool) or _is_texts(value),
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


def text_of(actual: Actual) -> str:
    r"""The text of an actual value, for people: bytes that are no UTF-8 as backslash escapes, an int as its digits.

    >>> print(text_of(b"caf\xc3\xa9 \xff\xfe"), text_of(404))
    café \xff\xfe 404
    """
    return decode_actual(actual).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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
        try:
            signature = inspect.signature(function)
        except ValueError:  # some functions written in C show none
            return function  # type: ignore[no-any-return] # it is callable
        try:
            signature.bind(None, None, **self.params)
        except TypeError as problem:
            arguments = ", ".join(["expected", "actual", *(f"{key}=" for key in self.params)])
            call = f"is called with ({arguments}), but takes {signature}: {problem}"
            raise InputError(f"matcher {self.function} {call}") from None
        return function  # type: ignore[no-any-return] # as above

    def __call__(self, expected: Any, actual: Actual) -> Match:
        return normalize_result(self.load()(expected, actual, **self.params), self.function)


# a mistake of the author's raises InputError, an actual value never does; a function of the author's may raise anything
Matcher = BuiltinMatcher | CustomMatcher


def normalize_result(result: object, function: str) -> Match:
    """What a function returned, as a Match: without a diff where it is right, with one where it is not.

    >>> normalize_result((False, "too short"), "my:check")
    Match(correct=False, diff='too short')
    >>> normalize_result("yes", "my:check")
    Traceback (most recent call last):
    kofn.errors.InputError: matcher my:check returned 'yes': it must return a bool, (bool, text), a Match or ...
    """
    correct, diff = result, None
    if isinstance(result, Match):
        correct, diff = result.correct, result.diff
    elif isinstance(result, Mapping):
        correct, diff = result.get("correct", result.get("is_correct")), result.get("diff")
    elif isinstance(result, tuple) and len(result) == 2:
        correct, diff = result
    if not isinstance(correct, bool) or not isinstance(diff, (str, type(None))):
        returned = truncate(" ".join(repr(result).split()), 80)
        raise InputError(f"matcher {function} returned {returned}: it must return {_RETURNS}")
    if correct:
        return RIGHT
    text = (diff or "")[:_MAX_DIFF].expandtabs().strip("\n")
    return Match(correct=False, diff=bounded_diff(text.split("\n")) if text.strip() else f"wrong, says {function}")


MAX_LINES = 60
MAX_CHARACTERS = 4_000
MAX_WIDTH = 300
MAX_COUNTED = 1_000  # differences beyond these are not even counted: finding them all may take long

_WIDEST = MAX_WIDTH + 100  # of a line of a diff: a text cut to MAX_WIDTH and what is said of it
_LAST_LINE = 120  # characters kept for the line that says how much was left out
_TRAILING_SPACES = re.compile(" +$")


@dataclass(frozen=True, slots=True)
class Match:
    """Whether an actual value is right, and where it is not, how it differs: plain text, empty where it is right."""

    correct: bool
    diff: str = ""


RIGHT = Match(correct=True)


def escape_line(text: str) -> str:
    """The same with trailing spaces as dots.

    >>> escape_line("a b  ")
    'a b··'
    """
    return _TRAILING_SPACES.sub(lambda spaces: "·" * len(spaces[0]), escape_unprintable(text))


def truncate(text: str, width: int = MAX_WIDTH) -> str:
    """The beginning of a long text, and how much is left out.

    >>> truncate("abcdefghij", 6), truncate("abc", 6)
    ('abcdef... (4 more characters)', 'abc')
    """
    return text if len(text) <= width else f"{text[:width]}... ({len(text) - width:,} more characters)"


def truncate_around_difference(one: str, other: str, width: int = MAX_WIDTH) -> tuple[str, str]:
    """Both texts, cut so that their first difference shows.

    >>> truncate_around_difference("x" * 500 + "a", "x" * 500 + "b", 30)
    ('...xxxxxxxxxxa', '...xxxxxxxxxxb')
    """
    if max(len(one), len(other)) <= width:
        return one, other
    start = max(0, common_prefix(one, other) - width // 3)
    before = "..." if start else ""
    return before + truncate(one[start:], width), before + truncate(other[start:], width)


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts begin with in common; by halves, so that megabytes take milliseconds.

    >>> common_prefix("abcd", "abxd"), common_prefix("ab", "abc")
    (2, 2)
    """
    same, limit = 0, min(len(one), len(other))
    while same < limit:
        middle = (same + limit + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            limit = middle - 1
    return same


def preview_lines(text: str, lines: int = 5) -> list[str]:
    r"""The first lines of an actual text, as lines of a diff.

    >>> preview_lines("one\ntwo"), preview_lines("")
    (['the text begins:', '  one', '  two'], ['the text is empty'])
    """
    if not text.strip():
        return ["the text is empty" if not text else "the text is blank"]
    *first, rest = [*text.lstrip("\r\n").split("\n", lines), ""][: lines + 1]
    more = ["  ..."] if rest else []
    return ["the text begins:", *(f"  {truncate(line)}" for line in first), *more]


def bounded_diff(lines: Iterable[str], unread: str = "") -> str:
    """The lines as a diff within its bounds; a last line says how many are left out, and what `unread` says.

    >>> print(bounded_diff(["one", "two"]))
    one
    two
    >>> bounded_diff(map(str, range(100))).splitlines()[-2:]
    ['58', '... 41 more lines']
    """
    kept: list[str] = []
    rest, room, more = iter(lines), MAX_CHARACTERS - _LAST_LINE, 0
    for line in rest:
        text = escape_unprintable(line[:_WIDEST])
        if len(line) > _WIDEST or len(text) > _WIDEST:
            text = f"{text[:_WIDEST]}..."
        room -= len(text) + 1
        if room < 0 or len(kept) == MAX_LINES - 1:
            more = 1 + sum(1 for _ in islice(rest, MAX_COUNTED))
            break
        kept.append(text)
    omitted = f"more than {MAX_COUNTED:,} more lines" if more > MAX_COUNTED else format_count(more, "more line")
    last = "; ".join(filter(None, [omitted if more else "", unread]))
    return "\n".join([*kept, f"... {last}"] if last else kept)


def match_from_differences(differences: Iterator[str]) -> Match:
    """Right where there is no difference, else wrong with as many of them as a diff holds."""
    first = next(differences, None)
    return RIGHT if first is None else Match(correct=False, diff=bounded_diff(chain([first], differences)))


def mismatch(*lines: str) -> Match:
    """Not right, for these reasons."""
    return Match(correct=False, diff=bounded_diff(lines))


NO_NEWLINE = "\n"
WINDOW = 200  # lines from the first difference on that difflib, which may take quadratic time, gets to see
CONTEXT = 2
MANY = 100_000  # lines beyond those expected: how many more there are interests nobody


def first_lines(text: str, n: int) -> tuple[list[str], int]:
    r"""The first n lines (and a window more, to show what follows), and how many there are beyond those.

    >>> first_lines("a\nb\n", 2), first_lines("a\nb", 2)
    ((['a', 'b'], 0), (['a', 'b', '\n'], 0))
    """
    *lines, rest = text.split("\n", n + WINDOW)
    if len(lines) == n + WINDOW and rest:
        return lines, rest.count("\n") + (not rest.endswith("\n"))
    return ([*lines, rest, NO_NEWLINE] if rest else lines), 0


def compare_lines(expected: Sequence[str], found: Sequence[str], unread: int = 0) -> Match:
    """Right where both sides have the same lines and none was left unread; else the diff.

    >>> print(compare_lines(["a", "b "], ["a", "b"]).diff)
    --- expected
    +++ found
    @@ line 2 @@
     a
    -b·
    +b
    """
    if not unread and expected == found:
        return RIGHT
    start = _common_lines(expected, found)
    end = 0 if unread else _common_lines(expected[start:][::-1], found[start:][::-1])
    one, other = expected[start : len(expected) - end], found[start : len(found) - end]
    before = [f" {_line(line)}" for line in expected[max(0, start - CONTEXT) : start]]
    where = f"@@ line {start + 1:,} @@"
    lines = ["--- expected", "+++ found", where, *before, *_changes(one[:WINDOW], other[:WINDOW])]
    left, right = max(0, len(one) - WINDOW), max(0, len(other) - WINDOW) + unread
    if not left and not right:
        lines += [f" {_line(line)}" for line in found[len(found) - end :][:CONTEXT]]
        return mismatch(*lines)
    many = " or more" if right >= MANY else ""
    more = f"{left:,} further lines expected and {right:,}{many} found were not compared"
    return Match(correct=False, diff=bounded_diff(lines, more))


def _common_lines(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _changes(expected: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """The lines that differ as - and +, with a few that do not around them."""
    noted = False
    for tag, a, b, c, d in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if tag == "equal":
            same = [f" {_line(line)}" for line in found[c:d]]
            if len(same) > 2 * CONTEXT + 1:
                same[CONTEXT:-CONTEXT] = [f"@@ {len(same) - 2 * CONTEXT:,} lines are the same @@"]
            yield from same
            continue
        pairs = [_pair(*both) for both in zip(expected[a:b], found[c:d], strict=False)]
        yield from (f"-{one}" for one, _ in pairs)
        yield from (f"-{_line(line)}" for line in expected[a + len(pairs) : b])
        yield from (f"+{other}" for _, other in pairs)
        yield from (f"+{_line(line)}" for line in found[c + len(pairs) : d])
        if pairs and not noted:
            yield from _note(expected[a], found[c])
            noted = True


def _line(line: str) -> str:
    if line == NO_NEWLINE:
        return "\\ no newline at the end"
    return escape_line(line) if len(line) <= MAX_WIDTH else truncate(line)


def _pair(expected: str, found: str) -> tuple[str, str]:
    """A line and what stands in its place, cut alike."""
    if NO_NEWLINE in (expected, found):
        return _line(expected), _line(found)
    one, other = truncate_around_difference(expected, found)
    return escape_line(one), escape_line(other)


def _note(expected: str, found: str) -> Iterator[str]:
    """Which character differs first, where the eye may not see it."""
    at = common_prefix(expected, found)
    characters = expected[at : at + 1], found[at : at + 1]
    if NO_NEWLINE in (expected, found) or "" in characters or "".join(characters).isascii():
        return
    yield f"? column {at + 1:,}: {_name(characters[0])} is expected, {_name(characters[1])} is found"


def _name(character: str) -> str:
    point = ord(character)
    return f"byte {point - 0xDC00:02X}" if 0xDC80 <= point <= 0xDCFF else f"U+{point:04X}"
