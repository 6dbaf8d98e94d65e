"""The compatible functions keep every documented example."""

from __future__ import annotations

import pytest

from kofn.extract import (
    extract_answer,
    extract_answer_simple,
    extract_answer_with_anchor,
    extract_letter_legacy,
    extract_letter_word_boundary,
    letter_first,
    letter_word_boundary,
    number_anchor,
    number_simple,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is B", "B"),
        ("Select option C", "C"),
        ("The best choice", "X"),
        ("A or B", "A"),
        ("answer: b", "B"),
        ("F is not valid", "X"),
        ("", "X"),
    ],
)
def test_letter_word_boundary_documented_examples(text: str, expected: str) -> None:
    assert extract_letter_word_boundary(text) == expected
    assert letter_word_boundary(text) == (None if expected == "X" else expected)


@pytest.mark.parametrize(("text", "expected"), [("Select B", "E"), ("The answer is D", "E"), ("", "X"), ("xyz", "X")])
def test_letter_legacy_documented_examples(text: str, expected: str) -> None:
    assert extract_letter_legacy(text) == expected
    assert letter_first(text) == (None if expected == "X" else expected)


def test_compatible_letters_respect_choices() -> None:
    assert letter_word_boundary("F is valid", list("ABCDEF")) == "F"
    assert letter_word_boundary("C it is", ["yes", "no"]) is None
    assert letter_first("it is 2", ["1", "2"]) == "2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: 42", 42),
        ("The result is 10. Answer: 42", 42),
        ("Answer: -42", -42),
        ("x = 10, so 10 + 5 = 15", 10),
        ("Answer 42", 42),
        ("x = 42", 42),
        ("5 + 5 = 10", 10),
        ("First 5, then 3 + 2 = 10", 10),
        ("10 = 10, Answer: 42", 42),
        ("Answer: 1,000", 1000),
        ("= 1,234", 1234),
        ("Answer: unknown", "[invalid]"),
        ("5 is my guess. Answer: unknown", 5),
        ("3 + 2 = 5. Answer: unknown", 5),
        ("Answer: 42.5", 42),
        ("Answer: #100", 100),
        ("42 apples total", 42),
        ("", "[invalid]"),
        ("Answer: 42 is the answer", 42),
    ],
)
def test_anchor_documented_examples(text: str, expected: int | str) -> None:
    assert extract_answer_with_anchor(text) == expected
    assert extract_answer(text) == expected
    assert number_anchor(text) == (None if expected == "[invalid]" else str(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 + 10 = 15", 15),
        ("42.5", 42),
        ("$42", 42),
        ("The answer is 10 = 10", 10),
        ("First 10, then Answer: 42", 10),
        ("x = ", "[invalid]"),
        ("1,234", 1234),
        ("", "[invalid]"),
        ("9" * 5000, "[invalid]"),
    ],
)
def test_simple_documented_examples(text: str, expected: int | str) -> None:
    assert extract_answer_simple(text) == expected
    assert extract_answer(text, method="simple") == expected
    assert number_simple(text) == (None if expected == "[invalid]" else str(expected))


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown extraction method"):
        extract_answer("Answer: 1", method="llm")
