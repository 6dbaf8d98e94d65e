"""Metrics over whole columns: millions of rows without a Python call per row.

Every path gives exactly what calling the metric on each pair gives; polars is imported when called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kofn.core.numbers import canonical_number
from kofn.errors import InputError
from kofn.metrics.base import Metric, trait
from kofn.metrics.numeric import Numeric
from kofn.metrics.outcomes import call_style, score_answers
from kofn.metrics.text_match import WHITESPACE, WRAPPING, Choice, ExactMatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.metrics.base import MetricFunction

# Numbers already in their canonical spelling, for which equal text means equal value. Longer ones are left to Python's
# exact decimals.
_CANONICAL = r"^(?:0|-?[1-9][0-9]{0,17}|-?(?:0|[1-9][0-9]{0,17})\.[0-9]{0,17}[1-9])$"
# The commonest other spellings, $1,234.50 and 29.00, which two replacements make canonical.
_GROUPED = r"^(?:\$|-)?(?:[0-9]{1,3}(?:,[0-9]{3}){0,5}|[0-9]{1,17})(?:\.[0-9]{1,17})?$"
_FINAL_ZEROS = r"\.0+$|(\.[0-9]*[1-9])0+$"
_PERCENT = "[%％٪]"


def score_column(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Return one score per row, as Float64: null where the row has no reference (or was not graded).

    `references` holds text, or lists of text of which the best match counts. `ExactMatch()`, `Numeric()` and
    `Choice()` run as polars expressions; any other metric is called once per distinct pair. Numbers a metric
    returns beside its score are in `score_answers`, not here.

    >>> import polars as pl
    >>> score_column(Numeric(), pl.Series(["42.0", None, "7"]), pl.Series(["42", "42", None])).to_list()
    [1.0, 0.0, None]
    """
    if len(answers) != len(references):
        raise InputError(f"{len(answers)} answers but {len(references)} references: give one each")
    # the type of a column of nulls alone is not known: it is taken for text
    answers, references = (c.cast(pl.String) if c.dtype == pl.Null else c for c in (answers, references))
    # by the contract of `Metric` the score over a list of references is then the best over each
    columnar = _is_ours(metric) and trait(metric, "needs_reference") and not call_style(metric).takes_several
    if not columnar or answers.dtype != pl.String:
        return _by_pair(metric, answers, references)
    if references.dtype == pl.List(pl.String):
        return _best_of_lists(metric, answers, references)
    if references.dtype != pl.String:
        return _by_pair(metric, answers, references)
    return _score_text(metric, answers, references)


def _is_ours(metric: object) -> bool:
    return isinstance(metric, Metric)


def _score_text(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    fast_path = _expression_path(metric)
    if fast_path is None:
        return _by_pair(metric, answers, references)
    scores = fast_path(answers, references)
    open_rows = (scores.is_null() & references.is_not_null()).arg_true()
    if len(open_rows) == 0:
        return scores
    scored = _by_pair(metric, answers.gather(open_rows), references.gather(open_rows))
    return scores.scatter(open_rows, scored)


def _expression_path(metric: MetricFunction) -> Callable[[pl.Series, pl.Series], pl.Series] | None:
    """Return the expression path of a metric: it scores the rows that it can decide and leaves the rest null."""
    if metric == ExactMatch():
        return _exact_scores
    if metric == Numeric():
        return _numeric_scores
    return _choice_scores if metric == Choice() else None


def _exact_scores(answers: pl.Series, references: pl.Series) -> pl.Series:
    answer, reference = (pl.col(name).str.strip_chars(WHITESPACE) for name in ("answer", "reference"))
    return _select(answers, references, _graded((answer == reference).fill_null(value=False)))


def _numeric_scores(answers: pl.Series, references: pl.Series) -> pl.Series:
    """Equal canonical texts are equal values; a percentage also equals its share, so it is left undecided."""
    values = _frame(_canonical_numbers(answers), _canonical_numbers(references))
    equal = values.select(pl.col("answer") == pl.col("reference")).to_series()
    percent = answers.str.contains(_PERCENT) | references.str.contains(_PERCENT)
    undecided = equal.not_() & percent
    scores = pl.when(undecided.fill_null(value=False)).then(None).otherwise(equal.fill_null(value=False))
    return _select(answers, references, _graded(scores))


def _choice_scores(answers: pl.Series, references: pl.Series) -> pl.Series:
    answer, reference = (_label(pl.col(name)) for name in ("answer", "reference"))
    no_answer = pl.col("answer").is_null()
    return _select(answers, references, _graded(pl.when(no_answer).then(False).otherwise(answer == reference)))


def _label(column: pl.Expr) -> pl.Expr:
    """The label of a text that is one, else null."""
    bare = column.str.strip_chars(WRAPPING)
    return pl.when(bare.str.contains("^[A-Za-z0-9]$")).then(bare.str.to_uppercase())


def _canonical_numbers(texts: pl.Series) -> pl.Series:
    """Return the canonical text of each number, null for other texts; each odd spelling is parsed once."""
    plain = texts.str.contains(_CANONICAL).fill_null(value=False)
    spelled = texts.filter(~plain).drop_nulls().unique()
    canonical = texts.replace_strict(spelled, _parsed(spelled), default=None, return_dtype=pl.String)
    return texts.zip_with(plain, canonical)


def _parsed(texts: pl.Series) -> pl.Series:
    text = pl.col("text")
    tidied = text.str.replace_all("[$,]", "").str.replace(_FINAL_ZEROS, "$1")
    simple = text.str.contains(_GROUPED) & tidied.str.contains(_CANONICAL)
    numbers = pl.DataFrame({"text": texts}).select(pl.when(simple).then(tidied)).to_series()
    rest = numbers.is_null().arg_true()
    parsed = [canonical_number(text) for text in texts.gather(rest).to_list()]
    return numbers.scatter(rest, pl.Series(parsed, dtype=pl.String))


def _best_of_lists(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Score each (answer, reference) pair of each row, then take the best of the row."""
    frame = _frame(answers, references).with_row_index("row").filter(pl.col("reference").list.len() > 0)
    pairs = frame.explode("reference")
    scores = _score_text(metric, pairs["answer"], pairs["reference"])
    column = pl.col("score")
    best = column.max() if trait(metric, "higher_is_better") else column.min()
    found = pairs.select("row", score=scores).group_by("row", maintain_order=True).agg(best)
    empty = pl.Series([None], dtype=pl.Float64).new_from_index(0, len(answers))
    return empty.scatter(found["row"], found["score"])


def _by_pair(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Call the metric once per distinct (answer, reference) pair."""
    if not trait(metric, "needs_reference"):
        references = pl.Series([None], dtype=pl.String).new_from_index(0, len(answers))
    if references.dtype.is_nested():
        return _graded_rows(metric, answers, references)
    frame = _frame(answers, references)
    distinct = frame.unique()
    score = _call_each if _is_ours(metric) else _graded_rows
    distinct = distinct.with_columns(score(metric, distinct["answer"], distinct["reference"]))
    keys = ["answer", "reference"]
    return frame.join(distinct, on=keys, how="left", nulls_equal=True, maintain_order="left")["score"]


def _call_each(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Call a metric that handles missing answers and references itself, as every `Metric` does."""
    values = [metric(*pair) for pair in zip(answers.to_list(), references.to_list(), strict=True)]
    return pl.Series("score", values, dtype=pl.Float64)


def _graded_rows(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    outcomes = score_answers(metric, answers.to_list(), references.to_list())
    return pl.Series("score", [outcome.value for outcome in outcomes], dtype=pl.Float64)


def _graded(scores: pl.Expr) -> pl.Expr:
    """Make scores of booleans, null where there is no reference."""
    return pl.when(pl.col("reference").is_not_null()).then(scores.cast(pl.Float64))


def _select(answers: pl.Series, references: pl.Series, scores: pl.Expr) -> pl.Series:
    return _frame(answers, references).select(score=scores).to_series()


def _frame(answers: pl.Series, references: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"answer": answers, "reference": references})
