"""The true rate behind a judged rate, in closed form or by Bayes, and prediction-powered means (ppi++).

With sensitivity s and specificity t, a judge that passes a share q of its cases points to a true rate of
(q + t - 1)/(s + t - 1) (Rogan-Gladen). `corrected_rates` takes cases, clusters, weights and overlap into account.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.intervals import FOR_RATES, Interval, check_level, cluster_codes, normal_quantile, t_quantile
from kofn.stats.resample import as_values

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from kofn.core.candidate_sets import Floats

_NODES = 64  # Gauss-Legendre nodes for each of sensitivity and specificity
_GRID = 2000  # midpoints for the prevalence: ends of an interval are right to 1/4000


class Prevalence(NamedTuple):
    """A corrected rate: as the formula gives it, within [0, 1], and whether these differ."""

    unclipped: float
    point: float
    clipped: bool


def _check_rates(q: float, s: float, t: float) -> None:
    for name, value in (("the judged rate", q), ("sensitivity", s), ("specificity", t)):
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
    _check_rates(q, s, t)
    check_informative(s, t)
    return clip_to_unit((q + t - 1) / (s + t - 1))


def clip_to_unit(value: float) -> Prevalence:
    """A rate within [0, 1], beside its value before; a rounding error does not count as clipped.

    >>> clip_to_unit(1.2)
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
    _check_rates(q, s, t)
    if not min(n_q, n_s, n_t) > 0:
        raise InputError("every rate needs at least one case: label both kinds")
    check_informative(s, t)
    z = normal_quantile((1 + check_level(level)) / 2)
    m_q, m_s, m_t = n_q + z * z, n_s + 2, n_t + 2
    q, s, t = (q * n_q + z * z / 2) / m_q, (s * n_s + 1) / m_s, (t * n_t + 1) / m_t
    if not s + t > 1:  # with the added labels the judge is no longer better than a coin
        return ClosedForm(0.0, 1.0, (-np.inf, np.inf))
    p = (q + t - 1) / (s + t - 1)
    of_s, of_t = s * (1 - s) / m_s, t * (1 - t) / m_t
    middle = p + 2 * z * z * (p * of_s - (1 - p) * of_t)
    half = z * sqrt(q * (1 - q) / m_q + p * p * of_s + (1 - p) ** 2 * of_t) / (s + t - 1)
    low, high = middle - half, middle + half
    return ClosedForm(clip_to_unit(low).point, clip_to_unit(high).point, (low, high))


def known_rates(
    passes: float, n: float, s: float, t: float, *, level: float = 0.95, interval: str = "wilson"
) -> tuple[Prevalence, Interval]:
    """The corrected rate where s and t are known exactly: the ends of q's interval go through the same formula.

    Too narrow where s and t come from labels. `interval` is wilson, clopper_pearson or jeffreys.

    >>> point, ends = known_rates(20, 120, 0.9, 0.99)
    >>> round(point.point, 4), round(ends.low, 4), round(ends.high, 4)
    (0.176, 0.113, 0.2623)
    """
    if (interval_of := FOR_RATES.get(interval)) is None:
        raise UnknownName("interval of a rate", interval, list(FOR_RATES))
    ends = interval_of(passes, n, level)
    low, high = rogan_gladen(ends.low, s, t).point, rogan_gladen(ends.high, s, t).point
    return rogan_gladen(passes / n, s, t), Interval(low, high, f"known rates, {interval}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The posterior of a true rate: mean, standard deviation, median and equal-tailed ends."""

    mean: float
    sd: float
    median: float
    low: float
    high: float
    level: float


def _nodes(name: str, span: tuple[float, float]) -> tuple[Floats, Floats]:
    low, high = span
    if not 0 <= low <= high <= 1:
        raise InputError(f"the range of {name} must lie within 0 and 1, lower end first: got {low}, {high}")
    x, w = np.polynomial.legendre.leggauss(_NODES)
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
    p = (np.arange(_GRID) + 0.5) / _GRID
    density = np.zeros(_GRID)
    # the highest log-likelihood of any q: subtracted below, so that no likelihood underflows to 0
    best = passes * np.log(max(passes / n, 1e-300)) + (n - passes) * np.log(max(1 - passes / n, 1e-300))
    for spec, weight in zip(at_t, w_t, strict=True):
        q = np.clip(p[:, None] * at_s + (1 - p[:, None]) * (1 - spec), 1e-300, 1 - 1e-16)
        likelihood = np.exp(passes * np.log(q) + (n - passes) * np.log1p(-q) - best)
        density += weight * (likelihood @ w_s)
    mass = density / density.sum()
    mean = float(mass @ p)
    below = np.append(0.0, np.cumsum(mass))
    tail = (1 - level) / 2
    low, median, high = np.interp([tail, 0.5, 1 - tail], below, np.arange(_GRID + 1) / _GRID).tolist()
    return Posterior(mean=mean, sd=sqrt(float(mass @ (p - mean) ** 2)), median=median, low=low, high=high, level=level)


# --- prediction-powered inference: a mean score from a few human labels and many scores of a judge


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPowered:
    """The mean people would give, and λ, how far predictions were trusted (0: labels alone)."""

    point: float
    low: float
    high: float
    level: float
    lam: float
    n_labels: int
    n_unlabelled: int
    method: str = "ppi++"


def ppi_mean(
    human: ArrayLike,
    judge: ArrayLike,
    unlabelled: ArrayLike,
    *,
    lam: float | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    unlabelled_clusters: ArrayLike | None = None,
    level: float = 0.95,
) -> PredictionPowered:
    """The mean score people would give: mean(human) + λ (mean(unlabelled) - mean(judge)).

    `human` and `judge` score the same n things, `unlabelled` are the judge's scores of N others. λ = 1 is
    prediction-powered inference (Angelopoulos et al. 2023, Science), 0 uses labels alone, None takes the λ with
    the least variance, cov(human, judge)/((1 + n/N) var(judge)), kept within [0, 1] (ppi++, Angelopoulos, Duchi & Zrnic
    2023). The interval is normal with variance var(human - λ judge)/n + λ² var(unlabelled)/N. With clusters (names that
    mean the same on both sides) what each cluster adds is summed over both before it is squared, since labelled and
    unlabelled candidates of a case go together, and Student's t has one degree of freedom less than there are
    labelled clusters. `weights` (one over the chance to be drawn) make up for labels that were not drawn at random.

    >>> found = ppi_mean([1, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 1, 0, 1])
    >>> found.point, found.lam
    (0.796875, 0.28125)
    """
    check_level(level)
    y, f, g = as_values(human), as_values(judge), as_values(unlabelled)
    if y.size != f.size:
        raise InputError(f"{y.size} human scores but {f.size} of the judge: give both for each label")
    if y.size < 2 or g.size < 2:
        raise InputError("ppi++ needs two labels and two unlabelled scores or more")
    if lam is not None and not 0 <= lam <= 1:
        raise InputError(f"lambda must lie between 0 and 1, got {lam}")
    w = np.ones_like(y) if weights is None else as_values(weights)
    if w.size != y.size or float(w.min()) < 0 or not w.any():
        raise InputError("weights must be one a label, 0 or more, and not all 0")
    w = w / w.sum()
    trust = 0.0 if lam is None else float(lam)
    if lam is None and (spread := float(np.concatenate([f, g]).var(ddof=1))):
        # the λ of least variance where rows are independent; with clusters it is still a valid choice
        together = float(w @ ((y - w @ y) * (f - w @ f)))
        n = 1 / float(w @ w)  # Kish's effective number of labels: fewer than there are where weights differ
        trust = min(max(together / ((1 + n / g.size) * spread), 0.0), 1.0)
    off = y - trust * f
    point = float(w @ off + trust * g.mean())
    influence = np.concatenate([w * (off - w @ off), trust * (g - g.mean()) / g.size])
    if clusters is None and unlabelled_clusters is None:
        half = normal_quantile((1 + level) / 2) * sqrt(float(influence @ influence))
    else:
        names = np.empty(influence.size, dtype=object)
        names[: y.size] = None if clusters is None else np.asarray(clusters, dtype=object)
        names[y.size :] = None if unlabelled_clusters is None else np.asarray(unlabelled_clusters, dtype=object)
        codes = cluster_codes(names)
        sums = np.bincount(codes, weights=influence)
        freedom = np.unique(codes[: y.size]).size - 1
        half = nan  # one labelled cluster tells nothing of others
        if freedom:
            half = t_quantile((1 + level) / 2, freedom) * sqrt(sums.size / (sums.size - 1) * float(sums @ sums))
    return PredictionPowered(
        point=point, low=point - half, high=point + half, level=level, lam=trust, n_labels=y.size, n_unlabelled=g.size
    )
