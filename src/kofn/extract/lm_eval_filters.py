"""Extractor `lm_eval_filter`: the filters of lm-eval's task files, applied to one response."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Step = Callable[[str | None], str | None]

INVALID = "[invalid]"
# steps that choose among the responses of a set: aggregators do that here
OF_SETS = ("take_first", "take_first_k", "majority_vote")


@dataclass(frozen=True, slots=True)
class LmEvalFilter:
    r"""Steps of an lm-eval `filter_list` one after another: regex, remove_whitespace, lowercase, uppercase, map.

    Each is a mapping as in the task file. A regex finds all matches, takes the one at `group_select` (0 is the first,
    -1 the last), of several groups the first that holds something. Where it finds none there is no answer, whatever
    the file names as `fallback`. Steps that choose among responses (take_first, majority_vote) are left out.

    >>> steps = [{"function": "regex", "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1}]
    >>> LmEvalFilter(steps)("It is 12 or 7"), LmEvalFilter(steps)("no idea")
    ('7', None)
    """

    steps: Sequence[Mapping[str, Any]]
    _each: tuple[Step, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_each", tuple(_step(s) for s in self.steps if s.get("function") not in OF_SETS))

    def __call__(self, text: str | None, choices: Sequence[str] | None = None) -> str | None:
        for step in self._each:
            text = None if text is None else step(text)
        return text


def expressible(step: Any) -> bool:
    """Whether a step of a filter is one of those known here.

    >>> expressible({"function": "take_first"}), expressible({"function": "custom"})
    (True, False)
    """
    return isinstance(step, dict) and step.get("function") in (*_STEPS, *OF_SETS)


def _step(given: Mapping[str, Any]) -> Step:
    settings = {name: value for name, value in given.items() if name != "function"}
    make = _STEPS.get(str(given.get("function")))
    if make is None:
        raise InputError(f"lm-eval filter {given.get('function')!r} is not known: expected {', '.join(_STEPS)}")
    try:
        return make(**settings)
    except TypeError as problem:
        raise InputError(f"lm-eval filter {given['function']}: {str(problem).partition('() ')[2]}") from None


def _regex(regex_pattern: str = r"#### (\-?[0-9\.\,]+)", group_select: int = 0, fallback: str = INVALID) -> Step:
    try:
        compiled = re.compile(regex_pattern)
    except re.error as problem:
        raise InputError(f"lm-eval filter regex: {regex_pattern!r} is no regular expression: {problem}") from None

    def find(text: str | None) -> str | None:
        found = compiled.findall(text or "")
        if not -len(found) <= group_select < len(found):
            return None
        match = found[group_select]
        match = next(filter(None, match), fallback) if isinstance(match, tuple) else match
        return None if match == fallback else match.strip()

    return find


def _map(mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> Step:
    table = {str(key): str(value) for key, value in (mapping_dict or {}).items()}
    default = None if default_value is None else str(default_value)
    return lambda text: table.get(str(text), default)


_STEPS: dict[str, Callable[..., Step]] = {
    "regex": _regex,
    "remove_whitespace": lambda: lambda text: (text or "").strip(),
    "lowercase": lambda: lambda text: (text or "").lower(),
    "uppercase": lambda: lambda text: (text or "").upper(),
    "map": _map,
}
