"""The columnar path gives what calling the metric on each row gives."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError
from kofn.metrics import (
    Choice,
    Contains,
    ExactMatch,
    Numeric,
    RegexMatch,
    TokenF1,
    Unparsed,
    grade,
    score_column,
)

METRICS = {
    "exact_match": ExactMatch(),
    "exact_match_loose": ExactMatch(ignore_case=True, ignore_punctuation=True),
    "numeric": Numeric(),
    "numeric_tolerant": Numeric(tolerance=1.0),
    "choice": Choice(),
    "contains": Contains(),
    "token_f1": TokenF1(),
    "regex": RegexMatch(pattern="[0-9]"),
    "unparsed": Unparsed(),
    "plain_function": lambda prediction, reference: prediction == reference,
    "plural_function": lambda prediction, references: (prediction in references) / len(references),
}

NUMBERS = st.builds(
    lambda sign, digits, tail, unit: f"{sign}{digits}{tail}{unit}",
    st.sampled_from(["", "-", "$", "−", "+", " ", "0", "-$"]),
    st.sampled_from(["0", "1", "5", "10", "50", "1,000", "1000", "1,00", "12,345,678", "007", "½", "1/2", "٣"]),
    st.sampled_from(["", ".", ".0", ".5", ".50", ".00", "e2", ",", "." + "0" * 20 + "1", "0" * 20]),
    st.sampled_from(["", "%", "$", " ", "\n", "％"]),
)
LABELS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "(", "[", "**", " ", "\u2003", "\x1c"]),
        st.sampled_from(["A", "b", "C", "4", "ß", "ı", "é", "", "AB", "A. Paris", "paris"]),
        st.sampled_from(["", ")", ".", "]", "**", "\n", "\u00a0", ") x"]),
    ),
)
TEXTS = st.one_of(NUMBERS, LABELS, st.text(max_size=4), st.sampled_from([" a", "a ", "a\u00a0", "a\x1f", "A"]))
ROWS = st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS), max_size=12)
LIST_ROWS = st.lists(st.tuples(st.none() | TEXTS, st.none() | st.lists(st.none() | TEXTS, max_size=3)), max_size=10)


def columns(rows, dtype):
    answers, references = zip(*rows, strict=True) if rows else ((), ())
    return pl.Series(answers, dtype=pl.String), pl.Series(references, dtype=dtype)


def row_by_row(metric, rows):
    return [grade(metric, answer, reference, name="m").value for answer, reference in rows]


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@given(rows=ROWS)
@settings(max_examples=25, deadline=None)
def test_a_column_scores_as_its_rows(metric, rows):
    scores = score_column(metric, *columns(rows, pl.String))
    assert scores.dtype == pl.Float64
    assert scores.to_list() == row_by_row(metric, rows)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@given(rows=LIST_ROWS)
@settings(max_examples=25, deadline=None)
def test_a_column_of_several_references_scores_as_its_rows(metric, rows):
    rows = [(answer, None if several is None else tuple(several)) for answer, several in rows]
    scores = score_column(metric, *columns(rows, pl.List(pl.String)))
    assert scores.to_list() == row_by_row(metric, rows)


@pytest.mark.parametrize("metric", [ExactMatch(), Numeric(), Choice()], ids=repr)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_every_pair_of_texts_scores_as_called(metric, texts):
    pairs = [(left, right) for left in texts for right in texts]
    assert score_column(metric, *columns(pairs, pl.String)).to_list() == [metric(*pair) for pair in pairs]


SPELLINGS = [
    *(
        "50%",
        "50％",
        "٥٠٪",
        "50",
        "0.5",
        "0.50",
        ".5",
        "1/2",
        "½",
        "5000%",
        "0",
        "-0",
        "0.0",
        "-0.0",
        "+0",
        "0%",
    ),
    *("7", "007", "7.", "7.0", "7.10", "7.1", "-7", "−7", "-7.00", "$7", "$7.00", "7$", "-$7", "$-7", " 7 "),
    *(
        "1,000",
        "1000",
        "1,00",
        "100",
        "1,000.0",
        "1e3",
        "12,345,678.90",
        "12345678.9",
        "12,34,567",
        "1234567",
    ),
    *("1" + "0" * 20, "1" + "0" * 20 + ".0", "0." + "0" * 18 + "10", "0." + "0" * 18 + "1", "0.10", "0.1"),
    *("x", "%", "$", "-", ".", ",", ""),
]


def test_every_spelling_of_a_number_compares_with_every_other_as_called():
    pairs = [(left, right) for left in SPELLINGS for right in SPELLINGS]
    assert score_column(Numeric(), *columns(pairs, pl.String)).to_list() == [Numeric()(*pair) for pair in pairs]


def test_numbers_may_be_references():
    answers = pl.Series(["1", "2.0", None, "x"])
    assert score_column(Numeric(), answers, pl.Series([1, 2, 3, 4])).to_list() == [1.0, 1.0, 0.0, 0.0]
    assert score_column(Numeric(), answers, pl.Series([1.0, 2.5, 3.0, 4.0])).to_list() == [1.0, 0.0, 0.0, 0.0]
    lists = pl.Series([[1], [3, 2], [3], []], dtype=pl.List(pl.Int64))
    assert score_column(Numeric(), answers, lists).to_list() == [1.0, 1.0, 0.0, None]


@pytest.mark.parametrize("metric", [ExactMatch(), Numeric(), Choice(), TokenF1()], ids=repr)
def test_columns_without_a_single_text_are_scored(metric):
    nothing = pl.Series([None, None])
    assert score_column(metric, nothing, pl.Series(["1", "a"])).to_list() == [0.0, 0.0]
    assert score_column(metric, pl.Series(["1", "a"]), nothing).to_list() == [None, None]
    assert score_column(metric, pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.String)).len() == 0


def test_a_metric_is_called_once_a_distinct_pair():
    calls = []

    def same(prediction, reference):
        calls.append((prediction, reference))
        return prediction == reference

    answers, references = pl.Series(["a", "b"] * 50), pl.Series(["a"] * 100)
    assert score_column(same, answers, references).to_list() == [1.0, 0.0] * 50
    assert sorted(calls) == [("a", "a"), ("b", "a")]


def test_unequal_lengths_are_refused():
    with pytest.raises(InputError, match="1 answers but 2 references"):
        score_column(ExactMatch(), pl.Series(["a"]), pl.Series(["a", "b"]))
