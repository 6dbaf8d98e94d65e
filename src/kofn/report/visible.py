"""Characters that would hide or move text, made visible."""

from __future__ import annotations

import re

# Controls, line separators, halves of surrogate pairs, and what changes direction or takes no room. The joiners U+200C
# and U+200D stay: emoji and several scripts are written with them, and they move nothing.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Text that shows every character it has.

    >>> visible("a\u202eb\n<i>")
    'a⟦U+202E⟧b⟦U+000A⟧<i>'
    """
    return _HIDDEN.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text)
