"""Prediction-powered inference: a mean of any score from few labels of people and many predictions of a judge."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import check_level, clustered_se, normal_quantile, t_quantile
from kofn.stats.resample import as_values

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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
    clusters: ArrayLike | None = None,
    unlabelled_clusters: ArrayLike | None = None,
    level: float = 0.95,
) -> PredictionPowered:
    """The mean score people would give: mean(human) + λ (mean(unlabelled) - mean(judge)).

    `human` and `judge` score the same n things, `unlabelled` are the judge's scores of N others. λ = 1 is
    prediction-powered inference (Angelopoulos et al. 2023, Science), 0 uses labels alone, None takes the λ with
    the least variance, cov(human, judge)/((1 + n/N) var(judge)), kept within [0, 1] (ppi++, Angelopoulos, Duchi & Zrnic
    2023). The interval is normal with variance var(human - λ judge)/n + λ² var(unlabelled)/N. With clusters both
    variances are by cluster, and Student's t has one degree of freedom less than there are labelled clusters. Unlike a
    rate by Rogan-Gladen it needs labels drawn at random from the cases it is about.

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
    trust = _best_lambda(y, f, g) if lam is None else float(lam)
    point = float(y.mean() + trust * (g.mean() - f.mean()))
    of_labels = _variance_of_mean(y - trust * f, clusters)
    of_others = trust**2 * _variance_of_mean(g, unlabelled_clusters)
    half = _reach(level, clusters) * sqrt(of_labels + of_others)
    return PredictionPowered(
        point=point,
        low=point - half,
        high=point + half,
        level=level,
        lam=trust,
        n_labels=y.size,
        n_unlabelled=g.size,
    )


def _best_lambda(y: NDArray[np.float64], f: NDArray[np.float64], g: NDArray[np.float64]) -> float:
    """The λ of least variance where rows are independent; with clusters it is still a valid choice."""
    spread = float(np.concatenate([f, g]).var(ddof=1))
    if spread == 0:
        return 0.0
    together = float(np.mean((y - y.mean()) * (f - f.mean())))
    return min(max(together / ((1 + y.size / g.size) * spread), 0.0), 1.0)


def _variance_of_mean(values: NDArray[np.float64], clusters: ArrayLike | None) -> float:
    if clusters is None:
        return float(values.var()) / values.size
    return clustered_se(values, clusters) ** 2


def _reach(level: float, clusters: ArrayLike | None) -> float:
    """Of the interval, in standard errors; NaN with one cluster, which tells nothing of others."""
    if clusters is None:
        return normal_quantile((1 + level) / 2)
    freedom = np.unique(np.asarray(clusters)).size - 1
    return t_quantile((1 + level) / 2, freedom) if freedom else float("nan")
