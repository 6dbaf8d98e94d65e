"""Nominal 95% intervals of corrected rates against seeded simulations; the full table is in docs/calibrate.md."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import calibration

RUNS = 2000
NOISE = 3 * np.sqrt(0.95 * 0.05 / RUNS)  # of a simulated share, three standard errors


@pytest.mark.slow
@pytest.mark.parametrize(("group", "design"), calibration.settings())
@pytest.mark.parametrize(("labels", "judged"), calibration.SIZES)
def test_corrected_intervals_cover(labels, judged, group, design):
    for rates in calibration.RATES:
        cell = calibration.cell(labels, judged, group, design, rates, RUNS, seed=1)
        assert 0.93 - NOISE <= cell.covered["auto"] <= 0.97 + NOISE, cell


@pytest.mark.long(quick=6)
@pytest.mark.parametrize(("group", "design"), calibration.settings())
@pytest.mark.parametrize(("labels", "judged"), calibration.SIZES)
def test_corrected_intervals_cover_in_a_few_runs(labels, judged, group, design):
    """250 runs of one setting: within three standard errors of 93 to 97%."""
    cell = calibration.cell(labels, judged, group, design, (0.5, 0.95, 0.9), 250, seed=2)
    noise = 3 * np.sqrt(0.95 * 0.05 / 250)
    assert 0.93 - noise <= cell.covered["auto"] <= 0.97 + noise, cell


def test_an_interval_that_takes_the_rates_as_exact_does_not_cover():
    """What ignoring the labels' own uncertainty costs, and that the simulation can tell."""
    from kofn.stats import Confusion, corrected_with_known_rates

    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        human, judge, _ = calibration.drawn(rng, 50, 1, (0.5, 0.8, 0.8))
        judged = calibration.drawn(rng, 1000, 1, (0.5, 0.8, 0.8))[1]
        c = Confusion.of(human, judge)
        found = corrected_with_known_rates(judged, c.sensitivity, c.specificity)
        covered.append(found.low <= 0.5 <= found.high)
    assert np.mean(covered) < 0.7
