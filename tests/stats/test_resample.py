from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kofn.errors import InputError, UnknownName
from kofn.stats import bootstrap, bootstrap_mean, bootstrap_means, resampled_means, wilson
from kofn.stats.resample import METHODS

SPATIAL = [
    48,
    36,
    20,
    29,
    42,
    42,
    20,
    42,
    22,
    41,
    45,
    14,
    6,
    0,
    33,
    28,
    34,
    4,
    32,
    24,
    47,
    41,
    24,
    26,
    30,
    41,
]

levels = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
some_values = st.one_of(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=60),
    st.lists(levels, min_size=2, max_size=60),
    st.lists(st.floats(0, 1), min_size=2, max_size=60),
)


@given(x=some_values, method=st.sampled_from(METHODS))
@settings(max_examples=60)
def test_interval_stays_in_range_and_knows_no_order(x, method):
    ends = bootstrap_mean(x, method=method)
    assert 0 <= ends.low <= ends.high <= 1 + 1e-12
    again = bootstrap_mean(sorted(x), method=method)
    assert again[:2] == pytest.approx(ends[:2], abs=1e-9)
    assert again.method == ends.method


@given(x=some_values)
@settings(max_examples=60)
def test_percentile_interval_holds_the_mean(x):
    low, high, _ = bootstrap_mean(x)
    assert low - 1e-6 <= np.mean(x) <= high + 1e-6


@given(x=some_values, narrow=st.floats(0.5, 0.9), wide=st.floats(0.9, 0.999))
@settings(max_examples=60)
def test_higher_level_is_never_narrower(x, narrow, wide):
    inner, outer = bootstrap_mean(x, level=narrow), bootstrap_mean(x, level=wide)
    assert outer.low <= inner.low + 1e-12
    assert outer.high >= inner.high - 1e-12


@given(x=some_values, method=st.sampled_from(METHODS))
@settings(max_examples=40)
def test_weights_of_one_and_clusters_of_one_change_nothing(x, method):
    plain = bootstrap_mean(x, method=method)
    assert bootstrap_mean(x, method=method, weights=np.ones(len(x))) == plain
    assert bootstrap_mean(x, method=method, clusters=np.arange(len(x))) == plain


@given(x=st.lists(levels, min_size=8, max_size=30))
@settings(max_examples=25)
def test_mirrored_values_mirror_the_interval(x):
    ends, mirrored = bootstrap_mean(x), bootstrap_mean([1 - v for v in x])
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx(ends[:2], abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_zeros_or_ones_fall_back_to_wilson(value):
    assert bootstrap_mean([value] * 12) == wilson(12 * value, 12)
    clustered = bootstrap_mean([value] * 12, clusters=np.arange(12) // 3)
    assert clustered == wilson(4 * value, 4)
    weighted = bootstrap_mean([value] * 4, weights=[3, 1, 1, 1])
    kish = 36 / 12
    assert weighted[:2] == pytest.approx(wilson(kish * value, kish)[:2])


def test_equal_values_that_are_no_rate_are_degenerate():
    assert bootstrap_mean([0.5] * 12) == (0.5, 0.5, "degenerate")


def test_one_case_and_one_cluster_are_undefined():
    assert bootstrap_mean([0.5]).method == "none"
    assert math.isnan(bootstrap_mean([0.5, 0.7], clusters=["a", "a"]).low)
    assert bootstrap_mean([]).method == "none"


def test_cases_of_weight_zero_are_left_out():
    assert bootstrap_mean([1, 0, 1, 1, 0.5], weights=[1, 1, 1, 1, 0]) == bootstrap_mean([1, 0, 1, 1])


def test_clusters_widen_the_interval_when_their_cases_agree():
    x = np.repeat(np.random.default_rng(0).random(40) < 0.5, 5).astype(float)
    plain, clustered = bootstrap_mean(x), bootstrap_mean(x, clusters=np.arange(200) // 5)
    widths = clustered.high - clustered.low, plain.high - plain.low
    assert widths[0] / widths[1] == pytest.approx(math.sqrt(5), rel=0.1)


@pytest.mark.parametrize(("ours", "theirs"), [("percentile", "percentile"), ("bca", "BCa")])
def test_continuous_mean_matches_scipy(ours, theirs):
    x = np.random.default_rng(5).gamma(0.5, size=60)
    expected = stats.bootstrap(
        (x,), np.mean, n_resamples=40_000, method=theirs, rng=np.random.default_rng(1)
    ).confidence_interval
    found = bootstrap_mean(x, method=ours)
    tolerance = 0.06 * x.std() / math.sqrt(60)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=tolerance)


def test_expanded_uses_hesterbergs_tail():
    x = np.random.default_rng(7).normal(size=20)
    tail = stats.norm.cdf(math.sqrt(20 / 19) * stats.t.ppf(0.025, 19))
    assert bootstrap_mean(x, method="expanded")[:2] == pytest.approx(
        bootstrap_mean(x, level=1 - 2 * tail)[:2], abs=1e-9
    )


def test_bca_and_percentile_match_the_published_example():
    for method, low, high in (
        ("percentile", 97.8, 235.4),
        ("basic", 107.7, 245.3),
        ("bca", 116.9, 262.4),
    ):
        found = bootstrap(SPATIAL, np.var, level=0.9, method=method, n_resamples=8000)
        assert (found.low, found.high) == pytest.approx((low, high), abs=3.0)


def test_bootstrap_matches_the_oracle(oracle):
    entry = oracle("bootstrap.efron_spatial")
    for method, name in (("percentile", "percentile"), ("basic", "basic"), ("bca", "BCa")):
        found = bootstrap(entry["inputs"]["data"], np.var, level=0.9, method=method, n_resamples=4000)
        assert found[:2] == pytest.approx(entry["expected"]["scipy"][name], abs=entry["tol"])


def test_bootstrap_of_a_mean_agrees_with_the_computed_interval():
    x = np.random.default_rng(2).beta(2, 1, size=50)
    clusters = np.arange(50) // 2
    for options in ({}, {"clusters": clusters}):
        drawn = bootstrap(x, np.mean, n_resamples=4000, **options)
        assert drawn[:2] == pytest.approx(bootstrap_mean(x, **options)[:2], abs=0.01)


def test_bca_is_undefined_where_every_resample_lies_on_one_side():
    distinct = bootstrap(range(40), lambda x: len(set(x.tolist())), method="bca", n_resamples=200)
    assert distinct.method == "none"


def test_same_seed_same_numbers():
    one, two, other = (bootstrap(SPATIAL, np.median, n_resamples=99, seed=s) for s in (3, 3, 4))
    assert one == two
    assert one != other


def test_columns_share_each_resample():
    x = np.random.default_rng(0).random(80)
    draws = resampled_means(np.column_stack([x, 1 - x, 2 * x]), n_resamples=50)
    assert draws[:, 0] + draws[:, 1] == pytest.approx(1)
    assert draws[:, 2] == pytest.approx(2 * draws[:, 0])


@pytest.mark.parametrize("method", METHODS)
def test_means_at_once_agree_with_means_alone(method):
    rng = np.random.default_rng(1)
    m = np.column_stack([rng.random(200), rng.random(200) < 0.3, np.zeros(200)])
    clusters, weights = np.arange(200) // 2, rng.random(200) + 0.5
    together = bootstrap_means(m, method=method, clusters=clusters, weights=weights)
    for column, ends in zip(m.T, together, strict=True):
        alone = bootstrap_mean(column, method=method, clusters=clusters, weights=weights)
        assert ends.method == alone.method
        assert ends[:2] == pytest.approx(alone[:2], abs=0.006)


def test_bad_input_is_refused_in_one_line():
    with pytest.raises(InputError, match="NaN"):
        bootstrap_mean([1, float("nan")])
    with pytest.raises(InputError, match="non-negative"):
        bootstrap_mean([1, 0], weights=[1, -1])
    with pytest.raises(InputError, match="shape"):
        bootstrap_mean([[1, 0]])
    with pytest.raises(InputError, match="cluster names"):
        bootstrap_mean([1, 0], clusters=["a"])
    with pytest.raises(InputError, match="row for each case"):
        bootstrap_means([1.0, 2.0])
    with pytest.raises(UnknownName, match="percentile"):
        bootstrap_mean([1, 0], method="percentil")


@pytest.mark.parametrize("n_resamples", [0, -1, 2.5, 1000.0, True, None])
@pytest.mark.parametrize(
    "call",
    [
        lambda k: bootstrap_mean([1, 0], n_resamples=k),
        lambda k: bootstrap_means([[1, 0], [0, 1]], n_resamples=k),
        lambda k: resampled_means([[1, 0], [0, 1]], n_resamples=k),
        lambda k: bootstrap([1, 0], np.mean, n_resamples=k),
    ],
)
def test_bad_numbers_of_resamples_are_refused(call, n_resamples):
    with pytest.raises(InputError, match="n_resamples must be a whole number of at least 1") as refusal:
        call(n_resamples)
    assert "\n" not in str(refusal.value)


def test_bca_of_one_resample_is_undefined():
    assert bootstrap_means([[0.1], [0.2], [0.9]], method="bca", n_resamples=1)[0].method == "none"
    assert bootstrap_mean([1, 0, 1], n_resamples=np.int64(5)).method == "bootstrap"
