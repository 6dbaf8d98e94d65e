"""Paired comparison of two systems on the same cases: the difference, its interval and p-values."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.estimates import BOOTSTRAPS, DEFAULT_INTERVAL
from kofn.stats.intervals import NO_INTERVAL, Interval, check_level, check_resamples, cluster_codes, wilson
from kofn.stats.permutation import mcnemar_p, sign_flip_p
from kofn.stats.resample import as_units, bootstrap_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

DIFFERENCES = {"auto": "bca", **BOOTSTRAPS}  # differences are no rates, so "auto" is always BCa


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """b against a over the cases both have. `difference` is b - a; None throughout when n is 0.

    `wins` are the cases where b is higher. `n_missing` counts shared cases that lack a value on
    either side; `only_a` and `only_b` name the cases the other side does not have.
    """

    n: int
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    p: float | None
    mcnemar_p: float | None
    wins: int
    ties: int
    losses: int
    n_missing: int
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()


def _positions(ids: Sequence[str], values: NDArray[np.float64], side: str) -> dict[str, int]:
    if len(ids) != values.size:
        raise InputError(f"side {side} has {len(ids)} ids but {values.size} values")
    at = {case: i for i, case in enumerate(ids)}
    if len(at) < len(ids):
        twice = next(case for i, case in enumerate(ids) if at[case] != i)
        raise InputError(f"case {twice!r} occurs more than once in {side}: give one value a case")
    return at


def same_cases(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether two sides have the same cases in the same order, as runs of one dataset do.

    >>> same_cases("xy", ["x", "y"]), same_cases("xy", "yx")
    (True, False)
    """
    return a is b or (len(a) == len(b) and list(a) == list(b))


def _shared_rows(at_a: dict[str, int], at_b: dict[str, int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the cases stand that both sides have, in the order of side a."""
    if at_a is at_b:
        every = np.arange(len(at_a), dtype=np.intp)
        return every, every
    shared = [(i, at_b[case]) for case, i in at_a.items() if case in at_b]
    rows = np.array(shared, dtype=np.intp).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _means(
    a: NDArray[np.float64], b: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[float | None, float | None, float | None]:
    if not a.size:
        return None, None, None
    mean_a, mean_b, difference = (as_units(x, weights, None).point for x in (a, b, b - a))
    return mean_a, mean_b, difference


def compare(
    ids_a: Sequence[str],
    values_a: ArrayLike,
    ids_b: Sequence[str],
    values_b: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    interval: str = DEFAULT_INTERVAL,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems case by case, aligned by id.

    The interval is the bootstrap by case of the paired differences, the p-value a sign-flip
    permutation test (see `sign_flip_p`), with McNemar's exact test beside it when both sides are
    0/1. With `clusters` (one a case of side a) whole clusters are resampled and flipped. With
    `weights` (one a case of side a) means are Σwx/Σw, and weighted differences are flipped; where
    every shared case weighs 0, all count alike.

    >>> c = compare(["x", "y", "z"], [0, 0, 1], ["z", "y", "w"], [1, 1, 1])
    >>> c.n, c.difference, c.wins, c.only_a, c.only_b
    (2, 0.5, 1, ('x',), ('w',))
    """
    check_level(level)
    check_resamples(n_resamples)
    if interval not in DIFFERENCES:
        raise UnknownName("interval of a difference", interval, list(DIFFERENCES))
    a, b = np.asarray(values_a, dtype=float), np.asarray(values_b, dtype=float)
    at_a = _positions(ids_a, a, "a")
    at_b = at_a if b.size == a.size and same_cases(ids_a, ids_b) else _positions(ids_b, b, "b")
    rows_a, rows_b = _shared_rows(at_a, at_b)
    both = ~(np.isnan(a[rows_a]) | np.isnan(b[rows_b]))
    n_shared, rows_a, rows_b = rows_a.size, rows_a[both], rows_b[both]
    groups = None if clusters is None else cluster_codes(clusters)[rows_a]
    heavy = None if weights is None else np.asarray(weights, dtype=float)[rows_a]
    heavy = heavy if heavy is not None and heavy.any() else None
    a, b = a[rows_a], b[rows_b]
    binary = bool(((a == 0) | (a == 1)).all() and ((b == 0) | (b == 1)).all())
    drawing: dict[str, int] = {"n_resamples": n_resamples, "seed": seed}
    ends = _difference_interval(b - a, groups, heavy, interval, level, binary=binary, **drawing)
    mean_a, mean_b, difference = _means(a, b, heavy)
    wins, losses = int((b > a).sum()), int((b < a).sum())
    return Comparison(
        n=a.size,
        a=mean_a,
        b=mean_b,
        difference=difference,
        low=ends.low if isfinite(ends.low) else None,
        high=ends.high if isfinite(ends.high) else None,
        level=level,
        method=ends.method,
        p=sign_flip_p(as_units(b - a, heavy, groups).sums, **drawing) if a.size else None,
        mcnemar_p=mcnemar_p(losses, wins) if binary and a.size and groups is None and heavy is None else None,
        wins=wins,
        ties=a.size - wins - losses,
        losses=losses,
        n_missing=n_shared - a.size,
        only_a=() if n_shared == len(at_a) else tuple(case for case in ids_a if case not in at_b),
        only_b=() if n_shared == len(at_b) else tuple(case for case in ids_b if case not in at_a),
    )


def _difference_interval(
    difference: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
    weights: NDArray[np.float64] | None,
    interval: str,
    level: float,
    *,
    binary: bool,
    n_resamples: int,
    seed: int,
) -> Interval:
    """The bootstrap of the differences; where they are all equal, what Wilson's interval leaves open.

    With 0/1 values and no case that differs, each of "only a passes" and "only b passes" has a rate
    of at most Wilson's upper end u for none of n, so the difference lies within u of what was seen.
    Other values that all differ alike leave no width, as in `bootstrap_mean`.
    """
    found = bootstrap_mean(
        difference,
        clusters=clusters,
        weights=weights,
        level=level,
        method=DIFFERENCES[interval],
        n_resamples=n_resamples,
        seed=seed,
    )
    if found.method not in ("wilson", "degenerate"):
        return found
    value = float(difference[0])
    if not binary:
        return Interval(value, value, "degenerate") if difference.size > 1 else NO_INTERVAL
    reach = wilson(0, as_units(difference, weights, clusters).effective_size(), level).high
    return Interval(max(-1.0, value - reach), min(1.0, value + reach), "wilson")
