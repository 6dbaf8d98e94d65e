"""A number picked and graded by the same score says so; one picked by a score and graded by labels does not."""

from __future__ import annotations

import pytest

import kofn

SCORES = [[0.1, 0.9, 0.4], [0.7, 0.2, 0.6], [0.3, 0.5, 0.8]]
TEXTS = [["It is 1.", "It is 2.", "It is 3."]] * 3
PASSES = [[True, False, False], [True, False, True], [False, False, True]]


def rows(**columns):
    return [{"id": str(i), **{name: lists[i] for name, lists in columns.items()}} for i in range(3)]


def dipping(result) -> list[str]:
    return [str(warning) for warning in result.warnings if warning.code == "double-dipping"]


@pytest.mark.parametrize("rule", ["selected", "weighted_vote", "selected(by='score')", "weighted_vote(scale='exp')"])
def test_a_score_that_picks_and_grades_is_remarked_in_one_line(rule):
    result = kofn.score(rows(outputs=TEXTS, scores=SCORES), aggregate=[rule, "mean"])
    (warning,) = dipping(result)
    assert warning == (
        f"{rule} picks by `score` and is graded by it: "
        "double-dipping, the number is too good; grade with another metric"
    )
    assert "double-dipping" in str(result)


def test_every_aggregator_that_picks_is_remarked():
    result = kofn.score(rows(outputs=TEXTS, scores=SCORES), aggregate=["selected", "weighted_vote", "first"])
    assert [warning.split()[0] for warning in dipping(result)] == ["selected", "weighted_vote"]


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_a_threshold_on_the_score_makes_no_difference(threshold):
    result = kofn.score(rows(outputs=TEXTS, scores=SCORES), aggregate=["selected"], threshold=threshold)
    assert len(dipping(result)) == 1


@pytest.mark.parametrize("aggregate", [["best_score"], ["max", "mean", "any_pass"], []])
def test_the_best_score_is_no_pick(aggregate):
    assert dipping(kofn.score(rows(outputs=TEXTS, scores=SCORES), aggregate=aggregate)) == []


def test_labels_that_grade_what_a_score_picks_are_not_remarked_but_the_score_beside_them_is():
    result = kofn.score(rows(outputs=TEXTS, scores=SCORES, passes=PASSES), aggregate=["selected", "weighted_vote"])
    assert {e.metric for e in result.estimates} == {"pass", "score"}
    assert [warning.split(" picks")[0] for warning in dipping(result)] == [
        "selected under score",
        "weighted_vote under score",
    ]
    labels = kofn.score(rows(outputs=TEXTS, scores=SCORES, passes=PASSES), aggregate=["selected"], metric="pass")
    assert dipping(labels) == []


def test_a_score_asked_to_grade_although_there_are_labels_is_remarked():
    result = kofn.score(rows(outputs=TEXTS, scores=SCORES, passes=PASSES), aggregate=["selected"], metric="score")
    assert len(dipping(result)) == 1


def test_a_metric_that_grades_what_a_score_picks_is_not_remarked():
    table = rows(outputs=TEXTS, scores=SCORES, reference=["1", "2", "3"])
    assert dipping(kofn.score(table, aggregate=["selected"], metric="numeric")) == []


def test_a_metric_that_gives_the_numbers_of_the_selector_is_remarked_by_its_own_name():
    scores = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    table = rows(outputs=TEXTS, scores=scores, reference=["1", "2", "3"])
    (warning,) = dipping(kofn.score(table, aggregate=["selected"], metric="numeric"))
    assert warning.startswith("selected picks by `score` and is graded by numeric, which says the same: ")


def test_scores_that_are_all_alike_pick_nothing_and_are_not_remarked():
    assert dipping(kofn.score(rows(outputs=TEXTS, scores=[[0.5] * 3] * 3), aggregate=["selected"])) == []


def test_candidates_that_are_not_graded_do_not_hide_it():
    scores = [[0.1, None, 0.4], *SCORES[1:]]
    assert len(dipping(kofn.score(rows(outputs=TEXTS, scores=scores), aggregate=["selected"]))) == 1


def test_a_function_of_your_own_is_not_taken_for_a_pick():
    def picks(one):
        return max(one.values)

    assert dipping(kofn.score(rows(outputs=TEXTS, scores=SCORES), aggregate=[picks])) == []


def test_a_reward_model_on_real_outputs_is_graded_by_labels_and_not_remarked(sets_folder):
    file, rules = sets_folder / "qwen_math100x8.jsonl", ["selected", "weighted_vote", "any_pass"]
    result = kofn.score(file, aggregate=rules, metric="pass")
    assert result.get("selected").point == pytest.approx(0.94)
    assert dipping(result) == []
    assert all("under score picks" in warning for warning in dipping(kofn.score(file, aggregate=rules)))


@pytest.mark.parametrize(
    "name", ["qwen_math100x8", "nemo_math_50x3", "cruxeval_output_800x10", "tau_airline_gpt4o_50x4"]
)
def test_real_files_by_default_are_not_remarked(sets_folder, name):
    assert dipping(kofn.score(sets_folder / f"{name}.jsonl")) == []
