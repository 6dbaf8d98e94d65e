"""JSON paths, such as $.items[*].id: parsed, matched and shown in diffs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kofn.errors import InputError
from kofn.problems.matchers.diff_text import truncate

Path = tuple[str | int, ...]
ANY = None  # the step of a path that [*] and .* are; an item of a list without order has no other
Step = str | int | None

_LONG = 100

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'\s*]+)|\[(?P<index>[0-9]{1,9})\]|(?P<any>\[\*\]|\.\*)"""
    r"""|\[(?P<quoted>"(?:[^"\\]|\\.)*"|'[^'\\]*')\]"""
)


def format_path(path: Path) -> str:
    """A place as people write it.

    >>> format_path(("items", 2, "a b")), format_path(())
    ('$.items[2]["a b"]', '$')
    """
    text = "$" + "".join(map(_format_step, path))
    return text if len(text) <= 2 * _LONG else f"{text[:_LONG]}...{text[-_LONG // 2 :]}"


def parse_path(text: str, purpose: str) -> tuple[Step, ...]:
    """The steps of a path that an author wrote, `purpose` being what they wrote it for.

    >>> parse_path('$.items[*]["a b"][0]', "matcher json: ignore")
    ('items', None, 'a b', 0)
    >>> parse_path("time", "matcher json: ignore")
    Traceback (most recent call last):
    kofn.errors.InputError: matcher json: ignore: 'time' is no path such as $.time, $.items[*].id or $["a b"][0]
    """
    steps: list[Step] = []
    at = 1 if text.startswith("$") else len(text) + 1
    while at < len(text) and (match := _STEP.match(text, at)):
        steps.append(_step(match))
        at = match.end()
    if at != len(text):
        example = '$.time, $.items[*].id or $["a b"][0]'
        raise InputError(f"{purpose}: {truncate(text, 60)!r} is no path such as {example}")
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of an author's that lead on from a place in the data.

    >>> paths = Paths.parse(["$.items[*].id"], "ignore")
    >>> paths.at("items").at(3).at("id").here, paths.at("items").here
    (True, False)
    """

    remaining: tuple[tuple[Step, ...], ...] = ()
    everywhere: bool = False

    @classmethod
    def parse(cls, paths: bool | tuple[str, ...] | list[str], purpose: str) -> Paths:
        """From a list of paths, or true for every place there is."""
        if isinstance(paths, bool):
            return cls(everywhere=paths)
        return cls(tuple(parse_path(text, purpose) for text in paths))

    @property
    def here(self) -> bool:
        """Whether one of them ends here."""
        return self.everywhere or () in self.remaining

    def at(self, step: Step) -> Paths:
        """Those that lead on one step further."""
        if not self.remaining:
            return self
        return Paths(tuple(path[1:] for path in self.remaining if path and path[0] in (ANY, step)), self.everywhere)


def _step(match: re.Match[str]) -> Step:
    if match["any"]:
        return ANY
    if match["index"]:
        return int(match["index"])
    quoted: str = match["quoted"] or ""
    if quoted.startswith('"'):
        return str(json.loads(quoted))
    return quoted[1:-1] or str(match["name"])


def _format_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) <= _LONG and step.isidentifier():
        return f".{step}"
    return f"[{json.dumps(truncate(step, _LONG), ensure_ascii=False)}]"
