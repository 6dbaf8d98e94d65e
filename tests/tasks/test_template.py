"""Templates: names are filled in once, and everything else is left as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError
from kofn.tasks.stages import Template

VALUES = st.text(alphabet="ab{}\n \\é", max_size=20)


@given(VALUES, VALUES)
def test_a_value_with_braces_comes_through_unchanged(left, right):
    filled = Template("<{a}|{b}>").fill({"a": left, "b": right})
    assert filled == f"<{left}|{right}>"


@given(st.text(max_size=40))
def test_any_text_can_be_written_with_doubled_braces(text):
    assert Template(text.replace("{", "{{").replace("}", "}}")).fill({}) == text


@pytest.mark.parametrize("text", ["{", "}", "{a.b}", "{a[0]}", "{a!r}", "{a:>5}", "{0}", "{}", "{ a }", "{a}}"])
def test_only_plain_names_are_filled_in(text):
    with pytest.raises(InputError, match="a lone brace"):
        Template(text)


def test_triple_braces_are_a_name_in_braces():
    assert Template("{{{a}}}").fill({"a": "x"}) == "{x}"


def test_names_are_listed_once_in_order():
    assert Template("{b}{a}{b}").names == ("b", "a")


def test_an_unknown_name_is_refused_with_what_there_is():
    with pytest.raises(InputError, match=r"p: \{quesiton\} is no field: there is id, question"):
        Template("{quesiton}").check(["question", "id"], "p")
