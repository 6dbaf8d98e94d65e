"""LaTeX of a model as MathML: what is drawn, what stays text, and that nothing else comes through."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.viewer.math_text import LONGEST_FORMULA, MathPage, convert_formula

PIECES = [
    *(
        "\\frac",
        "{",
        "}",
        "^",
        "_",
        "\\left(",
        "\\right)",
        "&",
        "\\\\",
        "<b>",
        '"',
        "x",
        "12",
        "\\text{a<b}",
        "$",
        "$$",
        "`",
    ),
    *(
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "\\begin{align}",
        "\\end{align}",
        "\\href{javascript:x}",
        "\\style{color:red}",
        "\\class{x}",
    ),
]


@pytest.mark.parametrize(
    "text", ["$x$", "\\(x\\)", "so $5$ apples", "\\[x\\]", "$$x$$", "\\begin{align}x&=1\\end{align}", "$10.5\\cdot 2$."]
)
def test_formulas_are_drawn(text):
    page = MathPage()
    assert "<math " in page.markup(text)
    assert page.found == 1


@pytest.mark.parametrize(
    "text",
    [
        "$5 and $10",
        "$5-$10",
        "$HOME/$USER",
        "cost: $5",
        "`$x$`",
        "```\n$x$\n```",
        "\\$5 to \\$6",
        "$ x $",
        "a\\b",
        "\\(x",
    ],
)
def test_prices_variables_and_code_stay_text(text):
    assert MathPage().markup(text) == text


def test_a_reader_may_ask_for_the_source():
    assert MathPage(source=True).markup("$x$") == "$x$"
    assert MathPage(source=True).answer("\\frac{1}{9}") == "\\frac{1}{9}"


@pytest.mark.parametrize(
    "source",
    [
        "\\def\\a{\\a\\a}\\a",
        "{" * 500 + "x" + "}" * 500,
        "_^" * 500,
        "\\frac{1}{",
        "\\left(" * 50,
        "x" * (LONGEST_FORMULA + 1),
        "\\begin{matrix}" * 20,
    ],
)
def test_what_cannot_be_drawn_is_shown_as_it_is(source):
    assert convert_formula(source, "inline") is None
    assert MathPage().markup(f"\\({source}\\)") == f"\\({source}\\)"


def test_a_page_converts_so_much_and_shows_the_rest_as_source():
    page = MathPage(room=100)
    said = page.markup(" ".join(["$x+y$"] * 100))
    assert page.found == 33  # three characters each
    assert said.count("$") == 2 * 67


def test_the_answer_is_marked_in_text_and_as_a_whole_in_a_formula():
    text = "It is 4, so \\(\\boxed{4}\\)."
    assert MathPage().markup(text, (6, 7)).startswith('It is <mark title="the extracted answer">4</mark>, so <math')
    at = text.index("{4}") + 1
    assert '<mark title="the extracted answer"><math display="inline">' in MathPage().markup(text, (at, at + 1))


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_only_known_elements_and_attributes_come_through(pieces):
    said = str(MathPage().markup("\\(" + "".join(pieces) + "\\)"))
    assert all(re.fullmatch(r"m[a-z]+|none", name) for name in re.findall(r"<(\w+)", said))
    assert not re.search(r"<[^>]*\b(href|style|class|on\w+)=", said)
