"""Escapes characters that would hide or reorder text, in terminals and in pages."""

from __future__ import annotations

import re
import unicodedata

# Controls, line separators, halves of surrogate pairs, and what changes direction or takes no room. The joiners U+200C
# and U+200D stay: emoji and several scripts are written with them, and they move nothing.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)

_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, format, surrogates, line and paragraph separators


def show_hidden(text: str) -> str:
    r"""Text that shows every character it has.

    >>> show_hidden("a\u202eb\n<i>")
    'a⟦U+202E⟧b⟦U+000A⟧<i>'
    """
    return _HIDDEN.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text)


def escape_controls(text: str) -> str:
    """Control and direction characters made visible: text from a file cannot move the cursor or hide.

    >>> escape_controls("a\\x1b[31mb\\u202e")
    'a\\\\x1b[31mb\\\\u202e'
    """
    return "".join(
        c if unicodedata.category(c) not in _CONTROL_CATEGORIES else c.encode("unicode_escape").decode() for c in text
    )
