"""Weighted and clustered means whose law a few units make: every end checked against plain drawing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.cpu import cpu_seconds

from kofn.stats import bootstrap_mean, segment_estimates
from kofn.stats.draws import HEAVIEST, resampled_ratios, resampled_sums
from kofn.stats.laws import BinnedRatio, Discrete, dominated, ratio_law, rising_root
from kofn.stats.resample import acceleration_of, as_units, bca_tails

WEIGHTS = {
    "lognormal": lambda rng, n: np.exp(1.5 * rng.normal(size=n)),
    "pareto": lambda rng, n: rng.pareto(rng.choice([0.7, 1.0, 1.5]), n) + 1,
    "one huge": lambda rng, n: np.append(np.ones(n - 1), rng.choice([3.0, 50.0, 500.0, 1e4])),
    "two huge": lambda rng, n: np.append(rng.random(n - 2) + 0.5, rng.choice([10.0, 30.0, 300.0], 2)),
    "marks": lambda rng, n: rng.integers(1, 9, n).astype(float),
}
VALUES = {
    "rates": lambda rng, n: (rng.random(n) < rng.choice([0.05, 0.3, 0.9])).astype(float),
    "continuous": lambda rng, n: rng.beta(0.5, 1, n),
    "quarters": lambda rng, n: rng.integers(0, 5, n) / 4,
}


def drawn(values, weights, n_resamples, seed):
    sums = resampled_sums(np.column_stack([values * weights, weights]), n_resamples, seed)
    return np.sort(sums[:, 0] / sums[:, 1])


def errors_of_tails(ends, draws, tails):
    """By how much the probability beyond each end misses its tail, where no atom at the end explains it."""
    for end, ordered, tail in ((ends.low, draws, tails[0]), (-ends.high, -draws[::-1], tails[1])):
        beyond, up_to = np.searchsorted(ordered, [end - 1e-9, end + 1e-9]) / draws.size
        yield max(beyond - tail, tail - up_to, 0.0)


def tails_of(method, values, weights, draws):
    if method == "percentile":
        return 0.025, 0.025
    units = as_units(values, weights, None)
    below = np.mean(draws < units.point - 1e-9) + np.mean(np.abs(draws - units.point) <= 1e-9) / 2
    return bca_tails(0.95, stats.norm.ppf(below), acceleration_of(units.influence))


def worst_error(kind, n, seed, n_resamples):
    rng = np.random.default_rng(seed)
    weights = WEIGHTS[kind](rng, n)
    values = VALUES[rng.choice(list(VALUES))](rng, n)
    values[:2] = 0, 1  # no two ends alike
    draws = drawn(values, weights, n_resamples, seed)
    return max(
        error
        for method in ("percentile", "bca")
        for error in errors_of_tails(
            bootstrap_mean(values, weights=weights, method=method), draws, tails_of(method, values, weights, draws)
        )
    )


@pytest.mark.parametrize(
    ("values", "weights", "low"),
    [
        ([1] + [0, 1, 0, 0] * 5, [200] + [1] * 20, 2 / 21),
        ([1, 0, 1, 0, 0, 1, 0, 1], [50] + [1] * 7, 1 / 8),
    ],
)
def test_a_resample_without_the_heaviest_case_is_not_cut_off(values, weights, low):
    assert bootstrap_mean(values, weights=weights).low == pytest.approx(low, abs=1e-9)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("n", [5, 8, 12, 40, 101])
def test_tails_are_right_whatever_the_weights(kind, n):
    assert worst_error(kind, n, seed=n, n_resamples=50_000) < 0.007


@pytest.mark.slow
@pytest.mark.parametrize("kind", WEIGHTS)
def test_tails_are_right_whatever_the_weights_at_length(kind):
    rng = np.random.default_rng(0)
    for seed in range(60):
        n = int(np.exp(rng.uniform(np.log(5), np.log(200))))
        assert worst_error(kind, n, seed=1000 + seed, n_resamples=200_000) < 0.007, (n, seed)


def test_one_cluster_that_holds_most_cases():
    rng = np.random.default_rng(3)
    clusters = np.append(np.zeros(300, dtype=int), np.arange(1, 61))
    x = np.append(rng.random(300) < 0.9, rng.random(60) < 0.3).astype(float)
    units = as_units(x, None, clusters)
    draws = drawn(units.means, units.weights, 50_000, seed=1)
    assert max(errors_of_tails(bootstrap_mean(x, clusters=clusters), draws, (0.025, 0.025))) < 0.007


def test_what_is_drawn_knows_no_order_but_knows_the_seed():
    rng = np.random.default_rng(0)
    x, w = rng.random(40), np.exp(3 * rng.normal(size=40))
    assert dominated(w * x - w * (w @ x / w.sum()), w)
    order = rng.permutation(40)
    assert bootstrap_mean(x[order], weights=w[order]) == bootstrap_mean(x, weights=w)
    assert bootstrap_mean(x, weights=w, seed=1) != bootstrap_mean(x, weights=w)


def test_many_units_that_one_dominates_take_the_rest_as_normal():
    rng = np.random.default_rng(2)
    n = 3 * HEAVIEST
    w = np.append(np.exp(rng.normal(size=n - 1)), 3.0 * n)
    x = rng.beta(0.5, 1, n)
    found = resampled_ratios(w * x, w, 10_000, seed=0)
    assert stats.ks_2samp(found, drawn(x, w, 10_000, seed=1)).pvalue > 1e-3


def test_few_kinds_of_units_are_enumerated():
    w = np.repeat([1.0, 1.0, 7.0], [60, 30, 5])
    x = np.repeat([0.0, 1.0, 1.0], [60, 30, 5])
    law = ratio_law(w * x, w)
    assert isinstance(law, Discrete)
    assert law.support.size == 96 * 97 // 2
    assert law.pmf.sum() == pytest.approx(1)
    draws = drawn(x, w, 20_000, seed=0)
    assert draws.mean() == pytest.approx(law.pmf @ law.support, abs=5 * draws.std() / np.sqrt(draws.size))


def test_root_is_found_across_a_step_and_at_the_ends():
    assert rising_root(lambda x: -1.0 if x < 0.3 else 1.0, 0.0, 1.0, 0.5, 0.1) == pytest.approx(0.3, abs=1e-4)
    assert rising_root(lambda x: 1.0 + x, 0.0, 1.0, 0.5, 0.1) == pytest.approx(0, abs=1e-4)
    assert rising_root(lambda x: -np.inf * (x + 1), 0.0, 1.0, 0.5, 0.1) == pytest.approx(1, abs=1e-4)


def test_ordinary_weights_are_computed_with_few_convolutions(monkeypatch):
    rng = np.random.default_rng(0)
    w = rng.random(150) + 0.5
    x = rng.beta(0.5, 1, 150)
    calls, below = [], BinnedRatio.below
    monkeypatch.setattr(BinnedRatio, "below", lambda law, at: calls.append(at) or below(law, at))
    bootstrap_mean(x, weights=w)
    assert 0 < len(calls) <= 10  # bisection took 28


def test_segments_with_clusters_and_weights_cost_little():
    rng = np.random.default_rng(0)
    n = 20_000
    x, w = (rng.random(n) < 0.4).astype(float), rng.random(n) + 0.5
    segments, clusters = rng.integers(0, 100, n).astype(str).tolist(), rng.integers(0, n // 5, n)
    found = []
    seconds = cpu_seconds(lambda: found.extend(segment_estimates(x, segments, weights=w, clusters=clusters)))
    assert len(found) == 100
    assert seconds < 10  # .2 s where this was written
