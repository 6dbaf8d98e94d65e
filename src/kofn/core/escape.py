"""Escapes text for terminals, HTML, Markdown, LaTeX and XML: what comes from a file is shown and does nothing else."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from markupsafe import Markup

# --- terminals

_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, format, surrogates, line and paragraph separators
LONGEST_LINE = 300


def escape_controls(text: str) -> str:
    """Control and direction characters made visible: text from a file cannot move the cursor or hide.

    >>> escape_controls("a\\x1b[31mb\\u202e")
    'a\\\\x1b[31mb\\\\u202e'
    """
    if text.isprintable():  # as most texts are: no loop over their characters
        return text
    return "".join(
        c if unicodedata.category(c) not in _CONTROL_CATEGORIES else c.encode("unicode_escape").decode() for c in text
    )


def escape_unprintable(text: str) -> str:
    r"""Text with every character that does not print as an escape, spaces of other kinds included.

    A surrogate that stands for a byte is shown as that byte.

    >>> print(*map(escape_unprintable, ("a\tb\r", "\x1b[2J", "\udcff", "no\u00a0break")))
    a\tb\r \x1b[2J \xff no\xa0break
    """
    return text if text.isprintable() else "".join(map(_escape_unprintable, text))


def _escape_unprintable(c: str) -> str:
    if c.isprintable():
        return c
    point = ord(c)
    return f"\\x{point - 0xDC00:02x}" if 0xDC80 <= point <= 0xDCFF else c.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """One printable line of at most 300 characters.

    >>> one_line("a\\n\\x1b[31mb")
    'a [31mb'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..."


def redact_address(address: str) -> str:
    """An address without a password and without its query, which may hold a signature.

    >>> redact_address("https://me:secret@host/a.jsonl?token=1"), redact_address("runs/a.jsonl")
    ('https://host/a.jsonl', 'runs/a.jsonl')
    """
    scheme, sign, rest = address.partition("://")
    if not sign:
        return address
    # the query may hold a signature, which is as good as a password
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"  # the last @: a password may contain one


# --- HTML

# Controls, line separators, halves of surrogate pairs, and what changes direction or takes no room. The joiners U+200C
# and U+200D stay: emoji and several scripts are written with them, and they move nothing.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_ENDS_SCRIPT = re.compile(r"<(?=/script|!--)", re.IGNORECASE)


def show_hidden(text: str) -> str:
    r"""Text that shows every character it has; for a template or `escape_html`, which escape markup.

    >>> show_hidden("a\u202eb\n<i>")
    'a⟦U+202E⟧b⟦U+000A⟧<i>'
    """
    return _HIDDEN.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text)


def escape_html(text: str) -> str:
    """Text for an element or a quoted attribute.

    >>> escape_html("<b title='x'>\\u202e")
    '&lt;b title=&#x27;x&#x27;&gt;\\\\u202e'
    """
    from html import escape

    return escape(escape_controls(text))


def resolve_references(text: str) -> str:
    """Text with the character references of HTML or XML as the characters they stand for: it must be escaped again.

    >>> resolve_references("&#x003C;i&gt;")
    '<i>'
    """
    from html import unescape

    return unescape(text)


def html_lines(text: str) -> Markup:
    r"""A text of several lines, each with every character visible.

    >>> html_lines("<i>\nb\u202e")
    Markup('&lt;i&gt;\nb⟦U+202E⟧')
    """
    from markupsafe import Markup, escape

    return Markup("\n").join(escape(show_hidden(line)) for line in text.split("\n"))


_CODE = re.compile(r"`([^`\n]+)`")


def html_prose(text: str) -> Markup:
    """A sentence that may quote names and commands in backticks: these as code, everything escaped.

    >>> html_prose("no `level` < 2")
    Markup('no <code>level</code> &lt; 2')
    """
    from markupsafe import Markup, escape

    if hasattr(text, "__html__"):  # markup already
        return Markup(text)  # noqa: S704
    # odd parts are what stood between backticks
    parts = enumerate(_CODE.split(text))
    return Markup().join(html_element("code", show_hidden(s)) if i % 2 else escape(show_hidden(s)) for i, s in parts)


def html_element(name: str, *content: Markup | str, **attributes: str | float | None) -> Markup:
    """An element of HTML or SVG; texts and values are escaped, None leaves an attribute out.

    >>> html_element("text", "a < b", class_="wide", font_size=5, hidden=None)
    Markup('<text class="wide" font-size="5">a &lt; b</text>')
    """
    from markupsafe import Markup, escape

    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(f"{value:g}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(escape, content))
    return Markup(f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>")  # noqa: S704 - escaped above


def escape_json(data: Any) -> str:
    """JSON in ASCII without `<`, `>` and `&`: inside a page it can end nothing and reorder nothing.

    >>> escape_json({"a": "</script>\u202e"})
    '{"a":"\\\\u003c/script\\\\u003e\\\\u202e"}'
    """
    import json

    import orjson

    # orjson turns arrays and NaN into JSON; the standard library then escapes what is not ASCII
    plain = orjson.loads(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))
    text = json.dumps(plain, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def escape_script(text: str) -> str:
    r"""JavaScript that can stand in a script element: nothing in it ends the element or is changed by the parser.

    >>> escape_script("s = '</script>'")
    "s = '\\x3c/script>'"
    """
    # the parser of HTML turns CR into LF and replaces NUL: the hash must be of what the browser sees
    return _ENDS_SCRIPT.sub(r"\\x3c", text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\\0"))


# --- Markdown

# what any Markdown flavour gives a meaning: emphasis, links, mentions, issue numbers, headings, lists, HTML
_ACTIVE = re.compile(r"[\\`*\[\]<|~$#&@]|(?<!\w)_|_(?!\w)|://|www\.|^[-+=>]|^\d+[.)]\s", re.IGNORECASE)
_MARKS = re.compile(r"([\\`*_\[\]~|#])")
_PIPE = re.compile(r"(\\*)\|")
_LONGEST_NAME = 80


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in one line: no markup, no HTML, no end of a cell.

    >>> escape_markdown("a|b <i> [x](y)\\nz")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y)\\\\\\\\nz'
    """
    from html import escape

    return _MARKS.sub(r"\\\1", escape(escape_controls(text), quote=False))


def escape_prose(text: str) -> str:
    """A sentence of ours that may quote names: as it is where nothing in it means anything to Markdown, else as code.

    >>> escape_prose("9 tied votes"), escape_prose("segments: <b>")
    ('9 tied votes', '`segments: <b>`')
    """
    return code_span(text) if _ACTIVE.search(text) or escape_controls(text) != text else text


def code_span(text: str) -> str:
    """A code span that shows the text, whatever it holds; control characters are made visible.

    >>> print(code_span("a`b"), code_span("`"), code_span(""))
    ``a`b`` `` ` `` *(empty)*
    """
    content = escape_controls(text)
    if not content:
        return "*(empty)*"
    # longer than any run of backticks in it, so that the content cannot close it
    fence = "`" * (_longest_run(content) + 1)
    # a space inside: CommonMark strips one at each end, and a backtick must not touch the fence
    pad = " " if content[0] in "` " or content[-1] in "` " else ""
    return f"{fence}{pad}{content}{pad}{fence}"


def code_name(text: str) -> str:
    """A name as code, shortened."""
    return code_span(text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…")


def code_block(lines: Iterable[str], language: str = "") -> list[str]:
    """A fenced code block that its content cannot close.

    >>> print("\\n".join(code_block(["```"], "text")))
    ````text
    ```
    ````
    """
    content = [escape_controls(line) for line in lines]
    fence = "`" * max(3, 1 + max(map(_longest_run, content), default=0))
    return [fence + language, *content, fence]


def markdown_table(header: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown. A pipe in a cell gets an odd number of backslashes: every parser's text.

    >>> print("\\n".join(markdown_table(["a", "n"], [False, True], [["x|y", "1"]])))
    | a | n |
    |---|---:|
    | x\\|y | 1 |
    """
    rules = ["---:" if r else "---" for r in right]
    lines = ["| " + " | ".join(_escape_pipes(c) for c in cells) + " |" for cells in rows]
    return ["| " + " | ".join(header) + " |", "|" + "|".join(rules) + "|", *lines]


def _escape_pipes(text: str) -> str:
    return _PIPE.sub(lambda found: found[1] + "\\" * (1 + len(found[1]) % 2) + "|", text)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


# --- LaTeX

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "`": r"\char96{}",
    "'": r"\char39{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is, whatever it holds.

    >>> print(escape_latex(r"50% of a_b & \cmd{x}^2 -- $1"))
    50\% of a\_b \& \textbackslash{}cmd\{x\}\textasciicircum{}2 -{}- \$1
    """
    # twice: "---" has two overlapping pairs, and LaTeX sets each pair as a dash
    return "".join(_LATEX.get(c, c) for c in escape_controls(text)).replace("--", "-{}-").replace("--", "-{}-")


# --- XML


def escape_xml(text: str) -> str:
    """Text that XML 1.0 can hold and a screen shows as it is; what neither could is escaped, line breaks and tabs stay.

    Markup is left to whatever writes the XML, such as ElementTree.

    >>> escape_xml("a\\x00b\\uffff\\ud800\\n\\tc")
    'a\\\\x00b\\\\uffff\\\\ud800\\n\\tc'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _escape_for_xml(c) for c in text)


def _escape_for_xml(c: str) -> str:
    """A character without a picture: as it is where XML has it (a space of some width), else as its code."""
    # these two are no control characters, and XML 1.0 has no way to write them
    return c.encode("unicode_escape").decode() if c in "\ufffe\uffff" else escape_controls(c)
