"""Adaptive repeats: a case gets more candidates only as long as its vote is open.

The rule of Aggarwal et al. (2023, "Let's Sample Step by Step: Adaptive-Consistency"): with v1 votes for the leading
answer and v2 for the next, let p be the leader's share among these two, with a flat prior. The case stops when
P(p > 1/2) under Beta(v1 + 1, v2 + 1) reaches the confidence, and also when the candidates still allowed could not
change the vote. Answers vote as in the aggregator `majority`: equal texts are one answer, no answer never votes.

A set that stopped because of what it holds is not a plain sample of the model any more: see `honest`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.aggregators.votes import Majority
from kofn.core.candidate_sets import CandidateSets, offsets_of
from kofn.core.format import format_money
from kofn.errors import InputError
from kofn.registry import extractor, parse_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.core.candidate_sets import Ints
    from kofn.tasks.stages import Item


@lru_cache(maxsize=65536)  # a run asks for the same few pairs of votes again and again
def lead_probability(v1: int, v2: int) -> float:
    """P(p > 1/2) under Beta(v1 + 1, v2 + 1): that more than half of all such votes are for the leader.

    With whole numbers the incomplete beta function at 1/2 is a binomial sum: the share of the v1 + v2 + 1 coin throws
    that show at most v1 heads. The sum is in integers, so it is exact for any n.

    >>> lead_probability(0, 0), lead_probability(3, 0), lead_probability(4, 0)
    (0.5, 0.9375, 0.96875)
    >>> lead_probability(3, 3), lead_probability(7, 1)
    (0.5, 0.98046875)
    """
    n = v1 + v2 + 1
    return float(Fraction(sum(math.comb(n, j) for j in range(v1 + 1)), 2**n))


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Repeats that stop a case when its leading answer is safe.

    extract     name or function that finds the answer of an output, as for the vote
    most        candidates a case may get
    first       candidates every case gets; by default the fewest after which the rule can say stop (4 at 0.95)
    confidence  what P(p > 1/2) must reach
    step        fewest candidates a further round asks for; 1 never draws one that the rule would not have drawn

    >>> rule = Adaptive("number", most=40)
    >>> rule.first, rule.more_after(["7", "7", "7", "7"]), rule.more_after(["7", "7", "8", "7"])
    (4, 0, 3)
    """

    extract: str | Callable[..., str | None]
    most: int
    first: int = 0
    confidence: float = 0.95
    step: int = 1

    def __post_init__(self) -> None:
        if not 0.5 < self.confidence < 1:
            raise InputError(f"adaptive confidence {self.confidence}: expected above 0.5 and below 1, such as 0.95")
        if self.most < 1 or self.step < 1 or self.first < 0:
            raise InputError(f"adaptive repeats: expected most and step of at least 1, not {self.most} and {self.step}")
        if self.first > self.most:
            raise InputError(f"adaptive repeats: first ({self.first}) is more than most ({self.most})")
        if not self.first:  # frozen, but the default depends on the other fields
            object.__setattr__(self, "first", self._earliest(0, 0, self.most))

    def more(self, item: Item, outputs: Sequence[str | None]) -> int:
        """How many more candidates this case gets; an output of None is a call that failed."""
        find, choices = extractor(self.extract), item.case.choices
        options = (choices,) if choices else ()
        return self.more_after([None if text is None else find(text, *options) for text in outputs])

    def drawn(self, item: Item, outputs: Sequence[str | None]) -> int:
        """How many of these outputs the rule would have drawn, round after round; later ones belong to another rule."""
        n = min(self.first, len(outputs))
        while n < len(outputs) and (more := self.more(item, outputs[:n])):
            n = min(n + more, len(outputs))
        return n

    def more_after(self, answers: Sequence[str | None]) -> int:
        """The same from answers: 0 to stop, else as many as the rule needs at least before it can say stop."""
        left = self.most - len(answers)
        if left <= 0:
            return 0
        v1, v2 = leading_two(answers)
        if self._safe(v1, v2, left):
            return 0
        return min(left, max(self.step, self._earliest(v1, v2, left)))

    def _safe(self, v1: int, v2: int, left: int) -> bool:
        """Likely enough, or out of reach of all that is left."""
        return lead_probability(v1, v2) >= self.confidence or v1 - v2 > left

    def _earliest(self, v1: int, v2: int, left: int) -> int:
        """Candidates until the rule can fire: all that come would have to vote for the leader."""
        return next((m for m in range(1, left) if self._safe(v1 + m, v2, left - m)), left)


def leading_two(answers: Sequence[str | None]) -> tuple[int, int]:
    """Votes of the leading answer and of the next; no answer does not vote.

    >>> leading_two(["a", "b", "a", None]), leading_two([None])
    ((2, 1), (0, 0))
    """
    counts = sorted(Counter(a for a in answers if a is not None).values(), reverse=True)
    v1, v2, *_ = *counts, 0, 0
    return v1, v2


class Saving(NamedTuple):
    """What stopping early saved against `fixed` candidates for every case. Money is None where a cost is not known.

    The fixed run is priced case by case: a candidate that was not drawn costs what those of its case cost on average.
    """

    cases: int
    samples: int
    fixed: int
    cost: float | None
    fixed_cost: float | None

    @property
    def mean_samples(self) -> float | None:
        return self.samples / self.cases if self.cases else None

    @property
    def times(self) -> float | None:
        """How many times fewer candidates than a fixed number."""
        return self.cases * self.fixed / self.samples if self.samples else None

    def __str__(self) -> str:
        if self.mean_samples is None or self.times is None:
            return "adaptive: no cases"
        text = f"adaptive: {self.mean_samples:.1f} candidates a case instead of {self.fixed} ({self.times:.1f}x fewer)"
        if self.cost is None or self.fixed_cost is None:
            return text
        return f"{text}, {format_money(self.cost, 4)} instead of about {format_money(self.fixed_cost, 4)}"


def saving(sizes: Sequence[int], fixed: int, costs: Sequence[Sequence[float | None]] | None = None) -> Saving:
    """What sets of these sizes saved; `costs` are those of the candidates, one list per case.

    >>> str(saving([4, 4, 10], 10, [[0.01] * 4, [0.02] * 4, [0.01] * 10]))
    'adaptive: 6.0 candidates a case instead of 10 (1.7x fewer), $0.2200 instead of about $0.4000'
    """
    if not costs or any(cost is None for case in costs for cost in case):
        return Saving(len(sizes), sum(sizes), fixed, None, None)
    known = [[cost or 0.0 for cost in case] for case in costs if case]
    whole = math.fsum(fixed * math.fsum(case) / len(case) for case in known)
    return Saving(len(sizes), sum(sizes), fixed, math.fsum(map(math.fsum, known)), whole)


class Replayed(NamedTuple):
    """A rule tried on stored sets: what it would have drawn, and the vote then and with everything."""

    saving: Saving
    sizes: Ints
    rounds: int
    accuracy: float | None
    full_accuracy: float | None
    same_answer: float | None


def replay(sets: CandidateSets, rule: Adaptive) -> Replayed:
    """Walk every stored set as if its candidates came one round after the other.

    `rule.most` beyond a set's size is cut to what is there. Accuracy is that of `majority`, over graded cases, None
    without grades; `same_answer` is the share of cases whose winning answer is that of the full set; `rounds` is the
    most any case took.
    """
    if sets.answers is None:
        raise InputError("nothing to replay: these sets have no answers: give an extractor")
    answers = sets.answers.to_list()
    bounds = list(pairwise(sets.offsets.tolist()))
    walks = [_walk(answers[a : min(b, a + rule.most)], rule) for a, b in bounds]
    sizes = np.array([size for size, _ in walks], dtype=np.int64)
    cut, full = _cut(sets, sizes), sets.truncate(rule.most)
    ends = [(a, a + n, min(b, a + rule.most)) for (a, b), n in zip(bounds, sizes.tolist(), strict=True)]
    same = [_winner(answers[a:stop]) == _winner(answers[a:end]) for a, stop, end in ends]
    return Replayed(
        saving=saving(sizes.tolist(), rule.most, None if cut.costs is None else [list(one.costs) for one in cut]),
        sizes=sizes,
        rounds=max((rounds for _, rounds in walks), default=0),
        accuracy=_accuracy(cut),
        full_accuracy=_accuracy(full),
        same_answer=float(np.mean(same)) if same else None,
    )


def _walk(answers: list[str | None], rule: Adaptive) -> tuple[int, int]:
    """Candidates and rounds a case would have taken."""
    n, rounds = min(rule.first, len(answers)), 1
    while n < len(answers) and (more := rule.more_after(answers[:n])):
        n, rounds = min(n + more, len(answers)), rounds + 1
    return n, rounds


def _winner(answers: list[str | None]) -> str | None:
    """The answer most gave, the one seen first among equals."""
    votes = Counter(a for a in answers if a is not None)
    return max(votes, key=votes.__getitem__) if votes else None


def _cut(sets: CandidateSets, sizes: Ints) -> CandidateSets:
    """The first `sizes[i]` candidates of set i, with the columns that a vote and the cost need."""
    keep = np.arange(len(sets.values)) - np.repeat(sets.offsets[:-1], sets.sizes) < np.repeat(sizes, sets.sizes)
    return CandidateSets(
        case_ids=sets.case_ids,
        offsets=offsets_of(sizes),
        values=sets.values[keep],
        passes=sets.passes[keep],
        answers=sets.having("answers").filter(keep),
        costs=None if sets.costs is None else sets.costs[keep],
        higher_is_better=sets.higher_is_better,
    )


def _accuracy(sets: CandidateSets) -> float | None:
    return float(np.nanmean(Majority()(sets))) if sets.graded.any() else None


AS_IT_RAN = ("majority", "weighted_vote")  # what the adaptive system answers: every candidate it drew takes part
NEEDS_K = ("pass_at", "pass_hat", "g_pass_at", "maj_at")  # undefined for a k above the size of the set
UNTOUCHED = ("first",)  # the first candidate is drawn whatever the others answer


def keep(aggregator: str, first: int) -> int | None:
    """How many candidates of an adaptively drawn set an aggregator may look at; None for all.

    >>> keep("majority", 4), keep("mean", 4), keep("pass@2", 4)
    (None, 4, 4)
    """
    return None if parse_spec("aggregator", aggregator)[0] in AS_IT_RAN + UNTOUCHED else first


def honest(aggregator: str, first: int) -> str | None:
    """The caveat of an aggregator over adaptively drawn sets; None where it has none.

    `first` is right always. `majority` and `weighted_vote` say how the adaptive system does, which is what it
    answers. Everything else is an estimate over a set whose size depends on what is in it: easy cases stop after a
    few equal answers, so a mean is pulled away from one half, agreement is overstated, and `any_pass` gives hard cases
    more tries. The first `first` candidates of every case were drawn whatever they said: over them the same
    estimates are unbiased. A k above `first` has no such estimate.

    >>> honest("majority", 4), honest("first", 4)
    (None, None)
    >>> honest("mean", 4)
    'mean: of the first 4 candidates of every case, which are drawn whatever they say; over all it is biased'
    >>> honest("pass@8", 4)
    'pass@8: needs 8 candidates of every case and adaptive repeats draw 4: raise the first repeats to 8'
    """
    if keep(aggregator, first) is None:
        return None
    kind, _, parameters = parse_spec("aggregator", aggregator)
    k = parameters.get("k", 0)
    if kind in NEEDS_K and k > first:
        needs = f"{aggregator}: needs {k} candidates of every case and adaptive repeats draw {first}"
        return f"{needs}: raise the first repeats to {k}"
    these = f"the first {first} candidates of every case" if first > 1 else "the first candidate of every case"
    return f"{aggregator}: of {these}, which are drawn whatever they say; over all it is biased"
