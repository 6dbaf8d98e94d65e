"""Aggregators of selection: the value of the candidate that a selector ranks first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kofn.aggregators.base import Aggregator, positive
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kofn.core.candidate_sets import CandidateSets, Floats


@dataclass(frozen=True, slots=True)
class Selected(Aggregator, label="selected", needs=("selectors",), of_values=True):
    """Value of the candidate the selector ranks first; equal scores share.

    `by` names the selector when there are several. Candidates without a selector score cannot be picked; a
    pick that was not graded makes the set undefined. any_pass minus selected is the headroom of the selector.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0, 1, 1], [1, 0, 0]], selectors={"judge": [[.2, .9, .1], [.5, .5, .1]]})
    >>> Selected()(sets).tolist()
    [1.0, 0.5]
    """

    by: str = ""

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(values: Floats, scores: Floats) -> Floats:
            scores = np.where(np.isnan(scores), -np.inf, scores)
            best = scores.max(axis=0)
            picked = (scores == best) & np.isfinite(best)
            count = picked.sum(axis=0)
            # a picked NaN value makes the sum NaN, which is the rule
            total = np.where(picked, values, 0.0).sum(axis=0)
            return np.where(count > 0, total / np.maximum(count, 1), np.nan)

        return sets.map_blocks(kernel, sets.values, selector_scores(sets, self.by))


@dataclass(frozen=True, slots=True)
class SelectedAt(Aggregator, label="selected_at", needs=("selectors",), of_values=True):
    """Expected value of the selector's pick from k candidates drawn without replacement; undefined for k > n.

    In closed form: with the candidates in the order of their selector scores the j-th is picked with chance
    C(n-j,k-1)/C(n,k); equal scores share theirs. selected@n is `selected`, selected@1 the mean. Candidates without a
    selector score cannot be picked: a draw of nothing but those is left out of the expectation. A candidate that may be
    picked but was not graded makes the set undefined.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0, 1, 1], [1, 0, 0]], selectors={"judge": [[.9, .5, .1], [.5, .5, .1]]})
    >>> [SelectedAt(k)(sets).round(3).tolist() for k in (1, 2, 3, 4)]
    [[0.667, 0.333], [0.333, 0.5], [0.0, 0.5], [nan, nan]]
    """

    k: int
    by: str = ""

    def __post_init__(self) -> None:
        positive("selected@k", self.k)

    @property
    def name(self) -> str:
        return f"selected_at(k={self.k}, by={self.by!r})" if self.by else f"selected@{self.k}"

    def compute(self, sets: CandidateSets) -> Floats:
        return sets.map_blocks(lambda v, s: best_of_draws(v, s, self.k), sets.values, selector_scores(sets, self.by))


def best_of_draws(values: Floats, scores: Floats, k: int) -> Floats:
    """The expected value of the best-scored of k rows drawn without replacement; arrays are (candidate, set).

    With values that are the scores it is the expected largest of k. Rows without a score (NaN) are never the best.

    >>> seconds = np.array([[1.0], [2.0], [4.0]])
    >>> [round(float(best_of_draws(seconds, seconds, k)[0]), 3) for k in (1, 2, 3)]
    [2.333, 3.333, 4.0]
    """
    n = len(values)
    if k > n:
        return np.full(values.shape[1], np.nan)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    order = np.argsort(-scores, axis=0, kind="stable")
    chance = _shared_chances(np.take_along_axis(scores, order, axis=0), unseen_top(n, k))
    worth = np.where(chance > 0, np.take_along_axis(values, order, axis=0), 0.0)  # a NaN that may be picked stays
    picked = chance.sum(axis=0)
    return np.where(picked > 0, (chance * worth).sum(axis=0) / np.where(picked > 0, picked, 1.0), np.nan)


def unseen_top(n: int, k: int) -> Floats:
    """The chance that k drawn of n hold none of the top r, C(n-r,k)/C(n,k), for r = 0 to n; a product, so no overflow.

    >>> unseen_top(4, 2).round(3).tolist()
    [1.0, 0.5, 0.167, 0.0, 0.0]
    """
    r = np.arange(n)
    return np.concatenate([[1.0], np.cumprod(np.maximum(n - r - k, 0) / (n - r))])


def _shared_chances(scores: Floats, unseen: Floats) -> Floats:
    """For scores sorted from the best: the chance of each to be the pick, shared within a block of equal ones."""
    n, places = len(scores), np.arange(len(scores))[:, None]
    new = np.ones(scores.shape, dtype=bool)
    new[1:] = scores[1:] != scores[:-1]
    last = np.ones(scores.shape, dtype=bool)
    last[:-1] = new[1:]
    start = np.maximum.accumulate(np.where(new, places, 0), axis=0)
    stop = np.minimum.accumulate(np.where(last, places + 1, n)[::-1], axis=0)[::-1]
    shared = (unseen[start] - unseen[stop]) / (stop - start)
    return np.where(np.isneginf(scores), 0.0, shared)


def selector_scores(sets: CandidateSets, by: str) -> Floats:
    """The selector column named `by`; the only one when `by` is empty."""
    if by in sets.selectors:
        return sets.selectors[by]
    if by:
        raise UnknownName("selector", by, list(sets.selectors))
    if len(sets.selectors) > 1:
        raise InputError(f"several selectors: name one of {', '.join(sets.selectors)} with by=")
    return next(iter(sets.selectors.values()))
