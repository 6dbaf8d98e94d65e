"""Random resamples, for statistics without a computed law: several means at once, ratios, any statistic.

They also serve ratios that a few units dominate, whose law has gaps and clumps on too many scales for a lattice.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from kofn.stats.intervals import check_level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats, Ints

BLOCK = 4096  # units whose resampled counts are made together: they stay in cache
CELLS = 1 << 20  # counts held at once, 8 MB
HEAVIEST = 1024  # units that are drawn one by one; smaller ones matter only by their sum, which is normal


def _counts(rng: np.random.Generator, drawn: Ints, width: int) -> Iterator[tuple[slice, Floats]]:
    """Counts of each of `width` units in resamples that draw `drawn[r]` of them, some resamples at a time."""
    rows = max(1, CELLS // width)
    for start in range(0, drawn.size, rows):
        some = drawn[start : start + rows]
        units = rng.integers(0, width, size=int(some.sum()), dtype=np.uint16)
        cells = np.repeat(np.arange(some.size) * width, some) + units
        counts = np.bincount(cells, minlength=some.size * width).reshape(some.size, width)
        yield slice(start, start + some.size), counts.astype(float)


def resampled_sums(matrix: Floats, n_resamples: int, seed: int) -> Floats:
    """Column sums of `n_resamples` resamples of the rows: all columns share each resample.

    In two stages, how many draws fall in each block of rows (multinomial) and which rows of the
    block, so that memory stays near 40 MB whatever the number of rows.

    >>> resampled_sums(np.ones((5, 2)), 3, seed=0).tolist()
    [[5.0, 5.0], [5.0, 5.0], [5.0, 5.0]]
    """
    rng = np.random.default_rng(seed)
    n = matrix.shape[0]
    sizes = np.diff(np.append(np.arange(0, n, BLOCK), n))
    sums = np.zeros((n_resamples, matrix.shape[1]))
    left, rest = np.full(n_resamples, n), n
    for block, size in enumerate(sizes.tolist()):
        # one block at a time of the multinomial: the count here given what is left
        drawn = left if size == rest else rng.binomial(left, size / rest)
        rows = matrix[block * BLOCK : block * BLOCK + size]
        for part, counts in _counts(rng, drawn, size):
            sums[part] += counts @ rows
        left, rest = left - drawn, rest - size
    return sums


def _sums_of_few(rng: np.random.Generator, pairs: Floats, n_resamples: int) -> Floats:
    """Sums of resamples of at most a few thousand pairs: picking them is then faster than counting."""
    both = pairs[:, 0] + 1j * pairs[:, 1]  # as one complex number, so that one `take` fetches both
    at_once = max(1, CELLS // 16 // len(pairs))
    parts = []
    for start in range(0, n_resamples, at_once):
        shape = (len(pairs), min(at_once, n_resamples - start))
        units = rng.integers(0, len(pairs), size=shape, dtype=np.uint16)
        parts.append(both.take(units).sum(axis=0))
    sums = np.concatenate(parts)
    return np.column_stack([sums.real, sums.imag])


def resampled_ratios(sums: Floats, weights: Floats, n_resamples: int, seed: int) -> Floats:
    """Σsums/Σweights of `n_resamples` resamples of the units, whatever the order these come in.

    The `HEAVIEST` units are drawn; the sums over any others, each smaller than a thousand that are
    drawn, are taken as normal, so that the time hardly grows with the number of units.

    >>> resampled_ratios(np.array([2.0, 4.0]), np.array([1.0, 2.0]), 3, seed=0).tolist()
    [2.0, 2.0, 2.0]
    """
    pairs = np.column_stack([sums, weights])[np.lexsort((sums, weights))]
    rng = np.random.default_rng(seed)
    if len(pairs) <= HEAVIEST:
        drawn = _sums_of_few(rng, pairs, n_resamples)
    else:
        # heaviest first: by their weight and what they contribute to ΣS/ΣW, each against its mean
        total, weight = pairs.sum(axis=0)
        part = np.abs(pairs[:, 0] - total / weight * pairs[:, 1])
        pairs = pairs[np.argsort(-(pairs[:, 1] / weight + part / part.sum()), kind="stable")]
        n_heavy = rng.binomial(len(pairs), HEAVIEST / len(pairs), size=n_resamples)
        # the sums of the others as jointly normal, with their own means and covariances
        rest, n_rest = pairs[HEAVIEST:], (len(pairs) - n_heavy)[:, None]
        mean = rest.mean(axis=0)
        scale, axes = np.linalg.eigh((rest - mean).T @ (rest - mean) / len(rest))
        spread = np.sqrt(np.maximum(scale, 0.0))[:, None] * axes.T
        drawn = n_rest * mean + np.sqrt(n_rest) * (rng.standard_normal((n_resamples, 2)) @ spread)
        for some, counts in _counts(rng, n_heavy, HEAVIEST):
            drawn[some] += counts @ pairs[:HEAVIEST]
    return np.asarray(drawn[:, 0] / drawn[:, 1])


def sums_by_cluster(rows: Floats, codes: NDArray[np.intp]) -> Floats:
    """Column sums within each cluster.

    >>> sums_by_cluster(np.array([[1.0], [2.0], [4.0]]), np.array([0, 1, 0])).tolist()
    [[5.0], [2.0]]
    """
    n = int(codes.max()) + 1 if codes.size else 0
    return np.column_stack([np.bincount(codes, weights=column, minlength=n) for column in rows.T])


def distinct_rows(rows: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """The distinct rows, sorted, and the number of each: `np.unique(rows, axis=0, return_counts=True)`.

    Rows of small whole numbers, which most counts are, become one whole number each: a hundred times faster.

    >>> [part.tolist() for part in distinct_rows(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]))]
    [[[0.0, 2.0], [1.0, 0.0]], [1, 2]]
    """
    key, sizes = _row_keys(rows)
    if key is None:
        kinds, counts = np.unique(rows, axis=0, return_counts=True)
        return kinds, counts
    counts = np.bincount(key)
    occurring = np.flatnonzero(counts)
    return np.stack(np.unravel_index(occurring, sizes), axis=1).astype(np.float64), counts[occurring]


def _row_keys(rows: Floats) -> tuple[NDArray[np.intp] | None, tuple[int, ...]]:
    """One whole number per row, in the order of the rows, and the sizes of its digits; None where there is none."""
    if not rows.size or not np.isfinite(rows.sum()) or rows.min() < 0:
        return None, ()
    sizes = tuple(int(most) + 1 for most in rows.max(axis=0))
    if prod(sizes) > max(1024, 4 * len(rows)):  # a table of all keys would be larger than the rows
        return None, ()
    key = np.zeros(len(rows), dtype=np.intp)
    for column, size in zip(rows.T, sizes, strict=True):
        whole = column.astype(np.intp)
        if not np.array_equal(whole, column):
            return None, ()
        key = key * size + whole
    return key, sizes


def resampled_sums_of_units(units: Floats, n_resamples: int, rng: np.random.Generator) -> Floats:
    """Column sums of resamples of the units. Few distinct units need only the count of each (multinomial).

    >>> resampled_sums_of_units(np.ones((4, 2)), 2, np.random.default_rng(0)).tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """
    distinct, counts = distinct_rows(units)
    if len(distinct) > max(64, len(units) // 8):
        return resampled_sums(units, n_resamples, int(rng.integers(2**63)))
    drawn = rng.multinomial(len(units), counts / len(units), size=n_resamples)
    return np.asarray(drawn @ distinct)


def percentile_ends(draws: Floats, level: float) -> tuple[float, float]:
    """The percentile ends of draws, of which some may be infinite.

    "inverted_cdf" does not interpolate: between a finite and an infinite draw any other method gives NaN or infinity.

    >>> percentile_ends(np.arange(101.0), 0.9)
    (5.0, 95.0)
    """
    tail = (1 - check_level(level)) / 2
    low = np.quantile(draws, tail, method="inverted_cdf")
    return float(low), float(-np.quantile(-draws, tail, method="inverted_cdf"))
