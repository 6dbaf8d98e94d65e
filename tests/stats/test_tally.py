"""A tally says of its cases what the cases themselves say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError
from kofn.stats import estimates as tallies
from kofn.stats.estimates import INTERVALS, Tally, estimate, estimate_tally, merge_tallies

VALUES = st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0, float("nan")]), min_size=1, max_size=60)
KINDS = {
    "0/1": lambda rng: rng.integers(0, 2, 3000).astype(float),
    "rare": lambda _: (np.arange(3000) < 4).astype(float),
    "all 1": lambda _: np.ones(3000),
    "all alike": lambda _: np.full(3000, 0.5),
    "ninths": lambda rng: rng.integers(0, 10, 3000) / 9,
    "continuous": lambda rng: rng.random(3000),
    "skewed": lambda rng: np.exp(3 * rng.standard_normal(3000)),
}


@given(VALUES, st.lists(st.integers(0, 60), max_size=4))
def test_tallies_of_parts_add_up_to_the_tally_of_the_whole(values, cuts):
    x = np.array(values)
    parts = [Tally.of(part) for part in np.split(x, sorted(min(cut, len(values)) for cut in cuts))]
    whole, summed = Tally.of(x), merge_tallies(parts)
    assert summed.values.tolist() == whole.values.tolist()
    assert summed.counts.tolist() == whole.counts.tolist()
    assert summed.n_missing == whole.n_missing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "interval", [i for i in INTERVALS if i not in ("cluster", "wilson", "clopper_pearson", "jeffreys")]
)
def test_an_estimate_from_many_cases_is_that_of_the_cases_written_out(kind, interval, monkeypatch):
    x = KINDS[kind](np.random.default_rng(1))
    monkeypatch.setattr(tallies, "EXPANDED_UP_TO", 0)
    for rate in (True, False):
        ours, cases = (
            estimate_tally(Tally.of(x), interval=interval, rate=rate),
            estimate(x, interval=interval, rate=rate),
        )
        assert (ours.n, ours.method) == (cases.n, cases.method)
        assert ours.point == pytest.approx(cases.point, rel=1e-12)
        assert (ours.low is None) == (cases.low is None)
        if cases.low is not None:
            width = cases.high - cases.low
            assert ours.low == pytest.approx(cases.low, abs=1e-6 * width)
            assert ours.high == pytest.approx(cases.high, abs=1e-6 * width)


@pytest.mark.parametrize("interval", ["wilson", "clopper_pearson", "jeffreys"])
def test_intervals_for_rates_are_those_of_the_counts(interval, monkeypatch):
    x = KINDS["0/1"](np.random.default_rng(2))
    monkeypatch.setattr(tallies, "EXPANDED_UP_TO", 0)
    assert estimate_tally(Tally.of(x), interval=interval).high == estimate(x, interval=interval).high
    with pytest.raises(InputError, match="0/1 values only"):
        estimate_tally(Tally.of(x / 2 + 0.1), interval=interval)


def test_no_case_with_a_value_has_no_point():
    nothing = estimate_tally(Tally.of(np.array([np.nan, np.nan])))
    assert (nothing.point, nothing.n, nothing.n_missing, nothing.method) == (None, 0, 2, "none")
