"""Calling a user's metric and normalising what it returns."""

from __future__ import annotations

import functools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from kofn.errors import InputError
from kofn.metrics import (
    ExactMatch,
    Numeric,
    Outcome,
    call_metric,
    grade,
    metric_name,
    normalise,
    score_answers,
)
from kofn.metrics.outcomes import call_style


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (True, 1.0),
        (False, 0.0),
        (np.float64(0.25), 0.25),
        (np.int32(1), 1.0),
        (np.bool_(True), 1.0),
        (np.array(0.75), 0.75),
        (np.array([0.75]), 0.75),
        ([0.5], 0.5),
        ([np.float32(0.5)], 0.5),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        ({"m": np.float64(1.0)}, 1.0),
        (None, None),
    ],
)
def test_whatever_is_a_number_becomes_one_float(returned, value):
    outcome = normalise(returned, "m")
    assert outcome == Outcome(value=value)
    assert type(outcome.value) in (float, type(None))


@pytest.mark.parametrize(
    "returned",
    [
        "0.5",
        b"1",
        [],
        [1.0, 0.0],
        np.array([1.0, 0.0]),
        pytest.param(object(), id="object()"),
        1j,
        {},
        {"m": None},
        {"m": "high"},
        {"m": {"a": 1}},
    ],
    ids=repr,
)
def test_what_is_no_number_is_an_error_that_names_the_metric(returned):
    with pytest.raises(InputError, match="metric m returned"):
        normalise(returned, "m")


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), {"m": float("nan")}, {"m": 1.0, "b": np.nan}])
def test_nan_and_infinity_are_no_scores(returned):
    with pytest.raises(InputError, match=r"metric m returned (nan|inf).*must be finite"):
        normalise(returned, "m")


def test_of_a_mapping_the_entry_named_like_the_metric_is_the_score_wherever_it_stands():
    assert normalise({"recall": 0.6, "f1": 0.8}, "f1") == Outcome(value=0.8, extra={"f1.recall": 0.6})


def test_settings_in_the_name_do_not_hide_the_entry():
    assert normalise({"a": 0, "f1": 0.8}, "f1(beta=2)") == Outcome(value=0.8, extra={"f1(beta=2).a": 0.0})


def test_otherwise_the_first_entry_is_taken_with_a_warning_that_names_it():
    with pytest.warns(UserWarning, match="metric m returned 'foo', 'bar': the first, 'foo', is taken"):
        outcome = normalise({"foo": 0.8, "bar": 0.6}, "m")
    assert outcome == Outcome(value=0.8, extra={"m.bar": 0.6})


def test_notes_beside_the_score_are_not_scores():
    returned = {"m": 1.0, "reason": "same", "precisions": [0.1, 0.2], "n": 3, "missing": None}
    assert normalise(returned, "m").extra == {"m.n": 3.0}


def hf_style(predictions, references, **kwargs):
    assert isinstance(predictions, list)
    assert isinstance(references, list)
    return {"hf_style": np.mean([p == r for p, r in zip(predictions, references, strict=True)])}


class HfModule:
    def compute(self, *, predictions=None, references=None, **kwargs):
        assert not kwargs
        return hf_style(predictions, references)


@pytest.mark.parametrize(
    "metric",
    [
        lambda prediction, reference: prediction + reference,
        lambda a, b: a + b,
        lambda a, b, c="": a + b + c,
        lambda *both: both[0] + both[1],
        lambda gold, pred: pred + gold,
        lambda reference, prediction, /: prediction + reference,
        lambda target, answer, **_: answer + target,
        functools.partial(lambda prefix, prediction, reference: prefix + prediction + reference, ""),
        lambda *, references, predictions, **_: predictions[0] + references[0],
        lambda references, predictions: predictions[0] + references[0],
        str.__add__,
    ],
)
def test_a_metric_is_called_the_way_its_signature_asks_for(metric):
    assert call_metric(metric, "p", "r") == "pr"


def test_an_error_inside_a_metric_is_not_taken_for_another_signature():
    def broken(prediction, reference):
        raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        call_metric(broken, "p", "r")


def test_a_metric_gets_the_fields_it_names_and_no_others():
    def with_choices(prediction, reference, *, choices):
        return choices[0]

    assert call_metric(with_choices, "p", "r", choices=["x"], tags={}) == "x"
    assert call_metric(HfModule().compute, "p", "p", choices=["x"])["hf_style"] == 1.0


@pytest.mark.parametrize("metric", [lambda: 1, lambda _: 1, lambda a, b, c: a + b + c, "exact_match"])
def test_a_metric_that_cannot_take_two_arguments_is_refused(metric):
    with pytest.raises(InputError, match=r"must (take|be callable)"):
        call_metric(metric, "p", "r")


def test_an_unhashable_metric_is_called_all_the_same():
    class Unhashable:
        __hash__ = None

        def __call__(self, gold, pred):
            return pred + gold

    assert call_metric(Unhashable(), "p", "r") == "pr"


def test_a_metric_named_in_the_singular_sees_one_reference_at_a_time():
    def same(prediction, reference):
        return {"same": prediction == reference, "length": len(reference)}

    assert grade(same, "b", ["aa", "b"]) == Outcome(value=1.0, extra={"same.length": 1.0})
    assert grade(hf_style, "b", ["aa", "b"]).value == 1.0


def test_a_metric_named_in_the_plural_sees_all_references():
    def share(prediction, references):
        return sum(prediction == one for one in references) / len(references)

    assert call_style(share).takes_several
    assert grade(share, "b", ["a", "b"]).value == 0.5


def test_the_best_of_several_references_is_the_smallest_when_lower_is_better():
    def distance(prediction, reference):
        return abs(len(prediction) - len(reference))

    assert grade(distance, "aaa", ["a", "aa"], higher_is_better=False).value == 1.0
    distance.higher_is_better = False
    assert grade(distance, "aaa", ["a", "aa"]).value == 1.0


def test_no_answer_scores_0_without_asking_a_metric_that_does_not_handle_it():
    def length(prediction, reference):
        return len(prediction)

    assert grade(length, None, "r") == Outcome(value=0.0)
    assert grade(length, None, "r", higher_is_better=False) == Outcome(value=1.0)  # the worst, not the best
    length.handles_none = True
    with pytest.raises(InputError, match="metric length failed on None against 'r': TypeError"):
        grade(length, None, "r")


def test_no_reference_is_not_graded():
    assert grade(lambda _p, _r: 1.0, "p", None, name="one").value is None
    assert grade(lambda _p, _r: 1.0, "p", [], name="one").value is None


def test_each_distinct_pair_is_graded_once():
    calls = []

    def same(prediction, reference):
        calls.append((prediction, reference))
        return prediction == reference

    outcomes = score_answers(same, ["a", "b", "a", None], ["a", "a", "a", "a"])
    assert [outcome.value for outcome in outcomes] == [1.0, 0.0, 1.0, 0.0]
    assert calls == [("a", "a"), ("b", "a")]


def test_equal_keys_of_different_types_are_different_pairs():
    outcomes = score_answers(ExactMatch(), ["1", "1", "1"], [1, 1.0, True])
    assert [outcome.value for outcome in outcomes] == [1.0, 0.0, 0.0]


def test_unhashable_references_are_graded_too():
    outcomes = score_answers(lambda p, r: p == r["x"], ["a", "b"], [{"x": "a"}, {"x": "a"}], name="x")
    assert [outcome.value for outcome in outcomes] == [1.0, 0.0]


def test_columns_give_each_row_its_own_field():
    def position(prediction, reference, *, choices):
        return choices.index(prediction)

    outcomes = score_answers(position, ["a", "a"], ["r", "r"], choices=[["a", "b"], ["b", "a"]], ignored=[1, 2])
    assert [outcome.value for outcome in outcomes] == [0.0, 1.0]


def test_unequal_lengths_are_refused():
    with pytest.raises(InputError, match="2 predictions but 1 references"):
        score_answers(Numeric(), ["1", "2"], ["1"])


def test_a_partial_is_named_after_what_it_wraps():
    assert metric_name(functools.partial(hf_style, x=1)) == "hf_style"
