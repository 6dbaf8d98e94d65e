"""The data of a corrected rate: labels and judged cases, checked, in numbered units, with their design recognised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import cluster_codes
from kofn.stats.judge_accuracy import Confusion, as_verdicts, label_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledData:
    """Labels and judged rows, and the unit (case or cluster) of each, numbered alike for both.

    `design` is "separate", "overlapping", "inside" or "all labelled": see `corrected_rates`.
    """

    human: NDArray[np.float64]
    judge: NDArray[np.float64]
    weights: NDArray[np.float64]
    weighted: bool
    judged: NDArray[np.float64]
    unit: NDArray[np.intp]
    judged_unit: NDArray[np.intp]
    clustered: bool
    design: str

    @property
    def q(self) -> float:
        return float(self.judged.mean())

    @property
    def confusion(self) -> Confusion:
        return Confusion.of(self.human, self.judge, self.weights)

    def shares(self) -> tuple[float, float]:
        """(p₁, p₀): the share that people pass of what the judge passes, and of what it fails; 0 where it has none."""
        shares = []
        for verdict in (1.0, 0.0):
            of = self.judge == verdict
            shares.append(float(np.average(self.human[of], weights=self.weights[of])) if of.any() else 0.0)
        return shares[0], shares[1]

    def by_verdict(self) -> LabelledData:
        """Labels weighted so that those of each verdict stand for the judged cases with that verdict."""
        return replace(self, weights=weights_by_verdict(self.judge, self.judged, self.weights), weighted=True)


def weights_by_verdict(
    judge: NDArray[np.float64], judged: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Weights with which the labels of each verdict stand for the judged rows with that verdict, N_v/n_v.

    >>> weights_by_verdict(np.array([1.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])).tolist()
    [3.0, 1.0]
    """
    own = np.ones(judge.size) if weights is None else weights.astype(float)
    for verdict in (1.0, 0.0):
        of = judge == verdict
        if of.any():
            own[of] *= float((judged == verdict).sum()) / float(own[of].sum())
    return own


def labelled_data(
    human: ArrayLike,
    judge: ArrayLike,
    judged: ArrayLike,
    weights: ArrayLike | None,
    clusters: Sequence[object] | None,
    judged_clusters: Sequence[object] | None,
    labelled_at: ArrayLike | None,
) -> LabelledData:
    """The data, checked, with units numbered and the design recognised."""
    label_columns(human, judge, weights)  # for its checks of verdicts and weights
    h, j, v = as_verdicts("human", human), as_verdicts("judge", judge), as_verdicts("judged", judged)
    if not h.size or not v.size:
        raise InputError("a correction needs labels and judged cases: one of them is empty")
    at = np.full(h.size, -1) if labelled_at is None else np.asarray(labelled_at, dtype=np.intp)
    shared = at[at >= 0]
    if at.shape != h.shape or (shared.size and shared.max() >= v.size) or np.unique(shared).size < shared.size:
        raise InputError("labelled_at must be the place of each label among the judged, each at most once; -1 for none")
    if bool((j[at >= 0] != v[shared]).any()):
        raise InputError("the judge's verdict on a labelled case must be the one among the judged cases")
    unit, judged_unit = unit_codes(at, v.size, clusters, judged_clusters)
    everything = shared.size == v.size and shared.size == h.size
    # with everything labelled no label stands for another case, whatever its chance to be drawn was
    w = np.ones_like(h) if weights is None or everything else np.asarray(weights, dtype=float)
    design = "all labelled" if everything else "inside" if shared.size == h.size else "overlapping"
    return LabelledData(
        human=h,
        judge=j,
        weights=w,
        weighted=weights is not None and not everything,
        judged=v,
        unit=unit,
        judged_unit=judged_unit,
        clustered=clusters is not None or judged_clusters is not None,
        design=design if shared.size else "separate",
    )


def unit_codes(
    at: NDArray[np.intp],
    n_judged: int,
    clusters: Sequence[object] | None,
    judged_clusters: Sequence[object] | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The unit of each label and of each judged row; a label takes that of its judged row."""
    for name, names_of, n in (("clusters", clusters, at.size), ("judged_clusters", judged_clusters, n_judged)):
        if names_of is not None and len(names_of) != n:
            raise InputError(f"{name} must be one a row: {n} rows but {len(names_of)} names")
    if clusters is None and judged_clusters is None:
        return np.where(at >= 0, at, n_judged + np.cumsum(at < 0) - 1), np.arange(n_judged)
    rows: list[object] = [
        (i,) if judged_clusters is None or judged_clusters[i] is None else judged_clusters[i] for i in range(n_judged)
    ]
    names_of_labels: list[object] = [None] * at.size if clusters is None else list(clusters)
    labels = [rows[place] if place >= 0 else name for place, name in zip(at.tolist(), names_of_labels, strict=True)]
    names = np.empty(n_judged + at.size, dtype=object)
    names[:] = [*rows, *labels]
    codes = cluster_codes(names)
    return codes[n_judged:], codes[:n_judged]
