"""MetricConfig: repeats of a case, and cases of a dataset."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError, UnknownName
from kofn.metrics import (
    REPEAT_AGGREGATORS,
    ExactMatch,
    MetricConfig,
    Numeric,
    Unparsed,
    dataset_aggregate,
    process_metrics,
    process_repeats,
)

SCORES = [0.5, 0.8, 0.3, 0.9, 0.6]
ANSWERS = ["42", "43", "42", "42", "41"]


def config(rule=None, fn=None, name="exact_match", **settings):
    return MetricConfig(name, fn or ExactMatch(), repeat_aggregation_fn=rule, **settings)


@pytest.mark.parametrize(
    ("rule", "value"),
    [(None, 0.5), ("first", 0.5), ("mean", 0.62), ("max", 0.9), ("min", 0.3), ("median", 0.6), ("best", 0.9)],
)
def test_documented_values_of_five_scores(rule, value):
    assert config(rule).compute_repeat_aggregation(SCORES) == pytest.approx(value)
    assert config(rule).repeat_aggregation(SCORES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("rule", "value"),
    [("majority", 1.0), ("mean", 0.6), ("any_correct", 1.0), ("all_correct", 0.0), (None, 1.0)],
)
def test_documented_values_of_five_predictions(rule, value):
    result = process_repeats(config(rule), ANSWERS, "42")
    assert result == {"exact_match": pytest.approx(value), "exact_match_repeats": [1, 0, 1, 1, 0]}


def test_the_mean_over_cases_is_the_default():
    assert config().compute_aggregation([0.5, 0.8, 0.3]) == pytest.approx(0.5333, abs=1e-4)
    assert config().aggregation is config().aggregate is config().aggregation_fn


def test_any_and_all_of_documented_scores():
    assert config("any_correct").compute_repeat_aggregation([0, 0, 1, 0]) == 1.0
    assert config("any_correct").compute_repeat_aggregation([0, 0]) == 0.0
    assert config("all_correct").compute_repeat_aggregation([1, 0, 1]) == 0.0
    assert config("all_correct").compute_repeat_aggregation([1, 1]) == 1.0
    assert config("any_correct", threshold=0.5).compute_repeat_aggregation([0.2, 0.5]) == 1.0


def test_one_repeat_has_no_list_of_repeats():
    assert process_repeats(config("mean"), ["42"], "42") == {"exact_match": 1.0}


def test_lower_is_better_turns_best_worst_any_and_all():
    def lower(rule, **more):
        return config(rule, higher_is_better=False, **more).compute_repeat_aggregation([0.0, 0.4])

    assert lower("best") == lower("best_score") == lower("max") == 0.0
    assert lower("min") == 0.4
    assert lower("any_correct") == 1.0
    assert lower("all_correct") == 0.0
    assert lower("all_correct", threshold=0.4) == 1.0


def test_the_metric_says_which_way_is_better_unless_the_config_does():
    assert config().higher_is_better is True
    assert config(fn=Unparsed()).higher_is_better is False
    assert config(fn=Unparsed(), higher_is_better=True).higher_is_better is True


@pytest.mark.parametrize(
    ("scores", "predictions", "value"),
    [
        ([0, 1], ["a", "b"], 0.0),
        ([0, 1, 1], [None, None, "b"], 1.0),
        ([1, 1], [None, None], 0.0),
        ([0.2, 0.6, 1], ["a", "a", "b"], 0.4),
        ([0, 1, 1], [["x"], ["y"], ["y"]], 1.0),
        ([0.5, 0.7, 0.7], None, 0.7),
        ([0.5, 0.7], None, 0.5),
    ],
)
def test_majority_follows_the_most_frequent_prediction(scores, predictions, value):
    assert config("majority").compute_repeat_aggregation(scores, predictions=predictions) == pytest.approx(value)


@pytest.mark.parametrize("rule", sorted(REPEAT_AGGREGATORS))
@given(score=st.sampled_from([0.0, 1.0]))
def test_a_single_repeat_keeps_its_score_under_every_rule(rule, score):
    assert config(rule).compute_repeat_aggregation([score], predictions=["a"]) == score


@pytest.mark.parametrize("rule", sorted(REPEAT_AGGREGATORS))
@settings(max_examples=25)
@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_every_rule_stays_within_its_bounds(rule, scores):
    value = config(rule).compute_repeat_aggregation(scores)
    assert 0.0 <= value <= 1.0
    assert isinstance(value, float)


@pytest.mark.parametrize("rule", sorted(REPEAT_AGGREGATORS))
def test_repeats_that_were_not_graded_are_left_out_and_none_left_is_undefined(rule):
    graded = config(rule).compute_repeat_aggregation([None, 1.0, None], predictions=["a", "b", "a"])
    assert graded == 1.0
    assert config(rule).compute_repeat_aggregation([None, None]) is None
    assert config(rule).compute_repeat_aggregation([]) is None


def largest(scores, **kwargs):
    return max(scores)


def largest_of_voted(scores, predictions):
    return max(score for score, vote in zip(scores, predictions, strict=True) if vote)


@pytest.mark.parametrize("rule", [max, np.max, lambda scores: max(scores), largest, largest_of_voted])
def test_any_callable_combines_repeats(rule):
    assert config(rule).compute_repeat_aggregation(SCORES, predictions=ANSWERS) == 0.9


def test_a_callable_sees_predictions_and_references_when_it_names_them():
    seen = {}

    def rule(scores, predictions=None, references=None):
        seen.update(predictions=predictions, references=references)
        return 1

    process_repeats(config(rule), ["a", "b"], "r")
    assert seen == {"predictions": ["a", "b"], "references": "r"}


def test_an_unknown_rule_or_output_type_fails_when_built():
    with pytest.raises(UnknownName, match="unknown repeat aggregator 'majorty': did you mean majority"):
        config("majorty")
    with pytest.raises(UnknownName, match="output_type"):
        config(output_type="generate")
    with pytest.raises(InputError, match="fn must be callable"):
        MetricConfig("m", "exact_match")
    with pytest.raises(InputError, match="needs a name"):
        MetricConfig("")


def test_settings_reach_the_metric_and_wrong_ones_fail_when_built():
    def match(prediction, reference, *, fold=False):
        return (prediction.lower() == reference.lower()) if fold else prediction == reference

    assert process_repeats(config(fn=match, kwargs={"fold": True}), ["A"], "a") == {"exact_match": 1.0}
    assert config(fn=match, kwargs={"fold": True}).compute_metric("A", "a") is True
    assert config(fn=match, kwargs={"fold": True}).compute_metric("A", "a", fold=False) is False
    with pytest.raises(InputError, match="metric exact_match: kwargs do not fit"):
        config(fn=match, kwargs={"folded": True})


def test_settings_keep_the_traits_of_the_metric():
    class Strict(ExactMatch):
        def __call__(self, prediction, reference, *, bonus=0.0):
            return super().__call__(prediction, reference) + bonus

    wrapped = config(fn=Strict(), kwargs={"bonus": 0.5})
    assert process_repeats(wrapped, [None], "a") == {"exact_match": 0.5}


def test_aliases_of_the_other_harness_hold():
    metric = ExactMatch()
    one = config(fn=metric)
    assert (one.metric_name, one.compute, one.name) == ("exact_match", metric, "exact_match")
    assert MetricConfig("m").fn(0.5) == 0.5


@pytest.mark.parametrize("output_type", ["generate_until", "loglikelihood", "multiple_choice"])
def test_every_output_type_uses_all_repeats(output_type):
    one = MetricConfig("score", repeat_aggregation_fn="mean", output_type=output_type)
    assert process_repeats(one, [1.0, 0.0], None) == {"score": 0.5, "score_repeats": [1.0, 0.0]}


def test_a_metric_may_return_a_number_or_a_mapping():
    assert process_repeats(config(fn=lambda _p, _r: 0.7), ["a"], "a") == {"exact_match": 0.7}
    assert process_repeats(config(fn=lambda _p, _r: {"exact_match": 1.0}), ["a"], "a") == {"exact_match": 1.0}
    two = config("mean", fn=lambda p, _r: {"foo": 0.8, "bar": 0.6 if p == "a" else 0.0}, name="m")
    with pytest.warns(UserWarning, match="'foo'"):
        result = process_repeats(two, ["a", "b"], "a")
    assert result == {"m": 0.8, "m_repeats": [0.8, 0.8], "m.bar": 0.3, "m.bar_repeats": [0.6, 0.0]}
    assert dataset_aggregate([result], [two]) == {"m": 0.8, "m.bar": 0.3}


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(InputError, match="two metrics are named 'exact_match'"):
        process_metrics([config("first"), config("mean")], ["42"], "42")
    with pytest.raises(InputError, match="two metrics are named 'exact_match'"):
        dataset_aggregate([], [config("first"), config("mean")])
    with pytest.raises(InputError, match="two metrics are named 'm_repeats'"):
        process_metrics([config(name="m"), config(name="m_repeats")], ["1", "2"], "1")


def test_several_metrics_of_one_case_stand_side_by_side():
    both = [config("first"), config("majority", fn=Numeric(), name="maj")]
    assert process_metrics(both, ["41", "42.0", "42"], "42") == {
        "exact_match": 0.0,
        "exact_match_repeats": [0, 0, 1],
        "maj": 0.0,
        "maj_repeats": [0, 1, 1],
    }


def test_dataset_aggregation_leaves_out_repeats_and_cases_without_a_value():
    results = [{"m": 1.0, "m_repeats": [1.0, 0.0]}, {"m": None}, {"m": 0.0}, {}]
    assert dataset_aggregate(results, [config(name="m"), config(name="absent")]) == {"m": 0.5, "absent": None}


def test_a_metric_whose_name_holds_a_dot_is_not_a_part_of_another():
    low, high = config(name="a"), config(name="a.b", aggregation_fn=max)
    results = [
        {"a": 1.0, "a.b": 0.0, "a.b.c": 0.0, "a.c": 0.0},
        {"a": 0.0, "a.b": 1.0, "a.b.c": 1.0, "a.c": 1.0},
    ]
    assert dataset_aggregate(results, [low, high]) == {"a": 0.5, "a.b": 1.0, "a.b.c": 1.0, "a.c": 0.5}


def test_scores_and_predictions_of_unequal_length_are_refused():
    with pytest.raises(InputError, match="2 scores but 1 predictions"):
        config("majority").compute_repeat_aggregation([1, 0], predictions=["a"])
