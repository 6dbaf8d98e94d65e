"""The bootstrap distribution of a ratio of sums ΣS/ΣW over clusters or weighted cases, computed where possible.

The ratio is at most x exactly when Σ(S - xW) is at most 0, and that is a sum of independent draws,
whose law `laws` knows how to compute. A quantile of the ratio is the x at which that probability
crosses p. Where a few units dominate, the law has clumps that no lattice resolves, and is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf, isfinite, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from kofn.stats.draws import resampled_ratios
from kofn.stats.intervals import normal_quantile
from kofn.stats.laws import (
    LARGEST_FFT,
    MARGIN,
    MOST_RESAMPLES,
    ContinuousLaw,
    convolve,
    cornish_fisher,
    drawn_law,
    enumerated_law,
    mean_law,
    moments_of_mean,
    nearly_normal,
    resamples_that_differ,
    split_on_lattice,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.core.candidate_sets import Floats
    from kofn.stats.laws import Law

WINDOW = 16.0  # standard errors: enough for one probability near the middle of the distribution
FEWEST_BINS = 1 << 12  # .004 of a standard error each
BINS = 100  # and at least so many times √n: splitting values between bins adds .4 % to the variance
SMOOTH_FROM = 1000  # units from which Cornish-Fisher is used: below, steps of the law may show
SMOOTH_KISH = 200.0  # and the effective number of units from which the ratio is nearly linear in its sums
MOST_DRAWS = 50_000  # draws where a few units dominate, or fewer such that
CELLS = 1 << 22  # units drawn in all stay below this, some 20 ms; never fewer than n_resamples
NEAR = 5e-4  # a quantile is found when the normal score of its probability is this close


def ratio_law(sums: Floats, weights: Floats | None, *, n_resamples: int = 10_000, seed: int = 0) -> Law:
    """The law of Σsums/Σweights over units drawn with replacement. At least two must differ.

    Units of equal weight (None: 1 each) make it the law of a plain mean. Few units, or few kinds of
    them, are enumerated. Where a few units dominate
    (see `dominated`) it is estimated from draws, at least `n_resamples`; anywhere else it is computed.

    >>> law = ratio_law(np.array([0.0, 2.0, 1.0]), np.array([1.0, 2.0, 2.0]))
    >>> law.lower(0.05), law.upper(0.05)
    (0.25, 0.8333333333333334)
    """
    if weights is None:
        return mean_law(sums)
    if float(weights.min()) == float(weights.max()):
        return mean_law(sums / weights)
    if resamples_that_differ(sums, weights) <= MOST_RESAMPLES:
        return enumerated_law(sums, weights)
    point = float(sums.sum() / weights.sum())
    parts = sums - point * weights
    if dominated(parts, weights):
        draws = max(n_resamples, min(MOST_DRAWS, CELLS // sums.size))
        return drawn_law(resampled_ratios(sums, weights, draws, seed), point)
    if sums.size >= SMOOTH_FROM and effective_number(weights) >= SMOOTH_KISH:
        moments = moments_of_mean(parts)
        if nearly_normal(moments.skewness, moments.kurtosis):
            return SmoothRatio.of(sums, weights, point)
    return BinnedRatio.of(sums, weights, point)


def effective_number(weights: Floats) -> float:
    """(Σw)²/Σw², Kish (1965): the number of units when their weights are equal.

    >>> effective_number(np.array([3.0, 1.0, 1.0, 1.0]))
    3.0
    """
    return float(weights.sum()) ** 2 / float(weights @ weights)


def dominated(parts: Floats, weights: Floats) -> bool:
    """Whether a few units dominate: then the law has clumps, one for each of their counts, far narrower than itself.

    That is where one unit has a fifth of the weight or three fifths of the variance, or where the effective number of
    units is small in itself (30) and against their number (a quarter).

    >>> dominated(np.ones(20), np.ones(20)), dominated(np.ones(20), np.array([10.0] + 19 * [1.0]))
    (False, True)
    """
    n = weights.size
    squares = parts * parts
    return (
        float(weights.max()) > max(0.2, 3 / n) * float(weights.sum())
        or float(squares.max()) > 0.6 * float(squares.sum())
        or effective_number(weights) < min(30.0, n / 4)
    )


def crossing(rises: Callable[[float], bool], low: float, high: float, steps: int) -> float:
    """The place between low and high where a statement turns true, by bisection."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return (low + high) / 2


def _between(x: tuple[float, float], y: tuple[float, float], *, halve: bool) -> float:
    """Where a line through the two ends (x, y) is 0, kept off the ends; or the middle."""
    share = y[0] / (y[0] - y[1]) if isfinite(y[1] - y[0]) and not halve else 0.5
    return x[0] + min(max(share, 0.02), 0.98) * (x[1] - x[0])


def rising_root(f: Callable[[float], float], low: float, high: float, start: float, scale: float) -> float:
    """Where f, which rises from low to high by about 1 each `scale`, passes 0, to about `NEAR` of a scale.

    Strides from the start until f changes sign, then secants, and halves where these stall (at a step of f).

    >>> round(rising_root(lambda x: x**3 - 2, 0.0, 9.0, 1.0, 0.5), 3)
    1.26
    """
    ends, at_ends = (low, high), (-inf, inf)
    x, stride = min(max(start, low), high), scale
    for step in range(100):
        y = f(x)
        if abs(y) < NEAR:
            return x
        width = ends[1] - ends[0]
        ends = (x, ends[1]) if y < 0 else (ends[0], x)
        at_ends = (y, at_ends[1]) if y < 0 else (at_ends[0], y)
        if ends[1] - ends[0] < NEAR * scale:
            break
        if isfinite(at_ends[0]) and isfinite(at_ends[1]):
            x = _between(ends, at_ends, halve=step % 3 == 0 and ends[1] - ends[0] > width / 4)
            continue
        x -= stride * min(max(y * 1.05, -3.0), 3.0)  # a little beyond, so that f changes sign
        stride *= 1.5
        if not ends[0] < x < ends[1]:
            x = (ends[0] + ends[1]) / 2
    return (ends[0] + ends[1]) / 2


@dataclass(frozen=True, slots=True)
class BinnedRatio(ContinuousLaw):
    """The ratio's law by convolution on a fine lattice, once for each x that is tried."""

    sums: Floats
    weights: Floats
    point: float
    se: float
    bins: int

    @classmethod
    def of(cls, sums: Floats, weights: Floats, point: float) -> BinnedRatio:
        """With so many bins that they blur the law by little."""
        parts = sums - point * weights
        se = float(np.sqrt(parts @ parts)) / float(weights.sum())
        bins = int(min(max(FEWEST_BINS, BINS * sqrt(sums.size)), LARGEST_FFT / 2))
        return cls(sums, weights, point, se, 1 << (bins - 1).bit_length())

    def below(self, x: float) -> float:
        """P(ratio < x) + P(ratio = x)/2, but for the width of a bin."""
        parts = self.sums - x * self.weights
        n = parts.size
        sd, low = float(parts.std()), float(parts.min())
        if sd == 0:
            return 0.5 + 0.5 * float(np.sign(-low))
        step = WINDOW * sd * sqrt(n) / (self.bins - 2 * MARGIN)
        summed = convolve(split_on_lattice(parts, low, step), n, WINDOW)
        if summed is None:  # pragma: no cover - the step was chosen so that the window fits
            raise AssertionError
        first, pmf = summed
        zero = -n * low / step - first  # the sum 0, in steps from the first
        at = int(np.clip(np.floor(zero + 0.5), 0, pmf.size))
        return float(pmf[:at].sum()) + (zero + 0.5 - at) * float(pmf[at] if at < pmf.size else 0.0)

    def quantile(self, p: float) -> float:
        """Where `below` is p, anywhere from the lowest unit's own ratio to the highest's."""
        ratios = self.sums / self.weights
        low, high = float(ratios.min()), float(ratios.max())
        z = normal_quantile(p)
        if not isfinite(z):
            return low if z < 0 else high
        x = rising_root(lambda x: normal_quantile(self.below(x)) - z, low, high, self.point + z * self.se, self.se)
        close = WINDOW / self.bins * self.se  # an atom at an end is blurred by a bin
        return low if x - low < close else high if high - x < close else x

    def median_bias(self) -> float:
        return normal_quantile(self.below(self.point))


def _powers(x: Floats) -> list[Floats]:
    """x⁰ to x⁴ by multiplication: many times faster than `**` on arrays."""
    square = x * x
    return [np.ones_like(x), x, square, square * x, square * square]


@dataclass(frozen=True, slots=True)
class SmoothRatio(ContinuousLaw):
    """The ratio's law by Cornish-Fisher: the moments of S - xW are polynomials in x."""

    point: float
    se: float
    n: int
    polynomials: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, sums: Floats, weights: Floats, point: float) -> SmoothRatio:
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

    def median_bias(self) -> float:
        m2, m3, _, _ = (float(np.polyval(c, 0.0)) for c in self.polynomials)
        skewness = m3 / m2**1.5 / sqrt(self.n)
        return normal_quantile(0.5 + skewness / 6 * NormalDist().pdf(0.0))
