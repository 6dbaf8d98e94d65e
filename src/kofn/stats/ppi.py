"""Prediction-powered inference (ppi++): a mean score from a few human labels and many scores of a judge."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import check_level, cluster_codes, normal_quantile, t_quantile
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
    trust = _best_lambda(y, f, g, w) if lam is None else float(lam)
    off = y - trust * f
    point = float(w @ off + trust * g.mean())
    influence = np.concatenate([w * (off - w @ off), trust * (g - g.mean()) / g.size])
    half = _half_width(influence, clusters, unlabelled_clusters, y.size, level)
    return PredictionPowered(
        point=point,
        low=point - half,
        high=point + half,
        level=level,
        lam=trust,
        n_labels=y.size,
        n_unlabelled=g.size,
    )


def _best_lambda(
    y: NDArray[np.float64], f: NDArray[np.float64], g: NDArray[np.float64], w: NDArray[np.float64]
) -> float:
    """The λ of least variance where rows are independent; with clusters it is still a valid choice."""
    spread = float(np.concatenate([f, g]).var(ddof=1))
    if spread == 0:
        return 0.0
    together = float(w @ ((y - w @ y) * (f - w @ f)))
    n = 1 / float(w @ w)  # Kish's effective number of labels: fewer than there are where weights differ
    return min(max(together / ((1 + n / g.size) * spread), 0.0), 1.0)


def _half_width(
    influence: NDArray[np.float64],
    clusters: ArrayLike | None,
    unlabelled_clusters: ArrayLike | None,
    n_labels: int,
    level: float,
) -> float:
    """Half of the interval; NaN with one labelled cluster, which tells nothing of others."""
    if clusters is None and unlabelled_clusters is None:
        return normal_quantile((1 + level) / 2) * sqrt(float(influence @ influence))
    names = np.empty(influence.size, dtype=object)
    names[:n_labels] = None if clusters is None else np.asarray(clusters, dtype=object)
    names[n_labels:] = None if unlabelled_clusters is None else np.asarray(unlabelled_clusters, dtype=object)
    codes = cluster_codes(names)
    sums = np.bincount(codes, weights=influence)
    freedom = np.unique(codes[:n_labels]).size - 1
    if not freedom:
        return float("nan")
    return t_quantile((1 + level) / 2, freedom) * sqrt(sums.size / (sums.size - 1) * float(sums @ sums))
