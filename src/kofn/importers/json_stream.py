"""Streaming reader of one large JSON document: its long lists come item by item, so memory holds one item."""

from __future__ import annotations

import json
import re
from typing import IO, TYPE_CHECKING, Any

import orjson

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_CHUNK = 4 << 20  # characters read at a time
_EDGE = 64  # an error this close to the end of what was read may be a value that goes on
_AFTER = ",:]} \t\r\n"  # follows a whole value; a number cut at the end of a chunk may go on
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character outside the basic plane, escaped
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()  # reads NaN, which some tools write

KeyPath = tuple[str, ...]


def iter_members(path: Path, source: str, lists: Collection[KeyPath]) -> Iterator[tuple[KeyPath, Any]]:
    """(("eval",), {...}) of every member of a JSON object; lists named in `lists` give (("samples",), item) for each.

    `lists` are paths of keys: ("results", "results") is the list in the object in the document. An object on the way to
    one is walked, not kept. What is not JSON, and what ends too early, is refused by its place.
    """
    with path.open(encoding="utf-8-sig") as file:
        text = _Buffer(file)
        try:
            yield from _object(text, (), set(lists))
        except UnicodeDecodeError:
            raise InputError(f"{source}: not UTF-8: save the file as UTF-8") from None
        except json.JSONDecodeError as problem:
            if text.ended and problem.pos + _EDGE >= len(text.buffer):
                raise InputError(f"{source}: the JSON ends too early: was it cut off while it was written?") from None
            place = text.before + problem.pos + 1
            raise InputError(f"{source}: not JSON ({problem.msg}, character {place})") from None
        except (ValueError, RecursionError) as problem:  # a number of thousands of digits; brackets in brackets
            raise InputError(f"{source}: JSON that cannot be read: {str(problem).partition(':')[0]:.80}") from None


def parse_json(data: bytes) -> Any:
    """A JSON value; also one with NaN, which JSON does not know and Python's own writer writes.

    >>> parse_json(b'{"value": NaN}')
    {'value': nan}
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return _without_surrogates(value) if _SURROGATE.search(data.decode()) else value


def _without_surrogates(value: Any) -> Any:
    """A value without lone surrogates, which JavaScript writes where it cuts a text inside a character.

    >>> _without_surrogates(["so " + chr(0xD83D)]) == ["so " + chr(0xFFFD)]
    True
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(one) for name, one in value.items()}
    return value


class _Buffer:
    """The part of a file that was read and is not parsed yet."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.buffer, self.at = file, "", 0
        self.before, self.ended = 0, False

    def more(self) -> None:
        """Drop what is parsed and read on.

        The chunk grows with the unparsed rest: a value of many chunks is then parsed again only log(size) times.
        """
        self.before += self.at
        rest = self.buffer[self.at :]
        chunk = self.file.read(max(_CHUNK, len(rest)))
        self.ended = not chunk
        self.buffer, self.at = rest + chunk, 0

    def peek(self) -> str:
        """The next character that is not white space, without taking it; empty at the end."""
        while True:
            match = _SPACE.match(self.buffer, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.buffer) or self.ended:
                return self.buffer[self.at : self.at + 1]
            self.more()

    def take(self, expected: str) -> str:
        """The next character, which must be one of these."""
        char = self.peek()
        if not char or char not in expected:
            raise json.JSONDecodeError(f"expected {' or '.join(expected)}", self.buffer, self.at)
        self.at += 1
        return char

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.at)
            except json.JSONDecodeError as problem:
                going_on = problem.msg.startswith("Unterminated") or problem.pos + _EDGE >= len(self.buffer)
                if self.ended or not going_on:
                    raise
            else:
                if self.ended or (end < len(self.buffer) and self.buffer[end] in _AFTER):
                    start, self.at = self.at, end
                    return _without_surrogates(value) if _SURROGATE.search(self.buffer, start, end) else value
            self.more()


def _object(text: _Buffer, path: KeyPath, lists: set[KeyPath]) -> Iterator[tuple[KeyPath, Any]]:
    text.take("{")
    if text.peek() == "}":
        text.take("}")
        return
    while True:
        key = text.value()
        text.take(":")
        here = (*path, str(key))
        opens = text.peek()
        if here in lists and opens == "[":
            for item in _items(text):
                yield here, item
        elif opens == "{" and any(keys[: len(here)] == here and keys != here for keys in lists):
            yield from _object(text, here, lists)
        else:
            yield here, text.value()
        if text.take(",}") == "}":
            return


def _items(text: _Buffer) -> Iterator[Any]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    while True:
        yield text.value()
        if text.take(",]") == "]":
            return
