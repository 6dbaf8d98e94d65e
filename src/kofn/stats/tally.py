"""Tallies: how often each value occurs among the cases; tallies of partitions add up.

The law of a resampled mean depends on the values and their counts alone, so an estimate from a tally is the estimate
from the cases, and the tallies of partitions add up to that of the whole.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kofn.core.types import Estimate
from kofn.errors import InputError
from kofn.stats.estimates import BOOTSTRAPS, FOR_RATES, RARE, check_interval, estimate
from kofn.stats.intervals import NO_INTERVAL, Interval, check_level, t_quantile, wilson
from kofn.stats.laws import mean_law, moments_of_mean
from kofn.stats.resample import LABELS, bca_tails, tail_probabilities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

EXPANDED_UP_TO = 1 << 20  # cases: fewer are expanded and estimated by `estimate` itself


class Tally(NamedTuple):
    """Distinct values in order, the number of cases with each, and the number of cases without a value."""

    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    n_missing: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Tally:
        """
        >>> Tally.of(np.array([1.0, np.nan, 0.5, 1.0]))
        Tally(values=array([0.5, 1. ]), counts=array([1, 2]), n_missing=1)
        """
        defined = values[~np.isnan(values)]
        distinct, counts = np.unique(defined, return_counts=True)
        return cls(distinct, counts.astype(np.int64), values.size - defined.size)

    @property
    def n(self) -> int:
        """Cases that have a value."""
        return int(self.counts.sum())


def merge_tallies(tallies: Sequence[Tally]) -> Tally:
    """The tally of all.

    >>> merge_tallies([Tally.of(np.array([0.0, 1.0])), Tally.of(np.array([1.0]))]).counts.tolist()
    [1, 2]
    """
    if len(tallies) == 1:
        return tallies[0]
    values, at = np.unique(np.concatenate([one.values for one in tallies]), return_inverse=True)
    counts = np.zeros(values.size, dtype=np.int64)
    np.add.at(counts, at, np.concatenate([one.counts for one in tallies]))
    return Tally(values, counts, sum(one.n_missing for one in tallies))


def estimate_tally(
    tally: Tally,
    *,
    aggregator: str = "",
    metric: str = "",
    segment: str | None = None,
    interval: str = "auto",
    level: float = 0.95,
    recipe: Mapping[str, Any] | None = None,
    rate: bool = True,
) -> Estimate:
    """The mean over cases with its interval, as `estimate` gives it for cases of equal weight.

    >>> passes = Tally.of(np.array([1.0, 0.0, np.nan, 1.0, 1.0]))
    >>> print(estimate_tally(passes, aggregator="any_pass", interval="wilson"))
    any_pass 0.750 [0.301, 0.954]
    """
    check_interval(interval)
    check_level(level)
    labels: dict[str, Any] = {"aggregator": aggregator, "metric": metric, "segment": segment, "recipe": recipe}
    if tally.n <= EXPANDED_UP_TO:
        expanded = np.repeat(tally.values, tally.counts)
        estimated = estimate(expanded, interval=interval, level=level, rate=rate, **labels)
        return replace(estimated, n_missing=tally.n_missing)
    ends = _interval(tally, interval, level, rate=rate)
    has_interval = ends.low == ends.low and ends.method != "degenerate"
    return Estimate(
        **{**labels, "recipe": dict(recipe or {})},
        point=moments_of_mean(tally.values, tally.counts).mean,
        low=ends.low if has_interval else None,
        high=ends.high if has_interval else None,
        level=level,
        n=tally.n,
        n_missing=tally.n_missing,
        method=ends.method,
    )


def _interval(tally: Tally, interval: str, level: float, *, rate: bool) -> Interval:
    """The interval of a tally of more than `EXPANDED_UP_TO` cases, to which no rule for few cases applies."""
    values, n = tally.values, tally.n
    is_rate = bool(np.isin(values, (0.0, 1.0)).all())
    successes = int(tally.counts[values == 1].sum())
    if interval == "auto":
        rare = rate and is_rate and min(successes, n - successes) < RARE
        interval = "wilson" if rare else "bootstrap"
    if interval == "cluster":
        raise InputError("interval 'cluster' needs clusters: give one a case, or use 't'")
    if interval in FOR_RATES:
        if not is_rate:
            raise InputError(f"interval {interval!r} is for 0/1 values only: use 'bootstrap' or 't'")
        return FOR_RATES[interval](float(successes), n, level)
    if values.size == 1 and interval in BOOTSTRAPS:
        return wilson(float(successes), n, level) if rate and is_rate else NO_INTERVAL._replace(method="degenerate")
    if interval == "t":
        moments = moments_of_mean(values, tally.counts)
        half = t_quantile((1 + level) / 2, n - 1) * moments.sd / sqrt(n - 1)
        return Interval(moments.mean - half, moments.mean + half, "t")
    return _bootstrap(tally, BOOTSTRAPS[interval], level)


def _bootstrap(tally: Tally, method: str, level: float) -> Interval:
    law = mean_law(tally.values, tally.counts)
    below, above = tail_probabilities(method, level, tally.n)
    if method == "bca":
        skewness = moments_of_mean(tally.values, tally.counts).skewness
        below, above = bca_tails(level, law.median_bias(), skewness / 6)
    return Interval(law.lower(below), law.upper(above), LABELS[method])
