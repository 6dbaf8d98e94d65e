"""Bootstrap intervals (percentile, expanded, BCa, basic). The resampled unit is the case or its cluster.

The interval of a mean is computed from the law of the resampled mean (see `laws`), so it is the
interval of infinitely many draws and `n_resamples` and `seed` play no part, except where a few
weights or clusters dominate (see `laws.dominated`). They do in `bootstrap` (any statistic) and
`bootstrap_means` (several means that share each resample), which draw.

Ends: the lower is the smallest x with P(x* ≤ x) ≥ α/2, the upper its mirror image, the largest x
with P(x* ≥ x) ≥ α/2: numpy's quantile method "inverted_cdf" with infinitely many draws.
"""

from __future__ import annotations

from math import isfinite, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.draws import resampled_sums
from kofn.stats.intervals import NO_INTERVAL, Interval, check_level, check_resamples, cluster_codes, t_quantile, wilson
from kofn.stats.laws import drawn_law, effective_number, ratio_law

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from kofn.core.candidate_sets import Array, Floats, Ints
    from kofn.stats.laws import Law

METHODS = ("percentile", "expanded", "bca")
NO_SPREAD = 1e-60  # values nearer than this count as equal: their fourth powers would vanish
LABELS = {"percentile": "bootstrap", "expanded": "expanded", "bca": "bca", "basic": "basic"}


class Units(NamedTuple):
    """The resampled units: the sum of weighted values and the weight of each (None: 1 each)."""

    sums: Floats
    weights: Floats | None

    @property
    def point(self) -> float:
        return float(self.sums.mean() if self.weights is None else self.sums.sum() / self.weights.sum())

    @property
    def means(self) -> Floats:
        return self.sums if self.weights is None else self.sums / self.weights

    @property
    def influence(self) -> Floats:
        """S - point·W: the influence of each unit on the statistic, up to a factor."""
        return self.sums - self.point * (1.0 if self.weights is None else self.weights)

    def effective_size(self) -> float:
        """The number of units that would tell as much if their weights were equal: see `effective_number`."""
        return float(self.sums.size) if self.weights is None else effective_number(self.weights)

    def interval(self, law: Law, level: float, method: str) -> Interval:
        """The interval of a law of the mean of these units."""
        return interval_from(law, level, method, self.sums.size, lambda: acceleration_of(self.influence))


def as_values(values: ArrayLike) -> Floats:
    """A flat array of finite floats, or a one-line refusal.

    >>> as_values([True, 0.5]).tolist()
    [1.0, 0.5]
    """
    x = np.asarray(values, dtype=float)
    if x.ndim != 1:
        raise InputError(f"values must be one number a case, got an array of shape {x.shape}")
    if not isfinite(float(x.sum())) and not np.isfinite(x).all():
        raise InputError("values hold NaN or infinity: leave such cases out, or use estimate()")
    return x


def as_units(values: ArrayLike, weights: ArrayLike | None, clusters: ArrayLike | None) -> Units:
    """Cases, or sums over clusters. Cases of weight 0 are left out.

    >>> as_units([1, 0, 1], None, ["a", "a", "b"])
    Units(sums=array([1., 1.]), weights=array([2., 1.]))
    """
    x = as_values(values)
    w = None if weights is None else as_values(weights)
    if w is not None and (w.size != x.size or float(w.min(initial=0.0)) < 0):
        raise InputError("weights must be one non-negative number a case")
    codes = None if clusters is None else cluster_codes(clusters)
    if codes is not None and codes.size != x.size:
        raise InputError(f"{x.size} values but {codes.size} cluster names: give one a case")
    if w is not None and not w.all():
        kept = w > 0
        x, w = x[kept], w[kept]
        codes = None if codes is None else cluster_codes(codes[kept])
    sums = x if w is None else w * x
    if codes is None:
        return Units(sums, w)
    totals = np.bincount(codes, weights=w).astype(float)
    return Units(np.bincount(codes, weights=sums).astype(float), totals)


def without_width(units: Units, level: float) -> Interval | None:
    """The interval where every unit has the same value, so that resampling shows no spread.

    All 0 or all 1: Wilson's, on the effective number of units. Any other value: no model says how
    far the next case might lie, so both ends are that value, labelled "degenerate".
    """
    low, high = float(units.means.min()), float(units.means.max())
    if high - low > max(1e-12 * max(abs(low), abs(high)), NO_SPREAD):
        return None
    if low in (0.0, 1.0):
        n = units.effective_size()
        return wilson(low * n, n, level)
    return Interval(low, high, "degenerate") if units.sums.size > 1 else NO_INTERVAL


def tail_probabilities(method: str, level: float, n: int) -> tuple[float, float]:
    """Probability left out at each end, before any correction that depends on the values.

    "expanded" widens the percentile interval for the bias of the standard deviation and for the
    use of a normal in place of a t: Φ(-√(n/(n-1)) t_{α/2, n-1}), Hesterberg (2015).

    >>> tail_probabilities("percentile", 0.9, 10)[0]
    0.04999...
    """
    tail = (1 - level) / 2
    if method == "expanded":
        tail = NormalDist().cdf(sqrt(n / (n - 1)) * t_quantile(tail, n - 1))
    return tail, tail


def bca_tails(level: float, bias: float, acceleration: float) -> tuple[float, float]:
    """Probability left out below and above by BCa (Efron 1987).

    Lower Φ(z₀ + (z₀ + z)/(1 - a(z₀ + z))) at z = z_{α/2}; the upper by symmetry. With no bias and no
    acceleration both are α/2.

    >>> [round(p, 6) for p in bca_tails(0.9, 0.0, 0.0)]
    [0.05, 0.05]
    """
    tail = (1 - level) / 2

    def moved(z: float) -> float:
        shifted = bias + z
        return bias + shifted / (1 - acceleration * shifted)

    normal = NormalDist()
    return normal.cdf(moved(normal.inv_cdf(tail))), normal.cdf(-moved(normal.inv_cdf(1 - tail)))


def acceleration_of(influence: Floats) -> float:
    """a = Σd³ / (6 (Σd²)^{3/2}) from what each unit contributes to the statistic.

    For a mean or a ratio of sums the jackknife is in closed form: d = S - point·W.

    >>> acceleration_of(np.array([-1.0, 0.0, 1.0]))
    0.0
    """
    square = influence * influence
    total = float(square.sum())
    return float(square @ influence) / (6 * total**1.5) if total > 0 else 0.0


def _check(method: str, known: tuple[str, ...], level: float, n_resamples: int) -> None:
    if method not in known:
        raise UnknownName("bootstrap method", method, list(known))
    check_level(level)
    check_resamples(n_resamples)


def bootstrap_mean(
    values: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    method: str = "percentile",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a (weighted) mean over cases or clusters, computed where the law is known.

    `method` is "percentile" (labelled "bootstrap"), "expanded" (Hesterberg 2015) or "bca" (Efron
    1987). With clusters or weights what is resampled is the pair (Σwx, Σw) of each unit and the
    statistic is the ratio of their sums. Values that are all equal give no spread: see
    `without_width`. One unit: undefined. The result is that of infinitely many resamples, except
    where a few units dominate (see `laws.dominated`): then of at least `n_resamples` drawn with `seed`.

    >>> bootstrap_mean([1, 0, 1, 1, 0, 1, 1, 0, 1, 1])
    Interval(low=0.4, high=1.0, method='bootstrap')
    >>> bootstrap_mean([0] * 10)
    Interval(low=0.0, high=0.2775..., method='wilson')
    """
    _check(method, METHODS, level, n_resamples)
    units = as_units(values, weights, clusters)
    if units.sums.size == 0:
        return NO_INTERVAL
    if (narrow := without_width(units, level)) is not None:
        return narrow
    law = ratio_law(units.sums, units.weights, n_resamples=n_resamples, seed=seed)
    return units.interval(law, level, method)


def interval_from(law: Law, level: float, method: str, n: int, acceleration: Callable[[], float]) -> Interval:
    """The interval of a law of n units; BCa is undefined where every draw lies on one side of the point."""
    if method == "bca":
        bias = law.median_bias()
        if not isfinite(bias):
            return NO_INTERVAL
        below, above = bca_tails(level, bias, acceleration())
    else:
        below, above = tail_probabilities(method, level, n)
    return Interval(law.lower(below), law.upper(above), LABELS[method])


def resampled_means(
    matrix: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Floats:
    """Means of every column in each resample, one row a resample: the columns share the resample.

    So the difference of two columns here is a paired difference.

    >>> resampled_means([[0, 1], [0, 1]], n_resamples=2).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    check_resamples(n_resamples)
    m = np.asarray(matrix, dtype=float)
    if m.ndim != 2 or not np.isfinite(m).all() or not m.size:
        raise InputError("matrix must have a row for each case, a column for each metric and no NaN")
    columns = [as_units(column, weights, clusters) for column in m.T]
    sums = np.column_stack([units.sums for units in columns])
    totals = columns[0].weights
    if totals is None:
        return resampled_sums(sums, n_resamples, seed) / len(sums)
    drawn = resampled_sums(np.column_stack([sums, totals]), n_resamples, seed)
    return np.asarray(drawn[:, :-1] / drawn[:, -1:])


def bootstrap_means(
    matrix: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    method: str = "percentile",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> list[Interval]:
    """Intervals of the mean of each column, from one set of resamples that all columns share.

    Cases are rows. Columns without spread are treated as in `bootstrap_mean`.

    >>> [interval.method for interval in bootstrap_means([[0, 0.25], [0, 1], [0, 0.5]])]
    ['wilson', 'bootstrap']
    """
    _check(method, METHODS, level, n_resamples)
    m = np.asarray(matrix, dtype=float)
    draws = resampled_means(m, weights=weights, clusters=clusters, n_resamples=n_resamples, seed=seed)
    intervals = []
    for column, means in zip(m.T, draws.T, strict=True):
        units = as_units(column, weights, clusters)
        narrow = without_width(units, level)
        intervals.append(narrow or units.interval(drawn_law(means, units.point), level, method))
    return intervals


def bootstrap(
    values: ArrayLike,
    statistic: Callable[[Array], float],
    *,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    method: str = "percentile",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of any statistic of the cases, by drawing cases or whole clusters.

    `values` has one entry or row a case; `statistic` takes such an array and returns a number. `method` is
    "percentile", "basic" (2·point minus the percentiles, reversed) or "bca", whose acceleration comes from leaving out
    one unit at a time; it is undefined where every resample lies on one side of the sample's value.

    >>> data = [1.0, 2.0, 3.0, 4.0, 50.0]
    >>> bootstrap(data, np.median, n_resamples=500)
    Interval(low=1.0, high=50.0, method='bootstrap')
    """
    _check(method, ("percentile", "basic", "bca"), level, n_resamples)
    n, of = _statistic_of_units(np.asarray(values), statistic, clusters)
    if n < 2:
        return NO_INTERVAL
    point = of(np.arange(n))
    rng = np.random.default_rng(seed)
    law = drawn_law(np.array([of(rng.integers(0, n, size=n)) for _ in range(n_resamples)], dtype=float), point)
    if method != "basic":

        def acceleration() -> float:
            without = np.array([of(np.delete(np.arange(n), i)) for i in range(n)])
            return acceleration_of(without.mean() - without)

        return interval_from(law, level, method, n, acceleration)
    tail = (1 - level) / 2
    return Interval(2 * point - law.upper(tail), 2 * point - law.lower(tail), "basic")


def _statistic_of_units(
    x: Array, statistic: Callable[[Array], float], clusters: ArrayLike | None
) -> tuple[int, Callable[[Ints], float]]:
    """The number of units, and the statistic as a function of the units drawn."""
    if clusters is None:
        return len(x), lambda units: float(statistic(x[units]))
    codes = cluster_codes(clusters)
    if len(codes) != len(x):
        raise InputError(f"{len(x)} values but {len(codes)} cluster names: give one a case")
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return len(members), lambda units: float(statistic(x[np.concatenate([members[u] for u in units])]))
