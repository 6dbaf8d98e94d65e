"""The extractor of the task `starter`: for facts it looks for known words, for word problems for a number."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kofn.extract import number, strip_reasoning

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT = 2  # "Au" is gold, "au" is not


def answer(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    """Of the words a fact might be answered with the one named first; without such words the number.

    A word may have several forms, "eight|8": the first stands for all, so that equal answers vote together. An output
    that names none of the words has no answer.

    >>> answer("A spider has 8 legs.", ["eight|8", "six|6"]), answer("It has many.", ["eight|8", "six|6"])
    ('eight', None)
    >>> answer("4 + 3 = 7. The answer is 7.")
    '7'
    """
    if text is None or not choices:
        return number(text)
    plain = strip_reasoning(text) or ""
    places = {form: found.start() for form, pattern in _words(tuple(choices)) if (found := pattern.search(plain))}
    first = min(places, key=places.__getitem__, default=None)
    return None if first is None else next(c for c in choices if first in c.split("|")).partition("|")[0]


@lru_cache(maxsize=512)
def _words(choices: tuple[str, ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Every form with what finds it as a word of its own; "100" is not in "212.100"."""
    found = []
    for form in (form for choice in choices for form in choice.split("|")):
        # a number must not be a part of another: of 1,000, 3.14, -5; a word only ends where letters and digits do
        before, after = (r"(?<![\w.,-])", r"(?!\w|[.,]\d)") if form.isdecimal() else (r"(?<!\w)", r"(?!\w)")
        flag = re.NOFLAG if len(form) <= _SHORT else re.IGNORECASE
        found.append((form, re.compile(f"{before}{re.escape(form)}{after}", flag)))
    return tuple(found)
