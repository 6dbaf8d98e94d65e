"""Drawing resamples, for what has no computed law: several means at once, and other statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

BLOCK = 4096  # units whose resampled counts are made together: they stay in cache
CELLS = 1 << 20  # counts held at once, 8 MB


def _counts(
    rng: np.random.Generator, drawn: NDArray[np.int64], width: int
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Counts of each of `width` units in resamples that draw `drawn[r]` of them, some resamples at a time."""
    rows = max(1, CELLS // width)
    for start in range(0, drawn.size, rows):
        some = drawn[start : start + rows]
        units = rng.integers(0, width, size=int(some.sum()), dtype=np.uint16)
        cells = np.repeat(np.arange(some.size) * width, some) + units
        counts = np.bincount(cells, minlength=some.size * width).reshape(some.size, width)
        yield slice(start, start + some.size), counts.astype(float)


def resampled_sums(matrix: NDArray[np.float64], n_resamples: int, seed: int) -> NDArray[np.float64]:
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


def resampled_statistic(
    n_units: int,
    take: Callable[[NDArray[np.int64]], float],
    n_resamples: int,
    seed: int,
) -> NDArray[np.float64]:
    """`take(indices of the drawn units)` for each resample."""
    rng = np.random.default_rng(seed)
    return np.array([take(rng.integers(0, n_units, size=n_units)) for _ in range(n_resamples)], dtype=float)
