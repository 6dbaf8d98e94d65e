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

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats.correction_data import cluster_variance, labelled_data, unit_codes, variance_parts
from kofn.stats.draws import percentile_ends, resampled_sums_of_units, sums_by_cluster
from kofn.stats.estimates import estimate
from kofn.stats.intervals import check_level, check_resamples
from kofn.stats.judge_accuracy import as_verdicts, label_columns
from kofn.stats.laws import effective_number
from kofn.stats.prevalence import check_informative, clip_to_unit, known_rates, lang_reiczigel, rogan_gladen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.stats.correction_data import LabelledData, VarianceParts
    from kofn.stats.prevalence import Prevalence

METHODS = ("auto", "bootstrap", "lang_reiczigel")


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
        low, high, made = *_closed_form(data.by_verdict() if inside else data, level), method
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


def _closed_form(data: LabelledData, level: float) -> tuple[float, float]:
    """Lang and Reiczigel's, with sizes over the design effects."""
    c = data.confusion
    check_informative(c.sensitivity, c.specificity)
    parts = variance_parts(data, rogan_gladen(data.q, c.sensitivity, c.specificity), inside=False)
    n1, n = float(data.human.sum()), data.judged.size / parts.judged_effect
    sizes = n1 / parts.labels_effect, (data.human.size - n1) / parts.labels_effect
    return lang_reiczigel(data.q, n, c.sensitivity, sizes[0], c.specificity, sizes[1], level=level).unclipped


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
        return MoreLabels(more=None, reason="labels alone cannot: the judged cases are too few, judge more of them")
    needed = found.n_labels * found.of_labels / left
    if found.design == "inside" and needed > found.n_judged:
        return MoreLabels(more=None, reason="labelling every judged case would not do it: judge more of them")
    return MoreLabels(more=max(ceil(needed - 1e-9) - found.n_labels, 0), reason="")
