"""Paired comparison of two systems on the same cases: the difference, its interval, and p-values of three tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import exp, fsum, pi, sqrt
from typing import TYPE_CHECKING, Unpack

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.estimates import BOOTSTRAPS, DEFAULT_INTERVAL, choose_interval, is_rate
from kofn.stats.intervals import NO_INTERVAL, Interval, check_level, check_resamples, cluster_codes, wilson
from kofn.stats.laws import LARGEST_FFT, MOST_LEVELS, WINDOW, binomial_pmf, lattice_counts
from kofn.stats.resample import as_units, bootstrap_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.stats.intervals import Drawing

ENUMERATE_UP_TO = 16  # differences: 65,536 patterns of signs
EXPAND_BELOW = 1e-3  # Σd⁴/(Σd²)² below which an expansion of the symmetric law errs by under 1e-5
HEAVIEST = 1024  # sizes whose signs are drawn; the sum of any smaller ones is given by the expansion
FLOOR = 1e-12  # what the transform and the expansion resolve; smaller p-values are given as this
TIE = 1 - 1e-9  # sums equal up to rounding count as equal
DIFFERENCES = {"auto": choose_interval(0, difference=True), **BOOTSTRAPS}

# --- p-values: the sign-flip permutation test, McNemar's exact test, Holm's correction


def sign_flip_p(differences: Floats, *, n_resamples: int = 10_000, seed: int = 0) -> float:
    """P(|Σ ±d| ≥ |Σd|) with every sign a fair coin: the paired permutation test (Fisher 1935).

    Exact for differences of one size (binomial), for those on a lattice (product of transforms)
    and for up to 16 others (all patterns of signs). Beyond, an expansion where it is accurate, else
    `n_resamples` random patterns with (b + 1)/(m + 1), the same for any order of the differences.
    Zero differences play no part; none but zeros gives 1. A p too small to be resolved is given as the
    least that can be, or as the bound 2 exp(-(Σd)²/2Σd²) where that is less (Hoeffding 1963).

    >>> sign_flip_p(np.array([1.0, 1.0, 1.0, 0.0]))
    0.25
    """
    check_resamples(n_resamples)
    sizes = np.abs(differences[differences != 0])
    if not sizes.size:
        return 1.0
    low, high = float(sizes.min()), float(sizes.max())
    if high - low <= 1e-12 * high:
        wins = int(np.count_nonzero(differences > 0))
        return binomial_two_sided(min(wins, sizes.size - wins), sizes.size)
    sizes, observed = np.sort(sizes), abs(fsum(differences.tolist()))  # so that no order of cases matters
    if sizes.size <= ENUMERATE_UP_TO:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float(np.mean(np.abs(sums) >= observed * TIE))
    p, least = _on_lattice(sizes, observed, high), FLOOR
    if p is None and float((sizes**4).sum()) <= EXPAND_BELOW * float(sizes @ sizes) ** 2:
        p = _expanded(sizes, observed)
    if p is None:
        p, least = _drawn(sizes, observed, n_resamples, seed), 1 / (n_resamples + 1)
    return p if p > least else min(p, tail_bound(sizes, observed))


def tail_bound(sizes: Floats, observed: float) -> float:
    """2 exp(-s²/2Σd²), which P(|Σ ±d| ≥ s) never exceeds (Hoeffding 1963).

    >>> round(tail_bound(np.ones(4), 4.0), 4)
    0.2707
    """
    return max(2 * exp(-(observed**2) / (2 * float(sizes @ sizes))), sys.float_info.min)


def binomial_two_sided(fewer: int, n: int) -> float:
    """min(1, 2 P(Binomial(n, 1/2) ≤ fewer)).

    >>> round(binomial_two_sided(1, 8), 12)
    0.0703125
    """
    if not n:
        return 1.0
    counts, pmf = binomial_pmf(n, 0.5)
    tail = float(pmf[counts <= fewer].sum())
    return min(1.0, 2 * max(tail, sys.float_info.min))


def mcnemar_p(only_a: int, only_b: int) -> float:
    """McNemar's exact test: of the cases only one side passed, is each side's half by chance?

    >>> round(mcnemar_p(2, 10), 12)
    0.03857421875
    """
    return binomial_two_sided(min(only_a, only_b), only_a + only_b)


def _on_lattice(sizes: Floats, observed: float, high: float) -> float | None:
    levels = np.unique(sizes[:: max(1, sizes.size // 2048)])
    counts = lattice_counts(sizes, levels, 0.0, high) if levels.size <= MOST_LEVELS else None
    if counts is None:
        return None
    steps = np.flatnonzero(counts)
    most = int(steps @ counts[steps])
    length = min(2 * most + 1, int(WINDOW * sqrt(float(steps**2 @ counts[steps]))) + 64)
    if length > LARGEST_FFT:
        return None
    m = 1 << (length - 1).bit_length()
    phi = np.ones(m // 2 + 1)
    angle = 2 * np.pi * np.arange(m // 2 + 1) / m
    for step in steps.tolist():
        phi *= np.cos(angle * step) ** int(counts[step])
    law = np.maximum(np.fft.irfft(phi, m), 0.0)
    distance = np.minimum(np.arange(m), m - np.arange(m))  # |sum|, since sums count modulo m
    far = distance >= round(observed / high * (counts.size - 1))
    return min(1.0, max(float(law[far].sum() / law.sum()), FLOOR))


def _expanded(sizes: Floats, observed: float) -> float:
    """Edgeworth for a symmetric sum: the first correction is the kurtosis, -2 Σd⁴/(Σd²)²."""
    upper = float(_upper_tail(sizes, np.array([observed]))[0])
    return min(1.0, max(2 * upper, FLOOR))


def _upper_tail(sizes: Floats, sums: Floats) -> Floats:
    """P(Σ ±d ≥ sum) for each sum, by the expansion."""
    from scipy.special import ndtr

    variance = float(sizes @ sizes)
    z = sums / sqrt(variance)
    kurtosis = -2 * float((sizes**4).sum()) / variance**2
    density = np.exp(-z * z / 2) / sqrt(2 * pi)
    return np.asarray(np.clip(ndtr(-z) + density * kurtosis * (z**3 - 3 * z) / 24, 0.0, 1.0))


def _drawn(sizes: Floats, observed: float, n_resamples: int, seed: int) -> float:
    """Random signs for the `HEAVIEST` sizes; given these, the expansion for the rest, if any.

    Of the rest each is smaller than a thousand that are drawn, so that what the expansion leaves out
    vanishes beside them, whatever the tail.
    """
    ordered = np.sort(sizes)[::-1]
    heavy, rest = ordered[:HEAVIEST], ordered[HEAVIEST:]
    rng = np.random.default_rng(seed)
    rows = max(1, (1 << 20) // heavy.size)
    as_far = 0.0
    for start in range(0, n_resamples, rows):
        shape = (min(rows, n_resamples - start), heavy.size)
        signs = rng.integers(0, 2, size=shape, dtype=np.int8) * 2.0 - 1.0
        sums = np.abs(signs @ heavy)
        if rest.size:
            as_far += float((_upper_tail(rest, observed - sums) + _upper_tail(rest, observed + sums)).sum())
        else:
            as_far += int(np.count_nonzero(sums >= observed * TIE))
    return min(1.0, (as_far + 1) / (n_resamples + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for looking at several at once, in the order given (Holm 1979).

    The i-th smallest of m is multiplied by m - i + 1, never made smaller than the one before it, and held at 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise InputError("p-values must lie between 0 and 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


# --- the difference and its interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """b against a over the cases both have. `difference` is b - a; None throughout when n is 0.

    `wins` are the cases where b is higher. `n_missing` counts shared cases that lack a value on
    either side; `only_a` and `only_b` name the cases the other side does not have.
    """

    n: int
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    p: float | None
    mcnemar_p: float | None
    wins: int
    ties: int
    losses: int
    n_missing: int
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def sign(self) -> int:
        """1 where b is higher, -1 where it is lower, 0 neither."""
        return 0 if self.difference is None else (self.difference > 0) - (self.difference < 0)

    def word(self, more_is_better: bool | None) -> str:
        """What b is beside a: better, worse, higher or lower; None where nobody can know whether more is better."""
        if more_is_better is None:
            return "higher" if self.sign > 0 else "lower"
        return "better" if (self.sign > 0) == more_is_better else "worse"


def _positions(ids: Sequence[str], values: Floats, side: str) -> dict[str, int]:
    if len(ids) != values.size:
        raise InputError(f"side {side} has {len(ids)} ids but {values.size} values")
    at = {case: i for i, case in enumerate(ids)}
    if len(at) < len(ids):
        twice = next(case for i, case in enumerate(ids) if at[case] != i)
        raise InputError(f"case {twice!r} occurs more than once in {side}: give one value a case")
    return at


def same_cases(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether two sides have the same cases in the same order, as runs of one dataset do.

    >>> same_cases("xy", ["x", "y"]), same_cases("xy", "yx")
    (True, False)
    """
    return a is b or (len(a) == len(b) and list(a) == list(b))


def compare(
    ids_a: Sequence[str],
    values_a: ArrayLike,
    ids_b: Sequence[str],
    values_b: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    interval: str = DEFAULT_INTERVAL,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems case by case, aligned by id.

    The interval is the bootstrap by case of the paired differences, the p-value a sign-flip permutation test (see
    `sign_flip_p`), with McNemar's exact test beside it when both sides are 0/1. With `clusters` (one a case of side a)
    whole clusters are resampled and flipped. With `weights` (one a case of side a) means are Σwx/Σw, and weighted
    differences are flipped; where every shared case weighs 0, all count alike.

    >>> c = compare(["x", "y", "z"], [0, 0, 1], ["z", "y", "w"], [1, 1, 1])
    >>> c.n, c.difference, c.wins, c.only_a, c.only_b
    (2, 0.5, 1, ('x',), ('w',))
    """
    check_level(level)
    check_resamples(n_resamples)
    if interval not in DIFFERENCES:
        raise UnknownName("interval of a difference", interval, list(DIFFERENCES))
    a, b = np.asarray(values_a, dtype=float), np.asarray(values_b, dtype=float)
    at_a = _positions(ids_a, a, "a")
    at_b = at_a if b.size == a.size and same_cases(ids_a, ids_b) else _positions(ids_b, b, "b")
    # where the cases stand that both sides have, in the order of side a
    rows_a = rows_b = np.arange(len(at_a), dtype=np.intp)
    if at_a is not at_b:
        shared = [(i, at_b[case]) for case, i in at_a.items() if case in at_b]
        rows_a, rows_b = np.array(shared, dtype=np.intp).reshape(-1, 2).T
    both = ~(np.isnan(a[rows_a]) | np.isnan(b[rows_b]))
    n_shared, rows_a, rows_b = rows_a.size, rows_a[both], rows_b[both]
    groups = None if clusters is None else cluster_codes(clusters)[rows_a]
    heavy = None if weights is None else np.asarray(weights, dtype=float)[rows_a]
    heavy = heavy if heavy is not None and heavy.any() else None
    a, b = a[rows_a], b[rows_b]
    binary = is_rate(a) and is_rate(b)
    drawing: dict[str, int] = {"n_resamples": n_resamples, "seed": seed}
    ends = _difference_interval(b - a, groups, heavy, interval, binary=binary, level=level, **drawing)
    mean_a, mean_b, difference = (as_units(x, heavy, None).point if x.size else None for x in (a, b, b - a))
    wins, losses = int((b > a).sum()), int((b < a).sum())
    return Comparison(
        n=a.size,
        a=mean_a,
        b=mean_b,
        difference=difference,
        **ends.finite(),
        level=level,
        method=ends.method,
        p=sign_flip_p(as_units(b - a, heavy, groups).sums, **drawing) if a.size else None,
        mcnemar_p=mcnemar_p(losses, wins) if binary and a.size and groups is None and heavy is None else None,
        wins=wins,
        ties=a.size - wins - losses,
        losses=losses,
        n_missing=n_shared - a.size,
        only_a=() if n_shared == len(at_a) else tuple(case for case in ids_a if case not in at_b),
        only_b=() if n_shared == len(at_b) else tuple(case for case in ids_b if case not in at_a),
    )


def _difference_interval(
    difference: Floats,
    clusters: NDArray[np.intp] | None,
    weights: Floats | None,
    interval: str,
    *,
    binary: bool,
    **drawing: Unpack[Drawing],
) -> Interval:
    """The bootstrap of the differences; where they are all equal, what Wilson's interval leaves open.

    With 0/1 values and no case that differs, each of "only a passes" and "only b passes" has a rate
    of at most Wilson's upper end u for none of n, so the difference lies within u of what was seen.
    Other values that all differ alike leave no width, as in `bootstrap_mean`.
    """
    method = DIFFERENCES[interval]
    found = bootstrap_mean(difference, clusters=clusters, weights=weights, method=method, **drawing)
    if found.method not in ("wilson", "degenerate"):
        return found
    value = float(difference[0])
    if not binary:
        return Interval(value, value, "degenerate") if difference.size > 1 else NO_INTERVAL
    reach = wilson(0, as_units(difference, weights, clusters).effective_size(), drawing["level"]).high
    return Interval(max(-1.0, value - reach), min(1.0, value + reach), "wilson")
