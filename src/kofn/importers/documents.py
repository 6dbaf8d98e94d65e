"""One large JSON document, its long lists an item at a time, so that memory holds one item and not the file."""

from __future__ import annotations

import json
import re
from typing import IO, TYPE_CHECKING, Any

import orjson

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_CHUNK = 4 << 20
_EDGE = 64  # an error this close to the end of what was read may be a value that goes on
_AFTER = ",:]} \t\r\n"  # follows a whole value; a number cut at the end of a chunk may go on
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()  # reads NaN, which some tools write

Path_ = tuple[str, ...]


def members(path: Path, shown: str, lists: Collection[Path_]) -> Iterator[tuple[Path_, Any]]:
    """(("eval",), {...}) of every member of a JSON object; lists named in `lists` give (("samples",), item) for each.

    `lists` are paths of keys: ("results", "results") is the list in the object in the document. An object on the way to
    one is walked, not kept. What is not JSON, and what ends too early, is refused by its place.
    """
    with path.open(encoding="utf-8-sig") as file:
        text = _Text(file)
        try:
            yield from _object(text, (), set(lists))
        except UnicodeDecodeError:
            raise InputError(f"{shown}: not UTF-8: save the file as UTF-8") from None
        except json.JSONDecodeError as problem:
            if text.ended and problem.pos + _EDGE >= len(text.buffer):
                raise InputError(f"{shown}: the JSON ends too early: was it cut off while it was written?") from None
            place = text.before + problem.pos + 1
            raise InputError(f"{shown}: not JSON ({problem.msg}, character {place})") from None
        except (ValueError, RecursionError) as problem:  # a number of thousands of digits; brackets in brackets
            raise InputError(f"{shown}: JSON that cannot be read: {str(problem).partition(':')[0]:.80}") from None


def parsed(data: bytes) -> Any:
    """A JSON value; one with NaN in it, which is no JSON and which Python's own writers write, by the slower reader.

    >>> parsed(b'{"value": NaN}')
    {'value': nan}
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return _mended(found) if _HALF.search(data.decode()) else found


def _mended(value: Any) -> Any:
    """A value without halves of characters, which JavaScript writes where it cuts a text in two.

    >>> _mended(["so " + chr(0xD83D)]) == ["so " + chr(0xFFFD)]
    True
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(one) for name, one in value.items()}
    return value


class _Text:
    """What was read of a file and is not used yet."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.buffer, self.at = file, "", 0
        self.before, self.ended = 0, False

    def more(self) -> None:
        """Drop what is used and read on; the chunk grows with what is kept, so that one long value is read once."""
        self.before += self.at
        kept = self.buffer[self.at :]
        chunk = self.file.read(max(_CHUNK, len(kept)))
        self.ended = not chunk
        self.buffer, self.at = kept + chunk, 0

    def next(self) -> str:
        """The next character that is no space, not taken; empty at the end."""
        while True:
            found = _SPACE.match(self.buffer, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.buffer) or self.ended:
                return self.buffer[self.at : self.at + 1]
            self.more()

    def take(self, wanted: str) -> str:
        """The next character, which must be one of these."""
        found = self.next()
        if not found or found not in wanted:
            raise json.JSONDecodeError(f"expected {' or '.join(wanted)}", self.buffer, self.at)
        self.at += 1
        return found

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        while True:
            try:
                found, end = _DECODER.raw_decode(self.buffer, self.at)
            except json.JSONDecodeError as problem:
                going_on = problem.msg.startswith("Unterminated") or problem.pos + _EDGE >= len(self.buffer)
                if self.ended or not going_on:
                    raise
            else:
                if self.ended or (end < len(self.buffer) and self.buffer[end] in _AFTER):
                    start, self.at = self.at, end
                    return _mended(found) if _HALF.search(self.buffer, start, end) else found
            self.more()


def _object(text: _Text, path: Path_, lists: set[Path_]) -> Iterator[tuple[Path_, Any]]:
    text.take("{")
    if text.next() == "}":
        text.take("}")
        return
    while True:
        key = text.value()
        text.take(":")
        here = (*path, str(key))
        opens = text.next()
        if here in lists and opens == "[":
            for item in _items(text):
                yield here, item
        elif opens == "{" and any(wanted[: len(here)] == here and wanted != here for wanted in lists):
            yield from _object(text, here, lists)
        else:
            yield here, text.value()
        if text.take(",}") == "}":
            return


def _items(text: _Text) -> Iterator[Any]:
    text.take("[")
    if text.next() == "]":
        text.take("]")
        return
    while True:
        yield text.value()
        if text.take(",]") == "]":
            return
