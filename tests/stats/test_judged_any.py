"""any@k of a judge's verdicts, corrected: exactly unbiased under its assumption, refused without information."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.aggregators.passes import PassAt
from kofn.errors import InputError
from kofn.stats.corrected_curve import corrected_any_at, corrected_curve, rates_of


def binomial(n, p):
    return np.array([comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(n + 1)])


@given(data=st.data(), n=st.integers(1, 7), s=st.floats(0.6, 1), t=st.floats(0.6, 1))
def test_over_all_errors_of_the_judge_its_mean_is_the_truth(data, n, s, t):
    """Of r right ones among n the judge passes Bin(r, s) + Bin(n - r, 1 - t): the expectation is pass@k of r."""
    k, right = data.draw(st.integers(1, n)), data.draw(st.integers(0, n))
    chances = np.convolve(binomial(right, s), binomial(n - right, 1 - t))
    mean = sum(p * corrected_any_at(c, n, k, s, t) for c, p in enumerate(chances))
    assert mean == pytest.approx(PassAt(k).of_counts(n, right), abs=1e-7)


@given(n=st.integers(1, 12), data=st.data())
def test_a_perfect_judge_needs_no_correction(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert corrected_any_at(c, n, k, 1, 1) == pytest.approx(PassAt(k).of_counts(n, c))


@given(c=st.integers(0, 6), s=st.floats(0.6, 1), t=st.floats(0.6, 1))
def test_of_one_candidate_it_is_the_corrected_rate(c, s, t):
    assert corrected_any_at(c, 6, 1, s, t) == pytest.approx((c / 6 + t - 1) / (s + t - 1))


def test_k_beyond_n_is_undefined():
    assert np.isnan(corrected_any_at(1, 3, 4, 0.9, 0.9))


@pytest.mark.parametrize(("s", "t"), [(0.5, 0.5), (0.2, 0.3)])
def test_a_judge_without_information_is_refused(s, t):
    with pytest.raises(InputError, match="carries no information"):
        corrected_any_at(1, 3, 2, s, t)


def test_labels_of_one_class_are_refused():
    with pytest.raises(InputError, match="labels that people pass and labels that they fail"):
        corrected_curve([1, 2], [3, 3], [1], [1, 1], [1, 0])


def world(rng, cases, n, s, t):
    """(truth, what the judge says) of cases that differ much."""
    truth = rng.random((cases, n)) < rng.beta(0.4, 0.6, cases)[:, None]
    return truth, np.where(truth, rng.random((cases, n)) < s, rng.random((cases, n)) >= t)


def test_where_cases_differ_the_correction_holds_and_the_independent_one_is_far_too_high():
    truth, said = world(np.random.default_rng(5), 20_000, 4, 0.9, 0.85)
    labels = slice(0, 4000)
    rates, (found,) = corrected_curve(
        said.sum(axis=1), [4] * len(said), [4], truth[labels].ravel(), said[labels].ravel(), draws=100
    )
    exact = truth.any(axis=1).mean()
    pi = (said.mean() + rates.specificity - 1) / (rates.sensitivity + rates.specificity - 1)
    assert found.point == pytest.approx(exact, abs=0.02)
    assert said.any(axis=1).mean() > exact + 0.05  # uncorrected
    assert 1 - (1 - pi) ** 4 > exact + 0.2  # as if candidates of a case were independent


def coverage(runs):
    covered, truth_at = 0, None
    rng = np.random.default_rng(8)
    truth_at = 1 - np.mean((1 - rng.beta(0.4, 0.6, 400_000)) ** 3)
    for i in range(runs):
        _, said = world(rng, 300, 5, 0.9, 0.85)
        truth, label = world(rng, 60, 5, 0.9, 0.85)
        names = np.repeat(np.arange(60), 5)
        _, (point,) = corrected_curve(
            said.sum(axis=1), [5] * 300, [3], truth.ravel(), label.ravel(), label_clusters=names, draws=300, seed=i
        )
        covered += point.low <= truth_at <= point.high
    return covered / runs


def test_the_band_holds_the_truth_about_as_often_as_it_says():
    assert coverage(60) >= 0.86


@pytest.mark.slow
def test_the_band_holds_the_truth_as_often_as_it_says():
    assert 0.92 <= coverage(800) <= 0.98


def test_labels_without_a_mistake_still_leave_the_judge_uncertain():
    passes, tries = [3, 0, 1, 2] * 50, [4] * 200
    few, many = (corrected_curve(passes, tries, [4], [1] * n + [0] * n, [1] * n + [0] * n)[1][0] for n in (20, 2000))
    assert few.point == many.point
    assert few.high - few.low > 1.3 * (many.high - many.low)


def test_rates_come_from_the_labels():
    assert tuple(rates_of([1, 1, 0, 0, 0], [1, 0, 0, 0, 1])) == pytest.approx((0.5, 2 / 3))
    with pytest.raises(InputError, match="0 or 1"):
        rates_of([1, 2], [1, 0])
