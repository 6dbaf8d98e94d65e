"""Prompts as templates: `{name}` stands for a field, `{{` and `}}` for braces, and nothing else is special."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# {{, }}, {name}, or a lone brace, which is an error: a typing mistake must not be sent to a model
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[^\W\d]\w*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with named gaps. What fills a gap is text: braces in it are never looked at again.

    >>> Template("Q: {question} {{kept}}").fill({"question": "what is {x}?"})
    'Q: what is {x}? {kept}'
    >>> Template("{a.b}")
    Traceback (most recent call last):
    kofn.errors.InputError: '{a.b}': a lone brace: write {name} for a field, {{ and }} for braces
    """

    text: str
    parts: tuple[tuple[str, str | None], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_parts(self.text)))

    @property
    def names(self) -> tuple[str, ...]:
        """The fields it asks for, each once, in order."""
        return tuple(dict.fromkeys(name for _, name in self.parts if name is not None))

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with every gap filled; every name must be there."""
        return "".join(text if name is None else text + values[name] for text, name in self.parts)

    def check(self, known: Iterable[str], where: str) -> None:
        """Refuse a name that is not known, and list what there is."""
        there = list(known)
        for name in self.names:
            if name not in there:
                raise InputError(f"{where}: {{{name}}} is no field: there is {', '.join(sorted(there)) or 'none'}")


def _parts(text: str) -> list[tuple[str, str | None]]:
    """(literal text, the name that follows it); the last one has no name."""
    parts: list[tuple[str, str | None]] = []
    literal, at = "", 0
    for found in _TOKEN.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found["name"]:
            parts.append((literal, found["name"]))
            literal = ""
        elif len(found[0]) == 2:
            literal += found[0][0]
        else:
            excerpt = text[max(0, found.start() - 20) : found.start() + 20]
            raise InputError(f"{excerpt!r}: a lone brace: write {{name}} for a field, {{{{ and }}}} for braces")
    parts.append((literal + text[at:], None))
    return parts
