from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError, UnknownName
from kofn.stats import INTERVALS, bootstrap_mean, estimate, segment_estimates, t_interval, wilson
from kofn.stats.estimates import BOOTSTRAPS, choose_interval, rarer_side, suitable_interval


def test_missing_values_are_left_out_and_counted():
    e = estimate([1, None, 0, float("nan"), 1], aggregator="any_pass", metric="exact", interval="bootstrap")
    assert (e.n, e.n_missing, e.aggregator, e.metric) == (3, 2, "any_pass", "exact")
    assert e.point == pytest.approx(2 / 3)
    assert (e.low, e.high) == bootstrap_mean([1, 0, 1])[:2]
    assert e.method == "bootstrap"


@pytest.mark.parametrize("values", [[], [None, None]])
def test_no_case_has_no_point(values):
    e = estimate(values)
    assert (e.point, e.low, e.high, e.n, e.n_missing, e.method) == (None, None, None, 0, len(values), "none")


def test_one_case_has_an_interval_only_as_a_rate():
    assert (estimate([0.4]).point, estimate([0.4]).low) == (0.4, None)
    assert estimate([1]).low == wilson(1, 1).low
    assert estimate([1]).method == "wilson"


def test_weights_move_the_point():
    e = estimate([1, 0, None], weights=[3, 1, 8])
    assert e.point == 0.75
    assert e.n == 2
    assert estimate([1, 0], weights=[0, 0]).point is None


def test_each_interval_is_labelled_by_its_method():
    x = [1, 0, 1, 1, 0, 1, 0, 1]
    for interval in INTERVALS:
        e = estimate(x, interval=interval, clusters=range(8) if interval == "cluster" else None)
        assert e.method == ("wilson" if interval == "auto" else interval)
        assert e.low < e.point < e.high
    assert (estimate(x, interval="t").low) == t_interval(x).low


def test_auto_is_the_percentile_bootstrap_except_where_that_is_known_to_fail():
    rate = np.repeat([0.0, 1.0], [10, 40])
    assert estimate(rate).method == "bootstrap"
    assert estimate(rate) == estimate(rate, interval="bootstrap")
    assert estimate(np.repeat([0.0, 1.0], [9, 400])).method == "wilson"
    spread = np.linspace(0, 1, 100)
    assert estimate(spread).method == "bootstrap"
    assert estimate(spread[:99]).method == "bca"
    assert estimate(spread[:14]).method == "expanded"
    assert estimate(rate, weights=np.arange(50) + 1.0).method == "bca"
    assert estimate(np.tile(spread, 2), clusters=np.arange(200) // 10).method == "bca"


def test_clusters_follow_their_cases_when_values_are_missing():
    x = np.array([1, np.nan, 0.5, 0, 0.25, 1])
    clusters = ["a", "a", "b", "b", None, "c"]
    e = estimate(x, clusters=clusters, interval="bootstrap")
    kept = ~np.isnan(x)
    expected = bootstrap_mean(x[kept], clusters=np.array(clusters, dtype=object)[kept])
    assert (e.low, e.high) == expected[:2]


def test_mistakes_are_named():
    with pytest.raises(InputError, match="'wilson' is for 0/1 values only: use 'bootstrap'"):
        estimate([0.5, 1], interval="wilson")
    with pytest.raises(UnknownName, match="did you mean wilson"):
        estimate([0, 1], interval="wilsn")
    with pytest.raises(InputError, match="for 95%"):
        estimate([0, 1], level=95)
    with pytest.raises(InputError, match="needs clusters"):
        estimate([0, 1], interval="cluster")
    with pytest.raises(InputError, match="knows no clusters"):
        estimate([0, 1], interval="t", weights=[1, 2])
    with pytest.raises(InputError, match="2 values but 3 weights"):
        estimate([0, 1], weights=[1, 2, 3])


def test_segments_are_sorted_and_the_nameless_kept():
    found = segment_estimates(
        [1, 0, 1, 0.5], ["b", None, "a", "b"], aggregator="mean", weights=[1, 1, 1, 3], interval="bootstrap"
    )
    assert [(e.segment, e.n) for e in found] == [("(none)", 1), ("a", 1), ("b", 2)]
    assert found[2].point == (1 + 1.5) / 4
    assert found[2].aggregator == "mean"
    with pytest.raises(InputError, match="segments"):
        segment_estimates([1, 0], ["a"])


def test_recipe_is_carried():
    assert estimate([1, 0], recipe={"seed": 3}).recipe == {"seed": 3}


@given(st.lists(st.sampled_from([0.0, 1.0]) | st.floats(-2, 3), min_size=1, max_size=200), st.booleans(), st.booleans())
def test_the_interval_chosen_is_one_that_the_values_can_have(values, rate, clustered):
    x = np.array(values)
    clusters = np.arange(x.size) // 2 if clustered else None
    units = x.size if clusters is None else np.unique(clusters).size
    rarer = rarer_side(x) if rate else None
    for closed in (False, True):
        chosen = choose_interval(units, plain=not clustered, rarer=rarer, closed=closed)
        assert chosen in INTERVALS
        assert (chosen in BOOTSTRAPS) <= (not closed)
        assert suitable_interval(chosen, rate=rarer is not None, plain=not clustered) == chosen
        estimate(x, interval=chosen, clusters=clusters, rate=rate, n_resamples=20)  # does not refuse it
    assert (rarer is None) or rarer == min(x.sum(), x.size - x.sum())


@pytest.mark.parametrize("interval", INTERVALS)
def test_an_interval_that_is_not_for_such_values_gives_way_to_auto(interval):
    for rate, plain in itertools.product((False, True), repeat=2):
        x = np.array([0.0, 1.0, 1.0] if rate else [0.0, 0.5, 1.0])
        weights = None if plain else [1.0, 2.0, 3.0]
        found = suitable_interval(interval, rate=rate, plain=plain)
        estimate(x, weights=weights, clusters=[0, 1, 2] if found == "cluster" else None, interval=found)
        if found != interval:
            assert found == "auto"
            with pytest.raises(InputError):
                estimate(x, weights=weights, interval=interval)
    assert suitable_interval(interval, resampled=True) in ("auto", *BOOTSTRAPS)
