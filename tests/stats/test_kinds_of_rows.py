"""Different rows and their counts are numpy's, whatever the rows hold."""

from __future__ import annotations

import numpy as np
import pytest

from kofn.stats.draws import distinct_rows

RNG = np.random.default_rng(0)
ROWS = {
    "0/1": RNG.integers(0, 2, (500, 6)).astype(float),
    "counts": RNG.integers(0, 7, (500, 3)).astype(float),
    "sparse counts": RNG.choice([0.0, 1.0, 50_000.0], (500, 3)),
    "weights": RNG.choice([0.0, 1.5, 2.25], (500, 4)),
    "below zero": RNG.integers(-2, 3, (500, 2)).astype(float),
    "one row": np.array([[3.0, 0.0]]),
    "no rows": np.zeros((0, 3)),
    "huge": RNG.choice([0.0, 1e300], (20, 2)),
}


@pytest.mark.parametrize("name", ROWS)
def test_kinds_of_rows_are_those_of_a_two_dimensional_unique(name):
    kinds, counts = distinct_rows(ROWS[name])
    expected, expected_counts = np.unique(ROWS[name], axis=0, return_counts=True)
    assert np.array_equal(kinds, expected)
    assert counts.tolist() == expected_counts.tolist()
