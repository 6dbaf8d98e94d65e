"""What the cases of a run ask and expect, and how much each counts in the score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats


QUESTION_COLUMNS = ("input", "reference", "choices")  # what a case is, as against what was answered


class Questions(NamedTuple):
    """What the cases of a run ask and expect: a hash a case of each column in `QUESTION_COLUMNS` that the run has."""

    cases: Sequence[str]
    hashes: Mapping[str, NDArray[Any]]


def score_weights(groups: Sequence[str], weights: Mapping[str, float], scores: Floats) -> Floats | None:
    """What every case counts in a report's score, w = weight of its group / cases of the group with a score.

    `groups` names the group of every case. None where all count alike.

    >>> score_weights(["x", "x", "y"], {"x": 1.0, "y": 1.0}, np.array([1.0, 0.0, 1.0])).tolist()
    [0.5, 0.5, 1.0]
    """
    if not scores.size:
        return None
    names, codes = np.unique(np.array(groups, dtype=object), return_inverse=True)
    known = np.bincount(codes, weights=~np.isnan(scores), minlength=len(names))
    of_group = np.array([weights.get(name, 1.0) for name in names]) / np.maximum(known, 1)
    found: Floats = (of_group / of_group.max())[codes]  # by ratio, so that the largest is 1
    counting = found[~np.isnan(scores)]
    return None if not counting.size or bool((counting == counting[0]).all()) else found
