"""The law of a ratio of sums ΣS/ΣW over resampled clusters (or weighted cases), computed.

The ratio is at most x exactly when Σ(S - xW) is at most 0, and that is a sum of independent draws,
whose law `laws` knows how to compute. A quantile of the ratio is the x at which that probability
crosses p.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from kofn.stats.intervals import normal_quantile
from kofn.stats.laws import (
    ENUMERATE_UP_TO,
    MARGIN,
    convolve,
    cornish_fisher,
    enumerated_law,
    mean_law,
    moments_of_mean,
    nearly_normal,
    split_on_lattice,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kofn.stats.laws import Law

BINS = 1 << 12  # .004 of a standard error each
WINDOW = 16.0  # standard errors: enough for one probability near the middle of the law
SMOOTH_FROM = 1000  # units from which Cornish-Fisher is used: below, steps of the law may show


def ratio_law(sums: NDArray[np.float64], weights: NDArray[np.float64] | None) -> Law:
    """The law of Σsums/Σweights over units drawn with replacement. At least two must differ.

    Units of equal weight (None: 1 each) make it the law of a plain mean.

    >>> law = ratio_law(np.array([0.0, 2.0, 1.0]), np.array([1.0, 2.0, 2.0]))
    >>> law.lower(0.05), law.upper(0.05)
    (0.25, 0.8333333333333334)
    """
    if weights is None:
        return mean_law(sums)
    if float(weights.min()) == float(weights.max()):
        return mean_law(sums / weights)
    if sums.size <= ENUMERATE_UP_TO:
        return enumerated_law(sums, weights)
    point = float(sums.sum() / weights.sum())
    moments = moments_of_mean(sums - point * weights)
    if sums.size >= SMOOTH_FROM and nearly_normal(moments.skewness, moments.kurtosis):
        return SmoothRatio.of(sums, weights, point)
    return BinnedRatio(sums, weights, point)


def crossing(rises: Callable[[float], bool], low: float, high: float, steps: int) -> float:
    """The place between low and high where a statement turns true, by bisection."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class BinnedRatio:
    """The ratio's law by convolution on a fine lattice, once for each x that is tried."""

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    point: float

    def below(self, x: float) -> float:
        """P(ratio < x) + P(ratio = x)/2, but for the width of a bin."""
        parts = self.sums - x * self.weights
        n = parts.size
        sd, low = float(parts.std()), float(parts.min())
        if sd == 0:
            return 0.5 + 0.5 * float(np.sign(-low))
        step = WINDOW * sd * sqrt(n) / (BINS - 2 * MARGIN)
        summed = convolve(split_on_lattice(parts, low, step), n, WINDOW)
        if summed is None:  # pragma: no cover - the step was chosen so that the window fits
            raise AssertionError
        first, pmf = summed
        zero = -n * low / step - first  # the sum 0, in steps from the first
        at = int(np.clip(np.floor(zero + 0.5), 0, pmf.size))
        return float(pmf[:at].sum()) + (zero + 0.5 - at) * float(pmf[at] if at < pmf.size else 0.0)

    def _ends(self) -> tuple[float, float]:
        ratios = self.sums / self.weights
        parts = self.sums - self.point * self.weights
        reach = 6 * float(np.sqrt(parts @ parts)) / float(self.weights.sum())
        return max(float(ratios.min()), self.point - reach), min(float(ratios.max()), self.point + reach)

    def _quantile(self, rises: Callable[[float], bool]) -> float:
        low, high = self._ends()
        x = crossing(rises, low, high, steps=14)
        close = 2e-4 * (high - low)  # bisection never arrives at an end, where the law may have an atom
        return low if x - low < close else high if high - x < close else x

    def lower(self, p: float) -> float:
        return self._quantile(lambda x: self.below(x) >= p)

    def upper(self, p: float) -> float:
        return self._quantile(lambda x: self.below(x) > 1 - p)

    def median_bias(self) -> float:
        return normal_quantile(self.below(self.point))


def _powers(x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """x⁰ to x⁴ by multiplication: many times faster than `**` on arrays."""
    square = x * x
    return [np.ones_like(x), x, square, square * x, square * square]


@dataclass(frozen=True, slots=True)
class SmoothRatio:
    """The ratio's law by Cornish-Fisher: the moments of S - xW are polynomials in x."""

    point: float
    se: float
    n: int
    polynomials: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, sums: NDArray[np.float64], weights: NDArray[np.float64], point: float) -> SmoothRatio:
        """From the joint moments of S - point·W and W, up to the fourth."""
        residual = sums - point * weights  # its mean is 0
        centred = weights - weights.mean()
        of_residual, of_weight = _powers(residual), _powers(centred)
        polynomials = []
        for k in (2, 3, 4):
            # E[(residual - u·centred)^k], coefficients from u^k down to u^0, for polyval
            joint = [float(np.mean(of_residual[k - j] * of_weight[j])) for j in range(k, -1, -1)]
            signs = [comb(k, j) * (-1) ** j for j in range(k, -1, -1)]
            polynomials.append(tuple(s * m for s, m in zip(signs, joint, strict=True)))
        mean_weight = float(weights.mean())
        se = float(np.sqrt(residual @ residual)) / (sums.size * mean_weight)
        return cls(point, se, sums.size, (*polynomials, (-mean_weight, 0.0)))

    def _quantile_of_parts(self, u: float, z: float) -> float:
        m2, m3, m4, mean = (float(np.polyval(c, u)) for c in self.polynomials)
        sd = sqrt(m2)
        skewness = m3 / sd**3 / sqrt(self.n)
        kurtosis = (m4 / sd**4 - 3) / self.n
        return mean + sd / sqrt(self.n) * cornish_fisher(z, skewness, kurtosis)

    def quantile(self, p: float) -> float:
        z = normal_quantile(p)
        reach = 4 * (abs(z) + 1) * self.se
        return self.point + crossing(lambda u: self._quantile_of_parts(u, z) <= 0, -reach, reach, steps=48)

    def lower(self, p: float) -> float:
        return self.quantile(p)

    def upper(self, p: float) -> float:
        return self.quantile(1 - p)

    def median_bias(self) -> float:
        m2, m3, _, _ = (float(np.polyval(c, 0.0)) for c in self.polynomials)
        skewness = m3 / m2**1.5 / sqrt(self.n)
        return normal_quantile(0.5 + skewness / 6 * NormalDist().pdf(0.0))
