"""A judge against people: how often it is right, and what that says about a rate it measured.

Sensitivity s is the share of what people pass that the judge passes, specificity t the share of what people fail that
the judge fails. A judge that passes a share q of its cases then points to a true rate of (q + t - 1)/(s + t - 1).
Everything here is in closed form or by quadrature; `corrected` takes cases, clusters, weights and overlap into account.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan, nan, prod, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.draws import resampled_sums
from kofn.stats.estimate import estimate
from kofn.stats.intervals import (
    Interval,
    check_level,
    check_resamples,
    clopper_pearson,
    cluster_codes,
    jeffreys,
    normal_quantile,
    wilson,
)
from kofn.types import Estimate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FEW_LABELS = 30  # fewer labels of a class leave its rate too uncertain to correct with: a warning
OF_A_RATE = {"wilson": wilson, "clopper_pearson": clopper_pearson, "jeffreys": jeffreys}
NODES = 64  # Gauss-Legendre nodes for each of sensitivity and specificity
GRID = 2000  # midpoints for the prevalence: ends of an interval are right to 1/4000


class Prevalence(NamedTuple):
    """A corrected rate: as the formula gives it, within [0, 1], and whether these differ."""

    unclipped: float
    point: float
    clipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Weights (counts where every label weighs 1) of the four kinds of labels; "true" and "false" are the judge's.

    >>> c = Confusion.of([1, 1, 1, 0, 0], [1, 1, 0, 0, 1])
    >>> c.tp, c.fp, c.fn, c.tn, round(c.sensitivity, 3), c.specificity, c.agreement
    (2.0, 1.0, 1.0, 1.0, 0.667, 0.5, 0.6)
    """

    tp: float
    fp: float
    fn: float
    tn: float

    @classmethod
    def of(cls, human: ArrayLike, judge: ArrayLike, weights: ArrayLike | None = None) -> Confusion:
        """From 0/1 verdicts of people and the judge on the same things."""
        sums = label_columns(human, judge, weights).sum(axis=0)
        return cls(**dict(zip(("tp", "fp", "fn", "tn"), sums.tolist(), strict=True)))

    @property
    def sensitivity(self) -> float:
        """tp/(tp + fn); NaN without a label that people pass."""
        return _share(self.tp, self.fn)

    @property
    def specificity(self) -> float:
        """tn/(tn + fp); NaN without a label that people fail."""
        return _share(self.tn, self.fp)

    @property
    def agreement(self) -> float:
        """The share of labels on which both say the same."""
        return _share(self.tp + self.tn, self.fp + self.fn)

    @property
    def kappa(self) -> float:
        """Cohen's (1960): agreement beyond what the two rates of passing give by chance; NaN where that is 1."""
        return float(_kappa(np.array([[self.tp, self.fp, self.fn, self.tn]]))[0])


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest > 0 else nan


def as_verdicts(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A flat array of 0 and 1, or a one-line refusal.

    >>> as_verdicts("human", [True, 0]).tolist()
    [1.0, 0.0]
    """
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or not bool(((x == 0) | (x == 1)).all()):
        raise InputError(f"{name} verdicts must be 0 or 1, one a label: leave out what is not graded")
    return x


def label_columns(human: ArrayLike, judge: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """A row a label, with its weight in the column of its kind: tp, fp, fn, tn.

    >>> label_columns([1, 0], [1, 1], [1, 2.5]).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 2.5, 0.0, 0.0]]
    """
    h, j = as_verdicts("human", human), as_verdicts("judge", judge)
    if h.size != j.size:
        raise InputError(f"{h.size} human verdicts but {j.size} of the judge: give both for each label")
    w = np.ones_like(h) if weights is None else np.asarray(weights, dtype=float)
    if w.shape != h.shape or not bool((np.isfinite(w) & (w > 0)).all()):
        raise InputError("weights must be one positive number a label")
    return np.column_stack([h * j, (1 - h) * j, h * (1 - j), (1 - h) * (1 - j)]) * w[:, None]


def _kappa(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cohen's kappa of each row tp, fp, fn, tn."""
    tp, fp, fn, tn = columns.T
    with np.errstate(invalid="ignore", divide="ignore"):
        total = tp + fp + fn + tn
        by_chance = ((tp + fn) * (tp + fp) + (fp + tn) * (fn + tn)) / total**2
        kappa = ((tp + tn) / total - by_chance) / (1 - by_chance)
    return np.asarray(np.where(1 - by_chance > 1e-12, kappa, nan))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRates:
    """How a judge did on labels, each rate with its interval."""

    confusion: Confusion
    n: int
    n_passing: int
    n_failing: int
    sensitivity: Estimate
    specificity: Estimate
    agreement: Estimate
    kappa: Estimate


def judge_rates(
    human: ArrayLike,
    judge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> JudgeRates:
    """Confusion, sensitivity, specificity, agreement and Cohen's kappa of a judge on labels.

    Plain rates have Wilson's interval. Labels of the same cluster (several candidates of a case) are not
    independent, and labels may carry weights (one over their chance to be drawn): then the intervals are those of
    `estimate`, by cluster. That of kappa is always the percentile bootstrap. A class without labels has no rate.

    >>> rates = judge_rates([1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0])
    >>> print(rates.sensitivity, rates.specificity, sep="; ")
    sensitivity 0.667 [0.208, 0.939]; specificity 1.000 [0.439, 1.000]
    """
    check_level(level)
    columns = label_columns(human, judge, weights)
    h, j = as_verdicts("human", human), as_verdicts("judge", judge)
    w = None if weights is None else np.asarray(weights, dtype=float)
    codes = None if clusters is None else cluster_codes(clusters)
    if codes is not None and codes.size != h.size:
        raise InputError(f"{h.size} labels but {codes.size} cluster names: give one a label")

    def rate(name: str, right: NDArray[np.float64], of: NDArray[np.bool_]) -> Estimate:
        plain = codes is None and w is None
        return estimate(
            right[of],
            aggregator=name,
            weights=None if w is None else w[of],
            clusters=None if codes is None else codes[of],
            interval="wilson" if plain and of.any() else "auto",
            level=level,
            n_resamples=n_resamples,
            seed=seed,
        )

    same = (h == j).astype(float)
    return JudgeRates(
        confusion=Confusion.of(h, j, w),
        n=h.size,
        n_passing=int(h.sum()),
        n_failing=int(h.size - h.sum()),
        sensitivity=rate("sensitivity", j, h == 1),
        specificity=rate("specificity", 1 - j, h == 0),
        agreement=rate("agreement", same, np.ones(h.size, dtype=bool)),
        kappa=_kappa_estimate(columns, codes, level, n_resamples, seed),
    )


def _kappa_estimate(
    columns: NDArray[np.float64], codes: NDArray[np.intp] | None, level: float, n_resamples: int, seed: int
) -> Estimate:
    """Kappa with its percentile bootstrap by label or cluster; no interval where most draws have none."""
    check_resamples(n_resamples)
    point = float(_kappa(columns.sum(axis=0, keepdims=True))[0])
    low = high = None
    units = columns if codes is None else by_cluster(columns, codes)
    if len(units) > 1 and isfinite(point):
        drawn = _kappa(drawn_sums(units, n_resamples, np.random.default_rng(seed)))
        drawn = drawn[~np.isnan(drawn)]
        if drawn.size > n_resamples / 2:
            low, high = ends_of_draws(drawn, level)
    return Estimate(
        aggregator="kappa",
        point=None if isnan(point) else point,
        low=low,
        high=high,
        level=level,
        n=len(columns),
        n_missing=0,
        method="bootstrap" if low is not None else "none",
    )


def by_cluster(rows: NDArray[np.float64], codes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Column sums within each cluster.

    >>> by_cluster(np.array([[1.0], [2.0], [4.0]]), np.array([0, 1, 0])).tolist()
    [[5.0], [2.0]]
    """
    n = int(codes.max()) + 1 if codes.size else 0
    return np.column_stack([np.bincount(codes, weights=column, minlength=n) for column in rows.T])


def kinds_of_rows(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The different rows, sorted, and how many there are of each: `np.unique(rows, axis=0, return_counts=True)`.

    Rows of small whole numbers, which most counts are, become one whole number each: a hundred times quicker.

    >>> [part.tolist() for part in kinds_of_rows(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]))]
    [[[0.0, 2.0], [1.0, 0.0]], [1, 2]]
    """
    key, sizes = _row_keys(rows)
    if key is None:
        kinds, counts = np.unique(rows, axis=0, return_counts=True)
        return kinds, counts
    counts = np.bincount(key)
    there = np.flatnonzero(counts)
    return np.stack(np.unravel_index(there, sizes), axis=1).astype(np.float64), counts[there]


def _row_keys(rows: NDArray[np.float64]) -> tuple[NDArray[np.intp] | None, tuple[int, ...]]:
    """One whole number a row, in the order of the rows, and the sizes it is made with; None where that cannot be."""
    if not rows.size or not np.isfinite(rows.sum()) or rows.min() < 0:
        return None, ()
    sizes = tuple(int(most) + 1 for most in rows.max(axis=0))
    if prod(sizes) > max(1024, 4 * len(rows)):
        return None, ()
    key = np.zeros(len(rows), dtype=np.intp)
    for column, size in zip(rows.T, sizes, strict=True):
        whole = column.astype(np.intp)
        if not np.array_equal(whole, column):
            return None, ()
        key = key * size + whole
    return key, sizes


def drawn_sums(units: NDArray[np.float64], n_resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Column sums of resamples of the units. Units of few kinds need only the count of each kind (multinomial).

    >>> drawn_sums(np.ones((4, 2)), 2, np.random.default_rng(0)).tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """
    kinds, counts = kinds_of_rows(units)
    if len(kinds) > max(64, len(units) // 8):
        return resampled_sums(units, n_resamples, int(rng.integers(2**63)))
    drawn = rng.multinomial(len(units), counts / len(units), size=n_resamples)
    return np.asarray(drawn @ kinds)


def ends_of_draws(draws: NDArray[np.float64], level: float) -> tuple[float, float]:
    """The percentile ends of draws, of which some may be infinite.

    >>> ends_of_draws(np.arange(101.0), 0.9)
    (5.0, 95.0)
    """
    tail = (1 - check_level(level)) / 2
    low = np.quantile(draws, tail, method="inverted_cdf")
    return float(low), float(-np.quantile(-draws, tail, method="inverted_cdf"))


def _check_rate(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} must lie between 0 and 1, got {value}")


def check_informative(s: float, t: float) -> None:
    """Refuse a judge that passes what people fail at least as often as what they pass: it tells nothing."""
    if not s + t > 1:
        raise InputError(
            f"sensitivity {s:.3g} and specificity {t:.3g} add up to 1 or less: "
            "such a judge carries no information, and no correction exists"
        )


def rogan_gladen(q: float, s: float, t: float) -> Prevalence:
    """The true rate behind a judged rate q: (q + t - 1)/(s + t - 1), Rogan & Gladen (1978).

    Outside [0, 1] where q < 1 - t or q > s: then it is clipped and says so. s + t ≤ 1 is refused.

    >>> rogan_gladen(0.74, 0.9, 460 / 600)
    Prevalence(unclipped=0.76..., point=0.76..., clipped=False)
    """
    for name, value in (("the judged rate", q), ("sensitivity", s), ("specificity", t)):
        _check_rate(name, value)
    check_informative(s, t)
    return clipped_to_unit((q + t - 1) / (s + t - 1))


def clipped_to_unit(value: float) -> Prevalence:
    """A rate within [0, 1], beside what it was; a rounding error is not marked.

    >>> clipped_to_unit(1.2)
    Prevalence(unclipped=1.2, point=1.0, clipped=True)
    """
    inside = min(max(value, 0.0), 1.0)
    return Prevalence(value, inside, abs(inside - value) > 1e-12)


class ClosedForm(NamedTuple):
    """An interval of a corrected rate, as the formula gives it and within [0, 1]."""

    low: float
    high: float
    unclipped: tuple[float, float]


def lang_reiczigel(
    q: float, n_q: float, s: float, n_s: float, t: float, n_t: float, *, level: float = 0.95
) -> ClosedForm:
    """Interval of the corrected rate where q, s and t are all estimated, Lang & Reiczigel (2014).

    s' and t' have one success and one failure added, q' is Agresti and Coull's, p' follows from them, and the interval
    is p' + dp ± z √V with dp = 2z²(p' s'(1-s')/n_s' - (1-p') t'(1-t')/n_t') and
    V = [q'(1-q')/n_q' + p'² s'(1-s')/n_s' + (1-p')² t'(1-t')/n_t'] / (s'+t'-1)².
    Sizes need not be whole: data in clusters go in with n over the design effect.

    >>> found = lang_reiczigel(0.0600, 11862, 0.8, 10, 1.0, 12)
    >>> round(found.low, 3), round(found.high, 3)
    (0.0, 0.147)
    """
    for name, value in (("the judged rate", q), ("sensitivity", s), ("specificity", t)):
        _check_rate(name, value)
    if not min(n_q, n_s, n_t) > 0:
        raise InputError("every rate needs at least one case: label both kinds")
    check_informative(s, t)
    z = normal_quantile((1 + check_level(level)) / 2)
    m_q, m_s, m_t = n_q + z * z, n_s + 2, n_t + 2
    q, s, t = (q * n_q + z * z / 2) / m_q, (s * n_s + 1) / m_s, (t * n_t + 1) / m_t
    if not s + t > 1:  # the added labels took away what little the judge knew
        return ClosedForm(0.0, 1.0, (-np.inf, np.inf))
    p = (q + t - 1) / (s + t - 1)
    of_s, of_t = s * (1 - s) / m_s, t * (1 - t) / m_t
    middle = p + 2 * z * z * (p * of_s - (1 - p) * of_t)
    half = z * sqrt(q * (1 - q) / m_q + p * p * of_s + (1 - p) ** 2 * of_t) / (s + t - 1)
    low, high = middle - half, middle + half
    return ClosedForm(clipped_to_unit(low).point, clipped_to_unit(high).point, (low, high))


def known_rates(
    passes: float, n: float, s: float, t: float, *, level: float = 0.95, interval: str = "wilson"
) -> tuple[Prevalence, Interval]:
    """The corrected rate where s and t are known exactly: the ends of q's interval go through the same formula.

    Too narrow where s and t come from labels. `interval` is wilson, clopper_pearson or jeffreys.

    >>> point, ends = known_rates(20, 120, 0.9, 0.99)
    >>> round(point.point, 4), round(ends.low, 4), round(ends.high, 4)
    (0.176, 0.113, 0.2623)
    """
    if interval not in OF_A_RATE:
        raise UnknownName("interval of a rate", interval, list(OF_A_RATE))
    ends = OF_A_RATE[interval](passes, n, level)
    low, high = rogan_gladen(ends.low, s, t).point, rogan_gladen(ends.high, s, t).point
    return rogan_gladen(passes / n, s, t), Interval(low, high, f"known rates, {interval}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """What is believed of a true rate: mean, standard deviation, median and equal-tailed ends."""

    mean: float
    sd: float
    median: float
    low: float
    high: float
    level: float


def _nodes(name: str, span: tuple[float, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = span
    if not 0 <= low <= high <= 1:
        raise InputError(f"the range of {name} must lie within 0 and 1, lower end first: got {low}, {high}")
    x, w = np.polynomial.legendre.leggauss(NODES)
    return (low + high) / 2 + (high - low) / 2 * x, w / 2


def true_prevalence(
    passes: float, n: float, s: tuple[float, float], t: tuple[float, float], *, level: float = 0.95
) -> Posterior:
    """The true rate where s and t are only known to lie in ranges: Bayes, by quadrature.

    passes ~ Bin(n, s p + (1-t)(1-p)) with p uniform on [0, 1] and s, t uniform on their ranges (Speybroeck et al.
    2013). The data speak about s and t too, so this is not Rogan-Gladen drawn over the ranges.

    >>> p = true_prevalence(142, 742, (0.6, 1), (0.9, 1))
    >>> round(p.mean, 3), round(p.low, 2), round(p.high, 2)
    (0.197, 0.11, 0.3)
    """
    check_level(level)
    if not (n > 0 and 0 <= passes <= n):
        raise InputError(f"passes must lie between 0 and n, with n > 0: got {passes} of {n}")
    (at_s, w_s), (at_t, w_t) = _nodes("sensitivity", s), _nodes("specificity", t)
    p = (np.arange(GRID) + 0.5) / GRID
    density = np.zeros(GRID)
    best = passes * np.log(max(passes / n, 1e-300)) + (n - passes) * np.log(max(1 - passes / n, 1e-300))
    for spec, weight in zip(at_t, w_t, strict=True):
        q = np.clip(p[:, None] * at_s + (1 - p[:, None]) * (1 - spec), 1e-300, 1 - 1e-16)
        likelihood = np.exp(passes * np.log(q) + (n - passes) * np.log1p(-q) - best)
        density += weight * (likelihood @ w_s)
    mass = density / density.sum()
    mean = float(mass @ p)
    below = np.append(0.0, np.cumsum(mass))
    tail = (1 - level) / 2
    low, median, high = np.interp([tail, 0.5, 1 - tail], below, np.arange(GRID + 1) / GRID).tolist()
    return Posterior(mean=mean, sd=sqrt(float(mass @ (p - mean) ** 2)), median=median, low=low, high=high, level=level)
