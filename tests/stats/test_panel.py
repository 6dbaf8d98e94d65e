"""Several judges without labels: laws of Dawid and Skene's EM, kappas, and bias by position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kofn.errors import InputError
from kofn.stats import Confusion, cohen_kappa, dawid_skene, fleiss_kappa, position_bias

TABLES = arrays(np.int64, st.tuples(st.integers(3, 25), st.integers(2, 5)), elements=st.integers(-1, 2))


@given(TABLES)
def test_the_likelihood_never_falls_and_everything_is_a_probability(votes):
    votes = votes[(votes >= 0).any(axis=1)]
    if not len(votes):
        return
    found = dawid_skene(votes, n_classes=3, max_steps=60)
    steps = np.diff(found.log_likelihoods)
    assert (steps >= -1e-7).all()
    assert found.posterior.sum(axis=1) == pytest.approx(1)
    assert found.confusion.sum(axis=2) == pytest.approx(np.ones(found.confusion.shape[:2]))
    again = dawid_skene(votes, n_classes=3, max_steps=60)
    assert (again.posterior == found.posterior).all()


def test_rates_of_judges_are_found_without_labels_and_with_missing_verdicts():
    rng = np.random.default_rng(2)
    truth = (rng.random(4000) < 0.4).astype(int)
    s, t = np.array([0.9, 0.8, 0.7, 0.95]), np.array([0.85, 0.9, 0.75, 0.6])
    votes = np.where(truth[:, None] == 1, rng.random((4000, 4)) < s, rng.random((4000, 4)) >= t).astype(int)
    votes[rng.random(votes.shape) < 0.2] = -1
    keep = (votes >= 0).any(axis=1)
    found = dawid_skene(votes[keep])
    assert found.converged
    assert found.sensitivity == pytest.approx(s, abs=0.04)
    assert found.specificity == pytest.approx(t, abs=0.04)
    majority = np.where(votes[keep] < 0, 0, 2 * votes[keep] - 1).sum(axis=1) > 0
    right = (found.posterior.argmax(axis=1) == truth[keep]).mean()
    assert right > (majority == truth[keep]).mean()


def test_votes_that_are_none_are_refused():
    with pytest.raises(InputError, match="no verdict at all"):
        dawid_skene([[1, 0], [-1, -1]])
    with pytest.raises(InputError, match="whole numbers"):
        dawid_skene([[0.5, 1.0]])
    with pytest.raises(InputError, match="n_classes"):
        dawid_skene([[0, 3]], n_classes=2)


def test_kappa_of_two_verdicts_is_the_one_of_the_confusion():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    assert cohen_kappa(a, b) == pytest.approx(Confusion.of(a, b).kappa)
    assert np.isnan(cohen_kappa([1, 1], [1, 1]))
    assert cohen_kappa([0, 1, -1], [0, 1, 1]) == 1.0


def test_fleiss_kappa_of_the_worked_example_of_1971():
    """Ten subjects, fourteen raters, five categories, as in the encyclopedias: 0.210."""
    counts = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
              [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]  # fmt: skip
    votes = [np.repeat(np.arange(5), row) for row in counts]
    assert fleiss_kappa(np.array(votes)) == pytest.approx(0.210, abs=5e-4)


def test_position_bias_counts_pairs_not_verdicts():
    found = position_bias([1, 1, 1, 1, np.nan], [1, 1, 1, -1, 1])
    assert (found.n, found.n_missing) == (4, 1)
    assert found.consistent.point == 0.25
    assert found.first_shown.point == pytest.approx(7 / 8)
    assert (found.wins, found.ties, found.losses) == (1, 3, 0)
    with pytest.raises(InputError, match="a verdict is 1"):
        position_bias([2], [1])


def test_an_unbiased_judge_prefers_the_first_shown_half_of_the_time():
    rng = np.random.default_rng(1)
    better = rng.choice([-1, 1], 400)
    found = position_bias(better, -better)
    assert found.consistent.point == 1.0
    assert found.first_shown.point == 0.5
    assert found.ties == 0
