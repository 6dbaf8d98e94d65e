"""Laws that every built-in metric obeys."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kofn import metrics
from kofn.errors import InputError
from kofn.metrics import metric_name

COMPARING = {
    "exact_match": metrics.ExactMatch(),
    "exact_match_loose": metrics.ExactMatch(ignore_case=True, ignore_punctuation=True, ignore_numbers=True),
    "contains": metrics.Contains(),
    "contains_loose": metrics.Contains(ignore_case=True),
    "numeric": metrics.Numeric(),
    "numeric_tolerant": metrics.Numeric(tolerance=0.5, relative=0.01),
    "numeric_or_exact": metrics.Numeric(or_exact=True),
    "choice": metrics.Choice(),
    "token_f1": metrics.TokenF1(),
    "rouge_l": metrics.RougeL(),
    "rouge_l_recall": metrics.RougeL(beta=3.0),
    "bleu": metrics.Bleu(),
    "chrf": metrics.Chrf(),
}
FLAGS = {"refused": metrics.Refused(), "truncated": metrics.Truncated(), "unparsed": metrics.Unparsed()}
SYMMETRIC = (
    "exact_match",
    "exact_match_loose",
    "numeric",
    "numeric_tolerant",
    "choice",
    "token_f1",
    "rouge_l",
)

ANSWERS = st.one_of(
    st.text(max_size=12),
    st.integers(-50, 50).map(str),
    st.sampled_from(["(c)", "C.", "C. Paris", "1,000.0", "50%", "0.5", "1/2", "the cat sat", "The cat!", "$7"]),
)


def each(table: dict[str, object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("metric", table.values(), ids=table)


@each(COMPARING)
@given(prediction=ANSWERS, reference=ANSWERS)
@settings(max_examples=20, deadline=None)
def test_scores_lie_between_0_and_1(metric, prediction, reference):
    assert 0.0 <= metric(prediction, reference) <= 1.0


@each(COMPARING)
@given(prediction=ANSWERS, references=st.lists(ANSWERS, min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_several_references_score_as_the_best_single_one(metric, prediction, references):
    assert metric(prediction, references) == max(metric(prediction, one) for one in references)


@each({name: COMPARING[name] for name in SYMMETRIC})
@given(left=ANSWERS, right=ANSWERS)
@settings(max_examples=20, deadline=None)
def test_equality_and_overlap_are_symmetric(metric, left, right):
    assert metric(left, right) == pytest.approx(metric(right, left))


@each({name: one for name, one in COMPARING.items() if not name.startswith(("numeric", "choice"))})
@given(text=ANSWERS)
@settings(max_examples=20, deadline=None)
def test_a_text_matches_itself_perfectly(metric, text):
    assert metric(text, text) == pytest.approx(1.0)


@given(text=ANSWERS)
def test_a_choice_matches_itself_unless_it_is_blank(text):
    assume(text.strip(metrics.text_match.WRAPPING).split())
    assert metrics.Choice()(text, text) == 1.0


@given(number=st.one_of(st.integers(), st.decimals(allow_nan=False, allow_infinity=False, places=4)))
def test_a_number_equals_itself(number):
    assert metrics.Numeric()(str(number), str(number)) == 1.0


@each(COMPARING)
def test_no_answer_scores_0_and_no_reference_is_not_graded(metric):
    assert metric(None, "42") == 0.0
    assert metric("42", None) is None
    assert metric("42", []) is None
    assert metric("42", [None, "42"]) == metric("42", "42") == pytest.approx(1.0)


@each(COMPARING)
def test_numbers_are_accepted_as_references(metric):
    assert metric("42", 42) == pytest.approx(1.0)


@each(FLAGS)
@given(text=st.one_of(st.none(), st.text(max_size=60)))
def test_flags_are_0_or_1_and_need_no_reference(metric, text):
    assert metric(text) in (0.0, 1.0)
    assert metric(text) == metric(text, "any reference")
    assert not metric.higher_is_better
    assert not metric.needs_reference


@each(COMPARING | FLAGS)
def test_metrics_are_values(metric):
    assert pickle.loads(pickle.dumps(metric)) == metric  # noqa: S301 - our own bytes
    assert hash(dataclasses.replace(metric)) == hash(metric)
    assert metric.uses in ("answer", "text")


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (metrics.ExactMatch(), "exact_match"),
        (metrics.TokenF1(), "token_f1"),
        (metrics.RougeL(beta=2.0), "rouge_l(beta=2.0)"),
        (metrics.Numeric(tolerance=0.1, or_exact=True), "numeric(tolerance=0.1, or_exact=True)"),
        (metrics.JsonEqual(), "json_equal"),
        (metrics.RegexMatch(pattern="a+"), "regex_match(pattern='a+')"),
    ],
)
def test_the_stored_name_holds_the_settings_that_were_changed(metric, name):
    assert metric_name(metric) == name


@pytest.mark.parametrize(
    "build",
    [
        lambda: metrics.ExactMatch(regexes_to_ignore=("[",)),
        lambda: metrics.RegexMatch(pattern="*"),
        lambda: metrics.RegexMatch(max_chars=0),
        lambda: metrics.Numeric(tolerance=-1),
        lambda: metrics.Numeric(relative=float("nan")),
        lambda: metrics.RougeL(beta=0),
        lambda: metrics.Bleu(tokenize="no-such-tokenizer"),
        lambda: metrics.Chrf(char_order=0),
        lambda: metrics.JsonEqual(tolerance=float("inf")),
        lambda: metrics.MathEqual(timeout=0),
        lambda: metrics.MathEqual(timeout=0.5),
        lambda: metrics.MathEqual(max_chars=0),
    ],
)
def test_a_bad_setting_fails_in_one_line_when_built(build):
    with pytest.raises(InputError) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_importing_the_metrics_loads_nothing_heavy():
    import subprocess
    import sys

    code = "import sys, kofn.metrics; print(*{'numpy', 'polars', 'sympy', 'sacrebleu'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == ""
