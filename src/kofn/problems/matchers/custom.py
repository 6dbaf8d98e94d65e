"""Custom matchers: functions of a problem's author, and the conversion of what they return to a `Match`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.problems.matchers.base import RIGHT, Match
from kofn.problems.matchers.diff_text import bounded_diff, truncate

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.problems.matchers.base import Actual

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
