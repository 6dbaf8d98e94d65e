"""Best of n for every k: values, costs and times against enumeration, published numbers, real data; the n to choose."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import maj_at, selected_at

from kofn.analysis.best_of import BestOfOptions, JudgeErrors, best_of, best_of_by_segment, k_values
from kofn.analysis.curve_report import SpendingBounds, recommend_n
from kofn.analysis.pass_curve import best_of_n
from kofn.analysis.selectors import Selector
from kofn.core.candidate_sets import CandidateSets
from kofn.errors import InputError
from kofn.runs.load import load_graded
from kofn.scoring.configuration import GradingConfig
from kofn.testing import random_sets

JUDGE = Selector(name="judge", by="judge")
seeds = st.integers(0, 2**32 - 1)


def sets_with(values, *, seconds=None, costs=None, **more):
    made = CandidateSets.from_lists(values, **more)
    flat = {k: None if v is None else np.array([np.nan if x is None else x for xs in v for x in xs], dtype=float)
            for k, v in (("seconds", seconds), ("costs", costs))}  # fmt: skip
    return replace(made, **flat)


def of_rate(p, cases=2000, n=6):
    """Sets in which every candidate passes with the same p, as exactly as counts allow: c follows the binomial."""
    rng = np.random.default_rng(0)
    return CandidateSets.from_lists((rng.random((cases, n)) < p).astype(float).tolist())


@given(seed=seeds)
def test_any_and_majority_are_those_of_the_report(seed):
    sets = random_sets(np.random.default_rng(seed), 12)
    sets = sets.take(np.flatnonzero(sets.sizes > 0))
    if not len(sets):
        return
    table, curve = best_of(sets, GradingConfig()), best_of_n(sets, GradingConfig())
    assert [row.any for row in table.rows] == [p.point for p in curve.points]
    assert [row.majority for row in table.rows] == [p.point for p in curve.majority]
    assert [row.independent for row in table.rows] == [p.independent for p in curve.points]


@given(seed=seeds)
def test_selected_and_majority_at_k_are_the_means_over_all_subsets(seed):
    rng = np.random.default_rng(seed)
    sets = random_sets(rng, 6)
    sets = sets.take(np.flatnonzero(sets.sizes == 5)) if (sets.sizes == 5).any() else None
    if sets is None:
        return
    for row in best_of(sets, GradingConfig(), BestOfOptions(selector=JUDGE)).rows:
        assert row.selected == pytest.approx(np.mean([selected_at(row.k)(one) for one in sets]))
        assert row.majority == pytest.approx(np.mean([maj_at(row.k, "shared")(one) for one in sets]))


def test_independent_tries_follow_the_published_curve(oracles):
    entry = oracles["best_of_n.iid"]
    table = best_of(of_rate(0.35), GradingConfig())
    pooled = table.rows[0].any
    for row, given_, want in zip(table.rows, entry["inputs"], entry["expected"], strict=True):
        assert row.k == given_["n"]
        assert row.independent == pytest.approx(1 - (1 - pooled) ** row.k, abs=1e-12)
        assert row.any == pytest.approx(want["any"], abs=0.02)  # cases that are alike: both curves are one
    from kofn.analysis.pass_curve import independent_pass_rate

    assert [independent_pass_rate(0.35, i["n"]) for i in entry["inputs"]] == pytest.approx(
        [w["any"] for w in entry["expected"]]
    )
    assert independent_pass_rate(0.35, 4) - independent_pass_rate(0.35, 3) == pytest.approx(
        entry["expected"][2]["gain_to_next"]
    )


@given(seed=seeds, n=st.integers(1, 6), missing=st.sampled_from([0.0, 0.3]))
def test_time_side_by_side_is_the_mean_longest_over_all_subsets(seed, n, missing):
    rng = np.random.default_rng(seed)
    lists = [[None if rng.random() < missing else float(x) for x in rng.integers(1, 5, n)] for _ in range(4)]
    table = best_of(sets_with([[1.0] * n] * 4, seconds=lists), GradingConfig())
    known = [[x for x in xs if x is not None] for xs in lists]
    for row in table.rows:
        longest = [np.mean([max(s) for s in combinations(xs, row.k)]) for xs in known if len(xs) >= row.k]
        assert (row.seconds is None) == (not longest)
        assert row.seconds == (pytest.approx(np.mean(longest)) if longest else None)
    one = [np.mean(xs) for xs in known if xs]
    assert table.rows[-1].seconds_sequential == (pytest.approx(n * np.mean(one)) if one else None)


def test_money_is_k_times_the_mean_over_cases_of_what_a_candidate_costs():
    table = best_of(sets_with([[1, 0], [0, 0]], costs=[[0.1, 0.3], [0.4, None]]), GradingConfig())
    assert [row.cost for row in table.rows] == pytest.approx([0.3, 0.6])
    assert table.unit == "dollars"
    assert table.rows[1].gain_per_cost == pytest.approx(table.rows[1].gain / 0.3)
    assert any("cost is not known of 1 candidates" in note for note in map(str, table.notes))


def test_without_costs_tokens_count_and_without_tokens_candidates():
    sets = CandidateSets.from_lists([[1, 0], [0, 0]])
    by_tokens = best_of(sets, GradingConfig(), tokens=np.array([10.0, 30.0, 20.0, 20.0]))
    assert (by_tokens.unit, by_tokens.rows[1].tokens) == ("tokens", 40.0)
    plain = best_of(sets, GradingConfig())
    assert plain.unit == "candidates"
    assert plain.rows[1].gain_per_cost == plain.rows[1].gain


@given(seed=seeds)
def test_gains_add_up_where_sets_are_equal_and_are_never_negative_for_any(seed):
    rng = np.random.default_rng(seed)
    sets = CandidateSets.from_lists(rng.integers(0, 2, (8, 5)).astype(float).tolist())
    rows = best_of(sets, GradingConfig()).rows
    assert sum(row.gain for row in rows[1:]) == pytest.approx(rows[-1].any - rows[0].any)
    gains = [row.gain for row in rows[1:]]
    assert all(a >= b - 1e-12 for a, b in pairwise(gains))  # and each is at most the one before
    assert min(gains) >= -1e-12


def test_gains_of_unequal_sets_are_over_the_cases_that_have_both():
    sets = CandidateSets.from_lists([[1, 1]] * 20 + [[0]])  # any@1 20/21, any@2 1 of those that have two: no gain
    table = best_of(sets, GradingConfig())
    assert table.rows[1].any > table.rows[0].any
    assert table.rows[1].gain == 0.0
    assert any("fewer than 2 graded candidates" in note for note in map(str, table.notes))


def test_the_vote_picks_the_majority_of_k_and_not_the_favourite_of_all():
    sets = CandidateSets.from_lists([[1, 0, 1, 0, 0]], answers=[["a", "b", "a", "c", "d"]])
    rows = best_of(sets, GradingConfig(), BestOfOptions(selector=Selector(name="vote", by="vote"))).rows
    assert [row.selected for row in rows] == [row.majority for row in rows]


def test_real_data_meets_the_published_aggregates(oracles, sets_folder):
    want = oracles["maj_rm.qwen_math100"]["expected"]
    where = load_graded(sets_folder / "qwen_math100x8.jsonl")
    sets = where.metric().sets
    table = best_of(sets, GradingConfig(), BestOfOptions(selector=Selector(name="score", by="score")))
    last = table.rows[-1]
    assert (table.rows[0].any, last.any, last.selected) == pytest.approx(
        (want["mean"], want["any8"], want["rm8_argmax"])
    )
    assert last.majority == pytest.approx(0.925)  # ties shared; the first seen gives the published 0.93
    passes = replace(sets, values=sets.passes.astype(float))
    for k in (2, 3, 5):
        by_hand = np.mean([selected_at(k)(one) for one in passes])
        assert table.rows[k - 1].selected == pytest.approx(by_hand, abs=1e-12)


def test_the_independence_curve_is_far_too_high_on_real_data(sets_folder):
    table = best_of(load_graded(sets_folder / "cruxeval_output_800x10.jsonl").metric().sets, GradingConfig())
    last = table.rows[-1]
    assert last.any == pytest.approx(0.41875)
    assert last.independent > 0.98


def test_beyond_n_only_any_is_extrapolated_and_marked(sets_folder):
    sets = load_graded(sets_folder / "cruxeval_output_800x10.jsonl").metric().sets
    table = best_of(sets, GradingConfig(), BestOfOptions(extend=100))
    beyond = [row for row in table.rows if row.extrapolated]
    assert beyond[-1].k == 100
    assert beyond[-1].any == pytest.approx(0.47755, abs=1e-4)
    assert all(row.majority is None and row.selected is None and row.n == 0 for row in beyond)
    assert beyond[-1].any_low < beyond[-1].any < beyond[-1].any_high
    assert any("extrapolated" in note and "measured 0.419" in note for note in map(str, table.notes))
    assert len(table.measured) == 10


@pytest.mark.parametrize(("values", "extend", "said"), [
    ([[1], [0]], 5, "one candidate a case shows no spread"),
    ([[1, 0], [0, 0]], 2, "2 candidates were measured"),
])  # fmt: skip
def test_what_cannot_be_extrapolated_says_so(values, extend, said):
    table = best_of(CandidateSets.from_lists(values), GradingConfig(), BestOfOptions(extend=extend))
    assert any(said in note for note in map(str, table.notes))
    assert not any(row.extrapolated for row in table.rows)


def test_a_corrected_curve_stands_beside_the_raw_one():
    sets = CandidateSets.from_lists([[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]] * 20)
    human = [1] * 50 + [0] * 50
    judge = [1] * 45 + [0] * 5 + [0] * 40 + [1] * 10
    table = best_of(sets, GradingConfig(), BestOfOptions(labels=JudgeErrors(human, judge)))
    assert tuple(table.rates) == pytest.approx((0.9, 0.8))
    first = table.rows[0]
    assert first.corrected == pytest.approx((first.any + 0.8 - 1) / 0.7)
    known = [row for row in table.rows if row.corrected is not None]
    assert all(row.corrected_low <= row.corrected <= row.corrected_high for row in known)
    assert [row.corrected for row in known] == sorted(row.corrected for row in known)
    assert any("errs independently on each candidate" in note for note in map(str, table.notes))
    with pytest.raises(InputError, match="carries no information"):
        best_of(sets, GradingConfig(), BestOfOptions(labels=JudgeErrors(human, [1 - j for j in judge])))


def test_a_segment_has_the_curve_of_its_cases():
    sets = sets_with([[1, 0], [0, 0], [1, 1]], costs=[[1, 1], [2, 2], [3, 3]])
    parts = best_of_by_segment(sets, ["a", "b", "a"], GradingConfig(), BestOfOptions())
    assert [(p.segment, p.n_cases, p.cost) for p in parts] == [("a", 2, 2.0), ("b", 1, 2.0)]
    assert parts[0].rows[0].any == 0.75


def test_weights_weigh_values_and_costs():
    sets = sets_with([[1, 0], [0, 0]], costs=[[1, 1], [3, 3]])
    table = best_of(sets, GradingConfig(), weights=np.array([3.0, 1.0]))
    assert (table.rows[0].any, table.cost) == (0.375, 1.5)


def test_many_candidates_are_a_ladder():
    assert k_values(64) == tuple(range(1, 65))
    assert k_values(200)[-1] == 200
    assert len(k_values(200)) < 30


@pytest.mark.parametrize(("bad", "said"), [
    ({"measure": "best"}, "expected one of any, selected, majority"),
    ({"measure": "selected"}, "needs a selector"),
    ({"extend": 10**6}, "from 1 to 10,000"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(bad, said):
    with pytest.raises(InputError, match=said):
        BestOfOptions(**bad)


def test_measures_that_are_not_there_say_why():
    sets = CandidateSets.from_lists([[1, 0]])
    with pytest.raises(InputError, match="no answers to vote on"):
        best_of(sets, GradingConfig(), BestOfOptions(measure="majority"))
    with pytest.raises(InputError, match="nothing is graded"):
        best_of(CandidateSets.from_lists([[None]]), GradingConfig())


# the choice


def priced(gains, cost=1.0, seconds=None):
    """A table with these values of any@k, made by hand."""
    sets = sets_with([[1] * len(gains)], costs=[[cost] * len(gains)])
    table = best_of(sets, GradingConfig())
    rows, before = [], None
    for row, value in zip(table.rows, gains, strict=True):
        gain = None if before is None else value - before
        time = None if seconds is None else seconds[row.k - 1]
        rows.append(replace(row, any=value, gain=gain, gain_per_cost=gain and gain / cost, seconds=time))
        before = value
    return replace(table, rows=tuple(rows))


IID = [1 - 0.65**k for k in range(1, 7)]


@pytest.mark.parametrize(("bar", "n"), [(0.3, 1), (0.2, 2), (0.0962, 3), (0.0961, 4), (0.05, 5), (0.03, 6)])
def test_the_n_is_the_largest_whose_own_gain_a_dollar_is_enough(bar, n):
    assert recommend_n(priced(IID), SpendingBounds(gain=bar)).n == n  # at p = .35 the fourth adds .0961


@given(seed=seeds, bar=st.floats(0.001, 0.5))
@settings(max_examples=50)
def test_for_any_the_choice_is_the_last_step_that_is_worth_it(seed, bar):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2, (10, 6)).astype(float).tolist()
    table = best_of(sets_with(values, costs=[[1.0] * 6] * 10), GradingConfig())
    worth = [row.k for row in table.rows if row.gain is not None and row.gain_per_cost >= bar - 1e-12]
    assert recommend_n(table, SpendingBounds(gain=bar)).n == max(worth, default=1)


def test_a_step_that_brings_nothing_does_not_hide_a_later_one_that_does():
    table = priced([0.5, 0.5, 0.7, 0.71])
    assert recommend_n(table, SpendingBounds(gain=0.09)).n == 3
    assert recommend_n(table, SpendingBounds(gain=0.11)).n == 1


def test_bounds_on_time_and_money_come_first_and_equal_values_take_the_smallest_k():
    table = priced([0.5, 0.6, 0.6, 0.7], seconds=[1, 2, 3, 4])
    assert recommend_n(table, SpendingBounds(latency=3.5)).n == 2
    assert recommend_n(table, SpendingBounds(budget=4)).n == 4
    assert recommend_n(table, SpendingBounds(budget=4, latency=2)).n == 2
    assert recommend_n(table, SpendingBounds(gain=0.01, latency=1.5)).n == 1
    tight = recommend_n(table, SpendingBounds(latency=0.5))
    assert tight.n is None
    assert tight.reason == "even one candidate takes 1 s, more than 0.5 s"


def test_reasons_say_what_the_next_candidate_would_bring():
    table = priced(IID)
    assert recommend_n(table, SpendingBounds(gain=0.07)).reason == (
        "with 4 candidates any of them passes in 0.821 of the cases; number 5 would add 0.062, 0.0625 a dollar, "
        "and 0.07 is asked for"
    )
    assert recommend_n(table, SpendingBounds(gain=0.001)).reason.endswith(
        "6 is the most that was measured, so more may be worth it too"
    )
    assert recommend_n(table, SpendingBounds(budget=2)).reason.endswith("at $2 of the $2 allowed; 3 would cost $3")


def test_without_a_bound_nothing_is_chosen_and_the_last_gain_is_told():
    found = recommend_n(priced(IID), SpendingBounds())
    assert found.n is None
    assert "the last candidate, number 6, adds 0.041 (0.0406 a dollar)" in found.reason


@pytest.mark.parametrize(("bounds", "said"), [
    ({"gain": 1}, "what a candidate costs is not known"),
    ({"budget": 1}, "what a candidate costs is not known"),
    ({"latency": 1}, "how long a candidate takes is not known"),
])  # fmt: skip
def test_bounds_on_what_is_not_known_are_refused(bounds, said):
    with pytest.raises(InputError, match=said):
        recommend_n(best_of(CandidateSets.from_lists([[1, 0]]), GradingConfig()), SpendingBounds(**bounds))


@pytest.mark.parametrize("bad", [{"gain": 0}, {"latency": -1}, {"budget": float("nan")}])
def test_bounds_must_be_above_0(bad):
    with pytest.raises(InputError, match="expected a number above 0"):
        SpendingBounds(**bad)
