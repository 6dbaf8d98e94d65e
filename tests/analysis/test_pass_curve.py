"""The best-of-n curve: the unbiased any@k over cases, beside it the vote and what independence would give."""

from __future__ import annotations

from itertools import combinations, pairwise
from time import process_time

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.aggregators.passes import PassAt
from kofn.aggregators.votes import MajAt
from kofn.analysis import pass_curve as curves
from kofn.analysis.pass_curve import best_of_n, independent_pass_rate, k_ladder, largest_k, majority_curve
from kofn.core.candidate_sets import CandidateSets, offsets_of, passes_of
from kofn.scoring.configuration import GradingConfig
from kofn.stats import estimate

FEW = GradingConfig(n_resamples=200)

flags = st.sampled_from([1.0, 0.0, None])
names = st.sampled_from(["a", "b", "c", None])
some_sets = st.lists(st.lists(st.tuples(flags, names), max_size=6), min_size=1, max_size=8)


def voting(rows) -> CandidateSets:
    """Sets in which an answer is right or wrong by itself."""
    values = [[None if value is None else float(name == "a") for value, name in row] for row in rows]
    return CandidateSets.from_lists(values, answers=[[name for _, name in row] for row in rows])


def many(n_sets: int, size: int) -> CandidateSets:
    rng = np.random.default_rng(0)
    values = (rng.random((n_sets, size)) < rng.beta(0.5, 0.8, n_sets)[:, None]).astype(float).ravel()
    return CandidateSets(
        case_ids=pl.Series(np.arange(n_sets)).cast(pl.String),
        offsets=offsets_of(np.full(n_sets, size)),
        values=values,
        passes=passes_of(values),
        answers=pl.Series(["right", "a", "b", "c"]).gather(np.where(values == 1, 0, rng.integers(1, 4, len(values)))),
    )


def test_independence_is_the_iid_curve(oracles):
    entry = oracles["best_of_n.iid"]
    for row, expected in zip(entry["inputs"], entry["expected"], strict=True):
        p, n = row["p"], row["n"]
        assert independent_pass_rate(p, n) == pytest.approx(expected["any"], abs=entry["tol"])
        assert independent_pass_rate(p, n + 1) - independent_pass_rate(p, n) == pytest.approx(
            expected["gain_to_next"], abs=entry["tol"]
        )


def test_the_curve_of_cruxeval_is_as_published_and_far_below_independence(sets_folder, oracles):
    expected = oracles["pass_at_k.cruxeval_output"]["expected"]
    curve = best_of_n(kofn.score(sets_folder / "cruxeval_output_800x10.jsonl").scored[0].sets, FEW)
    at = {point.k: point for point in curve.points}
    assert list(at) == list(range(1, 11))
    for k in (1, 2, 5, 10):
        assert 100 * at[k].point == pytest.approx(expected[f"pass@{k}"], abs=1e-9)
        assert at[k].low <= at[k].point <= at[k].high
    assert at[10].independent == pytest.approx(1 - (1 - 0.342125) ** 10)
    assert at[10].independent > at[10].high + 0.5  # .98 against .42: cases differ in difficulty


def test_the_vote_of_real_sets_is_that_of_maj_at_k(sets_folder):
    sets = kofn.score(sets_folder / "qwen_math100x8.jsonl").scored[0].sets
    curve = best_of_n(sets, FEW)
    assert [point.k for point in curve.majority] == list(range(1, 9))
    for point in curve.majority:
        assert point.point == pytest.approx(float(MajAt(point.k)(sets).mean()), abs=1e-12)
        assert point.independent is None


@given(some_sets)
def test_every_point_is_the_estimate_of_its_aggregator(rows):
    sets = voting(rows)
    curve = best_of_n(sets, FEW)
    assert [point.k for point in curve.points] == list(k_ladder(largest_k(sets)))
    for column, rule in ((curve.points, PassAt), (curve.majority, MajAt)):
        for point in column:
            expected = estimate(rule(point.k)(sets), n_resamples=FEW.n_resamples)
            assert (point.n, point.n_missing) == (expected.n, expected.n_missing)
            assert point.point == pytest.approx(expected.point, abs=1e-12)
            assert point.low == pytest.approx(expected.low, abs=1e-9)
            assert point.high == pytest.approx(expected.high, abs=1e-9)


@given(st.lists(st.lists(st.sampled_from([0, 1]), min_size=5, max_size=5), min_size=1, max_size=6))
def test_with_equal_sizes_the_curve_never_falls_and_begins_where_independence_does(values):
    points = best_of_n(CandidateSets.from_lists(values), FEW).points
    for before, after in pairwise(points):
        assert before.point <= after.point + 1e-12
    assert points[0].independent == pytest.approx(points[0].point)
    if len({sum(row) for row in values}) == 1:  # cases of one difficulty: draws without replacement do better
        assert all(point.point >= point.independent - 1e-12 for point in points)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0])), max_size=4), st.integers(0, 3))
def test_the_vote_for_every_k_at_once_is_the_mean_over_all_draws(answers, silent):
    pool = [(i, value) for i, (count, value) in enumerate(answers) for _ in range(count)] + [(-1, 0.0)] * silent
    ks = range(1, len(pool) + 2)
    counts = np.array([[count] for count, _ in answers], dtype=np.int64).reshape(-1, 1)
    values = np.array([[value] for _, value in answers]).reshape(-1, 1)
    found = majority_curve(counts, values, np.array([silent]), ks)[:, 0]
    for k, value in zip(ks, found.tolist(), strict=True):
        draws = [shared_vote(draw) for draw in combinations(pool, k)]
        assert value == pytest.approx(np.mean(draws) if draws else np.nan, abs=1e-12, nan_ok=True)


def shared_vote(draw) -> float:
    votes: dict[int, int] = {}
    for answer, _ in draw:
        if answer >= 0:
            votes[answer] = votes.get(answer, 0) + 1
    leaders = {answer for answer, count in votes.items() if count == max(votes.values())}
    return float(np.mean([value for answer, value in dict(draw).items() if answer in leaders])) if leaders else 0.0


def test_weights_and_clusters_count_as_in_the_estimate():
    sets = CandidateSets.from_lists([[1, 1], [0, 0], [1, 0], [0, 1]])
    weights, clusters = np.array([3.0, 1.0, 0.0, 2.0]), np.array([0, 0, 1, 2])
    points = best_of_n(sets, FEW, weights=weights, clusters=clusters).points
    assert points[0].point == pytest.approx(4 / 6)
    assert points[1].point == pytest.approx(5 / 6)
    assert points[1].independent == pytest.approx(1 - (2 / 6) ** 2)
    expected = estimate(PassAt(2)(sets), weights=weights, clusters=clusters, n_resamples=FEW.n_resamples)
    assert (points[1].low, points[1].high) == (expected.low, expected.high)


def test_weights_that_are_all_zero_leave_no_value():
    curve = best_of_n(CandidateSets.from_lists([[1, 0]]), FEW, weights=np.zeros(1))
    assert [(p.point, p.low, p.high, p.independent) for p in curve.points] == [(None,) * 4] * 2


def test_one_candidate_a_case_gives_one_point():
    curve = best_of_n(CandidateSets.from_lists([[1], [0], [1]], answers=[["a"], ["b"], ["a"]]), FEW)
    assert [(p.k, p.n) for p in curve.points] == [(p.k, p.n) for p in curve.majority] == [(1, 3)]


@pytest.mark.parametrize("values", [[], [[]], [[None, None], [None]]])
def test_nothing_graded_gives_no_curve(values):
    assert best_of_n(CandidateSets.from_lists(values), FEW) == curves.Curve()


def test_the_curve_ends_where_fewer_than_95_of_100_graded_sets_go_on():
    short, long = [[1, 0]], [[1, 0, 0]]
    assert largest_k(CandidateSets.from_lists(short * 5 + long * 95 + [[None]] * 50)) == 3
    assert largest_k(CandidateSets.from_lists(short * 6 + long * 94)) == 2
    points = best_of_n(CandidateSets.from_lists(short * 5 + long * 95), FEW).points
    assert [(p.n, p.n_missing) for p in points] == [(100, 0), (100, 0), (95, 5)]


@given(st.integers(1, 10_000))
def test_the_ladder_rises_to_the_largest_in_at_most_24_steps(largest):
    ks = k_ladder(largest)
    assert list(ks) == sorted(set(ks))
    assert (ks[0], ks[-1]) == (1, largest)
    assert len(ks) <= 24
    assert set(range(1, min(largest, 16) + 1)) <= set(ks)


def test_without_answers_there_is_no_curve_of_the_vote_and_nothing_to_say():
    curve = best_of_n(CandidateSets.from_lists([[1, 0]]), FEW)
    assert (curve.majority, curve.notes) == ((), ())


def test_a_vote_on_another_scale_is_left_out_and_said():
    sets = CandidateSets.from_lists([[3.0, 0.5]], answers=[["a", "b"]], threshold=2.0)
    curve = best_of_n(sets, FEW)
    assert [p.point for p in curve.points] == [0.5, 1.0]
    assert curve.majority == ()
    assert "another scale" in str(curve.notes[0])


@pytest.mark.parametrize(
    ("limit", "value", "note"),
    [
        ("MOST_VOTES", 3, "4 candidates are more than 3"),
        ("MOST_STEPS", 1, "too many"),
        ("LARGEST_SET", 1, "more than 1"),
    ],
)
def test_a_vote_that_would_take_long_is_left_out_and_said(monkeypatch, limit, value, note):
    monkeypatch.setattr(curves, limit, value)
    curve = best_of_n(CandidateSets.from_lists([[1, 0], [0, 1]], answers=[["a", "b"], ["b", "a"]]), FEW)
    assert (len(curve.points), curve.majority) == (2, ())
    assert note in str(curve.notes[0])


def test_an_interval_for_rates_gives_way_where_values_are_chances():
    curve = best_of_n(CandidateSets.from_lists([[1, 0]] * 20 + [[0, 0]] * 20), GradingConfig(interval="wilson"))
    at_two = estimate([1.0] * 20 + [0.0] * 20, interval="wilson")
    assert (curve.points[1].low, curve.points[1].high) == (at_two.low, at_two.high)
    assert curve.points[0].low < 0.25 < curve.points[0].high
    assert "wilson takes only those" in str(curve.notes[0])


def test_the_same_seed_gives_the_same_curve():
    sets = many(200, 6)
    assert best_of_n(sets, FEW) == best_of_n(sets, FEW)


@pytest.mark.long
def test_a_million_sets_of_eight_take_seconds():
    sets = many(1_000_000, 8)
    before = process_time()
    curve = best_of_n(sets, GradingConfig())
    assert process_time() - before < 6  # under one on a quiet machine
    assert len(curve.points) == 8
    assert "8,000,000 candidates" in str(curve.notes[0])


def test_the_vote_of_ten_thousand_sets_of_ten_takes_seconds():
    sets = many(10_000, 10)
    before = process_time()
    curve = best_of_n(sets, GradingConfig())
    assert process_time() - before < 5  # half of one on a quiet machine
    assert len(curve.majority) == 10
    assert curve.majority[-1].point == pytest.approx(float(MajAt(10)(sets).mean()), abs=1e-12)
