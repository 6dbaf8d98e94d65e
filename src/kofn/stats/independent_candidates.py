"""The corrected rate of cases with any good candidate, if candidates were independent: an upper bound.

`corrected_curve` assumes nothing about the candidates of a case, only that the judge errs independently on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kofn.stats.corrected_rates import draw_rates, prevalence_from_rates, prevalence_of_draws
from kofn.stats.correction_data import labelled_data, unit_codes
from kofn.stats.correction_variance import variance_parts
from kofn.stats.draws import percentile_ends, resampled_sums_of_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


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
    passed, exists = _by_case(
        data.judged,
        unit_codes(np.empty(0, dtype=np.intp), len(cases), None, cases)[1],
        np.asarray(places, dtype=np.intp),
    )
    sizes = np.bincount(exists.sum(axis=1).astype(np.intp), minlength=exists.shape[1] + 1) / len(exists)
    confusion = data.confusion
    rates = np.array([confusion.sensitivity, confusion.specificity])[:, None]
    q = (passed.sum(axis=0) / exists.sum(axis=0))[None, :]
    by_place = np.clip(_prevalence_by_place(q, rates[0], rates[1]), 0.0, 1.0)
    rng = np.random.default_rng(seed)
    s, t = draw_rates(data, parts, rng, n_resamples)
    sums = resampled_sums_of_units(np.hstack([passed, exists]), n_resamples, rng)
    k = exists.shape[1]
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


def _by_case(
    judged: NDArray[np.float64], codes: NDArray[np.intp], places: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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


def _prevalence_by_place(q: NDArray[np.float64], s: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    columns = [prevalence_of_draws(q[:, j], s, t) for j in range(q.shape[1])]
    return np.column_stack(columns)


def _any_pass(by_place: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - Π(1 - π_j) over the first m positions, averaged over the share of cases with m candidates."""
    none = np.cumprod(1 - by_place, axis=1)
    return np.asarray(1 - sizes[0] - none @ sizes[1:])
