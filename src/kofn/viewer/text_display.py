"""Texts as a page shows them: cut, marked where an answer stands, and compared word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any

import orjson
import polars as pl
from markupsafe import Markup

from kofn.core.escape import html_lines
from kofn.extract.answer_spans import locate
from kofn.runs.case_reports import json_text

MAX_CHARACTERS = 100_000  # of a text on a page; the files hold the rest


def visible_lines(text: str) -> Markup:
    """A text with its line breaks, and any other control character as something that can be seen."""
    return html_lines(text.replace("\r\n", "\n"))


def mark_answer(text: str, answer: str | None) -> Markup:
    """A text with the place of its answer marked.

    >>> mark_answer("It is <42>", "42")
    Markup('It is &lt;<mark title="the extracted answer">42</mark>&gt;')
    """
    span = None
    if answer is not None and text.strip() != answer and len(text) <= MAX_CHARACTERS:
        span = locate(text, answer)
    if span is None:
        return visible_lines(text[:MAX_CHARACTERS])
    low, high = span
    mark = Markup('<mark title="the extracted answer">{}</mark>').format(visible_lines(text[low:high]))
    return visible_lines(text[:low]) + mark + visible_lines(text[high:])


def text_box(value: Any) -> Markup | None:
    """The content of a box; a very long text is cut."""
    return None if value is None else visible_lines(cut_text(str(value)))


def cut_text(text: str) -> str:
    """A text, or the beginning of a very long one."""
    more = len(text) - MAX_CHARACTERS
    return text if more <= 0 else f"{text[:MAX_CHARACTERS]}\n… {more:,} characters more"


def readable_json(value: str | None) -> str | None:
    """A JSON text for readers: a string without its quotes, a long value indented."""
    if value is None:
        return None
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    if isinstance(data, str):
        return data
    short = orjson.dumps(data).decode()
    return short if len(short) <= 80 else orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def joined(value: Any, separator: str = " | ") -> str | None:
    """Alternatives, such as several references, as one text."""
    if value is None:
        return None
    return separator.join(str(v) for v in value) if isinstance(value, (list, pl.Series)) else str(value)


def plain_text(value: Any) -> str:
    """A value of a table as text, lists and structs as JSON."""
    if isinstance(value, pl.Series):
        return str(json_text(pl.Series([value]))[0])
    return str(value)


def diff_lines(diff: str | None) -> list[tuple[str, str]]:
    """(style, line) for the lines of a diff; a text that is not a diff is one line.

    >>> diff_lines("@@ 1 @@\\n-a\\n+b")
    [('at', '@@ 1 @@'), ('minus', '-a'), ('plus', '+b')]
    """
    styles = {"+": "plus", "-": "minus", "@": "at"}
    lines = (diff or "")[:MAX_CHARACTERS].split("\n") if diff else []
    # the first two lines of a unified diff name the files: they begin with signs, but nothing was added or removed
    named = len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")
    return [("at" if named and i < 2 else styles.get(line[:1], ""), line) for i, line in enumerate(lines)]


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
        old, new = visible_lines("".join(a[i:j])), visible_lines("".join(b[k:m]))
        if what == "equal":
            out += new
            continue
        out += Markup("<del>{}</del>").format(old) if old else ""
        out += Markup("<ins>{}</ins>").format(new) if new else ""
    left = len(_WORDS.findall(after)) - len(b)
    if left > 0:
        out += Markup('<span class="gap">{} more words are not compared</span>').format(f"{left:,}")
    return out
