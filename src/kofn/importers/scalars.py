"""One value of a file as the one type that its role has here: text, number, pass or list; chat messages as text."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TRUE = frozenset({"true", "pass", "passed", "correct", "yes", "1", "1.0"})
FALSE = frozenset({"false", "fail", "failed", "incorrect", "wrong", "no", "0", "0.0"})


class InvalidValue(ValueError):
    """A value that does not fit its field; the reader adds file and line."""


def as_text(value: Any) -> str | None:
    """Text as it is; None stays None; anything else as JSON.

    >>> as_text(42), as_text(True), as_text(None), as_text([1])
    ('42', 'true', None, '[1]')
    """
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a whole number of more than 64 bits, brackets in brackets
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError) as problem:
        raise InvalidValue(f"expected a value that JSON can say: {problem!s:.80}") from None


def as_texts(value: Any) -> list[str] | None:
    """One text or several: a list without the missing ones; None stays None.

    >>> as_texts(["a", None, 2]), as_texts("a"), as_texts(None)
    (['a', '2'], ['a'], None)
    """
    if isinstance(value, dict):
        value = value.get("text", list(value.values()))
    if isinstance(value, list):
        return [text for text in map(as_text, value) if text is not None]
    return None if value is None else [str(as_text(value))]


def as_references(value: Any) -> list[str] | None:
    """One reference or several. An object is one, as JSON, unless it has the texts of several under `text`.

    >>> as_references(["a", 2]), as_references({"test": "assert f()"}), as_references({"text": ["a", "b"]})
    (['a', '2'], ['{"test":"assert f()"}'], ['a', 'b'])
    """
    return as_texts([value] if isinstance(value, dict) and "text" not in value else value)


def as_pass(value: Any) -> int | None:
    """1 or 0 from true/false, 1/0 or a word; None stays None; anything else is refused.

    >>> as_pass(True), as_pass(0.0), as_pass("Passed"), as_pass(None)
    (1, 0, 1, None)
    """
    if value is None:
        return None
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return int(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in TRUE | FALSE:
            return int(word in TRUE)
        if word in ("", "null", "none"):
            return None
    found = _abbreviated(value)
    raise InvalidValue(f"expected true, false, 1, 0 or null, found {found}: write null where nobody graded it")


def as_number(value: Any) -> float | None:
    """A finite number, also written as text; None stays None; anything else is refused.

    >>> as_number("0.5"), as_number(True), as_number(None)
    (0.5, 1.0, None)
    """
    if value is None or value == "":
        return None
    try:
        number = float(value) if isinstance(value, (bool, int, float, str)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValue(f"expected a finite number or null, found {_abbreviated(value)}")
    return number


def as_whole(value: Any) -> int | None:
    """A whole number; None stays None."""
    number = as_number(value)
    if number is None:
        return None
    if number != int(number):
        raise InvalidValue(f"expected a whole number, found {_abbreviated(value)}")
    return int(number)


def as_numbers(value: Any) -> list[float] | None:
    """A list of numbers; None stays None."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidValue(f"expected a list of numbers, found {_abbreviated(value)}")
    return [number for number in map(as_number, value) if number is not None]


def as_object(value: Any) -> dict[str, Any]:
    """A value that is an object; an empty one in place of any other."""
    return value if isinstance(value, dict) else {}


def object_in(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object in a field; an empty one where there is none."""
    return as_object(record.get(name))


def plain_tags(record: Any, known: Collection[str] = ()) -> dict[str, Any]:
    """`tag.NAME` for every field of an object that holds one plain value, but for those that are known otherwise.

    >>> plain_tags({"level": 3, "id": "a", "steps": [1]}, {"id"}), plain_tags(None)
    ({'tag.level': 3}, {})
    """
    fields = as_object(record).items()
    return {f"tag.{k}": v for k, v in fields if k not in known and isinstance(v, (str, int, float, bool))}


def _abbreviated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def content_text(content: Any) -> str | None:
    """The text of a message's content: a string, or the text parts of a list, one per line.

    >>> content_text([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "4"}])
    '4'
    """
    if not isinstance(content, list):
        return as_text(content)
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type", "text") == "text"]
    return "\n".join(part for part in parts if isinstance(part, str))


def content_reasoning(content: Any) -> str | None:
    """The reasoning among a message's content parts; of a redacted one its summary.

    >>> content_reasoning([{"type": "reasoning", "reasoning": "x9Q=", "redacted": True, "summary": "I added."}])
    'I added.'
    """
    if not isinstance(content, list):
        return None
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == "reasoning"]
    # a provider that redacts gives ciphertext as the reasoning
    texts = [part.get("summary") if part.get("redacted") else part.get("reasoning") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def dialogue(messages: Any) -> str | None:
    """A prompt as one text: a single message is its text, several are each led by their role.

    >>> dialogue([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}])
    'system: Be brief.\\n\\nuser: 2+2?'
    """
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "content" in one for one in messages):
        return as_text(messages)
    texts = [(one.get("role", "user"), content_text(one["content"]) or "") for one in messages]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in texts)
