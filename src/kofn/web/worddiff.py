"""Two texts as one: what the second leaves out struck through, what it adds underlined."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup, escape

from kofn.report.visible import visible

MOST_WORDS = 1_500  # of each text; comparing takes time that grows with their product
_WORDS = re.compile(r"\s+|[^\W_]+|.", re.DOTALL)


def word_diff(before: str, after: str) -> Markup:
    """`after` with its differences from `before` marked; every character visible.

    >>> word_diff("It is 4.", "It is <5>.")
    Markup('It is <del>4</del><ins>&lt;5&gt;</ins>.')
    """
    a, b = (_WORDS.findall(text)[:MOST_WORDS] for text in (before, after))
    out = Markup()
    for what, i, j, k, m in SequenceMatcher(None, a, b, autojunk=len(a) + len(b) > MOST_WORDS).get_opcodes():
        if what == "equal":
            out += _shown(b[k:m])
            continue
        if i < j:
            out += Markup("<del>{}</del>").format(_shown(a[i:j]))
        if k < m:
            out += Markup("<ins>{}</ins>").format(_shown(b[k:m]))
    left = len(_WORDS.findall(after)) - len(b)
    return out + (
        Markup('<span class="gap">{} more words are not compared</span>').format(f"{left:,}") if left > 0 else ""
    )


def _shown(words: list[str]) -> Markup:
    return Markup("\n").join(escape(visible(line)) for line in "".join(words).replace("\r\n", "\n").split("\n"))
