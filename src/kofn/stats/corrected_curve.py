"""any@k of a judge's verdicts, corrected for its errors on single candidates.

A judge passes what is right with chance s (sensitivity) and fails what is wrong with chance t (specificity). If it errs
independently on each candidate, X = (Y + t - 1)/J with J = s + t - 1 is unbiased for the truth behind its verdict Y
(Rogan & Gladen 1978, for one candidate), and so is the product of 1 - X over k candidates for "all k are wrong". The
mean of that product over all k-subsets of a set has a closed form. It assumes nothing about how cases differ, unlike
1 - (1 - p)^k and unlike `any_of_candidates`, the rate if candidates were independent, which is an upper bound. The
price is variance: it grows with (s/J)^k.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.errors import InputError
from kofn.stats.corrected_rates import (
    draw_rates,
    labelled_data,
    prevalence_from_rates,
    prevalence_of_draws,
    unit_codes,
    variance_parts,
)
from kofn.stats.draws import percentile_ends, resampled_sums, resampled_sums_of_units
from kofn.stats.intervals import at_rows, check_level, cluster_codes
from kofn.stats.judge_accuracy import label_columns
from kofn.stats.resample import resampled_means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats


ASSUMES = "assumes that the judge errs independently on each candidate"
DRAWS = 1000
_LEAST = 0.02  # s + t - 1 of a draw: below it the correction divides by almost 0, and the draw is left out


class Rates(NamedTuple):
    """How often a judge is right about candidates that are right, and about those that are wrong."""

    sensitivity: float
    specificity: float

    def checked(self) -> Rates:
        """The rates themselves; refused where they cannot correct anything."""
        if any(isnan(rate) or not 0 <= rate <= 1 for rate in self):
            raise InputError("sensitivity and specificity need labels that people pass and labels that they fail")
        if sum(self) <= 1:
            raise InputError(
                f"the judge carries no information: sensitivity {self.sensitivity:.3g} + specificity "
                f"{self.specificity:.3g} is not above 1; nothing can be corrected with it"
            )
        return self


class CorrectedPoint(NamedTuple):
    """any@k clipped to [0, 1], its ends, and whether the formula's value lay outside."""

    k: int
    point: float | None
    low: float | None
    high: float | None
    clipped: bool


def corrected_any_at(c: int, n: int, k: int, s: float, t: float) -> float:
    """The corrected any@k of a set of n candidates of which the judge passes c; not clipped; NaN for k > n.

    1 - sum_i C(c,i) C(n-c,k-i)/C(n,k) ((s-1)/J)^i (s/J)^(k-i), J = s + t - 1. A perfect judge gives pass@k:

    >>> round(corrected_any_at(3, 10, 5, 1, 1), 6), round(corrected_any_at(3, 10, 5, 0.9, 0.8), 6)
    (0.916667, 0.852204)
    """
    rates = Rates(s, t).checked()
    if not 0 <= c <= n or k < 1:
        raise InputError(f"corrected any@{k} of {c} passes of {n}: expected 0 <= c <= n and k >= 1")
    return float(1 - _wrong(_draws_of(n, c, k)[None, :], np.array([rates]))[0, 0])


def _draws_of(n: int, c: int, k: int) -> Floats:
    """The chance of i passes among k drawn, i = 0 to k; NaN for k > n."""
    if k > n:
        return np.full(k + 1, np.nan)
    return np.array([comb(c, i) * comb(n - c, k - i) / comb(n, k) for i in range(k + 1)])


def _wrong(draws: Floats, rates: Floats) -> Floats:
    """All k wrong: (pair of rates, kind of set). `draws` is (kind, i)."""
    k = draws.shape[1] - 1
    s, t = rates[:, :1], rates[:, 1:]
    j, i = s + t - 1, np.arange(k + 1)
    return np.asarray((((s - 1) / j) ** i * (s / j) ** (k - i)) @ draws.T)


def rates_of(human: ArrayLike, judge: ArrayLike, weights: ArrayLike | None = None) -> Rates:
    """Sensitivity and specificity from 0/1 verdicts of people and the judge on the same candidates.

    >>> rates_of([1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0])
    Rates(sensitivity=0.75, specificity=1.0)
    """
    return Rates(*_rates(_columns(human, judge, weights).sum(axis=0)[None, :])[0].tolist())


def _columns(human: ArrayLike, judge: ArrayLike, weights: ArrayLike | None) -> Floats:
    """One row per label, times its weight: judge and people pass, people pass, both fail, people fail."""
    tp, fp, fn, tn = label_columns(human, judge, weights).T
    return np.column_stack([tp, tp + fn, tn, fp + tn])


def _rates(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.column_stack([sums[:, 0] / sums[:, 1], sums[:, 2] / sums[:, 3]])


def corrected_curve(
    passes: ArrayLike,
    tries: ArrayLike,
    ks: Sequence[int],
    human: ArrayLike,
    judge: ArrayLike,
    *,
    label_clusters: ArrayLike | None = None,
    label_weights: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[Rates, list[CorrectedPoint]]:
    """The mean over cases of the corrected any@k, with a percentile band that resamples cases and labels.

    `label_clusters` names the case of each label: its labels are drawn together. `label_weights` is the number of
    candidates a label stands for, where they were not drawn evenly. Sets of fewer than k are left out.
    Cases and labels are drawn independently: where the labels are of the same cases the band is too wide (it covered
    the truth in 97 to 100% of simulations). From the first k on at which the value falls or leaves [0, 1], which no
    any@k does, there is none: the judge errs too often for so large a k, or the labels are of another judge. Draws of
    labels in which the judge carries no information have no corrected value and are left out too.
    """
    rates = rates_of(human, judge, label_weights).checked()
    columns = _columns(human, judge, label_weights)
    if label_clusters is not None:
        codes = cluster_codes(label_clusters)
        columns = np.column_stack([np.bincount(codes, weights=column) for column in columns.T])
    drawn = _drawn_rates(columns, rates, draws, seed + 1)
    drawn[~(drawn.sum(axis=1) > 1 + _LEAST)] = np.nan
    # the distinct kinds of sets, (n, c): resamples need only the number of each kind
    n, c = np.asarray(tries, dtype=np.int64), np.asarray(passes, dtype=np.int64)
    kinds, kind = np.unique(np.stack([n, c], axis=1), axis=0, return_inverse=True)
    tail = (1 - check_level(level)) / 2
    points = []
    for k in ks:
        enough, used = n >= k, kinds[:, 0] >= k
        table = np.array([_draws_of(int(size), int(passing), k) for size, passing in kinds[used]])
        member = np.eye(int(used.sum()))[(np.cumsum(used) - 1)[kind.ravel()[enough]]]
        own = at_rows(enough, weights=weights, clusters=clusters)
        shares = resampled_means(member, **own, n_resamples=len(drawn), seed=seed)
        means = 1 - (shares * _wrong(table, drawn)).sum(axis=1)
        point = float(1 - np.average(member, axis=0, weights=own["weights"]) @ _wrong(table, np.array([rates]))[0])
        low, high = np.clip(np.nanquantile(means, [tail, 1 - tail]), 0, 1).tolist()
        inside = min(1.0, max(0.0, point))
        points.append(CorrectedPoint(k, inside, low, high, abs(point - inside) > 1e-12))
    return rates, _as_far_as_it_rises(points)


def _as_far_as_it_rises(points: list[CorrectedPoint]) -> list[CorrectedPoint]:
    """The points up to the first that leaves [0, 1] or lies below the one before; the later ones without a value."""
    before = -1.0
    for i, point in enumerate(points):
        if point.point is None or point.point < before - 1e-9 or (i and point.clipped):
            return [*points[:i], *(CorrectedPoint(p.k, None, None, None, p.clipped) for p in points[i:])]
        before = point.point
    return points


def _drawn_rates(columns: Floats, rates: Rates, draws: int, seed: int) -> Floats:
    """Rates of resampled labels. A rate of 0 or 1 would never vary: it is drawn from Jeffreys' Beta instead.

    So 20 labels on which the judge is always right do not make it a judge that never errs.
    """
    drawn = _rates(resampled_sums(columns, draws, seed))
    rng = np.random.default_rng([seed, 1])
    for at, (rate, of_class) in enumerate(zip(rates, (1, 3), strict=True)):
        if rate in (0.0, 1.0):
            n = int((columns[:, of_class] > 0).sum())
            drawn[:, at] = rng.beta(n * rate + 0.5, n * (1 - rate) + 0.5, draws)
    return drawn


# --- if candidates were independent: an upper bound


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOfCandidates:
    """The rate of cases with at least one good candidate if candidates were independent: an upper bound."""

    point: float
    low: float
    high: float
    level: float
    method: str
    positions: tuple[float, ...]
    assumption: str = "assumes independent candidates, upper bound"


def any_of_candidates(
    human: ArrayLike,
    judge: ArrayLike,
    judged: ArrayLike,
    cases: Sequence[object],
    places: Sequence[int],
    *,
    weights: ArrayLike | None = None,
    clusters: Sequence[object] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> AnyOfCandidates:
    """From labels of candidates to sets: each position's rate is corrected to π_j, then 1 - Π(1 - π_j).

    `judged`, `cases` and `places` have one entry per judged candidate; the sensitivity and specificity are those of
    all labels (`clusters`: the case of each). Sets of unequal size are averaged over the sizes there are. Candidates
    of a case pass and fail together, so the true rate is lower: 0.79 where this gave 0.92. Each π_j is clipped, also in
    the draws: s and t as in `corrected_rate`, the judged cases resampled whole.

    >>> found = any_of_candidates([1, 1, 0, 0] * 20, [1, 1, 0, 0] * 20, [1, 0, 0, 1] * 30,
    ...                           [i // 2 for i in range(120)], [0, 1] * 60)
    >>> round(found.point, 3), found.positions, found.assumption
    (0.75, (0.5, 0.5), 'assumes independent candidates, upper bound')
    """
    data = labelled_data(human, judge, judged, weights, clusters, list(cases), None)
    value = prevalence_from_rates(data)
    parts = variance_parts(data, value, inside=False)
    _, codes = unit_codes(np.empty(0, dtype=np.intp), len(cases), None, cases)
    passed, exists = _by_case(data.judged, codes, np.asarray(places, dtype=np.intp))
    k = exists.shape[1]
    sizes = np.bincount(exists.sum(axis=1).astype(np.intp), minlength=k + 1) / len(exists)
    rates = (np.array([rate]) for rate in (data.confusion.sensitivity, data.confusion.specificity))
    q = (passed.sum(axis=0) / exists.sum(axis=0))[None, :]
    by_place = np.clip(_prevalence_by_place(q, *rates), 0.0, 1.0)
    rng = np.random.default_rng(seed)
    s, t = draw_rates(data, parts, rng, n_resamples)
    sums = resampled_sums_of_units(np.hstack([passed, exists]), n_resamples, rng)
    drawn = _prevalence_by_place(sums[:, :k] / np.maximum(sums[:, k:], 1.0), s, t)
    low, high = percentile_ends(_any_pass(np.clip(drawn, 0.0, 1.0), sizes), level)
    return AnyOfCandidates(
        point=float(_any_pass(by_place, sizes)[0]),
        low=low,
        high=high,
        level=level,
        method="jeffreys and bootstrap by case",
        positions=tuple(by_place[0].tolist()),
    )


def _by_case(judged: Floats, codes: NDArray[np.intp], places: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Two tables with one row per case, one column per position: whether the judge passes the candidate, and whether
    there is one.

    Candidates that were not graded leave gaps; later ones of the case move up, so that positions count graded ones.
    """
    order = np.lexsort((places, codes))
    counts = np.bincount(codes)
    rank = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    passed, exists = np.zeros((2, counts.size, int(counts.max())))
    exists[codes[order], rank] = 1.0
    passed[codes[order], rank] = judged[order]
    return passed, exists


def _prevalence_by_place(q: Floats, s: Floats, t: Floats) -> Floats:
    return np.column_stack([prevalence_of_draws(column, s, t) for column in q.T])


def _any_pass(by_place: Floats, sizes: Floats) -> Floats:
    """1 - Π(1 - π_j) over the first m positions, averaged over the share of cases with m candidates."""
    none = np.cumprod(1 - by_place, axis=1)
    return np.asarray(1 - sizes[0] - none @ sizes[1:])
