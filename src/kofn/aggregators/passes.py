"""Aggregators of passes: any, all, majority of passes, at least m, pass@k, pass^k, G-Pass@k.

All are functions of n, the candidates with a verdict, and c, those that pass. They are computed once for
every (n, c) that occurs and looked up, so a million sets cost a table.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kofn.aggregators.base import Aggregator, one_of, positive
from kofn.errors import InputError

if TYPE_CHECKING:
    from kofn.core.candidate_sets import CandidateSets, Floats

_EXACT_N = 16384  # above it a binomial coefficient takes a millisecond: sum logarithms instead


class CountAggregator(Aggregator):
    """A function of (n, c). Candidates without a verdict are left out of both; n = 0 is undefined."""

    __slots__ = ()

    @abstractmethod
    def of_counts(self, n: int, c: int) -> float:
        """The value for n candidates of which c pass; NaN where undefined."""

    def compute(self, sets: CandidateSets) -> Floats:
        """`of_counts` of every set, called once per distinct pair."""
        n, c = sets.counts
        if not len(n):
            return np.empty(0)
        width = int(c.max()) + 1
        key = n * width + c
        # a table of all pairs, 32 MB at most, saves sorting the keys
        tabled = (int(n.max()) + 1) * width <= 1 << 22
        distinct = np.flatnonzero(np.bincount(key, minlength=1)) if tabled else np.unique(key)
        pairs = (divmod(int(one), width) for one in distinct)
        values = np.array([self.of_counts(*pair) if pair[0] else math.nan for pair in pairs], dtype=np.float64)
        if not tabled:
            return np.asarray(values[np.searchsorted(distinct, key)])
        table = np.full(int(distinct[-1]) + 1, np.nan)
        table[distinct] = values
        return np.asarray(table[key])


@dataclass(frozen=True, slots=True)
class AnyPass(CountAggregator, label="any_pass"):
    """1 if any candidate passes, else 0."""

    def of_counts(self, n: int, c: int) -> float:  # noqa: ARG002 - one signature for the family
        return float(c > 0)


@dataclass(frozen=True, slots=True)
class AnyCorrect(AnyPass, label="any_correct"):
    """1 if any candidate is correct, else 0; the same as any_pass."""


@dataclass(frozen=True, slots=True)
class AllPass(CountAggregator, label="all_pass"):
    """1 if all candidates pass, else 0."""

    def of_counts(self, n: int, c: int) -> float:
        return float(c == n)


@dataclass(frozen=True, slots=True)
class AllCorrect(AllPass, label="all_correct"):
    """1 if all candidates are correct, else 0; the same as all_pass."""


@dataclass(frozen=True, slots=True)
class MajorityPass(CountAggregator, label="majority_pass"):
    """1 if at least half of the candidates pass (c >= ceil(n/2)); strict needs more than half.

    An even split passes with ties="pass" (default) and fails with ties="strict" or strict=True. This counts
    passes; `majority` votes on answers.

    >>> MajorityPass().of_counts(4, 2), MajorityPass(strict=True).of_counts(4, 2)
    (1.0, 0.0)
    """

    ties: str = "pass"
    strict: bool = False

    def __post_init__(self) -> None:
        one_of("majority_pass ties", self.ties, ("pass", "strict"))

    def of_counts(self, n: int, c: int) -> float:
        return float(2 * c > n) if self.strict or self.ties == "strict" else float(2 * c >= n)


@dataclass(frozen=True, slots=True)
class AtLeast(CountAggregator, label="at_least"):
    """1 if m or more candidates pass, else 0; a set of fewer than m cannot."""

    m: int

    def __post_init__(self) -> None:
        positive("at_least m", self.m)

    def of_counts(self, n: int, c: int) -> float:  # noqa: ARG002 - one signature for the family
        return float(c >= self.m)


@dataclass(frozen=True, slots=True)
class PassAt(CountAggregator, label="pass_at"):
    """Chance that k candidates drawn without replacement hold a passing one: 1 - C(n-c,k)/C(n,k); undefined for k > n.

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374). 1 - (1 - c/n)^k is biased.

    >>> PassAt(5).of_counts(10, 3)
    0.9166666666666666
    >>> PassAt(5).of_counts(3, 3)
    nan
    """

    k: int

    def __post_init__(self) -> None:
        positive("pass@k", self.k)

    @property
    def name(self) -> str:
        return f"pass@{self.k}"

    def of_counts(self, n: int, c: int) -> float:
        return math.nan if self.k > n else 1.0 - hypergeometric(n, n - c, self.k, self.k)


@dataclass(frozen=True, slots=True)
class PassHat(CountAggregator, label="pass_hat"):
    """Chance that k candidates drawn without replacement all pass: C(c,k)/C(n,k); undefined for k > n.

    pass^k of tau-bench, by each set's own n. (c/n)^k is biased upwards.

    >>> PassHat(2).of_counts(4, 2)
    0.16666666666666666
    """

    k: int

    def __post_init__(self) -> None:
        positive("pass^k", self.k)

    @property
    def name(self) -> str:
        return f"pass^{self.k}"

    def of_counts(self, n: int, c: int) -> float:
        return math.nan if self.k > n else hypergeometric(n, c, self.k, self.k)


@dataclass(frozen=True, slots=True)
class GPassAt(CountAggregator, label="g_pass_at"):
    """Chance that at least ceil(tau k) of k drawn candidates pass: sum_{j >= tau k} C(c,j) C(n-c,k-j) / C(n,k).

    G-Pass@k of Liu et al. 2024 (arXiv 2412.13147); at least one is asked for, so tau -> 0 is pass@k and tau = 1 pass^k.

    >>> round(GPassAt(4, 0.5).of_counts(8, 4), 6)
    0.757143
    """

    k: int
    tau: float = 1.0

    def __post_init__(self) -> None:
        positive("g_pass_at k", self.k)
        if not 0 <= self.tau <= 1:
            raise InputError(f"g_pass_at tau takes a share from 0 to 1, not {self.tau!r}")

    def of_counts(self, n: int, c: int) -> float:
        if self.k > n:
            return math.nan
        need = max(1, math.ceil(round(self.tau * self.k, 9)))
        return min(1.0, math.fsum(hypergeometric(n, c, self.k, j) for j in range(need, self.k + 1)))


@lru_cache(maxsize=65536)
def hypergeometric(n: int, c: int, k: int, j: int) -> float:
    """P(exactly j of k drawn are among c of n) = C(c,j) C(n-c,k-j) / C(n,k).

    Exact integers, rounded once, up to n = 16,384; sums of logarithms beyond.

    >>> hypergeometric(10, 7, 5, 5)
    0.08333333333333333
    """
    if j > c or k - j > n - c or j < 0 or j > k:
        return 0.0
    if n <= _EXACT_N:
        return math.comb(c, j) * math.comb(n - c, k - j) / math.comb(n, k)
    return math.exp(_log_comb(c, j) + _log_comb(n - c, k - j) - _log_comb(n, k))


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
