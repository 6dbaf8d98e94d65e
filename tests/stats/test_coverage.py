"""Nominal 95% intervals against seeded simulations; the full table is docs/coverage.md."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import coverage

from kofn.stats import DEFAULT_INTERVAL, estimate
from kofn.stats.paired import DIFFERENCES

RUNS = 2000
NOISE = 3 * np.sqrt(0.93 * 0.07 / RUNS)  # of a simulated share, three standard errors
DEFAULT = DIFFERENCES[DEFAULT_INTERVAL]


def check(cell, method, low=0.93, high=0.97):
    assert low - NOISE <= cell.covered[method] <= high + NOISE, (cell, method)


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 300, 1000])
def test_default_interval_covers_means_of_repeats(n):
    for cell in coverage.cells(RUNS, seed=7, sizes=(n,), aggregators=("mean",)):
        if cell.repeats > 1:
            check(cell, DEFAULT)


@pytest.mark.slow
def test_bca_interval_covers_means_of_repeats_of_thirty_cases():
    for cell in coverage.cells(RUNS, seed=7, sizes=(30,), aggregators=("mean",)):
        if cell.repeats > 1:
            check(cell, "bca")


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 1000])
def test_default_interval_covers_rates_that_are_not_rare(n):
    for cell in coverage.cells(RUNS, seed=8, sizes=(n,), aggregators=("any", "majority")):
        if "wilson" in cell.covered and coverage.rare(cell) >= 20:
            check(cell, DEFAULT)


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 100, 300, 1000])
def test_wilson_interval_covers_rates_with_five_or_more_of_the_rarer(n):
    for cell in coverage.cells(RUNS, seed=9, sizes=(n,), aggregators=("any", "majority")):
        if coverage.rare(cell) >= 5:
            check(cell, "wilson")


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 1000])
def test_intervals_cover_with_clusters_and_expose_ignoring_them(n):
    for cell in coverage.clustered_cells(RUNS, sizes=(n,)):
        check(cell, "expanded", low=0.92)
        assert cell.covered["ignoring clusters"] < 0.85


@pytest.mark.slow
def test_interval_covers_a_weighted_mean():
    for cell in coverage.weighted_cells(RUNS, sizes=(1000,)):
        check(cell, DEFAULT)


def test_interval_of_estimate_covers_a_mean_of_repeats():
    """The whole path, briefly: 4 repeats of 100 cases of unequal difficulty."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        values = rng.binomial(4, rng.beta(1, 1, size=100)) / 4
        e = estimate(values)
        covered.append(e.low <= 0.5 <= e.high)
    assert 0.92 <= np.mean(covered) <= 0.98
