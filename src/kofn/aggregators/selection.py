"""The candidate a selector picks: what the product ships when it shows one of n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kofn.aggregators.base import Aggregator
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kofn.sets import CandidateSets, Floats


@dataclass(frozen=True, slots=True)
class Selected(Aggregator):
    """Value of the candidate the selector ranks first; equal scores share.

    `by` names the selector when there are several. Candidates without a selector score cannot be picked; a
    pick that was not graded makes the set undefined. any_pass minus selected is the headroom of the selector.

    >>> from kofn.sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0, 1, 1], [1, 0, 0]], selectors={"judge": [[.2, .9, .1], [.5, .5, .1]]})
    >>> Selected()(sets).tolist()
    [1.0, 0.5]
    """

    by: str = ""
    label: ClassVar[str] = "selected"
    of_values: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("selectors",)

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(values: Floats, scores: Floats) -> Floats:
            scores = np.where(np.isnan(scores), -np.inf, scores)
            best = scores.max(axis=0)
            picked = (scores == best) & np.isfinite(best)
            count = picked.sum(axis=0)
            # a picked NaN value makes the sum NaN, which is the rule
            total = np.where(picked, values, 0.0).sum(axis=0)
            return np.where(count > 0, total / np.maximum(count, 1), np.nan)

        return sets.map_blocks(kernel, sets.values, selector_scores(sets, self.by))


def selector_scores(sets: CandidateSets, by: str) -> Floats:
    """The selector column named `by`; the only one when `by` is empty."""
    if by in sets.selectors:
        return sets.selectors[by]
    if by:
        raise UnknownName("selector", by, list(sets.selectors))
    if len(sets.selectors) > 1:
        raise InputError(f"several selectors: name one of {', '.join(sets.selectors)} with by=")
    return next(iter(sets.selectors.values()))
