"""Variance components of scores, what more of each buys, and sample sizes.

A case's value varies between cases (variance `between`) and, when the system answers again, within
them (`within`, divided by the number of repeats). Between-case variance of a *difference* is that
of the paired differences, which is smaller the more the two systems agree on what is hard.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import check_level, cluster_codes, clustered_se, normal_quantile

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceShares:
    """Variance components of scores. NaN where the data cannot tell (one case, or no repeats).

    `judge` is 0 unless candidates were judged more than once. `clipped` names the components whose
    unbiased estimate was negative and is shown as 0. `design_effect` is how many times larger the
    variance of the mean is than if every row were a case of its own.
    """

    between: float
    within: float
    judge: float
    mean: float
    n_cases: int
    n_rows: int
    design_effect: float
    clipped: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return self.between + self.within + self.judge

    @property
    def icc(self) -> float:
        """The share of variance that is between cases (intraclass correlation)."""
        return self.between / self.total if self.total > 0 else nan

    @property
    def shares(self) -> dict[str, float]:
        """Each component over their sum; NaN when nothing varies."""
        parts = {"between": self.between, "within": self.within, "judge": self.judge}
        return {name: part / self.total if self.total > 0 else nan for name, part in parts.items()}


def variance_shares(
    values: ArrayLike, case_index: ArrayLike, candidate_index: ArrayLike | None = None
) -> VarianceShares:
    """Variance between cases, within them and, with `candidate_index`, between judgings of a candidate.

    Analysis of variance for unequal numbers (Searle, Casella & McCulloch 1992, ch. 5): sums of squares at each level
    are equated to their expectations, which is unbiased. With K repeats of every case it is within = mean of the cases'
    variances, between = variance of the case means - within/K. `candidate_index` names the candidate within its case;
    without it each row is one. Negative estimates are shown as 0 and named in `clipped`.

    >>> v = variance_shares([1, 1, 0, 0, 1, 0], ["a", "a", "b", "b", "c", "c"])
    >>> round(v.within, 4), round(v.between, 4)
    (0.1667, 0.1667)
    """
    x = np.asarray(values, dtype=float)
    cases = cluster_codes(case_index)
    if cases.size != x.size or np.isnan(x).any() or not x.size:
        raise InputError("variance_shares needs one case name a value, and no NaN: leave ungraded rows out")
    if candidate_index is None:
        between, within = _two_levels(x, cases)
        judge = 0.0
    else:
        between, within, judge = _three_levels(x, cases, cluster_codes(candidate_index))
    found = {"between": between, "within": within, "judge": judge}
    naive = float(x.var(ddof=1)) / x.size if x.size > 1 else nan
    return VarianceShares(
        **{name: nan if isnan(part) else max(part, 0.0) for name, part in found.items()},
        mean=float(x.mean()),
        n_cases=int(cases.max()) + 1,
        n_rows=x.size,
        design_effect=clustered_se(x, cases) ** 2 / naive if naive > 0 else nan,
        clipped=tuple(name for name, part in found.items() if part < 0),
    )


def _over(numerator: float, denominator: float) -> float:
    """A ratio that is NaN where there are no degrees of freedom."""
    return numerator / denominator if denominator > 1e-9 else nan


def _two_levels(x: Floats, cases: NDArray[np.intp]) -> tuple[float, float]:
    sizes = np.bincount(cases)
    means = np.bincount(cases, weights=x) / sizes
    n, c = x.size, sizes.size
    within = _over(float(((x - means[cases]) ** 2).sum()), n - c)
    across = float(sizes @ (means - x.mean()) ** 2)
    return _over(across - (c - 1) * within, n - float(sizes @ sizes) / n), within


def _three_levels(x: Floats, cases: NDArray[np.intp], candidates: NDArray[np.intp]) -> tuple[float, float, float]:
    """Henderson's method for a nested design: candidates in cases, judgings in candidates."""
    cells = cluster_codes(cases * (int(candidates.max()) + 1) + candidates)
    size = np.bincount(cells)
    case_of = np.zeros(size.size, dtype=np.intp)
    case_of[cells] = cases
    case_size = np.bincount(cases)
    cell_mean = np.bincount(cells, weights=x) / size
    case_mean = np.bincount(cases, weights=x) / case_size
    n, b, a = x.size, size.size, case_size.size
    judge = _over(float(((x - cell_mean[cells]) ** 2).sum()), n - b)
    spread = float((size**2 / case_size[case_of]).sum())
    in_cases = float(size @ (cell_mean - case_mean[case_of]) ** 2)
    within = _over(in_cases - (b - a) * judge, n - spread)
    across = float(case_size @ (case_mean - x.mean()) ** 2)
    explained = (a - 1) * judge + (spread - float(size @ size) / n) * within
    return _over(across - explained, n - float(case_size @ case_size) / n), within, judge


def what_buys(shares: VarianceShares, *, cases: int, repeats: int = 1, judgings: int = 1) -> float:
    """Standard error of the mean to expect from so many cases, repeats of each and judgings of a repeat.

    √((between + within/K + judge/(K J)) / n). More repeats only shrink what is within.

    >>> v = variance_shares([1, 1, 0, 0, 1, 0], ["a", "a", "b", "b", "c", "c"])
    >>> round(what_buys(v, cases=100), 4), round(what_buys(v, cases=100, repeats=8), 4)
    (0.0577, 0.0433)
    """
    if min(cases, repeats, judgings) < 1:
        raise InputError("cases, repeats and judgings must each be at least 1")
    a_case = shares.between + shares.within / repeats + shares.judge / (repeats * judgings)
    return sqrt(a_case / cases)


# --- sample sizes


def _variance(between: float, within: float, repeats: int) -> float:
    if between < 0 or within < 0 or repeats < 1:
        raise InputError("variances must be non-negative and repeats at least 1")
    return between + within / repeats


def _reach(power: float, level: float) -> float:
    if not 0 < power < 1:
        raise InputError(f"power must lie strictly between 0 and 1, got {power}: 0.8 is usual")
    return normal_quantile((1 + check_level(level)) / 2) + normal_quantile(power)


def cases_needed(
    difference: float,
    *,
    between: float,
    within_a: float = 0.0,
    within_b: float = 0.0,
    repeats: int = 1,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """Cases needed to find a true paired difference with this power, two-sided.

    n = (z_{α/2} + z_β)² (ω² + σ_A²/K + σ_B²/K) / δ², Miller (2024, arXiv 2411.00640), with ω² the
    variance over cases of the expected differences. Not rounded; round up.

    >>> round(cases_needed(0.03, between=1 / 9), 1)
    969.0
    >>> round(cases_needed(0.03, between=1 / 9, within_a=1 / 6, within_b=1 / 6, repeats=10), 1)
    1259.7
    """
    if difference == 0:
        raise InputError("no number of cases finds a difference of 0: give the smallest that matters")
    variance = _variance(between, within_a + within_b, repeats)
    return (_reach(power, level) / difference) ** 2 * variance


def detectable_difference(
    n: float,
    *,
    between: float,
    within_a: float = 0.0,
    within_b: float = 0.0,
    repeats: int = 1,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """The smallest true paired difference that n cases find with this power: the inverse of `cases_needed`.

    >>> round(detectable_difference(969, between=1 / 9), 4)
    0.03
    """
    if n <= 0:
        raise InputError(f"n must be positive, got {n}")
    return _reach(power, level) * sqrt(_variance(between, within_a + within_b, repeats) / n)


def cases_for_width(
    width: float, *, between: float, within: float = 0.0, repeats: int = 1, level: float = 0.95
) -> float:
    """Cases for which an interval of this level has this full width: (2z/width)² (between + within/K).

    >>> round(cases_for_width(0.1, between=0.25), 1)
    384.1
    """
    if width <= 0:
        raise InputError(f"width must be positive, got {width}")
    z = normal_quantile((1 + check_level(level)) / 2)
    return (2 * z / width) ** 2 * _variance(between, within, repeats)
