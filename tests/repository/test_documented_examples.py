"""The examples that documentation people rely on gives, one by one."""

from __future__ import annotations

import pytest

import kofn
from kofn.scoring import groupwise

SCORES = [0.5, 0.8, 0.3, 0.9, 0.6]
ANSWERS = ["42", "43", "42", "42", "41"]


@pytest.mark.parametrize(("name", "expected"), [("first", 0.5), ("mean", 0.62), ("max", 0.9), ("min", 0.3)])
def test_scores(name, expected):
    assert kofn.aggregate(name, values=SCORES) == pytest.approx(expected)


def test_five_answers_against_42():
    metric = kofn.metric("exact_match")
    repeats = [float(metric(a, "42")) for a in ANSWERS]
    assert repeats == [1, 0, 1, 1, 0]
    found = {
        n: kofn.aggregate(n, values=repeats, answers=ANSWERS)
        for n in ("majority", "mean", "any_correct", "all_correct")
    }
    assert found == pytest.approx({"majority": 1.0, "mean": 0.6, "any_correct": 1.0, "all_correct": 0.0})


def test_any_of_0010_and_all_of_101():
    assert kofn.aggregate("any_pass", values=[0, 0, 1, 0]) == 1
    assert kofn.aggregate("all_pass", values=[1, 0, 1]) == 0


def test_extractors_return_one_text_for_one_answer():
    number = kofn.extractor("number")
    assert number("1,080") == number("1080.00") == "1080"


def test_pasted_group_functions_keep_their_keys_and_values():
    group = {
        "scores": [0.9, 0.2, 0.4],
        "passes": [1, 0, 0],
        "texts": ["pay now please", "pay soon please", "hello there"],
    }
    found = groupwise.group_metrics(group)
    assert list(found) == ["any_pass", "best_score", "majority", "dcg@k", "ndcg@k", "distinct1", "distinct2"]
    assert (found["any_pass"], found["majority"], found["best_score"]) == (1, 0, 0.9)
    assert found["dcg@k"] == pytest.approx(0.9 + 0.2 / 1.584962500721156 + 0.4 / 2)
    assert found["distinct1"] == pytest.approx(6 / 8)
    assert found["distinct2"] == pytest.approx(5 / 5)


def test_pasted_dataset_report_keeps_its_shape():
    groups = [
        {"scores": [1.0, 0.0], "passes": [1, 0], "texts": ["a b", "c d"]},
        {"scores": [0.2], "passes": [0], "texts": ["e"]},
    ]
    report = groupwise.evaluate_dataset(groups)
    assert set(report) == set(groupwise.KEYS)
    assert report["any_pass"] == {"mean": 0.5, "lo": 0.0, "hi": 1.0}
    assert report["distinct2"]["mean"] == 1.0  # the second group has no 2-grams: undefined, not 0


def test_an_empty_group_is_undefined_not_one():
    assert groupwise.majority_vote([]) is None
    assert groupwise.group_metrics({"scores": [], "passes": [], "texts": []}) == dict.fromkeys(groupwise.KEYS)


def test_a_group_with_lists_of_unequal_length_is_refused():
    with pytest.raises(kofn.InputError, match="2 scores and 1 passes"):
        groupwise.group_metrics({"scores": [1, 0], "passes": [1]})
