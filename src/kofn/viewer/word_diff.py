"""The differences of two texts, word by word, as one marked text."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup

from kofn.viewer.text_display import visible_lines

MAX_WORDS = 1_500  # of each text; comparing takes time that grows with their product
_WORDS = re.compile(r"\s+|[^\W_]+|.", re.DOTALL)


def word_diff(before: str, after: str) -> Markup:
    """`after` with its differences from `before` marked.

    >>> word_diff("It is 4.", "It is <5>.")
    Markup('It is <del>4</del><ins>&lt;5&gt;</ins>.')
    """
    # `autojunk` trades accuracy for time: only texts that need it get it
    a, b = (_WORDS.findall(text)[:MAX_WORDS] for text in (before, after))
    out = Markup()
    for what, i, j, k, m in SequenceMatcher(None, a, b, autojunk=len(a) + len(b) > MAX_WORDS).get_opcodes():
        if what == "equal":
            out += _join(b[k:m])
            continue
        if i < j:
            out += Markup("<del>{}</del>").format(_join(a[i:j]))
        if k < m:
            out += Markup("<ins>{}</ins>").format(_join(b[k:m]))
    left = len(_WORDS.findall(after)) - len(b)
    return out + (
        Markup('<span class="gap">{} more words are not compared</span>').format(f"{left:,}") if left > 0 else ""
    )


def _join(words: list[str]) -> Markup:
    return visible_lines("".join(words))
