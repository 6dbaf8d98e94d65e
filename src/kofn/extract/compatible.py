"""Extraction rules of other evaluation code, kept with their documented results, and the filters of lm-eval.

The functions named `extract_*` keep their documented markers for "no answer" ("X" and "[invalid]"); the
extractors `letter_word_boundary`, `letter_first`, `number_anchor` and `number_simple` say None instead. They
look at the whole text, reasoning included: that is their documented rule. New work wants `letter`, `number`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kofn.core.numbers import normalize_numeric as normalize_numeric
from kofn.errors import InputError
from kofn.extract.letter_answer import DEFAULT_LABELS, parse_choices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Step = Callable[[str | None], str | None]

NO_LETTER = "X"
INVALID: Literal["[invalid]"] = "[invalid]"

_INTEGER = re.compile(r"-?\d+")
_MAX_DIGITS = 4000  # below the limit of `int(text)` in CPython, 4,300 digits
_FALLBACK = "[invalid]"
# steps that choose among the responses of a set: aggregators do that here
OF_SETS = ("take_first", "take_first_k", "majority_vote")


def extract_letter_word_boundary(text: str) -> str:
    """The first of A to E that stands alone in the upper-cased text, "X" when none does.

    >>> [extract_letter_word_boundary(t) for t in ("The answer is B", "The best choice", "answer: b")]
    ['B', 'X', 'B']
    """
    return letter_word_boundary(text) or NO_LETTER


def extract_letter_legacy(text: str) -> str:
    """The first of A to E anywhere in the upper-cased text, inside words too, "X" when there is none.

    >>> [extract_letter_legacy(t) for t in ("Select B", "The answer is D", "?")]
    ['E', 'E', 'X']
    """
    return letter_first(text) or NO_LETTER


def extract_answer_with_anchor(text: str) -> int | Literal["[invalid]"]:
    """The integer after the last "answer" that has one; else after the first "="; else the first integer.

    Commas are removed first. A text without any integer is "[invalid]".

    >>> [extract_answer_with_anchor(t) for t in ("10 = 10, Answer: 1,000", "x = 10, so 10 + 5 = 15")]
    [1000, 10]
    >>> extract_answer_with_anchor("5 is my guess. Answer: unknown"), extract_answer_with_anchor("Answer: unknown")
    (5, '[invalid]')
    """
    text = text.replace(",", "")
    anchors = [match.end() for match in re.finditer("answer", text, re.IGNORECASE)]
    last = max((match.start() for match in _INTEGER.finditer(text)), default=-1)
    if before := [anchor for anchor in anchors if anchor <= last]:
        return _first_integer(text, before[-1])
    found = _first_integer(text.partition("=")[2])
    return _first_integer(text) if found == INVALID else found


def extract_answer_simple(text: str) -> int | Literal["[invalid]"]:
    """The first integer after the last "=", or of the whole text when it has none. Commas are removed first.

    >>> [extract_answer_simple(t) for t in ("5 + 10 = 15", "42.5", "First 10, then Answer: 42", "x = ?")]
    [15, 42, 10, '[invalid]']
    """
    return _first_integer(text.replace(",", "").rpartition("=")[2])


def extract_answer(text: str, method: str = "anchor") -> int | Literal["[invalid]"]:
    """`extract_answer_with_anchor` or `extract_answer_simple` by name.

    >>> extract_answer("x = 1, y = 2"), extract_answer("x = 1, y = 2", method="simple")
    (1, 2)
    """
    if method == "anchor":
        return extract_answer_with_anchor(text)
    if method == "simple":
        return extract_answer_simple(text)
    raise ValueError(f"Unknown extraction method: {method!r} (anchor or simple)")


def letter_word_boundary(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_letter_word_boundary` over the case's own labels, None when there is no letter.

    >>> letter_word_boundary("Select option C"), letter_word_boundary("The best choice")
    ('C', None)
    """
    return None if text is None else _first(rf"\b([{_labels(choices)}])\b", text)


def letter_first(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_letter_legacy` over the case's own labels, None when there is no letter.

    >>> letter_first("Select B")
    'E'
    """
    return None if text is None else _first(f"([{_labels(choices)}])", text)


def number_anchor(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_answer_with_anchor` as text, None when there is no integer.

    >>> number_anchor("Answer: 42.5"), number_anchor("none")
    ('42', None)
    """
    return None if text is None else _text_or_none(extract_answer_with_anchor(text))


def number_simple(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """`extract_answer_simple` as text, None when there is no integer.

    >>> number_simple("5 + 10 = 15"), number_simple("none")
    ('15', None)
    """
    return None if text is None else _text_or_none(extract_answer_simple(text))


def _labels(choices: Sequence[str] | None) -> str:
    return "".join(DEFAULT_LABELS if choices is None else parse_choices(choices).labels)


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text.upper())
    return match[1] if match else None


def _first_integer(text: str, start: int = 0) -> int | Literal["[invalid]"]:
    match = _INTEGER.search(text, start)
    return int(match[0]) if match and len(match[0]) <= _MAX_DIGITS else INVALID


def _text_or_none(answer: int | Literal["[invalid]"]) -> str | None:
    return None if answer == INVALID else str(answer)


# --- extractor `lm_eval_filter`: the filters of lm-eval's task files, applied to one response


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


def _regex(regex_pattern: str = r"#### (\-?[0-9\.\,]+)", group_select: int = 0, fallback: str = _FALLBACK) -> Step:
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
