"""The comparing metrics on answers as models write them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError
from kofn.metrics import Choice, Contains, ExactMatch, Numeric, RegexMatch, TokenF1, default_metric


@pytest.mark.parametrize(
    ("metric", "prediction", "reference", "score"),
    [
        (ExactMatch(), " Paris\n", "Paris", 1),
        (ExactMatch(), "New  York", "New York", 0),
        (ExactMatch(), "", "", 1),
        (ExactMatch(ignore_case=True), "STRASSE", "straße", 1),
        (ExactMatch(ignore_punctuation=True), "U.S.A.", "USA", 1),
        (ExactMatch(ignore_punctuation=True), "«oui»", "oui", 1),
        (ExactMatch(ignore_numbers=True), "item 12", "item 7", 1),
        (ExactMatch(ignore_numbers=True), "12", "7", 0),
        (ExactMatch(regexes_to_ignore=("^the ", r"\s*\(.*\)$")), "the Moon (Earth)", "Moon", 1),
        (ExactMatch(regexes_to_ignore="^the "), "the Moon", "Moon", 1),
        (Contains(), "So the capital is Paris.", "Paris", 1),
        (Contains(), "So the capital is PARIS.", "Paris", 0),
        (Contains(ignore_case=True), "So the capital is PARIS.", " Paris ", 1),
        (Contains(), "anything", "", 0),
        (RegexMatch(), "ISBN 978-3-16", r"\d{3}-\d-\d{2}", 1),
        (RegexMatch(full=True), "ISBN 978-3-16", r"\d{3}-\d-\d{2}", 0),
        (RegexMatch(ignore_case=True), "YES", "^yes$", 1),
        (RegexMatch(pattern="b", max_chars=3), "aaab", None, 0),
        (RegexMatch(pattern="b"), None, None, 0),
        (Numeric(), "1,234", "1234.0", 1),
        (Numeric(), "$42$", r"\boxed{42}", 1),
        (Numeric(), "29.00", 29, 1),
        (Numeric(), "1/2", 0.5, 1),
        (Numeric(), "50%", "0.5", 1),
        (Numeric(), "unknown", "unknown", 0),
        (Numeric(tolerance=0.01), "3.15", "3.1416", 1),
        (Numeric(relative=0.01), "1009", "1000", 1),
        (Numeric(relative=0.001), "1009", "1000", 0),
        (Numeric(or_exact=True), "x + 1 ", "x + 1", 1),
        (Numeric(or_exact=True), "x + 1", "7", 0),
        (Choice(), "(c)", "C", 1),
        (Choice(), "**C**", "c.", 1),
        (Choice(), "B", "C", 0),
        (Choice(), "C) Paris", "C", 1),
        (Choice(), "C. Paris", "B", 0),
        (Choice(), "A. Smith", "A. Lincoln", 0),
        (Choice(), "Paris", "paris.", 1),
        (Choice(), "A good reason", "A", 0),
        (Choice(), "()", "()", 0),
        (Choice(), "4", "(4)", 1),
        (TokenF1(), "the Eiffel Tower", "Eiffel Tower!", 1),
        (TokenF1(), "Denver Broncos", "Carolina Panthers", 0),
        (TokenF1(), "the", "a", 1),
        (TokenF1(), "the", "cat", 0),
        (TokenF1(), "a b b", "b b c c", 2 * 2 / (2 + 4)),
    ],
)
def test_documented_comparisons(metric, prediction, reference, score):
    assert metric(prediction, reference) == pytest.approx(score)


def test_choice_reads_an_options_text_as_its_label():
    options = ["Rome", "London", "Paris"]
    assert Choice()("paris", "C", choices=options) == 1.0
    assert Choice()("(c)", "Paris", choices=options) == 1.0
    assert Choice()("Rome", "Paris", choices=options) == 0.0
    assert Choice()("Madrid", "A", choices=options) == 0.0


def test_an_option_whose_text_looks_like_a_label_stands_for_its_own_place():
    assert Choice()("2", "A", choices=["2", "4", "8"]) == 1.0


def test_a_reference_that_is_no_pattern_is_named():
    with pytest.raises(InputError, match=r"'\(' is not a regular expression"):
        RegexMatch()("text", "(")


@given(text=st.text(alphabet=string.printable, max_size=30))
def test_ignoring_ascii_punctuation_is_removing_it(text):
    bare = text.translate(str.maketrans("", "", string.punctuation))
    assert ExactMatch(ignore_punctuation=True)(text, bare) == float(bool(bare.strip()) or text.strip() == "")


@pytest.mark.parametrize(
    ("extractor", "metric"),
    [
        ("number", "numeric"),
        ("number_anchor", "numeric"),
        ("letter", "choice"),
        ("letter_word_boundary", "choice"),
        ("boxed", "math_equal"),
        ("math", "math_equal"),
        ("pattern(regex='x')", "exact_match"),
        ("last_line", "exact_match"),
    ],
)
def test_each_extractor_has_the_metric_that_compares_what_it_finds(extractor, metric):
    assert default_metric(extractor) == metric
