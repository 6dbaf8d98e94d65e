"""A judge's rate corrected by labels, with an interval that knows how labels and judged cases were drawn.

Three designs, told apart by where the labelled things stand among the judged ones:

separate       labels of other cases: (q + t - 1)/(s + t - 1), with q from the judged cases and s, t from the labels.
overlapping    some labelled cases are judged ones too: the same formula; what the two share is not counted twice.
inside         every labelled case is one of the judged cases: post-stratified by verdict. Of the N₁ cases the judge
               passes n₁ are labelled, a share p₁ of them passed by people, and so for those it fails: the rate is
               (N₁ p₁ + N₀ p₀)/N. It is Rogan-Gladen with labels weighted by N_v/n_v, so it does not matter whether
               labels were drawn at random or by verdict, while plain s and t are wrong for labels drawn by verdict.
               With every case labelled it is the rate that people give, and has that rate's interval.

Labels that were drawn by verdict from other cases carry weights (one over their chance to be drawn).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.estimate import estimate
from kofn.stats.intervals import check_level, check_resamples, cluster_codes, normal_quantile, t_quantile
from kofn.stats.judge import (
    Confusion,
    as_verdicts,
    by_cluster,
    check_informative,
    clipped_to_unit,
    drawn_sums,
    ends_of_draws,
    known_rates,
    label_columns,
    lang_reiczigel,
    rogan_gladen,
)
from kofn.stats.ratios import effective_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.stats.judge import Prevalence

METHODS = ("auto", "bootstrap", "lang_reiczigel")
LEAST_EFFECT = 0.9  # of clusters: an estimate that they help is mostly noise
LEAST_SHARE = 0.2  # of its variance that overlap may take away: below, an estimate of it is mostly noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A judged rate q and what labels make of it. `unclipped` is what the formula gave.

    `fits` is False where the whole interval lies outside [0, 1] and clipping leaves it no width: then the judge cannot
    have erred on the judged cases as it did on the labels, and the number should not be used.

    `of_labels` and `of_judged` are the parts of the variance that more labels and more judged cases would shrink.
    """

    point: float
    unclipped: float
    clipped: bool
    low: float
    high: float
    fits: bool
    level: float
    method: str
    design: str
    q: float
    sensitivity: float
    specificity: float
    n_labels: int
    n_judged: int
    of_labels: float
    of_judged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """Labels and judged rows, and the unit (case or cluster) each belongs to, in one numbering for both."""

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
        """(p₁, p₀): how much of what the judge passes, and of what it fails, people pass; 0 where it has no case."""
        found = []
        for verdict in (1.0, 0.0):
            of = self.judge == verdict
            found.append(float(np.average(self.human[of], weights=self.weights[of])) if of.any() else 0.0)
        return found[0], found[1]

    def by_verdict(self) -> _Data:
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


def corrected_rate(
    human: ArrayLike,
    judge: ArrayLike,
    judged: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: Sequence[object] | None = None,
    judged_clusters: Sequence[object] | None = None,
    labelled_at: ArrayLike | None = None,
    method: str = "auto",
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Corrected:
    """The rate people would give to the judged cases, from labels that both people and the judge gave.

    `human` and `judge` are 0/1, one a label; `judged` the judge's 0/1 verdicts on what is corrected. `labelled_at` is
    the place of each label in `judged`, -1 where it is not there (default: nowhere). `clusters` and `judged_clusters`
    name what is dependent (None: it stands alone); the same name on both sides is the same cluster.

    "auto" draws q, s and t from Beta(x + ½, n - x + ½), Jeffreys' law for each, with n over the design effect of
    clusters, weights and overlap, and takes the percentiles: in simulations it is the one that holds its level at 50
    labels (docs/calibrate.md). "bootstrap" resamples cases, "lang_reiczigel" is in closed form. Draws are not clipped,
    the ends are; a draw in which the judge knows nothing is counted half below and half above.

    >>> found = corrected_rate([1] * 40 + [0] * 40, [1] * 36 + [0] * 36 + [1] * 8, [1, 1, 1, 0] * 50)
    >>> round(found.q, 2), round(found.point, 3), round(found.low, 2), round(found.high, 2)
    (0.75, 0.786, 0.66, 0.97)
    """
    if method not in METHODS:
        raise UnknownName("method of correction", method, list(METHODS))
    check_level(level)
    check_resamples(n_resamples)
    data = _data(human, judge, judged, weights, clusters, judged_clusters, labelled_at)
    inside = data.design in ("inside", "all labelled")
    value = _post_stratified(data) if inside else _from_rates(data)
    confusion = (data.by_verdict() if inside else data).confusion
    parts = _parts(data, value, inside=inside)
    if data.design == "all labelled":
        low, high, made = _human_interval(data, level, n_resamples, seed)
    elif method == "lang_reiczigel":
        low, high, made = _closed_form(data.by_verdict() if inside else data, level)
    elif method == "bootstrap":
        low, high, made = _bootstrap(data, level, n_resamples, seed, inside=inside)
    else:
        low, high, made = _jeffreys(data, parts, level, n_resamples, seed, inside=inside)
    return Corrected(
        point=value.point,
        unclipped=value.unclipped,
        clipped=value.clipped,
        low=min(clipped_to_unit(low).point, value.point),  # a point that was clipped may lie beyond all draws
        high=max(clipped_to_unit(high).point, value.point),
        fits=high >= 0 and low <= 1,
        level=level,
        method=made,
        design=data.design,
        q=data.q,
        sensitivity=confusion.sensitivity,
        specificity=confusion.specificity,
        n_labels=data.human.size,
        n_judged=data.judged.size,
        of_labels=parts.labels,
        of_judged=parts.judged,
    )


def _data(
    human: ArrayLike,
    judge: ArrayLike,
    judged: ArrayLike,
    weights: ArrayLike | None,
    clusters: Sequence[object] | None,
    judged_clusters: Sequence[object] | None,
    labelled_at: ArrayLike | None,
) -> _Data:
    """Everything checked, with units numbered and the design recognised."""
    label_columns(human, judge, weights)  # refuses what is no label
    h, j, v = as_verdicts("human", human), as_verdicts("judge", judge), as_verdicts("judged", judged)
    if not h.size or not v.size:
        raise InputError("a correction needs labels and judged cases: one of them is empty")
    at = np.full(h.size, -1) if labelled_at is None else np.asarray(labelled_at, dtype=np.intp)
    there = at[at >= 0]
    if at.shape != h.shape or (there.size and there.max() >= v.size) or np.unique(there).size < there.size:
        raise InputError("labelled_at must be the place of each label among the judged, each at most once; -1 for none")
    if bool((j[at >= 0] != v[there]).any()):
        raise InputError("the judge's verdict on a labelled case must be the one among the judged cases")
    unit, judged_unit = _units(at, v.size, clusters, judged_clusters)
    everything = there.size == v.size and there.size == h.size
    w = np.ones_like(h) if weights is None or everything else np.asarray(weights, dtype=float)
    design = "all labelled" if everything else "inside" if there.size == h.size else "overlapping"
    return _Data(
        human=h,
        judge=j,
        weights=w,
        weighted=weights is not None and not everything,
        judged=v,
        unit=unit,
        judged_unit=judged_unit,
        clustered=clusters is not None or judged_clusters is not None,
        design=design if there.size else "separate",
    )


def _units(
    at: NDArray[np.intp],
    n_judged: int,
    clusters: Sequence[object] | None,
    judged_clusters: Sequence[object] | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The unit of each label and of each judged row; a label takes that of its judged row."""
    for name, given, n in (("clusters", clusters, at.size), ("judged_clusters", judged_clusters, n_judged)):
        if given is not None and len(given) != n:
            raise InputError(f"{name} must be one a row: {n} rows but {len(given)} names")
    if clusters is None and judged_clusters is None:
        return np.where(at >= 0, at, n_judged + np.cumsum(at < 0) - 1), np.arange(n_judged)
    rows: list[object] = [
        (i,) if judged_clusters is None or judged_clusters[i] is None else judged_clusters[i] for i in range(n_judged)
    ]
    alone: list[object] = [None] * at.size if clusters is None else list(clusters)
    labels = [rows[place] if place >= 0 else name for place, name in zip(at.tolist(), alone, strict=True)]
    names = np.empty(n_judged + at.size, dtype=object)
    names[:] = [*rows, *labels]
    codes = cluster_codes(names)
    return codes[n_judged:], codes[:n_judged]


def _from_rates(data: _Data) -> Prevalence:
    """Rogan-Gladen; refused where a class has no label or the judge knows nothing."""
    for verdict, word in ((1.0, "pass"), (0.0, "fail")):
        if not (data.human == verdict).any():
            raise InputError(
                f"no label that people {word}: label some of those, or the judge's errors on them are unknown"
            )
    confusion = data.confusion
    return rogan_gladen(data.q, confusion.sensitivity, confusion.specificity)


def _post_stratified(data: _Data) -> Prevalence:
    """Q p₁ + (1 - Q) p₀; refused where the judge gave a verdict of which no case is labelled."""
    for verdict, word in ((1.0, "passes"), (0.0, "fails")):
        if (data.judged == verdict).any() and not (data.judge == verdict).any():
            raise InputError(f"none of the cases the judge {word} is labelled: label some of those too")
    p1, p0 = data.shares()
    return clipped_to_unit(data.q * p1 + (1 - data.q) * p0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The variance that comes from labels and from judged cases, and by how much each set is smaller than it looks.

    labels_effect is against labels drawn at random, row_effect against labels drawn as these were but independent.
    """

    labels: float
    judged: float
    labels_effect: float
    row_effect: float
    judged_effect: float


def _influence(data: _Data, value: Prevalence, *, inside: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each label and each judged row adds to the corrected rate, to first order."""
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
    if data.weighted:  # drawn by verdict: how many of each is no accident; `_of_pool` has what is left of that
        for verdict in (1.0, 0.0):
            of = j == verdict
            psi[of] -= psi[of].mean() if of.any() else 0.0
    return psi, (v - data.q) / v.size / d


def _of_pool(data: _Data, value: Prevalence) -> float:
    """The variance that is left of how common each verdict is where weighted labels were drawn by verdict.

    The weights add up to the pool they were drawn from, whose verdicts are a sample too: Σ T²/W over the verdicts, with
    T the sum of the influence of its labels and W that of their weights. Weights that add up to the number of labels
    say that there was no larger pool, and labels then count as drawn at random.
    """
    if not data.weighted or data.design == "inside":
        return 0.0
    plain, _ = _influence(replace(data, weighted=False), value, inside=False)
    parts = [(float(plain[of].sum()), float(data.weights[of].sum())) for of in (data.judge == 1, data.judge == 0)]
    return sum(total**2 / weight for total, weight in parts if weight > 0)


def _plain_variance(data: _Data, value: Prevalence, *, inside: bool) -> tuple[float, float]:
    """The same two variances were every label and row independent, of weight 1 and drawn at random."""
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


def _squares(psi: NDArray[np.float64], codes: NDArray[np.intp]) -> float:
    """Σ over units of (Σψ)², the variance of a sum of independent units, times C/(C - 1)."""
    sums = np.bincount(codes, weights=psi)[np.bincount(codes) > 0]
    return float(sums @ sums) * sums.size / max(sums.size - 1, 1)


def _effect(found: float, plain: float, codes: NDArray[np.intp], data: _Data, *, by_weight: bool = False) -> float:
    """Found variance over plain variance; wider still for few clusters, whose variance is itself uncertain.

    Where nothing varies (a judge never wrong) the labels of a cluster count as one.
    """
    sizes = np.bincount(codes)
    sizes = sizes[sizes > 0]
    if not data.clustered:
        return max(found / plain, LEAST_SHARE) if by_weight and plain > 0 else 1.0
    effect = found / plain if plain > 1e-15 else float(sizes @ sizes) / codes.size
    least = LEAST_SHARE if by_weight else LEAST_EFFECT
    return max(effect, least) * t_quantile(0.975, max(sizes.size - 1, 1)) / normal_quantile(0.975)


def _parts(data: _Data, value: Prevalence, *, inside: bool) -> _Parts:
    """Variances by unit and the design effects; what both sets share makes both effects smaller or larger."""
    psi, psi_judged = _influence(data, value, inside=inside)
    plain, plain_judged = _plain_variance(data, value, inside=inside)
    labels, judged = _squares(psi, data.unit) + _of_pool(data, value), _squares(psi_judged, data.judged_unit)
    shared = 1.0
    if data.design != "separate" or data.clustered:
        both = _squares(np.append(psi, psi_judged), np.append(data.unit, data.judged_unit))
        apart = _squares(psi, data.unit) + _squares(psi_judged, data.judged_unit)
        shared = max(both / apart, LEAST_SHARE) if apart > 0 else 1.0
    by_rows = _squares(psi, np.arange(psi.size)) + labels - _squares(psi, data.unit) if data.weighted else plain
    return _Parts(
        labels=labels,
        judged=judged,
        labels_effect=shared * _effect(labels, plain, data.unit, data, by_weight=data.weighted),
        row_effect=shared * _effect(labels, by_rows, data.unit, data),
        judged_effect=shared * _effect(judged, plain_judged, data.judged_unit, data),
    )


def _beta(rng: np.random.Generator, share: float, n: float, draws: int) -> NDArray[np.float64]:
    """Draws from Jeffreys' law of a rate of which `share` of n was seen."""
    return rng.beta(share * n + 0.5, (1 - share) * n + 0.5, size=draws)


def _drawn_prevalence(q: NDArray[np.float64], s: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rogan-Gladen of draws; where the judge knows nothing, -∞ and +∞ in turn."""
    known = s + t > 1
    p = (q + t - 1) / np.where(known, s + t - 1, 1.0)
    p[~known] = np.where(np.arange((~known).sum()) % 2, np.inf, -np.inf)
    return np.asarray(p)


def _jeffreys(
    data: _Data, parts: _Parts, level: float, n_resamples: int, seed: int, *, inside: bool
) -> tuple[float, float, str]:
    rng = np.random.default_rng(seed)
    q = _beta(rng, data.q, data.judged.size / parts.judged_effect, n_resamples)
    if inside:
        of_passed, of_failed = _drawn_shares(data, parts, rng, n_resamples)
        return *ends_of_draws(q * of_passed + (1 - q) * of_failed, level), "jeffreys, post-stratified"
    s, t = _drawn_rates(data, parts, rng, n_resamples)
    return *ends_of_draws(_drawn_prevalence(q, s, t), level), "jeffreys"


def _drawn_shares(
    data: _Data, parts: _Parts, rng: np.random.Generator, draws: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draws of p₁ and p₀, what people pass of what the judge passes and of what it fails."""
    sizes = [effective_number(data.weights[of]) if of.any() else 0.0 for of in (data.judge == 1, data.judge == 0)]
    p1, p0 = data.shares()
    return (
        _beta(rng, p1, sizes[0] / parts.row_effect, draws),
        _beta(rng, p0, sizes[1] / parts.row_effect, draws),
    )


def _drawn_rates(
    data: _Data, parts: _Parts, rng: np.random.Generator, draws: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draws of s and t. Labels drawn by verdict tell p₁ and p₀; s and t follow with how common each verdict is.

    A single label with a large weight can make t: its own law, drawn from so many labels, would be far too narrow.
    """
    if not data.weighted:
        c, n1 = data.confusion, float(data.human.sum())
        s = _beta(rng, c.sensitivity, n1 / parts.labels_effect, draws)
        return s, _beta(rng, c.specificity, (data.human.size - n1) / parts.labels_effect, draws)
    p1, p0 = _drawn_shares(data, parts, rng, draws)
    pool = float(data.weights.sum())
    common = _beta(rng, float(data.weights[data.judge == 1].sum()) / pool, pool / parts.row_effect, draws)
    tp, fp, fn, tn = common * p1, common * (1 - p1), (1 - common) * p0, (1 - common) * (1 - p0)
    return tp / (tp + fn), tn / (tn + fp)


def _closed_form(data: _Data, level: float) -> tuple[float, float, str]:
    """Lang and Reiczigel's, with sizes over the design effects."""
    c = data.confusion
    check_informative(c.sensitivity, c.specificity)
    parts = _parts(data, rogan_gladen(data.q, c.sensitivity, c.specificity), inside=False)
    n1 = float(data.human.sum())
    found = lang_reiczigel(
        data.q,
        data.judged.size / parts.judged_effect,
        c.sensitivity,
        n1 / parts.labels_effect,
        c.specificity,
        (data.human.size - n1) / parts.labels_effect,
        level=level,
    )
    return *found.unclipped, "lang_reiczigel"


def _human_interval(data: _Data, level: float, n_resamples: int, seed: int) -> tuple[float, float, str]:
    """Everything is labelled: the interval of the rate people give."""
    found = estimate(
        data.human,
        clusters=data.unit if data.clustered else None,
        level=level,
        n_resamples=n_resamples,
        seed=seed,
    )
    low = found.point if found.low is None else found.low
    high = found.point if found.high is None else found.high
    assert low is not None
    assert high is not None
    return low, high, f"human rate, {found.method}"


def _bootstrap(data: _Data, level: float, n_resamples: int, seed: int, *, inside: bool) -> tuple[float, float, str]:
    """Percentiles over resampled units, drawn within strata: labelled only, both, judged only.

    Weighted labels were drawn by verdict, so that is a stratum as well (of units whose labels agree on it); how common
    each verdict is in the pool they were drawn from is drawn too.
    """
    rng = np.random.default_rng(seed)
    matrix, strata = _unit_rows(data)
    sums = sum(drawn_sums(matrix[strata == stratum], n_resamples, rng) for stratum in np.unique(strata))
    tp, fp, fn, tn, passed, failed = np.asarray(sums).T
    if data.weighted and not inside:
        pool = np.array([data.weights[data.judge == v].sum() for v in (1.0, 0.0)])
        often = rng.multinomial(max(round(pool.sum()), 1), pool / pool.sum(), size=n_resamples).T
        tp, fp, fn, tn = (
            column * often[i // 2] / max(pool[i // 2], 1e-300) for i, column in enumerate((tp, fp, fn, tn))
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        q = passed / (passed + failed)
        if inside:
            of_passed, of_failed = tp / (tp + fp), fn / (fn + tn)
            p = np.where(q > 0, q * of_passed, 0.0) + np.where(q < 1, (1 - q) * of_failed, 0.0)
            p[np.isnan(p)] = np.where(np.arange(np.isnan(p).sum()) % 2, np.inf, -np.inf)
        else:
            s, t = tp / (tp + fn), tn / (tn + fp)
            p = _drawn_prevalence(q, np.nan_to_num(s), np.nan_to_num(t))
    return *ends_of_draws(p, level), "bootstrap, post-stratified" if inside else "bootstrap"


def _unit_rows(data: _Data) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """For each unit tp, fp, fn, tn of its labels and how many of its rows the judge passes and fails; its stratum."""
    labels = label_columns(data.human, data.judge, data.weights)
    judged = np.column_stack([data.judged, 1 - data.judged])
    rows = np.zeros((len(labels) + len(judged), 6))
    rows[: len(labels), :4], rows[len(labels) :, 4:] = labels, judged
    matrix = by_cluster(rows, np.append(data.unit, data.judged_unit))
    signs = [matrix[:, :4].any(axis=1), matrix[:, 4:].any(axis=1)]
    if data.weighted:
        signs += [matrix[:, :2].any(axis=1), matrix[:, 2:4].any(axis=1)]
    stratum = np.zeros(len(matrix), dtype=np.intp)
    for sign in signs:
        stratum = 2 * stratum + sign
    return matrix, stratum


def corrected_with_known_rates(
    judged: ArrayLike,
    sensitivity: float,
    specificity: float,
    *,
    judged_clusters: Sequence[object] | None = None,
    level: float = 0.95,
) -> Corrected:
    """The corrected rate where s and t are taken as exact; clusters shrink the number of judged cases.

    >>> found = corrected_with_known_rates([1] * 20 + [0] * 100, 0.9, 0.99)
    >>> round(found.point, 4), round(found.low, 4), round(found.high, 4)
    (0.176, 0.113, 0.2623)
    """
    v = as_verdicts("judged", judged)
    if not v.size:
        raise InputError("a correction needs judged cases: there is none")
    q = float(v.mean())
    check_informative(sensitivity, specificity)
    _, codes = _units(np.empty(0, dtype=np.intp), v.size, None, judged_clusters)
    variance, plain = _squares((v - q) / v.size, codes), q * (1 - q) / v.size
    sizes = np.bincount(codes)
    effect = variance / plain if plain > 0 else float(sizes @ sizes) / v.size
    n = v.size / (max(effect, 1.0) if judged_clusters is not None else 1.0)
    value, ends = known_rates(q * n, n, sensitivity, specificity, level=level)
    return Corrected(
        point=value.point,
        unclipped=value.unclipped,
        clipped=value.clipped,
        low=ends.low,
        high=ends.high,
        fits=ends.low < 1 and ends.high > 0,
        level=level,
        method=ends.method,
        design="known rates",
        q=q,
        sensitivity=sensitivity,
        specificity=specificity,
        n_labels=0,
        n_judged=v.size,
        of_labels=0.0,
        of_judged=variance / (sensitivity + specificity - 1) ** 2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreLabels:
    """How many labels beyond those there are; None with the reason where labels alone cannot do it."""

    more: int | None
    reason: str


def labels_to_halve(found: Corrected) -> MoreLabels:
    """How many more labels, drawn like those there are, would halve the width of the interval.

    The variance is V = V_judged + V_labels, to first order, and only V_labels falls, as 1/n: n' = n V_labels /
    (V/4 - V_judged). Where V_judged alone is a quarter of V or more, no number of labels does it.

    >>> found = corrected_rate([1] * 40 + [0] * 40, [1] * 36 + [0] * 36 + [1] * 8, [1, 1, 1, 0] * 1000)
    >>> labels_to_halve(found)
    MoreLabels(more=272, reason='')
    """
    total = found.of_labels + found.of_judged
    if found.n_labels == 0 or found.design == "all labelled" or total <= 0:
        return MoreLabels(more=None, reason="labels are not what makes the interval wide")
    left = total / 4 - found.of_judged
    if left <= 0:
        return MoreLabels(more=None, reason="labels alone cannot: the judged cases are too few, judge more of them")
    wanted = found.n_labels * found.of_labels / left
    if found.design == "inside" and wanted > found.n_judged:
        return MoreLabels(more=None, reason="labelling every judged case would not do it: judge more of them")
    return MoreLabels(more=max(ceil(wanted - 1e-9) - found.n_labels, 0), reason="")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOfCandidates:
    """The rate of cases with at least one good candidate, were candidates independent: an upper bound."""

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

    `judged`, `cases` and `places` have one entry a judged candidate; the sensitivity and specificity are those of
    all labels (`clusters`: the case of each). Sets of unequal size are averaged over the sizes there are. Candidates
    of a case stand and fall together, so the truth is lower: .79 where this said .92. Each π_j is clipped, also in the
    draws: s and t as in `corrected_rate`, the judged cases resampled whole.

    >>> found = any_of_candidates([1, 1, 0, 0] * 20, [1, 1, 0, 0] * 20, [1, 0, 0, 1] * 30,
    ...                           [i // 2 for i in range(120)], [0, 1] * 60)
    >>> round(found.point, 3), found.positions, found.assumption
    (0.75, (0.5, 0.5), 'assumes independent candidates, upper bound')
    """
    data = _data(human, judge, judged, weights, clusters, list(cases), None)
    value = _from_rates(data)
    parts = _parts(data, value, inside=False)
    passed, there = _by_case(
        data.judged, _units(np.empty(0, dtype=np.intp), len(cases), None, cases)[1], np.asarray(places, dtype=np.intp)
    )
    sizes = np.bincount(there.sum(axis=1).astype(np.intp), minlength=there.shape[1] + 1) / len(there)
    confusion = data.confusion
    rates = np.array([confusion.sensitivity, confusion.specificity])[:, None]
    q = (passed.sum(axis=0) / there.sum(axis=0))[None, :]
    by_place = np.clip(_drawn_by_place(q, rates[0], rates[1]), 0.0, 1.0)
    rng = np.random.default_rng(seed)
    s, t = _drawn_rates(data, parts, rng, n_resamples)
    sums = drawn_sums(np.hstack([passed, there]), n_resamples, rng)
    k = there.shape[1]
    drawn = _drawn_by_place(sums[:, :k] / np.maximum(sums[:, k:], 1.0), s, t)
    low, high = ends_of_draws(_any(np.clip(drawn, 0.0, 1.0), sizes), level)
    return AnyOfCandidates(
        point=float(_any(by_place, sizes)[0]),
        low=low,
        high=high,
        level=level,
        method="jeffreys and bootstrap by case",
        positions=tuple(by_place[0].tolist()),
    )


def _by_case(
    judged: NDArray[np.float64], codes: NDArray[np.intp], places: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two tables, a row a case and a column a position: whether the judge passes what is there, and what is there.

    Candidates that were not graded leave gaps; the rest of the case moves up, so that a set has as many as it has.
    """
    order = np.lexsort((places, codes))
    counts = np.bincount(codes)
    rank = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    passed, there = np.zeros((2, counts.size, int(counts.max())))
    there[codes[order], rank] = 1.0
    passed[codes[order], rank] = judged[order]
    return passed, there


def _drawn_by_place(q: NDArray[np.float64], s: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    columns = [_drawn_prevalence(q[:, j], s, t) for j in range(q.shape[1])]
    return np.column_stack(columns)


def _any(by_place: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - Π(1 - π_j) over the first m positions, averaged over the share of cases with m candidates."""
    none = np.cumprod(1 - by_place, axis=1)
    return np.asarray(1 - sizes[0] - none @ sizes[1:])
