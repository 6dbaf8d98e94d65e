"""Applies an aggregator to a single candidate set (`kofn.aggregate`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.candidate_sets import CandidateSets
from kofn.errors import InputError
from kofn.registry import aggregator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.scoring.configuration import Spec


def aggregate(
    name: Spec,
    *,
    values: Sequence[float | bool | None] | None = None,
    answers: Sequence[object] | None = None,
    passes: Sequence[bool | int | None] | None = None,
    texts: Sequence[str | None] | None = None,
    selector: Sequence[float | None] | None = None,
    weights: Sequence[float] | None = None,
    facets: Sequence[Sequence[str]] | None = None,
    required: Sequence[str] | None = None,
    ideal: Sequence[float] | None = None,
    threshold: float | None = None,
    higher_is_better: bool = True,
) -> float | None:
    """One set's number by an aggregator; None where it is undefined.

    >>> aggregate("mean", values=[0.5, 0.8, 0.3, 0.9, 0.6])
    0.62
    >>> aggregate("majority", values=[1, 0, 1, 1, 0], answers=[42, 43, 42, 42, 41])
    1.0
    >>> aggregate("pass@5", values=[1, 0, 1]) is None
    True
    """
    size = next((len(c) for c in (values, passes, answers, texts, facets) if c is not None), None)
    if size is None:
        raise InputError("aggregate needs values, passes, answers or texts")
    if values is None:
        # aggregators of answers or texts look at no value, but sets need one
        values = list(passes) if passes is not None else [0.0] * size
    one = CandidateSets.from_lists(
        [values],
        passes=_as_one_set(passes),
        answers=_as_one_set(answers),
        texts=_as_one_set(texts),
        selectors=None if selector is None else {"selector": [selector]},
        weights=_as_one_set(weights),
        facets=_as_one_set(facets),
        required=_as_one_set(required),
        ideal=_as_one_set(ideal),
        threshold=threshold,
        higher_is_better=higher_is_better,
    )
    result = float(aggregator(name)(one)[0])
    return None if result != result else result


def _as_one_set(column: Any) -> Any:
    return None if column is None else [column]
