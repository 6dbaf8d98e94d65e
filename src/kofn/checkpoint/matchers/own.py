"""Functions of the author's own, and the one place where what they return becomes a Match."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.matchers.base import RIGHT, Match
from kofn.checkpoint.matchers.shown import limited, shortened
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.checkpoint.matchers.base import Actual

_RETURNS = "a bool, (bool, text), a Match or {'correct': bool, 'diff': text}"

_MUCH = 100_000  # characters, of which far fewer are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """`module:function` or `package.module.function`, called with (expected, actual, **params).

    It is imported when first used, and what it raises goes to the caller. It may return a bool, (bool, diff), a Match
    or a mapping with `correct` (or `is_correct`) and `diff`.

    >>> Own(function="operator:eq")(b"a", b"a"), Own(function="operator.ne")(b"a", b"a").correct
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
            found: Any = import_module(module) if module else None
        except Exception as problem:
            reason = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
            raise InputError(f"matcher {self.function}: cannot import {module} ({shortened(reason, 200)})") from problem
        for part in name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise InputError(f"matcher {self.function}: {module or 'no module'} has no function {name!r}")
        self._check_call(found)
        return found  # type: ignore[no-any-return] # it is callable

    def __call__(self, expected: Any, actual: Actual) -> Match:
        return normalised(self.load()(expected, actual, **self.params), self.function)

    def _check_call(self, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function)
        except ValueError:  # some functions written in C show none
            return
        try:
            signature.bind(None, None, **self.params)
        except TypeError as problem:
            given = ", ".join(["expected", "actual", *(f"{key}=" for key in self.params)])
            raise InputError(
                f"matcher {self.function} is called with ({given}), but takes {signature}: {problem}"
            ) from None


def normalised(result: object, function: str) -> Match:
    """What a function returned, as a Match: without a diff where it is right, with one where it is not.

    >>> normalised((False, "too short"), "my:check")
    Match(correct=False, diff='too short')
    >>> normalised("yes", "my:check")
    Traceback (most recent call last):
    kofn.errors.InputError: matcher my:check returned 'yes': it must return a bool, (bool, text), a Match or ...
    """
    correct, diff = _parts(result)
    if not isinstance(correct, bool) or not isinstance(diff, (str, type(None))):
        shown = shortened(" ".join(repr(result).split()), 80)
        raise InputError(f"matcher {function} returned {shown}: it must return {_RETURNS}")
    if correct:
        return RIGHT
    text = (diff or "")[:_MUCH].expandtabs().strip("\n")
    return Match(correct=False, diff=limited(text.split("\n")) if text.strip() else f"wrong, says {function}")


def _parts(result: object) -> tuple[object, object]:
    if isinstance(result, Match):
        return result.correct, result.diff
    if isinstance(result, Mapping):
        return result.get("correct", result.get("is_correct")), result.get("diff")
    if isinstance(result, tuple) and len(result) == 2:
        return result[0], result[1]
    return result, None
