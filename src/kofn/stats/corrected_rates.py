"""A judge's rate corrected by human labels, with an interval that fits how labels and judged cases were drawn.

Three designs, distinguished by where the labelled cases are among the judged ones:

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
from kofn.stats.draws import percentile_ends, resampled_sums_of_units, sums_by_cluster
from kofn.stats.estimates import estimate
from kofn.stats.intervals import check_level, check_resamples, cluster_codes, normal_quantile, t_quantile
from kofn.stats.judge_accuracy import Confusion, as_verdicts, label_columns
from kofn.stats.laws import effective_number
from kofn.stats.prevalence import check_informative, clip_to_unit, known_rates, lang_reiczigel, rogan_gladen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.stats.prevalence import Prevalence

METHODS = ("auto", "bootstrap", "lang_reiczigel")
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


# --- the corrected rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A judged rate q and its correction by labels. `unclipped` is the value of the formula.

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
    data = labelled_data(human, judge, judged, weights, clusters, judged_clusters, labelled_at)
    inside = data.design in ("inside", "all labelled")
    value = _post_stratified(data) if inside else prevalence_from_rates(data)
    confusion = (data.by_verdict() if inside else data).confusion
    parts = variance_parts(data, value, inside=inside)
    if data.design == "all labelled":
        clusters_of = data.unit if data.clustered else None
        rate = estimate(data.human, clusters=clusters_of, level=level, n_resamples=n_resamples, seed=seed)
        low, high = (rate.point or 0.0 if end is None else end for end in (rate.low, rate.high))
        made = f"human rate, {rate.method}"
    elif method == "lang_reiczigel":
        own = data.by_verdict() if inside else data
        c = own.confusion
        check_informative(c.sensitivity, c.specificity)
        # sizes over the design effects
        effects = variance_parts(own, rogan_gladen(own.q, c.sensitivity, c.specificity), inside=False)
        n1, n = float(own.human.sum()), own.judged.size / effects.judged_effect
        n_s, n_t = n1 / effects.labels_effect, (own.human.size - n1) / effects.labels_effect
        found = lang_reiczigel(own.q, n, c.sensitivity, n_s, c.specificity, n_t, level=level)
        low, high, made = *found.unclipped, method
    else:
        rng, made = np.random.default_rng(seed), "bootstrap" if method == "bootstrap" else "jeffreys"
        if method == "bootstrap":
            drawn = _bootstrap(data, rng, n_resamples, inside=inside)
        else:
            drawn = _jeffreys(data, parts, rng, n_resamples, inside=inside)
        low, high = percentile_ends(drawn, level)
        made += ", post-stratified" if inside else ""
    return Corrected(
        **value._asdict(),
        low=min(clip_to_unit(low).point, value.point),  # a point that was clipped may lie beyond all draws
        high=max(clip_to_unit(high).point, value.point),
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


def prevalence_from_rates(data: LabelledData) -> Prevalence:
    """Rogan-Gladen; refused where a class has no label or the judge carries no information."""
    for verdict, word in ((1.0, "pass"), (0.0, "fail")):
        if not (data.human == verdict).any():
            raise InputError(
                f"no label that people {word}: label some of those, or the judge's errors on them are unknown"
            )
    confusion = data.confusion
    return rogan_gladen(data.q, confusion.sensitivity, confusion.specificity)


def _post_stratified(data: LabelledData) -> Prevalence:
    """Q p₁ + (1 - Q) p₀; refused where the judge gave a verdict of which no case is labelled."""
    for verdict, word in ((1.0, "passes"), (0.0, "fails")):
        if (data.judged == verdict).any() and not (data.judge == verdict).any():
            raise InputError(f"none of the cases the judge {word} is labelled: label some of those too")
    p1, p0 = data.shares()
    return clip_to_unit(data.q * p1 + (1 - data.q) * p0)


def _draw_rate(rng: np.random.Generator, share: float, n: float, draws: int) -> Floats:
    """Draws from the posterior of a rate under Jeffreys' prior, with `share` of n successes."""
    return rng.beta(share * n + 0.5, (1 - share) * n + 0.5, size=draws)


def prevalence_of_draws(q: Floats, s: Floats, t: Floats) -> Floats:
    """Rogan-Gladen of draws; where the judge carries no information, -∞ and +∞ in turn.

    Such draws say nothing about the rate: half on each side, they widen the interval without moving it.
    """
    informative = s + t > 1
    p = (q + t - 1) / np.where(informative, s + t - 1, 1.0)
    p[~informative] = np.where(np.arange((~informative).sum()) % 2, np.inf, -np.inf)
    return np.asarray(p)


def _jeffreys(
    data: LabelledData, parts: VarianceParts, rng: np.random.Generator, draws: int, *, inside: bool
) -> Floats:
    q = _draw_rate(rng, data.q, data.judged.size / parts.judged_effect, draws)
    if inside:
        of_passed, of_failed = _draw_shares(data, parts, rng, draws)
        return q * of_passed + (1 - q) * of_failed
    return prevalence_of_draws(q, *draw_rates(data, parts, rng, draws))


def _draw_shares(
    data: LabelledData, parts: VarianceParts, rng: np.random.Generator, draws: int
) -> tuple[Floats, Floats]:
    """Draws of p₁ and p₀, the shares that people pass of what the judge passes and of what it fails."""
    sizes = [effective_number(data.weights[of]) if of.any() else 0.0 for of in (data.judge == 1, data.judge == 0)]
    drawn = (_draw_rate(rng, p, n / parts.row_effect, draws) for p, n in zip(data.shares(), sizes, strict=True))
    return next(drawn), next(drawn)


def draw_rates(data: LabelledData, parts: VarianceParts, rng: np.random.Generator, draws: int) -> tuple[Floats, Floats]:
    """Draws of s and t. Labels drawn by verdict give p₁ and p₀; s and t follow with the frequency of each verdict.

    A single label with a large weight can decide t: t's own posterior, by the number of labels, would be too narrow.
    """
    if not data.weighted:
        c, n1 = data.confusion, float(data.human.sum())
        s = _draw_rate(rng, c.sensitivity, n1 / parts.labels_effect, draws)
        return s, _draw_rate(rng, c.specificity, (data.human.size - n1) / parts.labels_effect, draws)
    p1, p0 = _draw_shares(data, parts, rng, draws)
    pool = float(data.weights.sum())
    common = _draw_rate(rng, float(data.weights[data.judge == 1].sum()) / pool, pool / parts.row_effect, draws)
    tp, fp, fn, tn = common * p1, common * (1 - p1), (1 - common) * p0, (1 - common) * (1 - p0)
    return tp / (tp + fn), tn / (tn + fp)


def _bootstrap(data: LabelledData, rng: np.random.Generator, draws: int, *, inside: bool) -> Floats:
    """The corrected rate of resampled units, drawn within strata: labelled only, both, judged only.

    Weighted labels were drawn by verdict, so that is a stratum as well (of units whose labels agree on it); the
    frequency of each verdict in the pool they were drawn from is drawn too.
    """
    matrix, strata = _unit_rows(data)
    sums = sum(resampled_sums_of_units(matrix[strata == stratum], draws, rng) for stratum in np.unique(strata))
    tp, fp, fn, tn, passed, failed = np.asarray(sums).T
    if data.weighted and not inside:
        pool = np.array([data.weights[data.judge == v].sum() for v in (1.0, 0.0)])
        often = rng.multinomial(max(round(pool.sum()), 1), pool / pool.sum(), size=draws).T
        tp, fp, fn, tn = (x * often[i // 2] / max(pool[i // 2], 1e-300) for i, x in enumerate((tp, fp, fn, tn)))
    with np.errstate(invalid="ignore", divide="ignore"):
        q = passed / (passed + failed)
        if inside:
            of_passed, of_failed = tp / (tp + fp), fn / (fn + tn)
            p = np.where(q > 0, q * of_passed, 0.0) + np.where(q < 1, (1 - q) * of_failed, 0.0)
            p[np.isnan(p)] = np.where(np.arange(np.isnan(p).sum()) % 2, np.inf, -np.inf)
            return np.asarray(p)
        return prevalence_of_draws(q, np.nan_to_num(tp / (tp + fn)), np.nan_to_num(tn / (tn + fp)))


def _unit_rows(data: LabelledData) -> tuple[Floats, NDArray[np.intp]]:
    """For each unit tp, fp, fn, tn of its labels and how many of its rows the judge passes and fails; its stratum."""
    labels = label_columns(data.human, data.judge, data.weights)
    judged = np.column_stack([data.judged, 1 - data.judged])
    rows = np.zeros((len(labels) + len(judged), 6))
    rows[: len(labels), :4], rows[len(labels) :, 4:] = labels, judged
    matrix = sums_by_cluster(rows, np.append(data.unit, data.judged_unit))
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
    _, codes = unit_codes(np.empty(0, dtype=np.intp), v.size, None, judged_clusters)
    variance, plain = cluster_variance((v - q) / v.size, codes), q * (1 - q) / v.size
    sizes = np.bincount(codes)
    effect = variance / plain if plain > 0 else float(sizes @ sizes) / v.size
    n = v.size / (max(effect, 1.0) if judged_clusters is not None else 1.0)
    value, ends = known_rates(q * n, n, sensitivity, specificity, level=level)
    return Corrected(
        **value._asdict(),
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
    """The number of labels to add; None with the reason where labels alone cannot do it."""

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
        return MoreLabels(more=None, reason="more labels alone are not enough; judge more cases")
    needed = found.n_labels * found.of_labels / left
    if found.design == "inside" and needed > found.n_judged:
        return MoreLabels(more=None, reason="labelling every judged case would not do it: judge more of them")
    return MoreLabels(more=max(ceil(needed - 1e-9) - found.n_labels, 0), reason="")
