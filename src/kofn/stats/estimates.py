"""`estimate`: the mean of one value per case with its interval, and the rule that chooses the default interval."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.core.types import Estimate
from kofn.errors import InputError, UnknownName
from kofn.stats.intervals import (
    NO_INTERVAL,
    check_level,
    check_resamples,
    clopper_pearson,
    cluster_robust,
    jeffreys,
    t_interval,
    wilson,
)
from kofn.stats.resample import as_units, bootstrap_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from kofn.stats.intervals import Interval

DEFAULT_INTERVAL = "auto"
SMALL_SEGMENT = 30  # a segment with fewer cases is marked
NO_SEGMENT = "(none)"
# the limits of "auto", from simulated coverage (docs/coverage.md)
RARE = 10  # with fewer cases on the rarer side the bootstrap of a rate covers 86 to 100 %
FEW = 100  # with fewer cases the percentile bootstrap of a skewed mean is too narrow
VERY_FEW = 15  # with fewer BCa is too narrow as well, and widening the percentiles does better

BOOTSTRAPS = {"bootstrap": "percentile", "expanded": "expanded", "bca": "bca"}
FOR_RATES = {"wilson": wilson, "clopper_pearson": clopper_pearson, "jeffreys": jeffreys}
INTERVALS = ("auto", *BOOTSTRAPS, *FOR_RATES, "t", "cluster")


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

    NaN (or None) marks a case without a value: it is left out and counted in `n_missing`. No case:
    no point, method "none". One case: no interval, unless its value is 0 or 1 (Wilson). `interval`
    is one of `INTERVALS`; those for rates take only 0/1 values, and "cluster" needs clusters. "auto" (default)
    is the percentile bootstrap, except where that is known to fail: see `calibrated`. rate=False says that a value
    of 1 is not 100 % (a count, a score without bounds): then "auto" takes no interval for rates, and values that are
    all equal have no interval.

    >>> print(estimate([1, 0, None, 1, 1], aggregator="any_pass", interval="wilson"))
    any_pass 0.750 [0.301, 0.954]
    >>> estimate([]).point is None
    True
    """
    check_interval(interval)
    check_level(level)
    check_resamples(n_resamples)
    x, w, c = _with_values(values, weights, clusters)
    point, ends = None, NO_INTERVAL
    if x.size and (w is None or w.any()):
        point = as_units(x, w, None).point
        ends = _interval(x, w, c, interval=interval, level=level, n_resamples=n_resamples, seed=seed, rate=rate)
        if ends.method == "degenerate":
            ends = NO_INTERVAL._replace(method="degenerate")
    return Estimate(
        aggregator=aggregator,
        metric=metric,
        segment=segment,
        point=point,
        low=ends.low if isfinite(ends.low) else None,
        high=ends.high if isfinite(ends.high) else None,
        level=level,
        n=x.size,
        n_missing=np.size(values) - x.size,
        method=ends.method,
        recipe=dict(recipe or {}),
    )


def _with_values(
    values: ArrayLike, weights: ArrayLike | None, clusters: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[Any] | None, NDArray[Any] | None]:
    """Values, weights and clusters of the cases that have a value."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 1:
        raise InputError(f"values must be one number a case, got an array of shape {x.shape}")
    kept = ~np.isnan(x)
    w, c = _matching("weights", weights, kept, float), _matching("clusters", clusters, kept, None)
    return x if kept.all() else x[kept], w, c


def _matching(name: str, given: ArrayLike | None, kept: NDArray[np.bool_], kind: Any) -> NDArray[Any] | None:
    if given is None:
        return None
    array = np.asarray(given, dtype=kind)
    if array.shape != kept.shape:
        raise InputError(f"{name} must be one a case: {kept.size} values but {array.size} {name}")
    return array[kept]


def _interval(
    x: NDArray[np.float64],
    weights: NDArray[Any] | None,
    clusters: NDArray[Any] | None,
    *,
    interval: str,
    level: float,
    n_resamples: int,
    seed: int,
    rate: bool,
) -> Interval:
    if not rate and interval in ("auto", *BOOTSTRAPS) and bool((x == x[0]).all()):
        return NO_INTERVAL._replace(method="degenerate")
    if interval == "auto":
        interval = calibrated(x, weights, clusters, rate=rate)
    if interval in BOOTSTRAPS:
        return bootstrap_mean(
            x,
            weights=weights,
            clusters=clusters,
            level=level,
            method=BOOTSTRAPS[interval],
            n_resamples=n_resamples,
            seed=seed,
        )
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


def is_rate(values: NDArray[np.float64]) -> bool:
    """Whether every value is 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


def calibrated(
    values: NDArray[np.float64],
    weights: NDArray[Any] | None = None,
    clusters: NDArray[Any] | None = None,
    *,
    rate: bool = True,
) -> str:
    """The interval "auto" stands for: the percentile bootstrap, except where simulation shows that it fails.

    A plain rate with fewer than `RARE` cases on its rarer side: Wilson, as where there is none at all. Otherwise fewer
    than `FEW` cases (or clusters): BCa, which corrects for skewness; fewer than `VERY_FEW`: expanded percentiles.
    docs/coverage.md has the figures.

    >>> rare, few, many = np.repeat([1.0, 0.0], [40, 5]), np.arange(50) / 50, np.arange(200) / 200
    >>> calibrated(rare), calibrated(few), calibrated(many)
    ('wilson', 'bca', 'bootstrap')
    """
    if rate and is_rate(values) and weights is None and clusters is None:
        successes = int(values.sum())
        return "wilson" if min(successes, values.size - successes) < RARE else "bootstrap"
    units = values.size if clusters is None else np.unique(clusters).size
    if units < VERY_FEW:
        return "expanded"
    return "bca" if units < FEW else "bootstrap"


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
    w = None if weights is None else np.asarray(weights, dtype=float)
    c = None if clusters is None else np.asarray(clusters)
    order, codes = np.unique(np.array(names, dtype=str), return_inverse=True)
    estimates = []
    for i, name in enumerate(order.tolist()):
        of = codes == i
        estimates.append(
            estimate(
                x[of],
                segment=name,
                weights=None if w is None else w[of],
                clusters=None if c is None else c[of],
                **options,
            )
        )
    return estimates
