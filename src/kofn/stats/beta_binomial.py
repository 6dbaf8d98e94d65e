"""Cases of unequal difficulty: the beta-binomial, fitted to pass counts, and any@k extrapolated to larger k.

Each case passes with a chance of its own, and these chances follow a Beta(a, b) (Skellam 1948). With the mean
p = a/(a+b) and the spread t = 1/(a+b), the chance that k candidates of a case all fail is

    prod_{i<k} (1 - p + i t) / (1 + i t) = prod_{i<k} (b+i) / (a+b+i).

t = 0 is the binomial, in which all cases are alike; t = inf means that a case passes always or never. Both occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import at_rows, check_level
from kofn.stats.resample import resampled_means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from kofn.core.candidate_sets import Floats, Ints


DRAWS = 400  # refits for a confidence band
_STEPS = 200
_CLOSE = 1e-10  # change of log a and log b at which the climb has converged
_FARTHEST = 1e9  # a + b beyond it is the binomial, below its inverse all or nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaBinomial:
    """A population of cases: mean chance p and spread 1/(a+b), 0 for cases that are all alike.

    `kind` is "fit", or a limit that the data reach: "all" and "none" pass, "alike" (no more spread than chance gives;
    the binomial) or "all or nothing" (every case passes always or never).
    """

    p: float
    spread: float
    kind: str
    n_cases: int

    @property
    def a(self) -> float | None:
        """The first parameter of the Beta; None in a limit."""
        return self.p / self.spread if self.kind == "fit" else None

    @property
    def b(self) -> float | None:
        """The second parameter of the Beta; None in a limit."""
        return (1 - self.p) / self.spread if self.kind == "fit" else None

    def any_at(self, ks: Sequence[int]) -> list[float]:
        """The chance that any of k candidates of a new case passes.

        >>> BetaBinomial(p=0.5, spread=0.5, kind="fit", n_cases=9).any_at([1, 9])  # Beta(1, 1): k/(k+1)
        [0.5, 0.9]
        """
        return [float(x) for x in any_at(np.array([self.p]), np.array([self.spread]), ks)[0]]

    def words(self) -> str:
        """The fit in one line."""
        limits = {
            "all": "every candidate passes, so more are expected to",
            "none": "no candidate passes, so none is expected to",
            "alike": "cases differ no more than chance would have it: the binomial, as if tries were independent",
            "all or nothing": "every case passes always or never: more candidates change nothing",
        }
        return limits.get(self.kind) or f"beta-binomial with a = {self.a:.3g}, b = {self.b:.3g}"


class Tails(NamedTuple):
    """Shares of cases with more than i passes, more than i failures, more than i candidates; (draw, i) each."""

    passes: Floats
    fails: Floats
    tries: Floats


def fit(passes: ArrayLike, tries: ArrayLike, weights: ArrayLike | None = None) -> BetaBinomial | None:
    """The maximum-likelihood fit to `passes` of `tries`, which may differ by case; None with one try per case.

    >>> found = fit([0, 0, 1, 2, 4, 4], [4] * 6)
    >>> found.kind, round(found.a, 3), round(found.b, 3)
    ('fit', 0.289, 0.315)
    >>> fit([2, 2, 2], [4, 4, 4]).kind, fit([0, 4], [4, 4]).kind, fit([4, 4], [4, 4]).kind
    ('alike', 'all or nothing', 'all')
    """
    c, n = _counts(passes, tries)
    if int(n.max(initial=0)) < 2:
        return None
    w = np.ones(len(c)) if weights is None else np.asarray(weights, dtype=float)[np.asarray(tries) > 0]
    found = fits(Tails(*((w @ part / w.sum())[None, :] for part in _indicators(c, n))))
    p, spread = (float(column[0]) for column in found)
    kind = "alike" if spread == 0 else "all or nothing" if isinf(spread) else "fit"
    if p in (0.0, 1.0):
        kind = "all" if p else "none"
    return BetaBinomial(p=p, spread=spread, kind=kind, n_cases=len(c))


def _counts(passes: ArrayLike, tries: ArrayLike) -> tuple[Ints, Ints]:
    """Whole numbers, cases without a try left out."""
    c, n = np.asarray(passes, dtype=np.int64), np.asarray(tries, dtype=np.int64)
    if c.shape != n.shape or c.ndim != 1 or bool(((c < 0) | (c > n)).any()):
        raise InputError("passes must be one count a case, from 0 to its number of tries")
    return c[n > 0], n[n > 0]


def _indicators(c: Ints, n: Ints) -> Tails:
    """One row per case: whether it has more than i passes, failures, candidates.

    Summed over cases these are sufficient statistics of the likelihood, so that resamples need not keep cases.
    """
    i = np.arange(int(n.max(initial=1)))
    return Tails(*((counts[:, None] > i).astype(float) for counts in (c, n - c, n)))


def log_likelihood(passes: ArrayLike, tries: ArrayLike, a: float, b: float) -> float:
    """The log-likelihood of counts under Beta(a, b), the binomial coefficients included.

    >>> round(log_likelihood([1], [1], 1, 3), 6)  # log 1/4
    -1.386294
    """
    from scipy.special import gammaln

    c, n = _counts(passes, tries)
    coefficients = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
    tails = Tails(*(part.sum(axis=0)[None, :] for part in _indicators(c, n)))
    return float(coefficients.sum() + _likelihood(tails, np.array([log(a)]), np.array([log(b)]))[0])


def fits(tails: Tails) -> tuple[Floats, Floats]:
    """(p, spread) of every row of tails, all at once: draws of a bootstrap are refitted together.

    A row has a limit where its score says so: without more variance than the binomial's the likelihood falls from
    spread 0 on (Tarone 1979), and where no case both passes and fails it rises for ever.
    """
    p = tails.passes.sum(axis=1) / tails.tries.sum(axis=1)
    spread = np.zeros(len(p))
    mixed = (p > 0) & (p < 1)
    i = np.arange(tails.tries.shape[1])
    # Tarone's score: the slope of the log-likelihood in the spread at 0, sum of i S_i/p + i F_i/q - i N_i
    with np.errstate(divide="ignore", invalid="ignore"):
        score = tails.passes @ i / p + tails.fails @ i / (1 - p) - tails.tries @ i
    beyond = mixed & (score > 1e-12)
    every = tails.tries[:, 0]
    extreme = beyond & (np.abs(tails.passes[:, 0] + tails.fails[:, 0] - every) < 1e-12)  # all pass or all fail
    spread[extreme] = inf
    p = np.where(extreme, tails.passes[:, 0] / every, p)
    rows = np.flatnonzero(beyond & ~extreme)
    if len(rows):
        p[rows], spread[rows] = _climb(Tails(*(part[rows] for part in tails)), p[rows])
    return p, spread


def _likelihood(tails: Tails, x: Floats, y: Floats) -> Floats:
    """sum_i S_i log(a+i) + F_i log(b+i) - N_i log(a+b+i) at a = e^x, b = e^y (Griffiths 1973)."""
    i, a, b = np.arange(tails.tries.shape[1]), np.exp(x)[:, None], np.exp(y)[:, None]
    found = tails.passes * np.log(a + i) + tails.fails * np.log(b + i) - tails.tries * np.log(a + b + i)
    return np.asarray(found.sum(axis=1))


def _climb(tails: Tails, p: Floats) -> tuple[Floats, Floats]:
    """Climb from a + b = 1: a Newton step where it raises the likelihood, else one of Minka's fixed point, which never
    lowers it.
    """
    x, y = np.log(p), np.log1p(-p)
    height = _likelihood(tails, x, y)
    for _ in range(_STEPS):
        best, tried = (x, y), height
        # Minka (2000), "Estimating a Dirichlet distribution": a grows by the ratio of its two sums
        s, f, n = _sums(tails, x, y, 1)
        for step in ((x + np.log(s / n), y + np.log(f / n)), _newton(tails, x, y)):
            at = _likelihood(tails, *step)
            higher = at > tried
            best = (np.where(higher, step[0], best[0]), np.where(higher, step[1], best[1]))
            tried = np.where(higher, at, tried)
        moved = max(float(np.abs(best[0] - x).max()), float(np.abs(best[1] - y).max()))
        (x, y), height = best, tried
        if moved < _CLOSE:
            break
    a, b = np.exp(x), np.exp(y)
    spread = 1 / (a + b)
    return a * spread, np.where(spread < 1 / _FARTHEST, 0.0, np.where(spread > _FARTHEST, inf, spread))


def _sums(tails: Tails, x: Floats, y: Floats, power: int) -> tuple[Floats, Floats, Floats]:
    i, a, b = np.arange(tails.tries.shape[1]), np.exp(x)[:, None], np.exp(y)[:, None]
    passes, fails, tries = (
        (part / (at + i) ** power).sum(axis=1) for part, at in zip(tails, (a, b, a + b), strict=True)
    )
    return passes, fails, tries


def _newton(tails: Tails, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """One Newton step in (log a, log b), at most 2 in each, which keeps a first step from overflowing."""
    a, b = np.exp(x), np.exp(y)
    (s, f, n), (s2, f2, n2) = _sums(tails, x, y, 1), _sums(tails, x, y, 2)
    gx, gy = a * (s - n), b * (f - n)
    hxx, hyy, hxy = gx - a * a * (s2 - n2), gy - b * b * (f2 - n2), a * b * n2
    with np.errstate(divide="ignore", invalid="ignore"):
        det = hxx * hyy - hxy * hxy
        dx, dy = (hxy * gy - hyy * gx) / det, (hxy * gx - hxx * gy) / det
    dx, dy = (np.clip(np.nan_to_num(d, nan=0.0, posinf=0.0, neginf=0.0), -2, 2) for d in (dx, dy))
    return x + dx, y + dy


def any_at(p: Floats, spread: Floats, ks: Sequence[int]) -> Floats:
    """1 - prod_{i<k} (1 - p + i t)/(1 + i t): one row per population, one column per k."""
    i = np.arange(max(ks))
    t = np.where(np.isinf(spread), 0.0, spread)[:, None]
    with np.errstate(divide="ignore"):
        steps = np.log1p(-p[:, None] / (1 + i * t))  # precise for small chances; -inf for a chance of 1
    steps = np.where(np.isinf(spread)[:, None] & (i > 0), 0.0, steps)
    return np.asarray(-np.expm1(np.cumsum(steps, axis=1))[:, np.asarray(ks) - 1])


class Extrapolated(NamedTuple):
    """any@k of the fitted population, with the ends of its band."""

    k: int
    point: float
    low: float
    high: float


def extrapolate(
    passes: ArrayLike,
    tries: ArrayLike,
    ks: Sequence[int],
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[BetaBinomial, list[Extrapolated]] | None:
    """The fit, and any@k for each k with a percentile band from refits to resampled cases.

    The band covers the variation between samples of cases. That chances follow a Beta is assumed and not part of it.

    >>> model, points = extrapolate([0, 0, 1, 2, 4, 4], [4] * 6, [10], seed=1)
    >>> [round(x, 2) for x in points[0][1:]]
    [0.73, 0.33, 0.98]
    """
    model = fit(passes, tries, weights)
    if model is None:
        return None
    c, n = _counts(passes, tries)
    units = at_rows(np.asarray(tries) > 0, weights=weights, clusters=clusters)
    tails = _indicators(c, n)
    width = tails.tries.shape[1]
    drawn = resampled_means(np.hstack(tails), **units, n_resamples=draws, seed=seed)
    found = any_at(*fits(Tails(*(drawn[:, j * width : (j + 1) * width] for j in range(3)))), ks)
    tail = (1 - check_level(level)) / 2
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)
    ends = zip(ks, model.any_at(ks), low.tolist(), high.tolist(), strict=True)
    return model, [Extrapolated(*row) for row in ends]
