"""The mean of one value per case with its interval; `choose_interval` is the rule for the default interval."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from kofn.core.types import Estimate
from kofn.errors import InputError, UnknownName
from kofn.stats.intervals import (
    FOR_RATES,
    NO_INTERVAL,
    Interval,
    at_rows,
    check_level,
    check_resamples,
    cluster_robust,
    t_interval,
    t_quantile,
    wilson,
)
from kofn.stats.laws import mean_law, moments_of_mean
from kofn.stats.resample import as_units, bootstrap_mean, interval_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Array, Floats, Ints
    from kofn.stats.intervals import Drawing

DEFAULT_INTERVAL = "auto"
SMALL_SEGMENT = 30  # a segment with fewer cases is marked
NO_SEGMENT = "(none)"
# the limits of "auto", from simulated coverage (docs/coverage.md)
RARE = 10  # with fewer cases on the rarer side the bootstrap of a rate covers 86 to 100%
FEW = 100  # with fewer cases the percentile bootstrap of a skewed mean is too narrow
VERY_FEW = 15  # with fewer BCa is too narrow as well, and widening the percentiles does better

BOOTSTRAPS = {"bootstrap": "percentile", "expanded": "expanded", "bca": "bca"}
INTERVALS = ("auto", *BOOTSTRAPS, *FOR_RATES, "t", "cluster")
EXPANDED_UP_TO = 1 << 20  # cases: fewer are expanded and estimated by `estimate` itself


def check_interval(interval: str) -> None:
    """Refuse an unknown name of an interval."""
    if interval not in INTERVALS:
        raise UnknownName("interval", interval, list(INTERVALS))


def estimate(
    values: ArrayLike,
    *,
    aggregator: str = "",
    metric: str = "",
    segment: str | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    interval: str = DEFAULT_INTERVAL,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    recipe: Mapping[str, Any] | None = None,
    rate: bool = True,
) -> Estimate:
    """The (weighted) mean over cases with its interval.

    NaN (or None) marks a case without a value: it is left out and counted in `n_missing`. No case: no point, method
    "none". One case: no interval, unless its value is 0 or 1 (Wilson). `interval` is one of `INTERVALS`; those for
    rates take only 0/1 values, and "cluster" needs clusters. "auto" (default) is the percentile bootstrap, except where
    that is known to fail: see `choose_interval`. rate=False says that a value of 1 is not 100% (a count, a score
    without bounds): then "auto" takes no interval for rates, and values that are all equal have no interval.

    >>> print(estimate([1, 0, None, 1, 1], aggregator="any_pass", interval="wilson"))
    any_pass 0.750 [0.301, 0.954]
    >>> estimate([]).point is None
    True
    """
    check_interval(interval)
    check_level(level)
    check_resamples(n_resamples)
    x = np.asarray(values, dtype=float)
    if x.ndim != 1:
        raise InputError(f"values must be one number a case, got an array of shape {x.shape}")
    kept = ~np.isnan(x)
    w, c = _matching("weights", weights, kept, float), _matching("clusters", clusters, kept, None)
    x = x if kept.all() else x[kept]
    point, ends = None, NO_INTERVAL
    if x.size and (w is None or w.any()):
        point = as_units(x, w, None).point
        ends = _interval(x, w, c, interval, rate=rate, level=level, n_resamples=n_resamples, seed=seed)
        if ends.method == "degenerate":
            ends = NO_INTERVAL._replace(method="degenerate")
    return Estimate(
        aggregator=aggregator,
        metric=metric,
        segment=segment,
        point=point,
        **ends.finite(),
        level=level,
        n=x.size,
        n_missing=np.size(values) - x.size,
        method=ends.method,
        recipe=dict(recipe or {}),
    )


def _matching(name: str, given: ArrayLike | None, kept: NDArray[np.bool_], kind: Any) -> Array | None:
    if given is None:
        return None
    array = np.asarray(given, dtype=kind)
    if array.shape != kept.shape:
        raise InputError(f"{name} must be one a case: {kept.size} values but {array.size} {name}")
    return array[kept]


def _interval(
    x: Floats, weights: Array | None, clusters: Array | None, interval: str, *, rate: bool, **drawing: Unpack[Drawing]
) -> Interval:
    level = drawing["level"]
    if not rate and interval in ("auto", *BOOTSTRAPS) and bool((x == x[0]).all()):
        return NO_INTERVAL._replace(method="degenerate")
    if interval == "auto":
        interval = choose_interval(
            x.size if clusters is None else np.unique(clusters).size,
            plain=weights is None and clusters is None,
            rarer=rarer_side(x) if rate else None,
        )
    if interval in BOOTSTRAPS:
        return bootstrap_mean(x, weights=weights, clusters=clusters, method=BOOTSTRAPS[interval], **drawing)
    if interval == "cluster":
        if clusters is None:
            raise InputError("interval 'cluster' needs clusters: give one a case, or use 't'")
        return cluster_robust(x, clusters, level, weights=weights)
    if clusters is not None or weights is not None:
        raise InputError(f"interval {interval!r} knows no clusters or weights: use 'bootstrap'")
    if interval == "t":
        return t_interval(x, level)
    if not is_rate(x):
        raise InputError(f"interval {interval!r} is for 0/1 values only: use 'bootstrap' or 't'")
    return FOR_RATES[interval](float(x.sum()), x.size, level)


def is_rate(values: Floats) -> bool:
    """Whether every value is 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


# --- which interval


def choose_interval(
    units: int, *, plain: bool = True, rarer: int | None = None, closed: bool = False, difference: bool = False
) -> str:
    """The interval that "auto" stands for: the percentile bootstrap, except where simulation shows that it fails.

    `units` are the cases, or the clusters; `plain` cases have neither weights nor clusters; `rarer`, of 0/1 values that
    are shares: how many cases are on the rarer side. docs/coverage.md has the figures.

    A plain rate with fewer than `RARE` cases on its rarer side: Wilson, as where there is none at all. Otherwise fewer
    than `FEW` units: BCa, which corrects for skewness; fewer than `VERY_FEW`: expanded percentiles. A difference is
    never a rate and may be skewed to either side: always BCa. Where nothing can be resampled (`closed`): Wilson for
    every plain rate, else Student's t, and the cluster-robust interval with weights or clusters.

    >>> choose_interval(45, rarer=5), choose_interval(50), choose_interval(200), choose_interval(9, plain=False)
    ('wilson', 'bca', 'bootstrap', 'expanded')
    >>> choose_interval(45, rarer=20, closed=True), choose_interval(50, closed=True)
    ('wilson', 't')
    """
    if difference:
        return "bca"
    if plain and rarer is not None:
        return "wilson" if closed or rarer < RARE else "bootstrap"
    if closed:
        return "t" if plain else "cluster"
    if units < VERY_FEW:
        return "expanded"
    return "bca" if units < FEW else "bootstrap"


def suitable_interval(interval: str, *, rate: bool = False, plain: bool = False, resampled: bool = False) -> str:
    """The interval that was asked for, or "auto" where it is not for such values.

    Intervals for rates take 0/1 values, and neither they nor t take weights or clusters (`plain`); `resampled`: only
    bootstraps will do.

    >>> suitable_interval("wilson", rate=True, plain=True), suitable_interval("wilson", plain=True)
    ('wilson', 'auto')
    >>> suitable_interval("cluster"), suitable_interval("cluster", resampled=True)
    ('cluster', 'auto')
    """
    if interval in BOOTSTRAPS:
        return interval
    unfit = resampled or (interval in FOR_RATES and not (rate and plain)) or (interval == "t" and not plain)
    return "auto" if unfit else interval


def rarer_side(values: Floats, counts: NDArray[np.int64] | None = None) -> int | None:
    """How many of 0/1 values (that occur `counts` times) are on the rarer side; None where there are others.

    >>> rarer_side(np.array([1.0, 1.0, 0.0])), rarer_side(np.array([0.5]))
    (1, None)
    """
    if not is_rate(values):
        return None
    n = values.size if counts is None else int(counts.sum())
    ones = int(values.sum()) if counts is None else int(counts[values == 1].sum())
    return min(ones, n - ones)


def segment_estimates(
    values: ArrayLike,
    segments: Iterable[str | None],
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    **options: Any,
) -> list[Estimate]:
    """`estimate` within each segment, in order of their names; cases of no segment are "(none)".

    A segment of fewer than `SMALL_SEGMENT` cases deserves a mark where it is shown.

    >>> for e in segment_estimates([1, 0, 1], ["maths", None, "maths"], aggregator="mean"):
    ...     print(e.segment, e.n, e.point)
    (none) 1 0.0
    maths 2 1.0
    """
    names = [NO_SEGMENT if name is None else str(name) for name in segments]
    x = np.asarray(values, dtype=float)
    if len(names) != x.size:
        raise InputError(f"{x.size} values but {len(names)} segments: give one a case")
    order, codes = np.unique(np.array(names, dtype=str), return_inverse=True)
    estimates = []
    for i, name in enumerate(order.tolist()):
        of = codes == i
        own = at_rows(of, weights=weights, clusters=clusters)
        estimates.append(estimate(x[of], segment=name, **own, **options))
    return estimates


# --- tallies: the law of a resampled mean depends on the values and their counts alone, and those of partitions add up


class Tally(NamedTuple):
    """Distinct values in order, the number of cases with each, and the number of cases without a value."""

    values: Floats
    counts: Ints
    n_missing: int

    @classmethod
    def of(cls, values: Floats) -> Tally:
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
    ends = _interval_of_tally(tally, interval, level, rate=rate)
    return Estimate(
        **{**labels, "recipe": dict(recipe or {}), **ends.finite()},
        point=moments_of_mean(tally.values, tally.counts).mean,
        level=level,
        n=tally.n,
        n_missing=tally.n_missing,
        method=ends.method,
    )


def _interval_of_tally(tally: Tally, interval: str, level: float, *, rate: bool) -> Interval:
    """The interval of a tally of more than `EXPANDED_UP_TO` cases, to which no rule for few cases applies."""
    values, n, moments = tally.values, tally.n, moments_of_mean(tally.values, tally.counts)
    zero_one, successes = is_rate(values), int(tally.counts[values == 1].sum())
    if interval == "auto":
        interval = choose_interval(n, rarer=rarer_side(values, tally.counts) if rate else None)
    if interval == "cluster":
        raise InputError("interval 'cluster' needs clusters: give one a case, or use 't'")
    if interval in FOR_RATES:
        if not zero_one:
            raise InputError(f"interval {interval!r} is for 0/1 values only: use 'bootstrap' or 't'")
        return FOR_RATES[interval](float(successes), n, level)
    if values.size == 1 and interval in BOOTSTRAPS:
        return wilson(float(successes), n, level) if rate and zero_one else NO_INTERVAL._replace(method="degenerate")
    if interval == "t":
        half = t_quantile((1 + level) / 2, n - 1) * moments.sd / sqrt(n - 1)
        return Interval(moments.mean - half, moments.mean + half, "t")
    law = mean_law(values, tally.counts)
    return interval_from(law, level, BOOTSTRAPS[interval], n, lambda: moments.skewness / 6)
