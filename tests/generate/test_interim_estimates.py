"""Estimates while a run is going: numbers as at its end, with intervals that are honest of few cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kofn.core.types import Case
from kofn.generate.interim_estimates import InterimEstimates, closed_interval
from kofn.stats import estimate

SHARES = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=60)
RATES = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)


def cases(n, **more):
    return [Case(id=str(i), **{name: of[i] for name, of in more.items()}) for i in range(n)]


def added(values, sizes=(), rate=True, **more):
    """The values in pieces of these sizes, and then the rest."""
    found, every, x = InterimEstimates(), cases(len(values), **more), np.array(values, dtype=float)
    for size in (*sizes, len(values)):
        if len(x):
            found.add(every[:size], {"mean": x[:size]}, {"mean": rate})
            every, x = every[size:], x[size:]
    return found


@given(RATES)
def test_of_plain_rates_the_interval_is_wilsons(values):
    (found,) = added(values).estimates()
    same = estimate(values, interval="wilson")
    assert (found.point, found.low, found.high, found.n) == (same.point, same.low, same.high, same.n)


@given(SHARES)
def test_of_shares_it_is_students_t_within_0_and_1(values):
    (found,) = added(values).estimates()
    assume(np.ptp(values) > 1e-9 and not set(values) <= {0.0, 1.0})
    same = estimate(values, interval="t")
    assert found.point == pytest.approx(same.point)
    assert found.low == pytest.approx(max(0.0, same.low), abs=1e-9)
    assert found.high == pytest.approx(min(1.0, same.high), abs=1e-9)


@given(SHARES)
def test_no_interval_has_no_width_and_every_one_holds_its_point(values):
    (found,) = added(values).estimates()
    if found.low is None:
        assert np.ptp(values) < 1e-9  # only of values that are all equal is nothing said
        assert found.high is None
    else:
        assert 0 <= found.low <= found.point + 1e-9
        assert found.point - 1e-9 <= found.high <= 1
        assert found.low < found.high


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_nothing_but_failures_or_successes_leaves_room_for_others(n, value):
    (found,) = added([value] * n).estimates()
    assert found.method == "wilson"
    assert found.high - found.low > 1 / (n + 8)
    (other,) = added([value] * n, rate=False).estimates()  # a count of 1 is no 100%
    assert (other.low, other.method) == (None, "none")


@given(SHARES, st.lists(st.integers(1, 20), max_size=6))
def test_in_which_pieces_the_cases_come_does_not_matter(values, sizes):
    assert added(values, sizes).estimates() == added(values).estimates()


def test_cases_without_a_value_are_counted_and_left_out():
    found = InterimEstimates()
    found.add(cases(3), {"mean": np.array([1.0, np.nan, 0.0])}, {"mean": True})
    found.add(cases(2), {"mean": np.array([1.0, 1.0]), "majority": np.array([1.0, np.nan])}, {"mean": True})
    mean, majority = found.estimates()
    assert (mean.point, mean.n, mean.n_missing) == (0.75, 4, 1)
    assert (majority.point, majority.n, majority.n_missing) == (1.0, 1, 4)
    nothing = InterimEstimates()
    nothing.add(cases(1), {"mean": np.array([np.nan])}, {"mean": True})
    assert nothing.estimates() == ()


def test_weights_and_clusters_count_as_at_the_end():
    values, weights = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [1.0, 2.0, 1.0, 3.0, 1.0, 1.0]
    names = ["a", "a", "b", None, None, "b"]
    codes = [0, 0, 1, -4, -5, 1]
    (found,) = added(values, [2, 2], weight=weights, cluster=names).estimates()
    same = estimate(values, interval="cluster", weights=weights, clusters=codes)
    assert found.point == pytest.approx(same.point)
    assert (found.low, found.high) == pytest.approx((max(0, same.low), min(1, same.high)))
    (alone,) = added([1.0, 1.0, 1.0], cluster=["a", "a", "a"]).estimates()
    assert alone.low == pytest.approx(estimate([1.0], interval="wilson").low)  # three of one cluster are one


def test_intervals_of_few_cases_cover_what_they_should():
    """Nine in ten of all intervals at 95% hold the truth, of rates and of shares of four, from three cases on."""
    rng = np.random.default_rng(3)
    for n in (3, 8, 30):
        for truth in (0.1, 0.5, 0.9):
            for draws in (rng.binomial(1, truth, (400, n)) / 1.0, rng.binomial(4, truth, (400, n)) / 4):
                ends = [closed_interval(x, rate=True) for x in draws]
                covered = [not e.low > truth and not e.high < truth for e in ends]  # none at all holds everything
                assert np.mean(covered) > 0.8 if n == 3 else np.mean(covered) > 0.88, (n, truth)
