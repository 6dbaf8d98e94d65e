"""p-values of paired differences: the sign-flip permutation test, McNemar's exact test, and Holm's correction."""

from __future__ import annotations

import sys
from math import exp, fsum, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import check_resamples
from kofn.stats.laws import LARGEST_FFT, MOST_LEVELS, WINDOW, binomial_pmf, lattice_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ENUMERATE_UP_TO = 16  # differences: 65,536 patterns of signs
EXPAND_BELOW = 1e-3  # Σd⁴/(Σd²)² below which an expansion of the symmetric law errs by under 1e-5
HEAVIEST = 1024  # sizes whose signs are drawn; the sum of any smaller ones is given by the expansion
FLOOR = 1e-12  # what the transform and the expansion resolve; smaller p-values are given as this
TIE = 1 - 1e-9  # sums equal up to rounding count as equal


def sign_flip_p(differences: NDArray[np.float64], *, n_resamples: int = 10_000, seed: int = 0) -> float:
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
        return _enumerated(sizes, observed)
    p, least = _on_lattice(sizes, observed, high), FLOOR
    if p is None and float((sizes**4).sum()) <= EXPAND_BELOW * float(sizes @ sizes) ** 2:
        p = _expanded(sizes, observed)
    if p is None:
        p, least = _drawn(sizes, observed, n_resamples, seed), 1 / (n_resamples + 1)
    return p if p > least else min(p, tail_bound(sizes, observed))


def tail_bound(sizes: NDArray[np.float64], observed: float) -> float:
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


def _enumerated(sizes: NDArray[np.float64], observed: float) -> float:
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums + size, sums - size])
    return float(np.mean(np.abs(sums) >= observed * TIE))


def _on_lattice(sizes: NDArray[np.float64], observed: float, high: float) -> float | None:
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


def _expanded(sizes: NDArray[np.float64], observed: float) -> float:
    """Edgeworth for a symmetric sum: the first correction is the kurtosis, -2 Σd⁴/(Σd²)²."""
    upper = float(_upper_tail(sizes, np.array([observed]))[0])
    return min(1.0, max(2 * upper, FLOOR))


def _upper_tail(sizes: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(Σ ±d ≥ sum) for each sum, by the expansion."""
    from scipy.special import ndtr

    variance = float(sizes @ sizes)
    z = sums / sqrt(variance)
    kurtosis = -2 * float((sizes**4).sum()) / variance**2
    density = np.exp(-z * z / 2) / sqrt(2 * pi)
    return np.asarray(np.clip(ndtr(-z) + density * kurtosis * (z**3 - 3 * z) / 24, 0.0, 1.0))


def _drawn(sizes: NDArray[np.float64], observed: float, n_resamples: int, seed: int) -> float:
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

    The i-th smallest of m is multiplied by m - i + 1, never made smaller than the one before it,
    and held at 1.

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
