"""Closed-form intervals (Wilson, Clopper-Pearson, Jeffreys, normal, t, cluster-robust), and clustered errors."""

from __future__ import annotations

from math import inf, isfinite, nan, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import numpy as np

from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats

CR_KINDS = ("CR0", "CR1")


class Interval(NamedTuple):
    """Two ends and the name of their method; both ends are NaN (method "none") where undefined."""

    low: float
    high: float
    method: str

    def finite(self) -> dict[str, float | None]:
        """Both ends by name, None where there is none."""
        return {name: end if isfinite(end) else None for name, end in (("low", self.low), ("high", self.high))}


NO_INTERVAL = Interval(nan, nan, "none")


class Drawing(TypedDict):
    """How intervals and p-values are made: the keywords that estimates and comparisons of a run have in common."""

    level: float
    n_resamples: int
    seed: int


def check_level(level: float) -> float:
    """The level itself, refused unless strictly between 0 and 1.

    >>> check_level(0.95)
    0.95
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie strictly between 0 and 1, got {level}: write 0.95 for 95%")
    return level


def check_resamples(n_resamples: object) -> int:
    """The number itself, refused unless it is a whole number of at least 1.

    >>> check_resamples(10_000)
    10000
    """
    if isinstance(n_resamples, bool) or not isinstance(n_resamples, (int, np.integer)) or n_resamples < 1:
        raise InputError(f"n_resamples must be a whole number of at least 1, got {n_resamples!r}: leave it at 10,000")
    return int(n_resamples)


def normal_quantile(p: float) -> float:
    """Φ⁻¹(p), infinite at 0 and 1.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    if p <= 0 or p >= 1:
        return -inf if p <= 0 else inf
    return NormalDist().inv_cdf(p)


def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t with `df` degrees of freedom.

    >>> round(t_quantile(0.975, 29), 4)
    2.0452
    """
    from scipy.special import stdtrit

    return float(stdtrit(df, p))


def _check_count(successes: float, n: float) -> None:
    if not (isfinite(n) and n > 0 and 0 <= successes <= n):
        raise InputError(f"successes must lie between 0 and n, with n > 0: got {successes} of {n}")


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval for a rate.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n), Wilson (1927). Fractional counts are allowed so that an effective
    sample size can be used. It has width at 0 and at n, where it is exactly 0 or 1 at the outer end.

    >>> wilson(0, 20)
    Interval(low=0.0, high=0.1611..., method='wilson')
    """
    _check_count(successes, n)
    z2 = normal_quantile((1 + check_level(level)) / 2) ** 2
    p = successes / n
    centre = p + z2 / (2 * n)
    half = sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    low = 0.0 if successes == 0 else (centre - half) / (1 + z2 / n)
    high = 1.0 if successes == n else (centre + half) / (1 + z2 / n)
    return Interval(low, high, "wilson")


def clopper_pearson(successes: float, n: float, level: float = 0.95) -> Interval:
    """The "exact" interval for a rate: it never covers less than its level, and so is wide.

    Beta quantiles B(α/2; x, n-x+1) and B(1-α/2; x+1, n-x), Clopper & Pearson (1934).

    >>> clopper_pearson(0, 20)
    Interval(low=0.0, high=0.1684..., method='clopper_pearson')
    """
    return _beta_interval(successes, n, level, 0, 1, "clopper_pearson")


def jeffreys(successes: float, n: float, level: float = 0.95) -> Interval:
    """Equal-tailed posterior interval under the Beta(1/2, 1/2) prior.

    Quantiles of Beta(x + 1/2, n - x + 1/2), with low = 0 at x = 0 and high = 1 at x = n, as in
    Brown, Cai & DasGupta (2001).

    >>> jeffreys(0, 20)
    Interval(low=0.0, high=0.1166..., method='jeffreys')
    """
    return _beta_interval(successes, n, level, 0.5, 0.5, "jeffreys")


def _beta_interval(successes: float, n: float, level: float, near: float, far: float, method: str) -> Interval:
    """Beta quantiles: of (x + near, n - x + far) below and of (x + far, n - x + near) above; 0 and 1 at the ends."""
    from scipy.special import betaincinv

    _check_count(successes, n)
    tail = (1 - check_level(level)) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes + near, n - successes + far, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + far, n - successes + near, 1 - tail))
    return Interval(low, high, method)


FOR_RATES = {"wilson": wilson, "clopper_pearson": clopper_pearson, "jeffreys": jeffreys}


def _around_mean(values: ArrayLike, quantile: Callable[[int], float], method: str) -> Interval:
    """Mean ± quantile x s/√n; undefined below two values."""
    x = np.asarray(values, dtype=float)
    if x.size < 2:
        return NO_INTERVAL
    mean, half = float(x.mean()), quantile(x.size) * (float(x.std(ddof=1)) / sqrt(x.size))
    return Interval(mean - half, mean + half, method)


def normal_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean ± z s/√n. Undefined below two values.

    >>> normal_interval([0.0, 1.0, 1.0, 0.0])
    Interval(low=-0.0657..., high=1.0657..., method='normal')
    """
    z = normal_quantile((1 + check_level(level)) / 2)
    return _around_mean(values, lambda _: z, "normal")


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean ± t s/√n with n - 1 degrees of freedom (Student 1908). Undefined below two values.

    >>> t_interval([1.0, 2.0, 3.0])
    Interval(low=-0.484..., high=4.484..., method='t')
    """
    check_level(level)
    return _around_mean(values, lambda n: t_quantile((1 + level) / 2, n - 1), "t")


def cluster_codes(clusters: ArrayLike) -> NDArray[np.intp]:
    """Whole numbers 0..C-1 in place of the clusters' names. A case whose name is None stands alone.

    >>> cluster_codes(["b", "a", "b", None, None]).tolist()
    [0, 1, 0, 2, 3]
    """
    names = np.asarray(clusters)
    if names.dtype.kind in "biu":  # sorting whole numbers is far faster than a dictionary of names
        return np.unique(names, return_inverse=True)[1].astype(np.intp, copy=False)
    seen: dict[object, int] = {}
    unnamed = (object() for _ in names)
    keys = (next(unnamed) if name is None else name for name in names.tolist())
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.intp)


def at_rows(rows: NDArray[np.bool_], **columns: ArrayLike | None) -> dict[str, Any]:
    """Columns at some of their rows, by name, such as weights and clusters; None stays None."""
    return {name: None if column is None else np.asarray(column)[rows] for name, column in columns.items()}


def clustered_se(
    values: ArrayLike, clusters: ArrayLike, kind: Literal["CR0", "CR1"] = "CR1", *, weights: Floats | None = None
) -> float:
    """Standard error of a mean whose values are dependent within clusters.

    CR0: √Σ_c (Σ_{i in c} (x_i - mean))² / n (Liang & Zeger 1986; Miller 2024, appendix A). CR1
    multiplies by √(C/(C-1)); with clusters of equal size it equals the standard error of the
    cluster means. One cluster tells nothing about the others: NaN, not 0.

    >>> clustered_se([1, 1, 0, 0], ["a", "a", "b", "b"])
    0.5
    """
    if kind not in CR_KINDS:
        raise UnknownName("kind of clustered error", kind, list(CR_KINDS))
    x, codes = np.asarray(values, dtype=float), cluster_codes(clusters)
    if codes.size != x.size:
        raise InputError(f"{x.size} values but {codes.size} cluster names: give one a case")
    w = np.ones_like(x) if weights is None else weights
    total = float(w.sum())
    mean = float((w * x).sum()) / total
    influence = np.bincount(codes, weights=w * (x - mean)) / total  # of each cluster on the mean
    c = influence.size
    if c < 2:
        return nan
    correction = c / (c - 1) if kind == "CR1" else 1.0
    return sqrt(correction * float(influence @ influence))


def cluster_robust(
    values: ArrayLike, clusters: ArrayLike, level: float = 0.95, *, weights: Floats | None = None
) -> Interval:
    """(Weighted) mean ± t · CR1 standard error, with C - 1 degrees of freedom; one cluster: undefined.

    >>> cluster_robust([1, 1, 0, 0, 1, 0], ["a", "a", "b", "b", "c", "c"])
    Interval(low=-0.742..., high=1.742..., method='cluster')
    """
    check_level(level)
    x = np.asarray(values, dtype=float)
    se = clustered_se(x, clusters, weights=weights)
    if not isfinite(se):
        return NO_INTERVAL
    mean = float(np.average(x, weights=weights))
    half = t_quantile((1 + level) / 2, int(cluster_codes(clusters).max())) * se
    return Interval(mean - half, mean + half, "cluster")
