"""A judge against human labels: confusion, sensitivity, specificity, agreement and Cohen's kappa, with intervals.

Sensitivity is the share of what people pass that the judge passes, specificity the share of what people fail that the
judge fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from kofn.core.types import Estimate
from kofn.errors import InputError
from kofn.stats.draws import percentile_ends, resampled_sums_of_units, sums_by_cluster
from kofn.stats.estimates import estimate
from kofn.stats.intervals import (
    check_level,
    check_resamples,
    cluster_codes,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FEW_LABELS = 30  # with fewer labels of a class its rate is too uncertain to correct with, which is a warning


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
        """The share of labels on which both agree."""
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
    """One row per label, with its weight in the column of its kind: tp, fp, fn, tn.

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
    """The accuracy of a judge on labels, each rate with its interval."""

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
    units = columns if codes is None else sums_by_cluster(columns, codes)
    if len(units) > 1 and isfinite(point):
        drawn = _kappa(resampled_sums_of_units(units, n_resamples, np.random.default_rng(seed)))
        drawn = drawn[~np.isnan(drawn)]
        if drawn.size > n_resamples / 2:
            low, high = percentile_ends(drawn, level)
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
