"""Aggregators of votes on extracted answers: majority with its tie rules, maj@k, weighted votes, agreement.

A candidate without an answer does not vote; one that was not graded is left out. The value of an answer is the mean
value of the candidates that gave it (they agree unless labels are noisy). Without votes there is no consensus, which
scores 0 (for a lower-is-better metric the worst value of the set).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.aggregators.base import Aggregator, one_of, positive
from kofn.aggregators.scores import selector_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.core.candidate_sets import Array, CandidateSets, Floats, Ints

_PAIRWISE = 24  # up to this set size comparing all pairs beats sorting
_EXACT_SET = 256  # maj@k of larger sets is estimated from random draws
_EXACT_WORK = 1 << 20  # and of sets with a larger n k^2, to which the time of the exact computation is proportional
TIES = ("first", "score", "shared")


class Ballot(NamedTuple):
    """For every candidate, shape (n, sets): the support of its answer, and the mean value of that answer."""

    support: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class Majority(Aggregator, label="majority", needs=("answers",), ordered=True, of_values=True):
    """Value of the answer most candidates gave (plurality).

    ties: "first" (default) the answer seen first, "score" the answer of better mean value (then first),
    "shared" the average over the tied answers.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[1, 0, 1, 1, 0]], answers=[["42", "43", "42", "42", "41"]])
    >>> Majority()(sets).tolist()
    [1.0]
    """

    ties: str = "first"  # by which the order of the candidates matters

    def __post_init__(self) -> None:
        one_of("majority ties", self.ties, TIES)

    def compute(self, sets: CandidateSets) -> Floats:
        all_vote = self.ties == "first" and sets.complete and not sets.having("answers").null_count()

        def kernel(codes: Ints, values: Array) -> Floats:
            if all_vote and len(codes) <= _PAIRWISE:
                return _first_plurality(codes, values)
            values, voting = values.astype(np.float64), codes >= 0
            ballot = count_votes(codes, voting.astype(np.float64), values)
            return decide(ballot, voting, values, self.ties, sets.higher_is_better)

        # 0/1 values are read as bytes: an eighth of the memory to walk
        return sets.map_blocks(kernel, voter_codes(sets), sets.passes if sets.binary else sets.values)


@dataclass(frozen=True, slots=True)
class WeightedVote(Aggregator, label="weighted_vote", needs=("answers", "selectors"), ordered=True, of_values=True):
    """Value of the answer with the largest sum of selector scores; ties go to the answer seen first.

    `by` names the selector when there are several. scale="exp" adds exp(score) instead, which suits log-probabilities
    and any score below 0, where a sum would punish an answer for its votes. A candidate without a score does not vote.
    """

    by: str = ""
    scale: str = "sum"

    def __post_init__(self) -> None:
        one_of("weighted_vote scale", self.scale, ("sum", "exp"))

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(codes: Ints, values: Floats, scores: Floats) -> Floats:
            voting = (codes >= 0) & ~np.isnan(scores)
            if self.scale == "exp":
                scores = np.exp(scores - np.fmax.reduce(scores, axis=0))  # relative to the best: no overflow
            ballot = count_votes(np.where(voting, codes, -1), np.where(voting, scores, 0.0), values)
            return decide(ballot, voting, values, "first", sets.higher_is_better)

        return sets.map_blocks(kernel, voter_codes(sets), sets.values, selector_scores(sets, self.by))


@dataclass(frozen=True, slots=True)
class Agreement(Aggregator, label="agreement", needs=("answers",), neutral=True):
    """Share of the candidates that gave the leading answer; no answer agrees with nobody. Needs no labels."""

    def compute(self, sets: CandidateSets) -> Floats:
        return tally_votes(sets).first / output_counts(sets)


@dataclass(frozen=True, slots=True)
class VoteMargin(Aggregator, label="vote_margin", needs=("answers",), neutral=True):
    """Lead of the first answer over the second, as a share of the candidates; 0 is a tie. Needs no labels."""

    def compute(self, sets: CandidateSets) -> Floats:
        votes = tally_votes(sets)
        return (votes.first - votes.second) / output_counts(sets)


@dataclass(frozen=True, slots=True)
class Answered(Aggregator, label="answered", needs=("answers",)):
    """Share of the candidates in which an answer was found. Needs no labels."""

    def compute(self, sets: CandidateSets) -> Floats:
        return sets.map_blocks(lambda codes: (codes >= 0).sum(axis=0), sets.codes) / output_counts(sets)


@dataclass(frozen=True, slots=True)
class UniqueAnswers(Aggregator, label="unique_answers", needs=("answers",), neutral=True, bounded=False):
    """Number of different answers in the set; no answer is not one of them. Needs no labels."""

    def compute(self, sets: CandidateSets) -> Floats:
        return tally_votes(sets).different + 0 * output_counts(sets)  # NaN where there is no output


@dataclass(frozen=True, slots=True)
class MajAt(Aggregator, label="maj_at", needs=("answers",), ordered=True, of_values=True):
    """Expected value of the majority of k candidates drawn without replacement; undefined for k > n.

    ties="shared" (default) averages over tied answers, which equals "first" in random order; it is exact, by dynamic
    programming over answers. ties="first" keeps the order of the candidates and enumerates the subsets.
    Where that is too much work, `draws` seeded random subsets are used; `error` gives their standard error.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[1, 0, 1, 1, 0]], answers=[["42", "43", "42", "42", "41"]])
    >>> [round(float(MajAt(k)(sets)[0]), 3) for k in (1, 2, 3, 4, 5)]
    [0.6, 0.6, 0.8, 1.0, 1.0]
    """

    k: int
    ties: str = "shared"  # with "first" the order of the candidates matters
    draws: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        positive("maj@k", self.k)
        positive("maj_at draws", self.draws)
        one_of("maj_at ties", self.ties, ("shared", "first"))

    @property
    def name(self) -> str:
        changed = self._parameters().removeprefix(f"(k={self.k}").removeprefix(", ").removesuffix(")")
        return f"maj_at(k={self.k}, {changed})" if changed else f"maj@{self.k}"

    def compute(self, sets: CandidateSets) -> Floats:
        return self._values_and_errors(sets)[0]

    def error(self, sets: CandidateSets) -> Floats:
        """Standard error of the random draws, a set; 0 where the value is exact."""
        return self._values_and_errors(sets)[1]

    def draws_any(self, sets: CandidateSets) -> bool:
        """Whether any set is too large to be computed exactly."""
        largest = int(sets.sizes.max()) if len(sets) else 0
        return self.ties != "shared" or largest > _EXACT_SET or largest * self.k**2 > _EXACT_WORK

    def _values_and_errors(self, sets: CandidateSets) -> tuple[Floats, Floats]:
        table = np.full((len(sets), 2), (np.nan, 0.0))
        whole = sets.map_blocks(lambda graded: graded.sum(axis=0), sets.graded, empty=0) == self.k
        table[whole, 0] = Majority(ties=self.ties).compute(sets)[whole]
        higher = sets.higher_is_better
        for i in np.flatnonzero(~whole).tolist():
            rows = slice(int(sets.offsets[i]), int(sets.offsets[i + 1]))
            codes, values = (column[rows][sets.graded[rows]].tolist() for column in (sets.codes, sets.values))
            n = len(codes)
            if self.ties == "shared" and self.k <= n <= _EXACT_SET and n * self.k**2 <= _EXACT_WORK:
                no_vote = 0.0 if higher else max(values)
                table[i, 0] = _shared_majority(*_signature(codes, values), self.k, no_vote)
            elif self.k <= n:
                table[i] = _sampled_majority(codes, values, self.k, self.ties, self.draws, self.seed, higher)
        return table[:, 0], table[:, 1]


def voter_codes(sets: CandidateSets) -> Ints:
    """Answer codes with the ungraded candidates taken out."""
    return sets.codes if sets.complete else np.where(sets.graded, sets.codes, -1)


def count_votes(codes: Ints, weights: Floats, values: Floats) -> Ballot:
    """Support and mean value of each candidate's answer, over (n, sets) arrays; codes below 0 do not vote."""
    if len(codes) > _PAIRWISE:
        return _count_runs(codes, weights, values)
    safe = np.nan_to_num(values)
    support, total, heads = weights.copy(), safe.copy(), np.ones_like(weights)
    for i in range(len(codes)):
        for j in range(i + 1, len(codes)):
            same = codes[i] == codes[j]
            support[i] += same * weights[j]
            support[j] += same * weights[i]
            total[i] += same * safe[j]
            total[j] += same * safe[i]
            heads[i] += same
            heads[j] += same
    return Ballot(support, total / heads)


def _first_plurality(codes: Ints, values: Array) -> Floats:
    """`majority` where all candidates vote: the usual case, several times faster than the general one."""
    if values.dtype == np.int8:
        return _first_plurality_of_passes(codes, values.view(np.uint8))
    counts = _support(codes)
    own = codes == codes[counts.argmax(axis=0), np.arange(codes.shape[1])]
    mean: Floats = np.einsum("ij,ij->j", own, values) / counts.max(axis=0)
    return mean


def _first_plurality_of_passes(codes: Ints, passes: Array) -> Floats:
    """The same for 0/1 values, in bytes: votes and passes of each candidate's answer are counted together."""
    counts, passing = np.ones(codes.shape, dtype=np.uint8), passes.copy()
    for i in range(len(codes) - 1):
        same = (codes[i] == codes[i + 1 :]).view(np.uint8)
        counts[i + 1 :] += same
        counts[i] += np.add.reduce(same, axis=0, dtype=np.uint8)
        passing[i + 1 :] += same & passes[i]
        passing[i] += np.add.reduce(same & passes[i + 1 :], axis=0, dtype=np.uint8)
    most = counts.max(axis=0)
    won = passing[-1].copy()
    for i in range(len(codes) - 2, -1, -1):  # backwards, so that the first of equals is written last
        won += (passing[i] - won) * (counts[i] == most).view(np.uint8)  # bytes wrap around; far faster than a mask
    mean: Floats = won / most
    return mean


def _count_runs(codes: Ints, weights: Floats, values: Floats) -> Ballot:
    """The same by sorting each set's codes and summing over runs of equal ones."""
    n, m = codes.shape
    order = np.argsort(codes, axis=0, kind="stable")
    at = np.arange(m)
    arranged = codes[order, at]
    starts = np.ones((n, m), dtype=bool)
    starts[1:] = arranged[1:] != arranged[:-1]
    run = (np.cumsum(starts, axis=0) - 1) + at * n
    sums = [
        np.bincount(run.ravel(), column[order, at].ravel(), minlength=n * m)
        for column in (weights, np.nan_to_num(values), np.ones((n, m)))
    ]
    support, mean = np.empty((n, m)), np.empty((n, m))
    support[order, at] = sums[0][run]
    mean[order, at] = (sums[1] / np.maximum(sums[2], 1))[run]
    return Ballot(support, mean)


def decide(ballot: Ballot, voting: Array, values: Floats, ties: str, higher_is_better: bool) -> Floats:
    """Value of the winning answer of each set, by the tie rule."""
    at = np.arange(values.shape[1])
    support = np.where(voting, ballot.support, -np.inf)
    top = support.max(axis=0)
    leads = voting & (support >= top - 1e-9 * np.abs(np.where(np.isfinite(top), top, 0)))  # sums may differ by rounding
    if ties == "shared":
        winners = np.where(leads, ballot.value, 0.0).sum(axis=0) / np.maximum(leads.sum(axis=0), 1)
    elif ties == "score":
        sign = 1.0 if higher_is_better else -1.0
        winners = ballot.value[np.where(leads, sign * ballot.value, -np.inf).argmax(axis=0), at]
    else:
        winners = ballot.value[leads.argmax(axis=0), at]
    silent = ~voting.any(axis=0)  # no consensus
    if silent.any():
        graded = ~np.isnan(values[:, silent])
        worst = np.zeros(int(silent.sum())) if higher_is_better else np.fmax.reduce(values[:, silent], axis=0)
        winners[silent] = np.where(graded.any(axis=0), worst, np.nan)
    return np.asarray(winners)


def output_counts(sets: CandidateSets) -> Floats:
    """Number of candidates with an output in each set (a failed call has none); NaN where there is none."""
    if sets.texts is None or not sets.texts.null_count():
        counts = sets.sizes.astype(np.float64)
    else:
        has_output = sets.texts.is_not_null().to_numpy()
        counts = sets.map_blocks(lambda flags: flags.sum(axis=0), has_output, empty=0)
    return np.where(counts > 0, counts, np.nan)


class VoteTally(NamedTuple):
    """Votes of each set: for the leading answer, for the next (0 when there is none), and the number of answers."""

    first: Floats
    second: Floats
    different: Floats

    @property
    def tied(self) -> Array:
        """Where no answer leads: the leading one has as many votes as another."""
        tied: Array = (self.first == self.second) & (self.different > 1)
        return tied


def graded_votes(sets: CandidateSets) -> CandidateSets:
    """The sets without the votes of ungraded candidates; where nothing is graded, all vote."""
    if sets.answers is None or sets.complete or not sets.graded.any():
        return sets
    import polars as pl

    return replace(sets, answers=sets.answers.set(pl.Series(~sets.graded), None))


def without_votes(sets: CandidateSets) -> CandidateSets:
    """The sets as if no candidate had given an answer."""
    import polars as pl

    return replace(sets, answers=pl.Series("answer", [None], dtype=pl.String).new_from_index(0, len(sets.values)))


def any_agree(sets: CandidateSets) -> bool:
    """Whether two candidates of some set give the same answer: where none do, as with free texts, there is no vote.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> any_agree(CandidateSets.from_lists([[1, 0]], answers=[["4", "5"]]))
    False
    """
    return sets.answers is not None and bool((tally_votes(graded_votes(sets)).first > 1).any())


def tally_votes(sets: CandidateSets) -> VoteTally:
    """Count the votes of every set, graded or not: agreement needs no labels."""
    out = VoteTally(*(np.zeros(len(sets)) for _ in VoteTally._fields))
    for at, (codes,) in sets.blocks(sets.codes):
        voting = codes >= 0
        support = np.where(voting, _support(codes), 0)
        leader = codes[support.argmax(axis=0), np.arange(codes.shape[1])]
        out.first[at] = support.max(axis=0)
        out.second[at] = np.where(codes == leader, 0, support).max(axis=0)
        # every answer of s votes appears s times, each counting 1/s
        shares = np.divide(1.0, support, out=np.zeros(support.shape), where=support > 0)
        out.different[at] = np.rint(shares.sum(axis=0))
    return out


def _support(codes: Ints) -> Array:
    """How many candidates of the set gave the same answer as each, one without an answer included."""
    if len(codes) > _PAIRWISE:
        return _count_runs(codes, np.ones(codes.shape), np.zeros(codes.shape)).support
    counts = np.ones(codes.shape, dtype=np.uint8)
    for i in range(len(codes) - 1):
        same = (codes[i] == codes[i + 1 :]).view(np.uint8)
        counts[i + 1 :] += same
        counts[i] += np.add.reduce(same, axis=0, dtype=np.uint8)
    return counts


def _signature(codes: Sequence[int], values: Sequence[float]) -> tuple[tuple[tuple[int, float], ...], int]:
    """((count, mean value) of every answer, sorted; number of candidates without an answer)."""
    groups: dict[int, list[float]] = {}
    for code, value in zip(codes, values, strict=True):
        groups.setdefault(code, []).append(value)
    silent = len(groups.pop(-1, []))
    return tuple(sorted((len(g), math.fsum(g) / len(g)) for g in groups.values())), silent


@lru_cache(maxsize=65536)
def _shared_majority(answers: tuple[tuple[int, float], ...], silent: int, k: int, no_vote: float) -> float:
    """Sum over top counts t: over all draws of k whose leading answers have t votes each, their mean value.

    `ways[e, used]` counts draws so far with e answers at exactly t and none above; `worth[e, used]` adds up the
    values of those e answers. Tied answers share, so a finished draw is worth worth / e. A draw without a vote is worth
    `no_vote`.
    """
    total = sum(count for count, _ in answers) + silent
    result = no_vote * math.comb(silent, k)
    for top in range(1, min(k, max((count for count, _ in answers), default=0)) + 1):
        ways = np.zeros((k // top + 1, k + 1))
        ways[0, 0] = 1.0
        worth = np.zeros_like(ways)
        for count, value in answers:
            ways, worth = _add_answer(ways, worth, count, value, top)
        for ties in range(1, len(ways)):
            finished = sum(worth[ties, k - j] * math.comb(silent, j) for j in range(min(silent, k) + 1))
            result += finished / ties
    return float(result / math.comb(total, k))


def _add_answer(ways: Floats, worth: Floats, count: int, value: float, top: int) -> tuple[Floats, Floats]:
    """One more answer: it takes j < top of the draw, or exactly top and joins the leaders."""
    k = ways.shape[1] - 1
    fewer = _takes_fewer(count, top, k)
    new_ways, new_worth = ways @ fewer, worth @ fewer
    if count >= top:
        choose, before = math.comb(count, top), slice(0, k + 1 - top)
        new_ways[1:, top:] += choose * ways[:-1, before]
        new_worth[1:, top:] += choose * (worth[:-1, before] + value * ways[:-1, before])
    return new_ways, new_worth


@lru_cache(maxsize=4096)
def _takes_fewer(count: int, top: int, k: int) -> Floats:
    """The step from `used` to used + j for every j < top: C(count, j) ways."""
    step = np.zeros((k + 1, k + 1))
    for j in range(min(count, top - 1, k) + 1):
        step += math.comb(count, j) * np.eye(k + 1, k=j)
    return step


def _sampled_majority(
    codes: Sequence[int], values: Sequence[float], k: int, ties: str, draws: int, seed: int, higher: bool
) -> tuple[float, float]:
    """Mean over all k-subsets when there are at most `draws` x 10, else over `draws` random ones, with its error."""
    n, exact = len(codes), math.comb(len(codes), k) <= 10 * draws
    if exact:
        picks = np.array(list(combinations(range(n), k)), dtype=np.int64)
    else:
        rng = np.random.default_rng([seed, n, k])
        picks = np.sort(np.argsort(rng.random((draws, n)), axis=1)[:, :k], axis=1)
    drawn, worth = np.array(codes)[picks].T, np.array(values)[picks].T
    voting = drawn >= 0
    results = decide(count_votes(drawn, voting.astype(np.float64), worth), voting, worth, ties, higher)
    return float(results.mean()), 0.0 if exact else float(results.std(ddof=1) / math.sqrt(draws))
