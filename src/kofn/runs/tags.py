"""Validates the tags of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST, MOST = 80, 50


def validate_tags(given: Iterable[str]) -> list[str]:
    """Tags as run.json keeps them: each once, in the order they came; what nobody could read or type is refused.

    >>> validate_tags(["baseline", " night ", "baseline"])
    ['baseline', 'night']
    >>> validate_tags([" "])
    Traceback (most recent call last):
    kofn.errors.InputError: tag ' ': expected a word of 1 to 80 characters that can be seen
    """
    # a single text is one tag, not its letters
    words = [given] if isinstance(given, str) else given
    found = list(dict.fromkeys(tag.strip() for tag in words))
    for tag in found:
        if not tag or len(tag) > LONGEST or not tag.isprintable():
            quoted = ascii(tag[:LONGEST]) if tag else "' '"
            raise InputError(f"tag {quoted}: expected a word of 1 to {LONGEST} characters that can be seen")
    if len(found) > MOST:
        raise InputError(f"{len(found)} tags: a run takes at most {MOST}")
    return found
