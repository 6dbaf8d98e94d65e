"""The computed law of a resampled mean against enumeration, scipy and drawing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kofn.stats.draws import resampled_sums
from kofn.stats.laws import (
    BinnedRatio,
    Discrete,
    Smooth,
    SmoothRatio,
    binomial_pmf,
    convolve,
    lattice_counts,
    mean_law,
    ratio_law,
)

TAILS = [0.005, 0.025, 0.1, 0.31]


def every_resample(sums, weights):
    n = len(sums)
    rows = np.array(list(product(range(n), repeat=n)))
    return np.sort(sums[rows].sum(axis=1) / weights[rows].sum(axis=1))


def quantiles_by_hand(means, p):
    """Smallest x with P(X <= x) >= p and largest x with P(X >= x) >= p, of equally likely means."""
    at = int(np.ceil(p * means.size * (1 - 1e-10))) - 1
    return means[at], means[::-1][at]


@pytest.mark.parametrize("levels", [[0.0, 1.0], [0.0, 0.25, 0.5, 1.0], None])
@given(data=st.data())
@settings(max_examples=25)
def test_law_equals_every_resample(levels, data):
    element = st.sampled_from(levels) if levels else st.floats(-5, 5).map(lambda x: round(x, 3))
    x = np.array(data.draw(st.lists(element, min_size=2, max_size=5)))
    if x.min() == x.max():
        return
    law, means = mean_law(x), every_resample(x, np.ones(x.size))
    for p in TAILS:
        assert (law.lower(p), law.upper(p)) == pytest.approx(quantiles_by_hand(means, p), abs=1e-9)


@given(data=st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 5)), min_size=3, max_size=5))
@settings(max_examples=25)
def test_ratio_law_equals_every_resample(data):
    values, weights = (np.array(column) for column in zip(*data, strict=True))
    if values.min() == values.max():
        return
    law, ratios = ratio_law(values * weights, weights), every_resample(values * weights, weights)
    for p in TAILS:
        assert (law.lower(p), law.upper(p)) == pytest.approx(quantiles_by_hand(ratios, p), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 17, 1000, 10**6, 10**8])
@pytest.mark.parametrize("rate", [1e-7, 0.01, 0.3, 0.5, 0.999])
def test_binomial_quantiles_match_scipy(n, rate):
    counts, pmf = binomial_pmf(n, rate)
    law = Discrete(counts.astype(float), pmf, n * rate)
    for p in [1e-9, *TAILS]:
        assert law.lower(p) == stats.binom.ppf(p, n, rate)
        assert law.upper(p) == n - stats.binom.ppf(p, n, 1 - rate)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=7), st.integers(1, 40))
@settings(max_examples=40)
def test_convolution_equals_repeated_convolution(counts, n):
    if not sum(counts):
        return
    pmf = np.array(counts) / sum(counts)
    expected = np.ones(1)
    for _ in range(n):
        expected = np.convolve(expected, pmf)
    first, law = convolve(pmf, n)
    assert law == pytest.approx(expected[first : first + law.size], abs=1e-13)
    assert law.sum() == pytest.approx(1)


def test_convolution_of_many_cases_stays_exact():
    first, law = convolve(np.array([0.7, 0.3]), 10**6)
    at = np.arange(first, first + law.size)
    assert np.abs(law - stats.binom.pmf(at, 10**6, 0.3)).max() < 1e-12


@pytest.mark.parametrize("denominator", [2, 3, 7, 8, 10, 16, 100, 840])
def test_lattices_are_found_and_others_are_not(denominator):
    rng = np.random.default_rng(denominator)
    x = rng.integers(0, denominator + 1, size=3000) / denominator
    x[:2] = 0, 1
    counts = lattice_counts(x, np.unique(x[:100]), 0.0, 1.0)
    assert counts.size == denominator + 1
    assert counts.sum() == x.size
    x[50] = np.pi / 4
    assert lattice_counts(x, np.unique(x[:100]), 0.0, 1.0) is None


KINDS = {
    "rates": lambda rng, n: (rng.random(n) < 0.4).astype(float),
    "nine levels": lambda rng, n: rng.binomial(8, rng.beta(1, 2, n)) / 8,
    "continuous": lambda rng, n: rng.beta(0.4, 0.9, n),
    "levels off any lattice": lambda rng, n: rng.choice([0, 1, np.pi / 5, np.e / 3], n),
    "skewed": lambda rng, n: np.exp(1.5 * rng.normal(size=n)),
}


@pytest.mark.long(quick=4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [8, 40, 400, 3000])
def test_computed_law_agrees_with_drawing(kind, n):
    x = KINDS[kind](np.random.default_rng(n), n)
    draws = np.sort(resampled_sums(x[:, None], 10_000, seed=1)[:, 0] / n)
    law = mean_law(x)
    for p in (0.025, 0.1):
        # the rank of our quantile among the draws, within five standard errors of a rank
        slack = 5 * np.sqrt(p * (1 - p) / draws.size)
        for end, ordered in ((law.lower(p), draws), (-law.upper(p), -draws[::-1])):
            below, up_to = np.searchsorted(ordered, [end - 1e-9, end + 1e-9]) / draws.size
            assert below - slack <= p <= up_to + slack + 0.004


@pytest.mark.long
@pytest.mark.parametrize(("n", "kind"), [(30, BinnedRatio), (300, BinnedRatio), (2000, SmoothRatio)])
def test_ratio_law_agrees_with_drawing(n, kind):
    rng = np.random.default_rng(n)
    weights = rng.integers(1, 9, size=n).astype(float)
    sums = weights * rng.beta(1, 1, size=n)
    law = ratio_law(sums, weights)
    assert isinstance(law, kind)
    drawn = resampled_sums(np.column_stack([sums, weights]), 20_000, seed=2)
    ratios = drawn[:, 0] / drawn[:, 1]
    for p in (0.025, 0.1):
        slack = 5 * np.sqrt(p * (1 - p) / ratios.size)
        assert abs(np.mean(ratios <= law.lower(p)) - p) < slack
        assert abs(np.mean(ratios >= law.upper(p)) - p) < slack
    bias = stats.norm.ppf(np.mean(ratios < law.lower(0.5)))
    assert bias == pytest.approx(0, abs=0.04)
    assert law.median_bias() == pytest.approx(stats.norm.ppf(np.mean(ratios < sums.sum() / weights.sum())), abs=0.04)


def test_smooth_law_of_a_lattice_is_close_to_the_exact_one():
    x = np.random.default_rng(0).binomial(8, 0.4, size=5000) / 8
    exact = mean_law(x)
    assert isinstance(exact, Discrete)
    from kofn.stats.laws import moments_of_mean

    m = moments_of_mean(x)
    smooth = Smooth(m.mean, m.sd / np.sqrt(x.size), m.skewness, m.kurtosis)
    se = x.std() / np.sqrt(x.size)
    assert smooth.lower(0.025) == pytest.approx(exact.lower(0.025), abs=0.003 * se + 1 / 80_000)
    assert smooth.upper(0.025) == pytest.approx(exact.upper(0.025), abs=0.003 * se + 1 / 80_000)
    assert smooth.median_bias() == pytest.approx(exact.median_bias(), abs=0.002)


def test_drawing_has_the_right_mean_and_variance_across_blocks():
    n = 10_000  # three blocks
    x = np.random.default_rng(3).normal(size=(n, 2))
    means = resampled_sums(x, 2000, seed=0) / n
    assert np.abs(means.mean(axis=0) - x.mean(axis=0)).max() < 5 / np.sqrt(n * 2000)
    assert means.std(axis=0) * np.sqrt(n) == pytest.approx(x.std(axis=0), rel=0.08)
    assert np.array_equal(means, resampled_sums(x, 2000, seed=0) / n)
