"""The pass@k curve with the vote beside it, and what independent attempts would give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.aggregators.passes import PassAt
from kofn.aggregators.scores import SelectedAt
from kofn.aggregators.votes import count_votes, tally_votes, voter_codes
from kofn.core.warnings import CodedWarning
from kofn.stats import estimate
from kofn.stats.estimates import is_rate, suitable_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from kofn.core.candidate_sets import CandidateSets, Floats, Ints
    from kofn.core.types import Estimate
    from kofn.scoring.configuration import GradingConfig


MOST_SETS = 0.95  # the curve ends at the largest size that this share of the graded sets reaches
MOST_VOTES = 2_000_000  # candidates; beyond it sorting the votes of every set takes more than about a second
MOST_STEPS = 120_000_000  # of the exact rule, answers x top counts x k^2: so many take about a second
LARGEST_SET = 256  # candidates in one set; MajAt draws the vote of larger ones
_CHUNK = 64  # kinds of sets computed together stay in the cache
_EVERY = 16  # every k up to here, then a ladder
_RUNGS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The value at k candidates, over cases, with its interval.

    `n` cases have k graded candidates and so a value, `n_missing` have not. `independent` is 1 - (1 - p)^k: what k
    independent tries of the same p would give. It is far above the truth where cases differ in difficulty.
    """

    k: int
    point: float | None
    low: float | None
    high: float | None
    n: int
    n_missing: int
    independent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """any@k for each k, and maj@k where there are answers to vote on; `notes` say what was left out, and why.

    `selected` is the pass rate of what a `selector` picks of k.
    """

    points: tuple[CurvePoint, ...] = ()
    majority: tuple[CurvePoint, ...] = ()
    selected: tuple[CurvePoint, ...] = ()
    selector: str = ""
    notes: tuple[CodedWarning, ...] = ()


def best_of_n(
    sets: CandidateSets,
    options: GradingConfig,
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    selector: str = "",
) -> Curve:
    """The mean over cases of the unbiased any@k, 1 - C(n-c,k)/C(n,k), for k = 1, 2, ... and its interval.

    k ends at the largest size that 95% of the graded sets reach: every k up to 16, then a ladder of at most 8 more.
    Beside it what independence gives, from the pooled p (the mean over cases of c/n), the curve of the vote, and
    how often the pick of a `selector` passes.
    Nothing graded: no points.

    >>> from kofn.scoring.configuration import GradingConfig
    >>> from kofn.core.candidate_sets import CandidateSets
    >>> curve = best_of_n(CandidateSets.from_lists([[1, 1, 1, 1], [0, 0, 0, 0]]), GradingConfig())
    >>> [(at.k, at.point, at.independent) for at in curve.points]
    [(1, 0.5, 0.5), (2, 0.5, 0.75), (3, 0.5, 0.875), (4, 0.5, 0.9375)]
    """
    ks = k_ladder(largest_k(sets))
    if not ks:
        return Curve()
    cases = CaseMeans(options, weights, clusters)
    passes = [cases.estimate(PassAt(k)(sets)) for k in ks]
    pooled = passes[0].point  # any@1 is c/n
    points = tuple(_point(k, e, independent_pass_rate(pooled, k)) for k, e in zip(ks, passes, strict=True))
    votes, note = vote_columns(sets, ks)
    majority = tuple(_point(k, cases.estimate(column)) for k, column in zip(ks, votes, strict=False))
    selected: tuple[CurvePoint, ...] = ()
    if selector:
        outcomes = replace(sets, values=np.where(sets.graded, sets.passes, np.nan))
        selected = tuple(_point(k, cases.estimate(SelectedAt(k, selector)(outcomes))) for k in ks)
    return Curve(
        points=points,
        majority=majority,
        selected=selected,
        selector=selector,
        notes=(*filter(None, [note]), *cases.notes()),
    )


def independent_pass_rate(p: float | None, k: int) -> float | None:
    """1 - (1 - p)^k: the chance that one of k independent tries passes.

    >>> round(independent_pass_rate(0.35, 4), 6), independent_pass_rate(None, 4)
    (0.821494, None)
    """
    return None if p is None else 1.0 - (1.0 - p) ** k


def largest_k(sets: CandidateSets) -> int:
    """The largest size that at least 95% of the graded sets reach; 0 when nothing is graded.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> largest_k(CandidateSets.from_lists([[1, 0]] * 19 + [[1]])), largest_k(CandidateSets.from_lists([[None]]))
    (2, 0)
    """
    sizes = sets.counts[0]
    sizes = np.sort(sizes[sizes > 0])
    # of sorted sizes, the one that 95% of the sets reach
    return int(sizes[int((1 - MOST_SETS) * len(sizes))]) if len(sizes) else 0


def k_ladder(largest: int) -> tuple[int, ...]:
    """Every k up to 16, then up to 8 in equal ratios, the last one the largest.

    >>> k_ladder(3), k_ladder(64)[15:], k_ladder(0)
    ((1, 2, 3), (16, 19, 23, 27, 32, 38, 45, 54, 64), ())
    """
    if largest <= _EVERY + _RUNGS:
        return tuple(range(1, largest + 1))
    # equal ratios, since each further candidate adds less
    rungs = np.rint(np.geomspace(_EVERY, largest, _RUNGS + 1)).astype(int).tolist()
    return (*range(1, _EVERY), *sorted(set(rungs)))


class CaseMeans:
    """How the mean over cases is estimated, the same for every k."""

    def __init__(self, options: GradingConfig, weights: ArrayLike | None, clusters: ArrayLike | None) -> None:
        self.interval = options.interval
        self.replaced = False
        self.common: dict[str, Any] = {"weights": weights, "clusters": clusters, **options.drawing}

    def estimate(self, values: Floats) -> Estimate:
        """The mean with its interval; one for rates gives way to "auto" where values are chances between 0 and 1."""
        # intervals for rates need 0/1 values; any@k is a chance between them for k < n
        interval = suitable_interval(self.interval, rate=is_rate(values[~np.isnan(values)]), plain=True)
        self.replaced |= interval != self.interval
        return estimate(values, interval=interval, rate=True, **self.common)

    def mean(self, values: Floats) -> float | None:
        """The mean of the values that are there, by weight, without an interval."""
        return weighted_mean(values, self.common["weights"])

    def notes(self) -> list[CodedWarning]:
        return [CodedWarning.of("interval-replaced", interval=self.interval)] if self.replaced else []


def weighted_mean(values: Floats, weights: Floats | None) -> float | None:
    """The mean of the values that are there (not NaN), by weight; None where there are none.

    >>> weighted_mean(np.array([1.0, np.nan, 0.0]), np.array([3.0, 1.0, 1.0]))
    0.75
    """
    kept = ~np.isnan(values) if weights is None else ~np.isnan(values) & (weights > 0)
    own = None if weights is None else weights[kept]
    return float(np.average(values[kept], weights=own)) if kept.any() else None


def _point(k: int, e: Estimate, expected: float | None = None) -> CurvePoint:
    return CurvePoint(k=k, point=e.point, low=e.low, high=e.high, n=e.n, n_missing=e.n_missing, independent=expected)


def vote_columns(sets: CandidateSets, ks: Sequence[int]) -> tuple[list[Floats], CodedWarning | None]:
    """maj@k of every set for each k, or none and why.

    Sets whose votes fall alike (the same counts, the same values) have the same maj@k: it is computed once for each
    kind of set and looked up.
    """
    if sets.answers is None:
        return [], None
    if not bool((sets.values[sets.graded] == sets.passes[sets.graded]).all()):
        return [], CodedWarning.of("no-vote-curve", about="scale")
    if len(sets.values) > MOST_VOTES:
        return [], CodedWarning.of("no-vote-curve", about="candidates", n=len(sets.values), most=MOST_VOTES)
    if int(sets.sizes.max()) > LARGEST_SET:
        return [], CodedWarning.of("no-vote-curve", about="sets", most=LARGEST_SET)
    first, kind = _set_kinds(sets)
    votes = tally_votes(kinds := sets.take(first))
    # the steps of the loops below, bounded so that no file takes hours
    steps = int((votes.different * votes.first).sum()) * ks[-1] ** 2
    if steps > MOST_STEPS:
        return [], CodedWarning.of("no-vote-curve", about="votes")
    values = np.full((len(kinds), len(ks)), np.nan)
    # in chunks of sets with about as many answers
    order = np.argsort(votes.different, kind="stable")
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        values[chunk] = majority_curve(*_answers(kinds, chunk), ks).T
    return [values[kind, i] for i in range(len(ks))], None


def _set_kinds(sets: CandidateSets) -> tuple[Ints, Ints]:
    """Where a set of each kind stands first, and the kind of every set. A set's order does not tell kinds apart."""
    import polars as pl

    kinds = np.zeros(len(sets), dtype=np.uint64)
    for at, (codes, values, graded) in sets.blocks(voter_codes(sets), sets.values, sets.graded):
        # the set size seeds the hash: sets of different sizes share no kind
        voting = codes >= 0
        ballot = count_votes(codes, voting.astype(np.float64), values)
        # a column a candidate: support and value of its answer, in one complex number so that one sort orders both; -1
        # for no answer, -2 for not graded
        marks = np.where(voting, ballot.support + 1j * ballot.value, np.where(graded, -1.0, -2.0))
        marks = np.sort(marks, axis=0)
        rows = np.concatenate([marks.real, marks.imag]).T
        kinds[at] = pl.DataFrame(rows).hash_rows(seed=len(codes)).to_numpy()
    _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
    return first, kind


def _answers(sets: CandidateSets, chunk: Ints) -> tuple[Ints, Floats, Ints]:
    """(answer, set) votes and mean values, filled up with answers nobody gave; the silent candidates of each set."""
    tallies = []
    silent = np.zeros(len(chunk), dtype=np.int64)
    for i, rows in enumerate(slice(int(sets.offsets[at]), int(sets.offsets[at + 1])) for at in chunk):
        graded = sets.graded[rows]
        codes, values = sets.codes[rows][graded], sets.values[rows][graded]
        own = [codes == code for code in np.unique(codes) if code >= 0]
        tallies.append([(int(of.sum()), float(values[of].mean())) for of in own])
        silent[i] = (codes < 0).sum()
    votes = np.zeros((2, max(map(len, tallies)), len(chunk)))
    for i, answers in enumerate(tallies):
        votes[:, : len(answers), i] = np.array(answers).reshape(-1, 2).T
    return votes[0].astype(np.int64), votes[1], silent


def majority_curve(counts: Ints, values: Floats, silent: Ints, ks: Sequence[int]) -> Floats:
    """The expected value of the majority of k candidates drawn without replacement, ties shared, for every k at once.

    The rule of `MajAt`: over all top counts t, all draws whose leading answers have t votes each, each worth the mean
    value of its leaders; a draw in which nobody votes is worth 0; k > n is undefined. `counts` and `values` are
    (answer, set), `silent` counts a set's candidates without an answer. `state[0, e, used]` counts the draws of `used`
    candidates so far with e answers at exactly t and none above; `state[1, e, used]` adds up the values of those e.

    >>> votes, worth = np.array([[3], [1], [1]]), np.array([[1.0], [0.0], [0.0]])
    >>> majority_curve(votes, worth, np.array([0]), (1, 2, 3, 6)).round(3).ravel().tolist()
    [0.6, 0.6, 0.8, nan]
    """
    sizes, most = counts.sum(axis=0) + silent, max(ks)
    ways = _binomials(int(sizes.max(initial=0)), most)
    total = np.zeros((most + 1, counts.shape[1]))
    for top in range(1, min(most, int(counts.max(initial=0))) + 1):
        state = np.zeros((2, most // top + 1, most + 1, counts.shape[1]))
        # one way to draw nothing
        state[0, 0, 0] = 1.0
        for count, value in zip(counts, values, strict=True):
            state = _add_answer(state, ways[count].T, value, top)
        # a tie of e answers is shared: their values are averaged
        total += (state[1, 1:] / np.arange(1, most // top + 1)[:, None, None]).sum(axis=0)
    # C(n, k), by which the count of draws becomes a mean
    draws, of_silent = ways[sizes].T, ways[silent].T
    # draws of k of which any number of silent candidates is part
    reached = [(total[k::-1] * of_silent[: k + 1]).sum(axis=0) for k in ks]
    return np.stack([sums / np.where(sizes < k, np.nan, draws[k]) for k, sums in zip(ks, reached, strict=True)])


def _add_answer(state: Floats, ways: Floats, value: Floats, top: int) -> Floats:
    """One more answer: it takes j < top of the draw in `ways[j]` ways, or exactly top and joins the leaders."""
    new: Floats = state * ways[0]
    for j in range(1, top):
        new[:, :, j:] += ways[j] * state[:, :, :-j]
    joined = ways[top] * state[:, :-1, :-top]
    joined[1] += value * joined[0]
    new[:, 1:, top:] += joined
    return new


def _binomials(n: int, k: int) -> Floats:
    """C(i, j) for i up to n and j up to k, by Pascal's rule."""
    table = np.zeros((n + 1, k + 1))
    table[:, 0] = 1.0
    for i in range(1, n + 1):
        table[i, 1:] = table[i - 1, 1:] + table[i - 1, :-1]
    return table
