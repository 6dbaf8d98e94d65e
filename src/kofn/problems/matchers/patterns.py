"""Matcher of regular expressions that no text can make hang."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError
from kofn.problems.matchers.base import RIGHT, BuiltinMatcher, decode_actual, decode_without_bom
from kofn.problems.matchers.diff_text import mismatch, preview_lines, truncate
from kofn.problems.matchers.isolation import IsolationLimitExceeded, check_limit, run_isolated

if TYPE_CHECKING:
    from kofn.problems.matchers.base import Actual, Match

_FEW_STEPS = 300_000  # of backtracking: milliseconds, and megabytes of its stack
_LONG_PATTERN = 1_000

# what a bound on the steps cannot be read off from: a repeated group, a reference back, a condition, a large count
_HARD_TO_BOUND = re.compile(r"\)[*+?{]|\\[1-9]|\(\?P=|\(\?\(|[0-9]{3}")

_ISOLATED_MATCH = """
import re
size, flags, full = (int(word) for word in data[:100].split()[:3])
pattern = data[100:100 + size].decode("utf-8", "surrogatepass")
text = data[100 + size:].decode("utf-8", "surrogateescape")
compiled = re.compile(pattern, flags)
texts = [text, text.removesuffix("\\n").removesuffix("\\r")] if full else [text]
match = compiled.fullmatch if full else compiled.search
sys.stdout.write(str(any(match(one) for one in texts)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexMatcher(BuiltinMatcher):
    r"""The text matches a regular expression: all of it (a final newline aside), or with `full=False` any part.

    `ignore_case`, `multiline` and `dotall` are Python's flags. A match that could take long runs in a process of its
    own, and one that takes longer than `limit` seconds is wrong.

    >>> RegexMatcher()(r"\d+ items?", b"12 items\n").correct, RegexMatcher(full=False)("item", b"12 items").correct
    (True, True)
    >>> print(RegexMatcher()(r"\d+", b"12 items").diff)
    does not match \d+
    the text begins:
      12 items
    """

    name: ClassVar[str] = "regex"
    full: bool = True
    ignore_case: bool = False
    multiline: bool = False
    dotall: bool = False
    limit: float = 2.0

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        check_limit(self.name, self.limit)

    def check_expected(self, expected: Any) -> None:
        """A regular expression."""
        self._compile_expected(expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        compiled, text = self._compile_expected(expected), decode_without_bom(actual)
        try:
            matches = self._matches(compiled, text)
        except IsolationLimitExceeded as reason:
            return mismatch(f"matching {truncate(compiled.pattern, 200)} {reason}", *preview_lines(text))
        if matches:
            return RIGHT
        no_match = "does not match" if self.full else "no part matches"
        return mismatch(f"{no_match} {truncate(compiled.pattern, 200)}", *preview_lines(text))

    def _compile_expected(self, expected: Any) -> re.Pattern[str]:
        if isinstance(expected, bytes):  # a file, which ends in a newline that is not meant
            expected = decode_actual(expected).removesuffix("\n").removesuffix("\r")
        if not isinstance(expected, str):
            raise self.type_error(expected, "a regular expression")
        flags = self.ignore_case * re.IGNORECASE | self.multiline * re.MULTILINE | self.dotall * re.DOTALL
        return _compile(expected, flags)

    def _matches(self, compiled: re.Pattern[str], text: str) -> bool:
        if _max_steps(compiled, len(text)) > _FEW_STEPS:
            return self._matches_isolated(compiled, text)
        if not self.full:
            return compiled.search(text) is not None
        without_end = text.removesuffix("\n").removesuffix("\r")
        return any(compiled.fullmatch(one) for one in (text, without_end))

    def _matches_isolated(self, compiled: re.Pattern[str], text: str) -> bool:
        pattern = compiled.pattern.encode("utf-8", "surrogatepass")
        header = f"{len(pattern)} {compiled.flags} {int(self.full)}".ljust(100).encode()
        data = header + pattern + text.encode("utf-8", "surrogateescape")
        return run_isolated(_ISOLATED_MATCH, data, self.limit, "-S") == b"True"


def _max_steps(compiled: re.Pattern[str], characters: int) -> float:
    r"""A generous bound on the steps of a match: every repetition may end anywhere, every choice doubles.

    >>> _max_steps(re.compile(r"\d+"), 10), _max_steps(re.compile("(a+)+"), 10), _max_steps(re.compile("a|b"), 10)
    (144.0, inf, 24.0)
    """
    pattern = compiled.pattern
    verbose = bool(compiled.flags & re.VERBOSE)  # blanks may then stand between a group and its repetition
    if verbose or _HARD_TO_BOUND.search(pattern) or len(pattern) > _LONG_PATTERN:
        return float("inf")
    repetitions = sum(map(pattern.count, "*+{"))
    choices = sum(map(pattern.count, "?|"))
    return float(min((characters + 2) ** (1 + min(repetitions, 50)) * 2 ** min(choices, 50), 10**18))


@lru_cache(maxsize=64)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python may read otherwise; the author cannot see it here
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as problem:
        reason = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise InputError(f"matcher regex: {truncate(pattern, 60)!r} is no regular expression: {reason}") from None
