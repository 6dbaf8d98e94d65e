"""Extractors with a place named by the user: a regular expression, a JSON field, the last line, the whole text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kofn.core.numbers import canonical_number
from kofn.errors import InputError
from kofn.extract.answer_labels import outside_reasoning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PATH = re.compile(r"(?:[^.\[\]]+|\[-?\d+\])(?:\.[^.\[\]]+|\[-?\d+\])*")
_STEP = re.compile(r"\[(-?\d+)\]|([^.\[\]]+)")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Pattern:
    r"""What a regular expression's group holds in its first (or last) match, trimmed; None when empty.

    The expression is checked when the extractor is built. It runs as written: `(?i)` and the like go inside.

    >>> Pattern(r"got (\w+)")("got ok, got bad"), Pattern(r"got (\w+)", take="last")("got ok, got bad")
    ('ok', 'bad')
    """

    regex: str
    group: int | str = 1
    take: Literal["first", "last"] = "first"

    def __post_init__(self) -> None:
        try:
            compiled = re.compile(self.regex)
        except re.error as error:
            raise InputError(f"pattern {self.regex!r} is no regular expression: {error}") from None
        exists = self.group in compiled.groupindex if isinstance(self.group, str) else self.group <= compiled.groups
        if not exists or (isinstance(self.group, int) and self.group < 0):
            raise InputError(f"pattern {self.regex!r} has no group {self.group!r}: add one, or use group=0")
        if self.take not in ("first", "last"):
            raise InputError(f"pattern takes 'first' or 'last', not {self.take!r}")

    def __call__(self, text: str | None, choices: Sequence[str] | None = None) -> str | None:
        if text is None:
            return None
        matches = re.finditer(self.regex, text)
        found = next(matches, None) if self.take == "first" else next(reversed(list(matches)), None)
        return (found[self.group] or "").strip() or None if found else None


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of the last JSON object that has it, be the object bare, in a code fence or after prose.

    The path is dotted, with [0] for list items. Numbers come back canonical, true and false as such, objects
    and lists as JSON with sorted keys; null, an empty text and a missing field are no answer.

    >>> JsonField("result.values[0]")('Here: {"result": {"values": [42.0, 1]}}')
    '42'
    >>> JsonField()('{"answer": 1.50} and {"other": 2}')
    '1.5'
    """

    path: str = "answer"

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise InputError(f"json_field path {self.path!r} is not like answer, result.value or items[0].name")

    def __call__(self, text: str | None, choices: Sequence[str] | None = None) -> str | None:
        if text is None:
            return None
        found: str | None = None
        for document in _documents(outside_reasoning(text), "[" if self.path.startswith("[") else "{"):
            value = self._at_path(document)
            found = found if value is _MISSING else _as_text(value)
        return found

    def _at_path(self, value: Any) -> Any:
        for index, name in _STEP.findall(self.path):
            if name:
                value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
            else:
                at, size = int(index), len(value) if isinstance(value, list) else 0
                value = value[at] if -size <= at < size else _MISSING
        return value


def last_line(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""The last line outside reasoning that holds a letter or a digit and is no code fence, trimmed.

    >>> last_line("Let me see.\n```\n42\n```\n---")
    '42'
    """
    if text is None:
        return None
    lines = (line.strip() for line in reversed(outside_reasoning(text).splitlines()))
    return next((line for line in lines if any(map(str.isalnum, line)) and not line.startswith("```")), None)


def text(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """The whole text, trimmed; None when nothing is left.

    >>> text("  as it is\\n"), text(" ")
    ('as it is', None)
    """
    return None if text is None else text.strip() or None


def none(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """No answer, whatever the text: for programs, essays and other outputs on which nobody votes.

    >>> none("def f(): ...")
    """
    return None


def _documents(text: str, opening: str) -> Iterator[Any]:
    """The outermost JSON documents in order. Failed attempts share a budget, so hostile text stays linear."""
    decoder = json.JSONDecoder()
    begins = re.compile(r'\{\s*["}]' if opening == "{" else r"\[")
    budget = 10 * len(text) + 100_000
    match = begins.search(text)
    while match and budget > 0:
        at = match.start()
        try:
            document, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            # the error counts the lines before it, so its cost grows with its place in the text
            budget -= error.pos - at + error.pos // 8 + 20
            end = at + 1
        except (RecursionError, ValueError):
            budget -= len(text) - at + 1
            end = at + 1
        else:
            yield document
        match = begins.search(text, end)


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return canonical_number(value)
    if isinstance(value, str):
        return value.strip() or None
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
