"""The data of a corrected rate: labels and judged cases, their design, and the variance that each part adds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError
from kofn.stats.intervals import cluster_codes, normal_quantile, t_quantile
from kofn.stats.judge_accuracy import Confusion, as_verdicts, label_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.stats.prevalence import Prevalence

_LEAST_EFFECT = 0.9  # of clusters: an estimate that they reduce the variance further is mostly noise
_LEAST_SHARE = 0.2  # of the variance that must remain after overlap or weights: an estimate below is mostly noise


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledData:
    """Labels and judged rows, and the unit (case or cluster) of each, numbered alike for both.

    `design` is "separate", "overlapping", "inside" or "all labelled": see `corrected_rates`.
    """

    human: Floats
    judge: Floats
    weights: Floats
    weighted: bool
    judged: Floats
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
        of = (self.judge == 1.0, self.judge == 0.0)
        p = [float(np.average(self.human[at], weights=self.weights[at])) if at.any() else 0.0 for at in of]
        return p[0], p[1]

    def by_verdict(self) -> LabelledData:
        """Labels weighted so that those of each verdict stand for the judged cases with that verdict."""
        return replace(self, weights=weights_by_verdict(self.judge, self.judged, self.weights), weighted=True)


def weights_by_verdict(judge: Floats, judged: Floats, weights: Floats | None = None) -> Floats:
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
    at: NDArray[np.intp], n_judged: int, clusters: Sequence[object] | None, judged_clusters: Sequence[object] | None
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


# --- variance by the delta method, and design effects


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceParts:
    """The variance that comes from labels and from judged cases, and the design effect of each set.

    labels_effect is against labels drawn at random, row_effect against labels drawn as these were but independent.
    """

    labels: float
    judged: float
    labels_effect: float
    row_effect: float
    judged_effect: float


def _influence(data: LabelledData, value: Prevalence, *, inside: bool) -> tuple[Floats, Floats]:
    """The influence of each label and of each judged row on the corrected rate, to first order (the delta method)."""
    h, j, w, v = data.human, data.judge, data.weights, data.judged
    if inside:
        p1, p0 = data.shares()
        share = np.where(j == 1, data.q, 1 - data.q)
        total = np.where(j == 1, w[j == 1].sum(), w[j == 0].sum())
        return share * w * (h - np.where(j == 1, p1, p0)) / total, (v - data.q) * (p1 - p0) / v.size
    c, p = data.confusion, value.unclipped
    d = c.sensitivity + c.specificity - 1
    of_passing = -p * w * h * (j - c.sensitivity) / (c.tp + c.fn)
    of_failing = (1 - p) * w * (1 - h) * (1 - j - c.specificity) / (c.fp + c.tn)
    psi = (of_passing + of_failing) / d
    if data.weighted:  # drawn by verdict: the number of each is fixed; `_pool_variance` has the rest
        for verdict in (1.0, 0.0):
            of = j == verdict
            psi[of] -= psi[of].mean() if of.any() else 0.0
    return psi, (v - data.q) / v.size / d


def _pool_variance(data: LabelledData, value: Prevalence) -> float:
    """The variance that the frequency of each verdict still has where weighted labels were drawn by verdict.

    The weights add up to the pool they were drawn from, whose verdicts are a sample too: Σ T²/W over the verdicts, with
    T the sum of the influence of its labels and W that of their weights. Weights that add up to the number of labels
    mean that there was no larger pool, and labels then count as drawn at random.
    """
    if not data.weighted or data.design == "inside":
        return 0.0
    plain, _ = _influence(replace(data, weighted=False), value, inside=False)
    parts = [(float(plain[of].sum()), float(data.weights[of].sum())) for of in (data.judge == 1, data.judge == 0)]
    return sum(total**2 / weight for total, weight in parts if weight > 0)


def _independent_variance(data: LabelledData, value: Prevalence, *, inside: bool) -> tuple[float, float]:
    """The variances of `_influence` if every label and row were independent, of weight 1 and drawn at random."""
    n, q = data.judged.size, data.q
    if inside:
        p1, p0 = data.shares()
        n1, n0 = max(float((data.judge == 1).sum()), 1.0), max(float((data.judge == 0).sum()), 1.0)
        labels = q * q * p1 * (1 - p1) / n1 + (1 - q) ** 2 * p0 * (1 - p0) / n0
        return labels, (p1 - p0) ** 2 * q * (1 - q) / n
    c, p = data.confusion, value.unclipped
    s, t, n1 = c.sensitivity, c.specificity, float(data.human.sum())
    labels = p * p * s * (1 - s) / n1 + (1 - p) ** 2 * t * (1 - t) / (data.human.size - n1)
    return labels / (s + t - 1) ** 2, q * (1 - q) / n / (s + t - 1) ** 2


def cluster_variance(psi: Floats, codes: NDArray[np.intp]) -> float:
    """Σ over units of (Σψ)², the variance of a sum of independent units, times C/(C - 1)."""
    sums = np.bincount(codes, weights=psi)[np.bincount(codes) > 0]
    return float(sums @ sums) * sums.size / max(sums.size - 1, 1)


def _design_effect(
    found: float, plain: float, codes: NDArray[np.intp], data: LabelledData, *, by_weight: bool = False
) -> float:
    """Estimated variance over that of independent rows; wider still for few clusters, whose variance is uncertain.

    The factor t/z widens a normal interval to Student's. Where nothing varies (a judge that is never wrong) the labels
    of a cluster count as one.
    """
    sizes = np.bincount(codes)
    sizes = sizes[sizes > 0]
    if not data.clustered:
        return max(found / plain, _LEAST_SHARE) if by_weight and plain > 0 else 1.0
    effect = found / plain if plain > 1e-15 else float(sizes @ sizes) / codes.size
    least = _LEAST_SHARE if by_weight else _LEAST_EFFECT
    return max(effect, least) * t_quantile(0.975, max(sizes.size - 1, 1)) / normal_quantile(0.975)


def variance_parts(data: LabelledData, value: Prevalence, *, inside: bool) -> VarianceParts:
    """Variances by unit and design effects; units that both sets share make both effects smaller or larger."""
    psi, psi_judged = _influence(data, value, inside=inside)
    plain, plain_judged = _independent_variance(data, value, inside=inside)
    by_unit, judged = cluster_variance(psi, data.unit), cluster_variance(psi_judged, data.judged_unit)
    labels, shared = by_unit + _pool_variance(data, value), 1.0
    if (data.design != "separate" or data.clustered) and by_unit + judged > 0:
        together = cluster_variance(np.append(psi, psi_judged), np.append(data.unit, data.judged_unit))
        shared = max(together / (by_unit + judged), _LEAST_SHARE)
    by_rows = cluster_variance(psi, np.arange(psi.size)) + labels - by_unit if data.weighted else plain
    return VarianceParts(
        labels=labels,
        judged=judged,
        labels_effect=shared * _design_effect(labels, plain, data.unit, data, by_weight=data.weighted),
        row_effect=shared * _design_effect(labels, by_rows, data.unit, data),
        judged_effect=shared * _design_effect(judged, plain_judged, data.judged_unit, data),
    )
