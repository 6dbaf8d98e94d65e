"""Checks for authors of plugins: `check_aggregator` tests the laws that every aggregator obeys.

from kofn.testing import check_aggregator
check_aggregator("my_pkg.rules:shortest_wins")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.core.candidate_sets import CandidateSets
from kofn.registry import aggregator

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.aggregators.base import Aggregator

_WORDS = ("a", "b", "cat", "dog", "sat", "mat")


def random_sets(
    rng: np.random.Generator, n_sets: int = 30, most: int = 6, *, binary: bool = True, missing: float = 0.0
) -> CandidateSets:
    """Candidate sets of unequal size, some empty, with every column; equal answers of a set have equal values."""
    values, answers, texts, scores, facets = [], [], [], [], []
    for n in rng.integers(0, most + 1, n_sets).tolist():
        codes = rng.integers(-1, 3, n).tolist()
        worth = (rng.integers(0, 2, 4) if binary else rng.integers(0, 5, 4) / 4).tolist()
        graded = (rng.random(n) >= missing).tolist()
        values.append([float(worth[c]) if ok else None for c, ok in zip(codes, graded, strict=True)])
        answers.append([None if c < 0 else f"answer {c}" for c in codes])
        texts.append([" ".join(words) for words in _random_words(rng, n)])
        scores.append(rng.integers(0, 4, n).astype(float).tolist())
        facets.append(_random_words(rng, n))
    return CandidateSets.from_lists(
        values,
        answers=answers,
        texts=texts,
        selectors={"judge": scores},
        weights=[[1.0 + s for s in ss] for ss in scores],
        facets=facets,
        required=[["answer 0", "answer 1", "cat"]] * n_sets,
    )


def _random_words(rng: np.random.Generator, n: int) -> list[list[str]]:
    picks, lengths = rng.integers(0, len(_WORDS), (n, 4)).tolist(), rng.integers(0, 5, n).tolist()
    return [[_WORDS[i] for i in row[:length]] for row, length in zip(picks, lengths, strict=True)]


def check_aggregator(spec: str | Callable[..., Any], *, examples: int = 10, seed: int = 0) -> None:
    """Raise an AssertionError that names the law if one is broken.

    The result is one float per set. An empty set is undefined. A set's value does not depend on the other sets. The
    input is not changed. Unless the aggregator is `ordered`, the order of the candidates does not matter. A second call
    gives the same result.

    >>> check_aggregator("any_pass")
    >>> check_aggregator(lambda one: max(v for v in one.values if v is not None) if any(one.values) else 0.0)
    """
    rule = aggregator(spec)
    rng = np.random.default_rng(seed)
    for _ in range(examples):
        sets = random_sets(rng)  # with empty sets and ties, where most mistakes show
        before = (sets.values.copy(), sets.passes.copy())
        result = rule(sets)
        _shape(rule, sets, result)
        assert_same(result, rule(sets), f"{rule.name} gives another result the second time")
        assert np.array_equal(sets.values, before[0], equal_nan=True), f"{rule.name} changes the values it is given"
        assert np.array_equal(sets.passes, before[1]), f"{rule.name} changes the passes it is given"
        order = rng.permutation(len(sets))
        assert_same(rule(sets.take(order)), result[order], f"{rule.name}: a set's value depends on the other sets")
        if not rule.ordered:
            assert_same(
                rule(shuffled(sets, rng)),
                result,
                f"{rule.name} depends on the order of candidates: set ordered = True",
            )


def shuffled(sets: CandidateSets, rng: np.random.Generator) -> CandidateSets:
    """The same sets with the candidates of each in another order."""
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    return sets.reorder(np.lexsort((rng.random(len(owner)), owner)))


def assert_same(found: Any, wanted: Any, message: str) -> None:
    """Assert equality to 1e-9, with NaN equal to NaN."""
    assert np.allclose(found, wanted, rtol=0, atol=1e-9, equal_nan=True), f"{message}: {found} and {wanted}"


def _shape(rule: Aggregator, sets: CandidateSets, result: Any) -> None:
    assert getattr(result, "shape", None) == (len(sets),), f"{rule.name} must give one number a set"
    assert result.dtype == np.float64, f"{rule.name} must give float64, not {result.dtype}"
    assert np.isnan(result[sets.sizes == 0]).all(), f"{rule.name} must be undefined (NaN) for an empty set"
    assert not np.isinf(result).any(), f"{rule.name} gives an infinite value"
