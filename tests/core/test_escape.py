"""Whatever text comes in, what is shown is that text and nothing else."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.core import escape as escaping
from kofn.core.escape import (
    code_name,
    code_span,
    escape_controls,
    escape_html,
    escape_json,
    escape_latex,
    escape_markdown,
    escape_prose,
    escape_unprintable,
    escape_xml,
    html_lines,
    markdown_table,
    one_line,
    show_hidden,
)

ANY = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs too, as in names of files
ACTIVE = st.text(st.sampled_from("a \\`*_[](){}<>|~$#&@^%\"'!-+=.\n\r\t\x00\x1b\u202e\u2066\ufeff1"), max_size=30)
TEXTS = ANY | ACTIVE
BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def hidden(text):
    return [c for c in text if unicodedata.category(c) in CONTROLS]


@given(TEXTS)
@pytest.mark.parametrize(
    "name",
    ["escape_controls", "escape_unprintable", "escape_html", "escape_markdown", "escape_prose", "code_span",
     "code_name", "escape_latex"],
)  # fmt: skip
def test_no_control_and_no_direction_character_is_left(name, text):
    shown = getattr(escaping, name)(text)
    assert hidden(shown) == []
    shown.encode()  # no half of a surrogate pair


@given(TEXTS)
def test_what_has_nothing_to_escape_stays_as_it_is(text):
    plain = "".join(c for c in text if unicodedata.category(c) not in CONTROLS)
    assert escape_controls(plain) == plain
    assert escape_unprintable("".join(filter(str.isprintable, text))) == "".join(filter(str.isprintable, text))
    assert escape_controls(escape_controls(text)) == escape_controls(text)
    assert show_hidden(show_hidden(text)) == show_hidden(text)


@given(TEXTS)
def test_a_page_shows_every_character_and_turns_nothing_round(text):
    shown = show_hidden(text)
    assert not set(shown) & BIDI
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    read = re.sub(r"⟦U\+([0-9A-F]{4,6})⟧", lambda found: chr(int(found[1], 16)), shown)
    assert "⟦" in text or read == text


class Reader(HTMLParser):
    """The text, tags and attributes of a page."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.text, self.tags, self.attributes = "", [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@given(TEXTS)
def test_html_reads_back_as_the_text_in_an_element_and_in_an_attribute(text):
    shown = escape_html(text)
    assert html.unescape(shown) == escape_controls(text)
    page = Reader(f"<p title=\"{shown}\" lang='{shown}'>{shown}</p>")
    assert page.tags == ["p"]
    assert page.attributes == [("title", escape_controls(text)), ("lang", escape_controls(text))]
    assert page.text == escape_controls(text)


@given(TEXTS)
def test_lines_of_html_are_the_lines_of_the_text(text):
    page = Reader(f"<pre>{html_lines(text)}</pre>")
    assert page.tags == ["pre"]
    assert page.text == "\n".join(map(show_hidden, text.split("\n")))


@given(st.recursive(st.none() | st.booleans() | TEXTS.map(lambda t: t.encode("utf-8", "replace").decode()), st.lists))
def test_json_of_a_page_reads_back_and_cannot_end_its_element(data):
    shown = escape_json(data)
    assert json.loads(shown) == data
    assert shown.isascii()
    assert not re.search("[<>&]", shown)


def cells(row):
    """The cells of a row as a parser of Markdown finds them: a pipe behind an odd number of backslashes is text."""
    assert "\n" not in row
    assert row.startswith("| ")
    assert row.endswith(" |")
    found, slashes = [""], 0
    for c in row[2:-2]:
        if c == "|" and slashes % 2 == 0:
            found.append("")
        else:
            found[-1] += c
        slashes = slashes + 1 if c == "\\" else 0
    return [cell.strip() for cell in found]


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
@pytest.mark.parametrize("escaped", [escape_markdown, escape_prose, code_span, code_name])
def test_no_text_ends_a_cell_or_a_row_of_a_markdown_table(escaped, rows):
    header, rules, *lines = markdown_table(["a", "b"], [False, True], [tuple(map(escaped, row)) for row in rows])
    assert (header, rules) == ("| a | b |", "|---|---:|")
    assert len(lines) == len(rows)
    assert all(len(cells(line)) == 2 for line in lines)


@given(TEXTS)
def test_escaped_markdown_has_no_active_character_and_reads_back(text):
    shown = escape_markdown(text)
    bare = re.sub(r"\\[\\`*_\[\]~|#]", "", shown)
    assert not re.search(r"[\\`*_\[\]~|<>]", bare)
    assert html.unescape(re.sub(r"\\([\\`*_\[\]~|#])", r"\1", shown)) == escape_controls(text)


ESCAPED = {v: k for k, v in escaping._LATEX.items()}
TOKEN = re.compile("|".join(map(re.escape, sorted(ESCAPED, key=len, reverse=True))) + r"|-\{\}(?=-)|.", re.DOTALL)


@given(TEXTS)
def test_latex_reads_back_and_gives_no_command_to_run(text):
    shown = escape_latex(text)
    tokens = TOKEN.findall(shown)
    assert "".join(tokens) == shown
    assert "".join("-" if t == "-{}" else ESCAPED.get(t, t) for t in tokens) == escape_controls(text)
    assert not {t for t in tokens if len(t) == 1} & set(escaping._LATEX)
    assert "--" not in shown


@given(TEXTS)
def test_xml_reads_back_from_a_parser(text):
    shown = escape_xml(text)
    element = ET.Element("a", b=shown)
    element.text = shown
    again = ET.fromstring(ET.tostring(element))  # noqa: S314 - our own
    assert ((again.text or ""), again.get("b")) == (shown, shown)
    assert not set(hidden(shown)) - set("\n\t")
    legal = "".join(c for c in text if c.isprintable() or c in "\n\t")
    assert escape_xml(legal) == legal


@given(TEXTS)
def test_one_line_is_one_printable_line(text):
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= 300
    assert one_line(line) == line
    assert escape_unprintable(line) == line
