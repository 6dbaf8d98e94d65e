"""Aggregators of values (first, mean, median, max, min, std, weighted), and of the candidate a selector ranks first.

Candidates that were not graded are left out. `first` is about one particular candidate: when that one is not
graded the result is undefined, since taking the second would answer another question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kofn.aggregators.base import Aggregator, positive
from kofn.core.candidate_sets import NOT_GRADED
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kofn.core.candidate_sets import CandidateSets, Floats


@dataclass(frozen=True, slots=True)
class First(Aggregator, label="first", ordered=True, of_values=True):
    """Value of the first candidate."""

    def compute(self, sets: CandidateSets) -> Floats:
        if sets.equal_size is not None:
            return sets.values[:: sets.equal_size].copy()
        out = np.full(len(sets), np.nan)
        some = sets.sizes > 0
        out[some] = sets.values[sets.offsets[:-1][some]]
        return out


@dataclass(frozen=True, slots=True)
class Mean(Aggregator, label="mean", of_values=True):
    """Mean of the values.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> Mean()(CandidateSets.from_lists([[0.5, 0.8, 0.3, 0.9, 0.6], [1.0, None]])).round(2).tolist()
    [0.62, 1.0]
    """

    def compute(self, sets: CandidateSets) -> Floats:
        if sets.binary:  # its counts are computed once for all aggregators
            n, c = sets.counts
            share: Floats = np.divide(c, n, out=np.full(len(sets), np.nan), where=n > 0)
            return share
        if sets.complete:
            return sets.map_blocks(lambda v: np.add.reduce(v, axis=0) / len(v), sets.values)
        return sets.map_blocks(_mean_graded, sets.values)


@dataclass(frozen=True, slots=True)
class Median(Aggregator, label="median", of_values=True):
    """Median of the values; the mean of the middle two when there is an even number."""

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(v: Floats) -> Floats:
            ordered = np.sort(v, axis=0)  # NaN sorts last
            n = (~np.isnan(v)).sum(axis=0)
            at = np.arange(v.shape[1])
            low, high = np.maximum(n - 1, 0) // 2, np.minimum(n // 2, len(v) - 1)
            return np.where(n > 0, (ordered[low, at] + ordered[high, at]) / 2, np.nan)

        return sets.map_blocks(kernel, sets.values)


@dataclass(frozen=True, slots=True)
class Max(Aggregator, label="max", of_values=True):
    """Best value: the largest, or the smallest when lower is better."""

    def compute(self, sets: CandidateSets) -> Floats:
        return _extreme(sets, largest=sets.higher_is_better)


@dataclass(frozen=True, slots=True)
class BestScore(Max, label="best_score"):
    """Best value of the set; the same as max."""


@dataclass(frozen=True, slots=True)
class Min(Aggregator, label="min", of_values=True):
    """Worst value: the smallest, or the largest when lower is better."""

    def compute(self, sets: CandidateSets) -> Floats:
        return _extreme(sets, largest=not sets.higher_is_better)


@dataclass(frozen=True, slots=True)
class Std(Aggregator, label="std", neutral=True, bounded=False):
    """Standard deviation of the values within the set, sqrt(sum (v - mean)^2 / (n - ddof)); undefined for n <= ddof."""

    ddof: int = 0

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(v: Floats) -> Floats:
            n = (~np.isnan(v)).sum(axis=0)
            squares = np.nansum((v - _mean_graded(v)) ** 2, axis=0)
            return np.sqrt(np.where(n > self.ddof, squares / np.maximum(n - self.ddof, 1), np.nan))

        return sets.map_blocks(kernel, sets.values)


@dataclass(frozen=True, slots=True)
class WeightedMean(Aggregator, label="weighted_mean", ordered=True, of_values=True):
    """Mean by given weights: `weights` by position, else a weight a candidate; weights of ungraded ones drop out.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> WeightedMean(weights=(3, 1))(CandidateSets.from_lists([[1, 0], [1]])).tolist()
    [0.75, 1.0]
    """

    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.weights is not None and (not self.weights or min(self.weights) < 0):
            raise InputError("weighted_mean takes weights of at least 0, such as weighted_mean(weights=(3, 2, 1))")

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(v: Floats, w: Floats) -> Floats:
            counted = np.where(np.isnan(v), 0.0, w)
            total = counted.sum(axis=0)
            sums = (np.nan_to_num(v) * counted).sum(axis=0)
            return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)

        return sets.map_blocks(kernel, sets.values, self._row_weights(sets))

    def _row_weights(self, sets: CandidateSets) -> Floats:
        if self.weights is None:
            if sets.candidate_weights is None:
                given = "weighted_mean(weights=(3, 2, 1)) or a weight a candidate"
                raise InputError(f"weighted_mean needs weights: {given}")
            return sets.candidate_weights
        position = np.arange(len(sets.values)) - np.repeat(sets.offsets[:-1], sets.sizes)
        n = len(self.weights)
        if len(position) and position.max() >= n:
            raise InputError(f"weighted_mean has {n} weights and a set of {position.max() + 1} candidates")
        return np.asarray(self.weights, dtype=np.float64)[position]


def _mean_graded(v: Floats) -> Floats:
    graded = ~np.isnan(v)
    n = graded.sum(axis=0)
    total = np.where(graded, v, 0.0).sum(axis=0)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _extreme(sets: CandidateSets, *, largest: bool) -> Floats:
    if sets.binary:
        n, c = sets.counts
        return np.where(n > 0, c > 0 if largest else c == n, np.nan)
    reduce, ignoring_nan = (np.maximum, np.fmax) if largest else (np.minimum, np.fmin)
    return sets.map_blocks((reduce if sets.complete else ignoring_nan).reduce, sets.values)


# --- selection: the value of the candidate that a selector ranks first


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
class SelectedPass(Aggregator, label="selected_pass", needs=("selectors",)):
    """Whether the candidate the selector ranks first passes; equal scores share.

    The same as `selected` where values are 0 or 1; of other values `selected` is the mean value of the picks, and this
    the share of the picks that reach the threshold. Candidates without a selector score cannot be picked; a pick that
    was not graded makes the set undefined.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0.4, 1]], selectors={"judge": [[.9, .2]]})
    >>> Selected()(sets).tolist(), SelectedPass()(sets).tolist(), SelectedPass()(sets.passing_from(0.4)).tolist()
    ([0.4], [0.0], [1.0])
    """

    by: str = ""

    def compute(self, sets: CandidateSets) -> Floats:
        passes = np.where(sets.passes == NOT_GRADED, np.nan, sets.passes).astype(np.float64)
        return Selected(self.by).compute(replace(sets, values=passes))


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
