"""The beta-binomial: published numbers, scipy's likelihood, its limits, and how often its band holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError
from kofn.stats.beta_binomial import BetaBinomial, any_at, extrapolate, fit, log_likelihood

seeds = st.integers(0, 2**32 - 1)


def of(a, b):
    return BetaBinomial(p=a / (a + b), spread=1 / (a + b), kind="fit", n_cases=1)


def test_any_at_k_of_a_population(oracles):
    entry = oracles["beta_binomial.formula"]
    found = [of(i["a"], i["b"]).any_at([i["k"]])[0] for i in entry["inputs"]]
    assert found == pytest.approx(entry["expected"], abs=entry["tol"])


def test_the_fit_to_cruxeval(oracles):
    entry = oracles["beta_binomial.cruxeval"]
    counts = [c for c, times in enumerate(entry["inputs"]["count_of_c_0_to_10"]) for _ in range(times)]
    tries = [entry["inputs"]["n"]] * len(counts)
    found, want = fit(counts, tries), entry["expected"]
    assert (found.a, found.b) == pytest.approx((want["a"], want["b"]), rel=entry["tol"])
    assert -log_likelihood(counts, tries, found.a, found.b) == pytest.approx(want["negloglik"], abs=1e-6)
    ks = [int(k) for k in want["pred"]]
    assert found.any_at(ks) == pytest.approx(list(want["pred"].values()), abs=entry["tol"])


@given(a=st.floats(0.05, 50), b=st.floats(0.05, 50), seed=seeds)
@settings(max_examples=20)
def test_the_likelihood_is_scipys(a, b, seed):
    scipy_stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 20, 30)
    c = rng.binomial(n, rng.beta(a, b, 30))
    assert log_likelihood(c, n, a, b) == pytest.approx(scipy_stats.betabinom.logpmf(c, n, a, b).sum(), rel=1e-9)


@given(seed=seeds)
@settings(max_examples=60)
def test_no_point_nearby_is_more_likely_than_the_fit(seed):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 12, 40)
    c = rng.binomial(n, rng.beta(*rng.uniform(0.1, 4, 2), 40))
    found = fit(c, n)
    if found.kind != "fit":
        return
    best = log_likelihood(c, n, found.a, found.b)
    for x, y in rng.normal(0, 0.3, (20, 2)):
        assert log_likelihood(c, n, found.a * np.exp(x), found.b * np.exp(y)) <= best + 1e-7


@given(seed=seeds, times=st.integers(2, 5))
@settings(max_examples=20)
def test_a_case_of_weight_two_is_a_case_that_is_there_twice(seed, times):
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 8, 20)
    c = rng.binomial(n, rng.beta(0.6, 0.9, 20))
    weights = np.where(np.arange(20) < 7, times, 1)
    assert fit(c, n, weights).any_at([1, 9, 50]) == pytest.approx(
        fit(np.repeat(c, weights), np.repeat(n, weights)).any_at([1, 9, 50]), abs=1e-6
    )


@pytest.mark.parametrize(
    ("passes", "kind", "at_9"),
    [
        ([4, 4, 4], "all", 1.0),
        ([0, 0, 0], "none", 0.0),
        ([4, 0, 0], "all or nothing", 1 / 3),
        ([2, 2, 2, 2], "alike", 1 - 0.5**9),
    ],
)
def test_limits_are_named_and_extrapolate(passes, kind, at_9):
    found = fit(passes, [4] * len(passes))
    assert found.kind == kind
    assert found.any_at([9]) == pytest.approx([at_9])
    assert found.a is None
    assert found.words()


def test_one_try_a_case_shows_no_spread():
    assert fit([0, 1, 1], [1, 1, 1]) is None
    assert extrapolate([0, 1, 1], [1, 1, 1], [5]) is None


def test_cases_without_a_try_say_nothing():
    assert fit([0, 1, 3, 0], [4, 4, 4, 0]) == fit([0, 1, 3], [4, 4, 4])


def test_counts_beyond_the_tries_are_refused():
    with pytest.raises(InputError, match="from 0 to its number of tries"):
        fit([5], [4])


@given(p=st.floats(0, 1), spread=st.one_of(st.just(0.0), st.just(np.inf), st.floats(1e-6, 1e6)))
def test_any_at_k_rises_with_k_from_p_and_stays_a_chance(p, spread):
    found = any_at(np.array([p]), np.array([spread]), list(range(1, 40)))[0]
    assert found[0] == pytest.approx(p)
    assert (np.diff(found) >= -1e-12).all()
    assert found.min() >= 0
    assert found.max() <= 1
    assert (found <= 1 - (1 - p) ** np.arange(1, 40) + 1e-9).all()  # cases that differ gain less than independence says


def test_the_same_seed_gives_the_same_band_and_a_cluster_widens_it():
    rng = np.random.default_rng(1)
    p = np.repeat(rng.beta(0.5, 0.5, 20), 5)
    c = rng.binomial(6, p)
    tries, clusters = [6] * 100, np.repeat(np.arange(20), 5)
    first, again = (extrapolate(c, tries, [20], seed=3)[1] for _ in range(2))
    assert first == again
    together = extrapolate(c, tries, [20], clusters=clusters, seed=3)[1][0]
    assert together.high - together.low > 1.3 * (first[0].high - first[0].low)


def coverage(runs):
    rng = np.random.default_rng(11)
    a, b, covered = 0.4, 0.9, 0
    truth = of(a, b).any_at([32])[0]
    for i in range(runs):
        c = rng.binomial(8, rng.beta(a, b, 150))
        point = extrapolate(c, [8] * 150, [32], seed=i)[1][0]
        covered += point.low <= truth <= point.high
    return covered / runs


def test_the_band_holds_the_truth_about_as_often_as_it_says():
    assert 0.88 <= coverage(60) <= 1


@pytest.mark.slow
def test_the_band_holds_the_truth_as_often_as_it_says():
    assert 0.92 <= coverage(1000) <= 0.98
