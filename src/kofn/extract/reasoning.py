"""Reasoning blocks (`<think>...</think>` and the like), and the text outside them, where the answer is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAG = re.compile(
    r"<(?:/?(?:think|thinking|reasoning|thought)|\|(?:begin|end)_of_thought\|)>", re.IGNORECASE | re.ASCII
)


def outside_reasoning(text: str) -> str:
    """The text without its reasoning blocks.

    A closing tag without an opening one ends a block that began with the text (chat templates often supply
    the opening tag); an opening tag that is never closed begins a block that runs to the end.

    >>> outside_reasoning("<think>2 + 2 is 5?</think>4"), outside_reasoning("5? no</think>4")
    ('4', '4')
    >>> outside_reasoning("<think>cut off in mid-thought: 4")
    ''
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    start: int | None = 0
    for tag in _TAG.finditer(text):
        closes = tag[0].startswith("</") or tag[0].lower().startswith("<|end")
        if not closes:
            if start is not None:
                kept.append(text[start : tag.start()])
            start = None
        else:
            if start is not None:
                kept.clear()
            start = tag.end()
    if start is not None:
        kept.append(text[start:])
    return "".join(kept)


def strip_reasoning(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """The whole output without its reasoning blocks, trimmed; None when nothing is left.

    >>> strip_reasoning("<think>hm</think> 4 ")
    '4'
    """
    return None if text is None else outside_reasoning(text).strip() or None
