from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kofn.errors import InputError, UnknownName
from kofn.stats import (
    clopper_pearson,
    cluster_robust,
    clustered_se,
    jeffreys,
    normal_interval,
    t_interval,
    wilson,
)

BALANCED = [1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 1]
BALANCED_CLUSTERS = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
RATES = [wilson, clopper_pearson, jeffreys]

counts = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("interval", "low", "high"),
    [
        (wilson, 0.1646876, 0.2212409),
        (clopper_pearson, 0.1636684, 0.2215588),
        (jeffreys, 0.1643017, 0.2208498),
    ],
)
def test_rate_intervals_match_the_published_example(interval, low, high):
    assert interval(142, 742)[:2] == pytest.approx((low, high), abs=1e-6)


def test_rate_intervals_match_the_oracle(oracle):
    entry = oracle("binom_ci.142_742")
    x, n, level = (entry["inputs"][key] for key in ("x", "n", "level"))
    for interval, name in zip(RATES, ("wilson", "exact", "jeffreys"), strict=True):
        assert interval(x, n, level)[:2] == pytest.approx(entry["expected"][name], abs=entry["tol"])


@pytest.mark.parametrize("interval", RATES)
@given(count=counts, level=st.floats(0.5, 0.999))
def test_rate_intervals_hold_the_rate_and_mirror(interval, count, level):
    x, n = count
    low, high, _ = interval(x, n, level)
    assert 0 <= low <= x / n + 1e-12
    assert x / n - 1e-12 <= high <= 1
    mirrored = interval(n - x, n, level)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize("interval", RATES)
def test_rate_intervals_touch_the_ends_exactly_and_keep_width(interval):
    assert interval(0, 20).low == 0.0 < interval(0, 20).high
    assert interval(20, 20).high == 1.0 > interval(20, 20).low


@pytest.mark.parametrize("interval", RATES)
@pytest.mark.parametrize(("x", "n"), [(3, 2), (-1, 2), (0, 0)])
def test_impossible_counts_are_refused(interval, x, n):
    with pytest.raises(InputError, match="between 0 and n"):
        interval(x, n)


@given(count=counts)
def test_rate_intervals_match_scipy(count):
    x, n = count
    test = stats.binomtest(x, n)
    for ours, theirs in ((wilson, "wilson"), (clopper_pearson, "exact")):
        expected = test.proportion_ci(0.95, method=theirs)
        assert ours(x, n)[:2] == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_t_and_normal_intervals_match_scipy():
    x = np.random.default_rng(0).normal(size=25)
    se = stats.sem(x)
    assert t_interval(x)[:2] == pytest.approx(stats.t.interval(0.95, 24, x.mean(), se))
    assert normal_interval(x)[:2] == pytest.approx(stats.norm.interval(0.95, x.mean(), se))


def test_intervals_of_one_value_are_undefined():
    for interval in (t_interval, normal_interval):
        assert math.isnan(interval([0.3]).low)
        assert interval([0.3]).method == "none"


def test_clustered_se_matches_statsmodels_and_inspect():
    assert clustered_se(BALANCED, BALANCED_CLUSTERS, "CR0") == pytest.approx(0.15202339001321843, abs=1e-12)
    assert clustered_se(BALANCED, BALANCED_CLUSTERS) == pytest.approx(0.16996731711975954, abs=1e-12)


def test_clustered_se_matches_the_oracle(oracle):
    entry = oracle("clustered_se.balanced")
    values, clusters = entry["inputs"]["values"], entry["inputs"]["cluster"]
    expected = entry["expected"]
    assert clustered_se(values, clusters, "CR0") == pytest.approx(expected["statsmodels_CR0"], abs=1e-12)
    assert clustered_se(values, clusters) == pytest.approx(expected["statsmodels_CR1"], abs=1e-12)


def test_clustered_se_of_balanced_clusters_is_that_of_their_means():
    means = np.array(BALANCED).reshape(5, 3).mean(axis=1)
    assert clustered_se(BALANCED, BALANCED_CLUSTERS) == pytest.approx(stats.sem(means))
    assert cluster_robust(BALANCED, BALANCED_CLUSTERS)[:2] == pytest.approx(t_interval(means)[:2])


def test_one_cluster_tells_nothing_about_the_others():
    assert math.isnan(clustered_se([1, 0, 1], ["a"] * 3))
    assert cluster_robust([1, 0, 1], ["a"] * 3).method == "none"


def test_cases_without_a_cluster_stand_alone():
    assert clustered_se([1, 0, 1, 0], [None] * 4) == pytest.approx(stats.sem([1, 0, 1, 0]))


def test_unknown_kind_and_mismatched_clusters_are_refused():
    with pytest.raises(UnknownName):
        clustered_se([1, 0], [0, 1], "CR9")
    with pytest.raises(InputError, match="cluster names"):
        clustered_se([1, 0], [0, 1, 2])
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        wilson(1, 2, level=95)
