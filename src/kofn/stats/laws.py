"""The bootstrap distributions of a mean and of a ratio of sums, computed exactly instead of estimated from draws.

A bootstrap that draws estimates the quantiles of this law with Monte Carlo error; here they are computed, so the
interval is that of infinitely many draws and needs no seed. Which way depends on the values:

- two levels (0/1): the number of ones is binomial;
- values on a lattice (repeat means, marks out of ten): n-fold convolution by FFT;
- up to `ENUMERATE_UP_TO` cases: every resample;
- many cases and little skewness: Cornish-Fisher from four moments;
- anything else: the same convolution after splitting each value between its two neighbours on a
  fine lattice, which keeps the mean exactly and the variance to about 1e-4.

The ratio ΣS/ΣW over clusters or weighted cases is at most x exactly when Σ(S - xW) is at most 0, and that is a sum of
independent draws, whose law is computed as above. A quantile of the ratio is the x at which that probability crosses
p. Where a few units dominate, the law has clumps that no lattice resolves, and is drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import comb, inf, isfinite, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from kofn.stats.draws import resampled_ratios
from kofn.stats.intervals import normal_quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats, Ints

ENUMERATE_UP_TO = 7  # 1,716 resamples that differ
MOST_LEVELS = 256  # more distinct values than this are treated as continuous
MOST_STEPS = 4096  # a lattice finer than this is treated as continuous
WINDOW = 32.0  # width of the convolution, in standard deviations of the sum: tails beyond are < 1e-14
MARGIN = 64  # and points beyond it, for sums with little spread
LARGEST_FFT = 1 << 21  # points, which bounds the time and the memory of a convolution
# Cornish-Fisher within these bounds errs by less than .003 of a standard error at tails down to .005
# (measured on six kinds of data, n = 50 to 3,000); 10,000 draws err by .027 of one.
SMOOTH_SKEWNESS = 0.1
SMOOTH_KURTOSIS = 0.05
SMOOTH_FROM = 100  # cases, where nearly every value is different
SMOOTH_FROM_TIED = 10_000  # cases, where values repeat and the law may have large steps
MOST_RESAMPLES = 25_000  # that differ: more are not enumerated
TIE = 1 - 1e-10  # probabilities equal up to rounding count as equal


class Law(Protocol):
    """What an interval asks of the law of a resampled mean."""

    def lower(self, p: float) -> float:
        """The smallest x with P(mean ≤ x) ≥ p."""

    def upper(self, p: float) -> float:
        """The largest x with P(mean ≥ x) ≥ p."""

    def median_bias(self) -> float:
        """z₀ = Φ⁻¹(P(mean < point) + P(mean = point)/2)."""


@dataclass(frozen=True, slots=True)
class Discrete:
    """A law on points in increasing order."""

    support: Floats
    pmf: Floats
    point: float
    blur: float = 0.0

    def lower(self, p: float) -> float:
        at = int(np.searchsorted(np.cumsum(self.pmf), p * TIE))
        return float(self.support[min(at, self.support.size - 1)])

    def upper(self, p: float) -> float:
        at = int(np.searchsorted(np.cumsum(self.pmf[::-1]), p * TIE))
        return float(self.support[max(self.support.size - 1 - at, 0)])

    def median_bias(self) -> float:
        near = 1e-9 * float(self.support[-1] - self.support[0]) + self.blur
        below = float(self.pmf[self.support < self.point - near].sum())
        above = float(self.pmf[self.support > self.point + near].sum())
        return normal_quantile(round((1 + below - above) / 2, 12))  # sums of many shares miss 1 by rounding


class ContinuousLaw(ABC):
    """A law without atoms: both ends of an interval are quantiles."""

    __slots__ = ()

    @abstractmethod
    def quantile(self, p: float) -> float:
        """The x with P(mean ≤ x) = p."""

    def lower(self, p: float) -> float:
        return self.quantile(p)

    def upper(self, p: float) -> float:
        return self.quantile(1 - p)


@dataclass(frozen=True, slots=True)
class Smooth(ContinuousLaw):
    """A law known by its mean, standard deviation, skewness and excess kurtosis."""

    point: float
    sd: float
    skewness: float
    kurtosis: float

    def quantile(self, p: float) -> float:
        return self.point + self.sd * cornish_fisher(normal_quantile(p), self.skewness, self.kurtosis)

    def median_bias(self) -> float:
        return normal_quantile(0.5 + self.skewness / 6 * NormalDist().pdf(0.0))


class Moments(NamedTuple):
    """Mean and standard deviation of values; skewness and excess kurtosis *of their mean*."""

    mean: float
    sd: float
    skewness: float
    kurtosis: float


def cornish_fisher(z: float, skewness: float, kurtosis: float) -> float:
    """Standardised quantile of a law that is nearly normal (Cornish & Fisher 1938), to order 1/n.

    >>> cornish_fisher(1.96, 0.0, 0.0)
    1.96
    """
    return (
        z + skewness * (z * z - 1) / 6 + kurtosis * (z**3 - 3 * z) / 24 - skewness * skewness * (2 * z**3 - 5 * z) / 36
    )


def moments_of_mean(values: Floats, counts: Ints | None = None) -> Moments:
    """Four moments of the law of the resampled mean, in one read of the values by blocks.

    `counts` says how often each value is there.

    >>> moments_of_mean(np.array([0.0, 0.0, 0.0, 1.0]))
    Moments(mean=0.25, sd=0.433..., skewness=0.577..., kurtosis=-0.166...)
    """
    n = _size(values, counts)
    mean = _mean(values, counts)
    m2 = m3 = m4 = 0.0
    for start in range(0, values.size, 8192):  # a block stays in cache, and is too short for BLAS to start threads
        d = values[start : start + 8192] - mean
        square = d * d
        often = square if counts is None else square * counts[start : start + 8192]
        m2 += float(often.sum())
        m3 += float(often @ d)
        m4 += float(often @ square)
    variance = m2 / n
    if variance == 0:
        return Moments(mean, 0.0, 0.0, 0.0)
    return Moments(mean, sqrt(variance), m3 / n / variance**1.5 / sqrt(n), (m4 / n / variance**2 - 3) / n)


def binomial_pmf(n: int, p: float) -> tuple[Ints, Floats]:
    """Counts and probabilities of Binomial(n, p), out to where they are below 1e-30 of the mode.

    By the ratio of neighbours, outwards from the mode, so that nothing overflows and the relative
    error stays near 1e-11 even at n = 10⁸.

    >>> counts, pmf = binomial_pmf(2, 0.5)
    >>> counts.tolist(), pmf.round(12).tolist()
    ([0, 1, 2], [0.25, 0.5, 0.25])
    """
    if p <= 0 or p >= 1:
        return np.array([0 if p <= 0 else n]), np.ones(1)
    mode = min(int((n + 1) * p), n)
    reach = int(13 * sqrt(n * p * (1 - p))) + 60
    up = np.arange(mode, min(n, mode + reach), dtype=float)
    down = np.arange(mode, max(0, mode - reach), -1, dtype=float)
    right = np.cumprod((n - up) / (up + 1) * (p / (1 - p)))
    left = np.cumprod(down / (n - down + 1) * ((1 - p) / p))
    pmf = np.concatenate([left[::-1], [1.0], right])
    return np.arange(mode - left.size, mode + right.size + 1), pmf / pmf.sum()


def _float_gcd(fractions: Floats) -> float:
    step = 0.0
    for fraction in fractions.tolist():
        a, b = step, fraction
        while b > 1e-9:
            a, b = b, a % b
            if a - b < 1e-9:  # a remainder that is a whole step but for rounding
                b = 0.0
        step = a
    return step


def lattice_counts(values: Floats, levels: Floats, low: float, high: float, counts: Ints | None = None) -> Ints | None:
    """How many values lie on each point of the coarsest lattice from low to high; None if none fits.

    `levels` are distinct values met in a part of the data; the lattice found in them must fit all. `counts` says how
    often each value is there.

    >>> values = np.array([0.0, 0.25, 1.0, 1.0])
    >>> lattice_counts(values, np.unique(values), 0.0, 1.0).tolist()
    [1, 1, 0, 0, 2]
    """
    if levels.size > MOST_LEVELS:
        return None
    step = _float_gcd((levels - low) / (high - low))
    steps = round(1 / step) if step > 0.5 / MOST_STEPS else 0
    if not 0 < steps <= MOST_STEPS:
        return None
    scaled = (values - low) * (steps / (high - low))
    codes = np.rint(scaled)
    if np.abs(scaled - codes).max() > 1e-7:
        return None
    found = np.bincount(codes.astype(np.intp), weights=counts, minlength=steps + 1)
    return found.astype(np.int64)  # sums of counts are whole, and exact below 2**53


def _to_the(x: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """xⁿ by squaring: several times faster than `**` on complex arrays."""
    power: NDArray[np.complex128] | None = None
    while True:
        if n & 1:
            power = x if power is None else power * x
        n >>= 1
        if not n:
            return x if power is None else power
        x = x * x


def convolve(pmf: Floats, n: int, window: float = WINDOW) -> tuple[int, Floats] | None:
    """Law of the sum of n draws from 0..m: the first sum and the probabilities from there on.

    The transform of one draw, raised to n. Only a window of so many standard deviations is computed, since the
    transform of length M gives the law modulo M and what lies outside is below rounding. Probabilities under 1e-16 are
    rounding and are set to 0. None where the window is too large to afford.

    >>> first, law = convolve(np.array([0.5, 0.5]), 3)
    >>> first, law.round(12).tolist()
    (0, [0.125, 0.375, 0.375, 0.125])
    """
    steps = np.arange(pmf.size)
    mean = float(pmf @ steps)
    sd = sqrt(max(float(pmf @ (steps - mean) ** 2), 0.0) * n)
    top = n * (pmf.size - 1)
    length = min(top + 1, int(window * sd) + MARGIN)
    if length > LARGEST_FFT:
        return None
    size = 1 << (length - 1).bit_length()
    # centred on the mean, so that the phase, which is multiplied by n, is small
    shift = round(mean)
    one = np.bincount((steps - shift) % size, weights=pmf, minlength=size)
    phi = np.fft.rfft(one)
    power = np.zeros_like(phi)
    kept = np.abs(phi) > np.exp(-45.0 / n)  # the n-th power of the rest is below e^-45, that is below rounding
    power[kept] = _to_the(phi[kept], n)
    law = np.fft.irfft(power, size)
    law[law < 1e-16] = 0.0
    first = min(max(round(n * mean) - length // 2, 0), top + 1 - length)
    law = np.roll(law, n * shift - first)[:length]
    return first, law / law.sum()


@lru_cache(maxsize=16)
def _compositions(n: int, kinds: int) -> Floats:
    """Every way to write n as a sum of so many counts, a row each."""
    left = np.array([n])
    columns: list[Ints] = []
    for _ in range(kinds - 1):
        each = left + 1  # a row goes on as one row for each count from 0 to what is left
        rows = np.repeat(np.arange(left.size), each)
        count = np.arange(rows.size) - np.repeat(np.cumsum(each) - each, each)
        columns = [column[rows] for column in columns] + [count]
        left = left[rows] - count
    return np.stack([*columns, left], axis=1).astype(float)


def enumerated_law(values: Floats, weights: Floats | None) -> Discrete:
    """Every resample of a few values (or of a few sums, over the sums of their weights).

    >>> law = enumerated_law(np.array([0.0, 0.0, 3.0]), np.array([1.0, 1.0, 2.0]))
    >>> law.support.tolist(), law.pmf.round(12).tolist()
    ([0.0, 0.75, 1.2, 1.5], [0.296296296296, 0.444444444444, 0.222222222222, 0.037037037037])
    """
    n = values.size
    of = np.ones(n) if weights is None else weights
    kinds, times = np.unique(values + 1j * of, return_counts=True)
    counts = _compositions(n, kinds.size)
    log_factorial = np.append(0.0, np.cumsum(np.log(np.arange(1, n + 1))))
    logs = log_factorial[n] - log_factorial[counts.astype(np.intp)].sum(axis=1) + counts @ np.log(times / n)
    pmf = np.exp(logs)
    means = (counts @ kinds.real) / (counts @ kinds.imag)
    order = np.argsort(means, kind="stable")
    return Discrete(means[order], pmf[order] / pmf.sum(), float(values.sum() / of.sum()))


def resamples_that_differ(values: Floats, weights: Floats) -> int:
    """How many resamples differ: few, where there are few units or few kinds of them. A lower bound where many.

    >>> resamples_that_differ(np.array([0.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 2.0]))
    15
    """
    n = values.size
    differ = n + 1  # with two kinds
    for some in (min(n, 32), n) if differ <= MOST_RESAMPLES else ():
        kinds = np.unique(values[:some] + 1j * weights[:some]).size
        differ = comb(n + kinds - 1, kinds - 1)
        if differ > MOST_RESAMPLES:
            break
    return differ


def drawn_law(draws: Floats, point: float) -> Discrete:
    """The law that draws estimate: each has the same probability."""
    ordered = np.sort(draws)
    return Discrete(ordered, np.full(ordered.size, 1 / ordered.size), point)


def split_on_lattice(values: Floats, origin: float, step: float, counts: Ints | None = None) -> Floats:
    """Mass of each value shared between the two lattice points around it, so that the mean is kept."""
    position = (values - origin) / step
    floor = np.floor(position)
    right = position - floor
    at = floor.astype(np.intp)
    size = int(at.max()) + 2
    often = 1 if counts is None else counts
    mass = np.bincount(at, weights=(1 - right) * often, minlength=size)
    mass += np.bincount(at + 1, weights=right * often, minlength=size)
    return mass / _size(values, counts)


def _binned_law(values: Floats, moments: Moments, low: float, counts: Ints | None) -> Discrete:
    n = _size(values, counts)
    # steps of 0.02 to 0.04 standard deviations of a value, unless the bounds of the size make them finer or coarser
    size = 1 << min(max(int(np.log2(WINDOW * sqrt(n) / 0.02)), 16), 20)
    step = WINDOW * moments.sd * sqrt(n) / (size - 2 * MARGIN)
    summed = convolve(split_on_lattice(values, low, step, counts), n)
    if summed is None:  # pragma: no cover - the step was chosen so that the window fits
        raise AssertionError
    first, pmf = summed
    support = np.arange(first, first + pmf.size, dtype=float) * (step / n) + low
    return Discrete(support, pmf, moments.mean, blur=step / n / 2)


def nearly_normal(skewness: float, kurtosis: float) -> bool:
    """Whether an expansion in these moments of the mean errs by far less than drawing would."""
    return abs(skewness) <= SMOOTH_SKEWNESS and abs(kurtosis) <= SMOOTH_KURTOSIS


def mean_law(values: Floats, counts: Ints | None = None) -> Law:
    """The law of the mean of n values drawn from these n with replacement. At least two must differ.

    With `counts` each value is different, and there so often.

    >>> law = mean_law(np.array([0.0, 1.0, 1.0, 1.0]))
    >>> law.lower(0.025), law.upper(0.025)
    (0.25, 1.0)
    >>> mean_law(np.array([0.0, 1.0]), np.array([1, 3])).lower(0.025)
    0.25
    """
    n = _size(values, counts)
    low, high = float(values.min()), float(values.max())
    at_low, at_high = values == low, values == high
    n_low, n_high = (int(np.count_nonzero(at) if counts is None else counts[at].sum()) for at in (at_low, at_high))
    if n_low + n_high == n:
        ones, pmf = binomial_pmf(n, n_high / n)
        support = (low * (n - ones) + high * ones) / n
        return Discrete(support, pmf, (low * (n - n_high) + high * n_high) / n)
    if n <= ENUMERATE_UP_TO:
        return enumerated_law(values if counts is None else np.repeat(values, counts), None)
    part = values[:: max(1, n // 2048)] if counts is None else values
    levels = np.unique(part)
    found = lattice_counts(values, levels, low, high, counts)
    if found is not None and (summed := convolve(found / n, n)) is not None:
        first, pmf = summed
        top, at = found.size - 1, np.arange(first, first + pmf.size)
        return Discrete((low * (n * top - at) + high * at) / (n * top), pmf, _mean(values, counts))
    moments, tied = moments_of_mean(values, counts), 2 * levels.size < (n if counts is not None else part.size)
    enough = n >= (SMOOTH_FROM_TIED if tied else SMOOTH_FROM)
    if enough and nearly_normal(moments.skewness, moments.kurtosis):
        return Smooth(moments.mean, moments.sd / sqrt(n), moments.skewness, moments.kurtosis)
    return _binned_law(values, moments, low, counts)


def _mean(values: Floats, counts: Ints | None) -> float:
    return float(values.mean()) if counts is None else float(values @ counts) / int(counts.sum())


def _size(values: Floats, counts: Ints | None) -> int:
    return values.size if counts is None else int(counts.sum())


RATIO_WINDOW = 16.0  # standard errors: enough for one probability near the middle of the distribution
FEWEST_BINS = 1 << 12  # .004 of a standard error each
BINS = 100  # and at least so many times √n: splitting values between bins adds .4% to the variance
RATIO_SMOOTH_FROM = 1000  # units from which Cornish-Fisher is used: below, steps of the law may show
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
    if sums.size >= RATIO_SMOOTH_FROM and effective_number(weights) >= SMOOTH_KISH:
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
            # where a line through both ends is 0, kept off the ends; or the middle
            halve = step % 3 == 0 and ends[1] - ends[0] > width / 4
            rise = at_ends[1] - at_ends[0]
            share = at_ends[0] / (at_ends[0] - at_ends[1]) if isfinite(rise) and not halve else 0.5
            x = ends[0] + min(max(share, 0.02), 0.98) * (ends[1] - ends[0])
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
        step = RATIO_WINDOW * sd * sqrt(n) / (self.bins - 2 * MARGIN)
        summed = convolve(split_on_lattice(parts, low, step), n, RATIO_WINDOW)
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
        close = RATIO_WINDOW / self.bins * self.se  # an atom at an end is blurred by a bin
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

    def quantile(self, p: float) -> float:
        z = normal_quantile(p)
        high = 4 * (abs(z) + 1) * self.se
        low = -high
        for _ in range(48):  # by bisection: where the quantile of S - (point + u)W turns negative
            u = (low + high) / 2
            m2, m3, m4, mean = (float(np.polyval(c, u)) for c in self.polynomials)
            sd = sqrt(m2)
            skewness, kurtosis = m3 / sd**3 / sqrt(self.n), (m4 / sd**4 - 3) / self.n
            passed = mean + sd / sqrt(self.n) * cornish_fisher(z, skewness, kurtosis) <= 0
            low, high = (low, u) if passed else (u, high)
        return self.point + (low + high) / 2

    def median_bias(self) -> float:
        m2, m3, _, _ = (float(np.polyval(c, 0.0)) for c in self.polynomials)
        skewness = m3 / m2**1.5 / sqrt(self.n)
        return normal_quantile(0.5 + skewness / 6 * NormalDist().pdf(0.0))
