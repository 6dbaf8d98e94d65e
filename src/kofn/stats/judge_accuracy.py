"""Judges against human labels and against each other: confusion, kappa, Dawid-Skene, and position bias of pairs.

Sensitivity is the share of what people pass that the judge passes, specificity the share of what people fail that the
judge fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.core.types import Estimate
from kofn.errors import InputError
from kofn.stats.draws import percentile_ends, resampled_sums_of_units, sums_by_cluster
from kofn.stats.estimates import estimate, suitable_interval
from kofn.stats.intervals import at_rows, check_level, check_resamples, cluster_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.stats.intervals import Drawing

FEW_LABELS = 30  # with fewer labels of a class its rate is too uncertain to correct with, which is a warning
SMOOTH = 1e-6  # pseudo-count, so that no verdict is impossible and logarithms stay finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Weights (counts where every label weighs 1) of the four kinds of labels; "true" and "false" are the judge's.

    >>> c = Confusion.of([1, 1, 1, 0, 0], [1, 1, 0, 0, 1])
    >>> c.tp, c.fp, c.fn, c.tn, round(c.sensitivity, 3), c.specificity, c.agreement
    (2.0, 1.0, 1.0, 1.0, 0.667, 0.5, 0.6)
    """

    tp: float
    fp: float
    fn: float
    tn: float

    @classmethod
    def of(cls, human: ArrayLike, judge: ArrayLike, weights: ArrayLike | None = None) -> Confusion:
        """From 0/1 verdicts of people and the judge on the same things."""
        sums = label_columns(human, judge, weights).sum(axis=0)
        return cls(**dict(zip(("tp", "fp", "fn", "tn"), sums.tolist(), strict=True)))

    @property
    def sensitivity(self) -> float:
        """tp/(tp + fn); NaN without a label that people pass."""
        return _share(self.tp, self.fn)

    @property
    def specificity(self) -> float:
        """tn/(tn + fp); NaN without a label that people fail."""
        return _share(self.tn, self.fp)

    @property
    def agreement(self) -> float:
        """The share of labels on which both agree."""
        return _share(self.tp + self.tn, self.fp + self.fn)

    @property
    def kappa(self) -> float:
        """Cohen's (1960): agreement beyond what the two rates of passing give by chance; NaN where that is 1."""
        return float(_kappa(np.array([[self.tp, self.fp, self.fn, self.tn]]))[0])


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest > 0 else nan


def as_verdicts(name: str, values: ArrayLike) -> Floats:
    """A flat array of 0 and 1, or a one-line refusal.

    >>> as_verdicts("human", [True, 0]).tolist()
    [1.0, 0.0]
    """
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or not bool(((x == 0) | (x == 1)).all()):
        raise InputError(f"{name} verdicts must be 0 or 1, one a label: leave out what is not graded")
    return x


def label_columns(human: ArrayLike, judge: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """One row per label, with its weight in the column of its kind: tp, fp, fn, tn.

    >>> label_columns([1, 0], [1, 1], [1, 2.5]).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 2.5, 0.0, 0.0]]
    """
    h, j = as_verdicts("human", human), as_verdicts("judge", judge)
    if h.size != j.size:
        raise InputError(f"{h.size} human verdicts but {j.size} of the judge: give both for each label")
    w = np.ones_like(h) if weights is None else np.asarray(weights, dtype=float)
    if w.shape != h.shape or not bool((np.isfinite(w) & (w > 0)).all()):
        raise InputError("weights must be one positive number a label")
    return np.column_stack([h * j, (1 - h) * j, h * (1 - j), (1 - h) * (1 - j)]) * w[:, None]


def _kappa(columns: Floats) -> Floats:
    """Cohen's kappa of each row tp, fp, fn, tn."""
    tp, fp, fn, tn = columns.T
    with np.errstate(invalid="ignore", divide="ignore"):
        total = tp + fp + fn + tn
        by_chance = ((tp + fn) * (tp + fp) + (fp + tn) * (fn + tn)) / total**2
        kappa = ((tp + tn) / total - by_chance) / (1 - by_chance)
    return np.asarray(np.where(1 - by_chance > 1e-12, kappa, nan))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRates:
    """The accuracy of a judge on labels, each rate with its interval."""

    confusion: Confusion
    n: int
    n_passing: int
    n_failing: int
    sensitivity: Estimate
    specificity: Estimate
    agreement: Estimate
    kappa: Estimate


def judge_rates(
    human: ArrayLike,
    judge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> JudgeRates:
    """Confusion, sensitivity, specificity, agreement and Cohen's kappa of a judge on labels.

    Plain rates have Wilson's interval. Labels of the same cluster (several candidates of a case) are not
    independent, and labels may carry weights (one over their chance to be drawn): then the intervals are those of
    `estimate`, by cluster. That of kappa is always the percentile bootstrap. A class without labels has no rate.

    >>> rates = judge_rates([1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0])
    >>> print(rates.sensitivity, rates.specificity, sep="; ")
    sensitivity 0.667 [0.208, 0.939]; specificity 1.000 [0.439, 1.000]
    """
    check_level(level)
    check_resamples(n_resamples)
    columns = label_columns(human, judge, weights)
    h, j = as_verdicts("human", human), as_verdicts("judge", judge)
    w = None if weights is None else np.asarray(weights, dtype=float)
    codes = None if clusters is None else cluster_codes(clusters)
    if codes is not None and codes.size != h.size:
        raise InputError(f"{h.size} labels but {codes.size} cluster names: give one a label")

    drawing: Drawing = {"level": level, "n_resamples": n_resamples, "seed": seed}
    interval = suitable_interval("wilson", rate=True, plain=codes is None and w is None)

    def rate(name: str, right: ArrayLike, of: NDArray[np.bool_]) -> Estimate:
        own = at_rows(of, weights=w, clusters=codes)
        return estimate(np.asarray(right)[of], aggregator=name, interval=interval, **own, **drawing)

    return JudgeRates(
        confusion=Confusion.of(h, j, w),
        n=h.size,
        n_passing=int(h.sum()),
        n_failing=int(h.size - h.sum()),
        sensitivity=rate("sensitivity", j, h == 1),
        specificity=rate("specificity", 1 - j, h == 0),
        agreement=rate("agreement", h == j, np.ones(h.size, dtype=bool)),
        kappa=_bootstrapped_kappa(columns, codes, _kappa, drawing),
    )


def _bootstrapped_kappa(
    columns: Floats, codes: NDArray[np.intp] | None, kappa_of: Callable[[Floats], Floats], drawing: Drawing
) -> Estimate:
    """Kappa of summed columns with a percentile bootstrap by row or cluster; no interval where most draws have none."""
    point, ends = float(kappa_of(columns.sum(axis=0, keepdims=True))[0]), None
    units = columns if codes is None else sums_by_cluster(columns, codes)
    n_resamples, level = drawing["n_resamples"], drawing["level"]
    if len(units) > 1 and isfinite(point):
        drawn = kappa_of(resampled_sums_of_units(units, n_resamples, np.random.default_rng(drawing["seed"])))
        drawn = drawn[~np.isnan(drawn)]
        ends = percentile_ends(drawn, level) if drawn.size > n_resamples / 2 else None
    return Estimate(
        aggregator="kappa",
        point=None if isnan(point) else point,
        low=ends and ends[0],
        high=ends and ends[1],
        level=level,
        n=len(columns),
        n_missing=0,
        method="bootstrap" if ends else "none",
    )


# --- several judges of the same items


def as_votes(votes: ArrayLike, n_classes: int | None = None) -> tuple[NDArray[np.intp], int]:
    """Verdicts as a table, one row per item and one column per judge (-1: none), and the number of classes.

    >>> as_votes([[0, 1], [1, -1]])[1]
    2
    """
    table = np.asarray(votes)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "iub" or int(table.min()) < -1:
        raise InputError("votes must be whole numbers from 0 (-1: none), a row an item and a column a judge")
    most = int(table.max()) + 1
    k = max(most, 2) if n_classes is None else n_classes
    if most > k:
        raise InputError(f"votes name class {most - 1} but n_classes is {k}: classes count from 0")
    return table.astype(np.intp), k


@dataclass(frozen=True, slots=True, kw_only=True)
class DawidSkene:
    """Judges and items as estimated together.

    `confusion[j, a, b]` is how often judge j says b where the truth is a; `posterior[i, a]` how likely the truth of
    item i is a; `shares[a]` how common a is. `log_likelihoods` has one entry a step and never falls.
    """

    confusion: Floats
    posterior: Floats
    shares: Floats
    log_likelihoods: tuple[float, ...]
    converged: bool

    @property
    def sensitivity(self) -> Floats:
        """Each judge's rate of saying 1 where the truth is 1 (two classes)."""
        return np.asarray(self.confusion[:, 1, 1])

    @property
    def specificity(self) -> Floats:
        """Each judge's rate of saying 0 where the truth is 0 (two classes)."""
        return np.asarray(self.confusion[:, 0, 0])


def dawid_skene(
    votes: ArrayLike, *, n_classes: int | None = None, max_steps: int = 500, tolerance: float = 1e-9
) -> DawidSkene:
    """Each judge's errors and each item's truth from verdicts alone, Dawid & Skene (1979), by EM.

    Judges err independently given the truth: judges that share a bias (the same model twice) break that, and then look
    better than they are. Starts from the share of votes for each class, so the result is deterministic and the
    classes keep their meaning as long as most judges are better than chance. Missing verdicts (-1) are left out. Counts
    have 1e-6 added, so the likelihood is that of the data with a vanishing prior.

    >>> found = dawid_skene([[1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0]])
    >>> found.posterior.argmax(axis=1).tolist()
    [1, 1, 0, 0, 1, 0]
    """
    table, k = as_votes(votes, n_classes)
    given = (table[:, :, None] == np.arange(k)).astype(float)  # item, judge, class said; all 0 where none
    counts = given.sum(axis=1)
    if not counts.any(axis=1).all():
        raise InputError("an item has no verdict at all: leave it out")
    posterior = counts / counts.sum(axis=1, keepdims=True)
    shares, confusion = _maximise(posterior, given)
    reached: list[float] = []
    for _ in range(max_steps):
        posterior, likelihood = _expect(shares, confusion, given)
        reached.append(likelihood)
        if len(reached) > 1 and reached[-1] - reached[-2] < tolerance * (1 + abs(reached[-1])):
            break
        shares, confusion = _maximise(posterior, given)
    converged = len(reached) < max_steps
    return DawidSkene(
        confusion=confusion, posterior=posterior, shares=shares, log_likelihoods=tuple(reached), converged=converged
    )


def _maximise(posterior: Floats, given: Floats) -> tuple[Floats, Floats]:
    """M step: the shares of classes and the confusion of each judge, with the posterior as the truth."""
    counts = np.einsum("ia,ijb->jab", posterior, given) + SMOOTH
    common = posterior.sum(axis=0) + SMOOTH
    return common / common.sum(), counts / counts.sum(axis=2, keepdims=True)


def _expect(shares: Floats, confusion: Floats, given: Floats) -> tuple[Floats, float]:
    """E step: the posterior of each item, and the log posterior (likelihood and vanishing prior) that EM raises."""
    joint = np.log(shares) + np.einsum("ijb,jab->ia", given, np.log(confusion))
    top = joint.max(axis=1, keepdims=True)
    each = np.exp(joint - top)
    total = each.sum(axis=1, keepdims=True)
    prior = SMOOTH * (float(np.log(confusion).sum()) + float(np.log(shares).sum()))
    return each / total, float((np.log(total) + top).sum()) + prior


def cohen_kappa(a: ArrayLike, b: ArrayLike) -> float:
    """Agreement of two judges beyond chance, Cohen (1960), for any number of classes; -1 marks none.

    NaN where chance alone would agree always (both only ever say one thing), or nothing is shared.

    >>> round(cohen_kappa([1, 1, 0, 0, 2], [1, 0, 0, 0, 2]), 3)
    0.688
    """
    pair, k = as_votes(np.column_stack([np.asarray(a), np.asarray(b)]))
    pair = pair[(pair >= 0).all(axis=1)]
    if not len(pair):
        return nan
    table = np.bincount(pair[:, 0] * k + pair[:, 1], minlength=k * k).reshape(k, k) / len(pair)
    by_chance = float(table.sum(axis=0) @ table.sum(axis=1))
    return (float(np.trace(table)) - by_chance) / (1 - by_chance) if by_chance < 1 - 1e-12 else nan


def fleiss_kappa(votes: ArrayLike) -> float:
    """Agreement of several judges beyond chance, Fleiss (1971).

    Items may have different numbers of verdicts; those with fewer than two are left out. The agreement of an item is
    Σ n_a(n_a - 1)/(n(n - 1)), chance is Σ p_a² with p_a the share of class a among all verdicts.

    >>> round(fleiss_kappa([[0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 1, 1]]), 3)
    0.657
    """
    table, k = as_votes(votes)
    counts = (table[:, :, None] == np.arange(k)).sum(axis=1).astype(float)
    n = counts.sum(axis=1)
    counts, n = counts[n >= 2], n[n >= 2]
    if not n.size:
        return nan
    agree = float(np.mean((counts * (counts - 1)).sum(axis=1) / (n * (n - 1))))
    common = counts.sum(axis=0) / n.sum()
    by_chance = float(common @ common)
    return (agree - by_chance) / (1 - by_chance) if by_chance < 1 - 1e-12 else nan


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorAgreement:
    """How far annotators agree on the same items.

    n          items that at least two of them labelled
    agreement  per item the share of pairs of labels that are equal, averaged over items
    kappa      agreement beyond chance: Cohen's for two annotators, Fleiss' for more; `statistic` names it
    """

    annotators: tuple[str, ...]
    n: int
    statistic: str
    agreement: Estimate
    kappa: Estimate


def annotator_agreement(
    votes: ArrayLike,
    names: Sequence[str] = (),
    *,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> AnnotatorAgreement:
    """Agreement and kappa of annotators, each with its interval.

    `votes` holds 0/1 labels, one row per item and one column per annotator; NaN marks an item that an annotator did not
    label. Items with fewer than two labels are left out. The agreement of two annotators has Wilson's interval, other
    intervals are the percentile bootstrap by item, or by cluster. Kappa is undefined where chance alone would always
    agree (only passes, or only failures).

    >>> found = annotator_agreement([[1, 1], [0, 0], [1, 0], [1, 1], [0, 0], [0, float("nan")]], ["Ann", "Ben"])
    >>> found.n, found.agreement.point, round(found.kappa.point, 3), found.statistic
    (5, 0.8, 0.615, "Cohen's kappa")
    """
    check_level(level)
    check_resamples(n_resamples)
    table = np.asarray(votes, dtype=float)
    if table.ndim != 2 or not np.isin(table[np.isfinite(table)], (0.0, 1.0)).all():
        raise InputError("labels of annotators must be 0, 1 or NaN: one row per item, one column per annotator")
    shared = np.isfinite(table).sum(axis=1) >= 2
    codes = None if clusters is None else cluster_codes(clusters)[shared]
    table, two = table[shared], table.shape[1] == 2
    columns = label_columns(table[:, 0], table[:, 1]) if two else _fleiss_columns(table)
    agreeing = columns[:, [0, 3]].sum(axis=1) if two else columns[:, 0]
    interval = suitable_interval("wilson", rate=two, plain=codes is None)
    drawing: Drawing = {"level": level, "n_resamples": n_resamples, "seed": seed}
    agreement = estimate(agreeing, aggregator="agreement", clusters=codes, interval=interval, **drawing)
    return AnnotatorAgreement(
        annotators=tuple(names),
        n=len(table),
        statistic="Cohen's kappa" if two else "Fleiss' kappa",
        agreement=agreement,
        kappa=_bootstrapped_kappa(columns, codes, _kappa if two else _fleiss, drawing),
    )


def _fleiss_columns(table: Floats) -> Floats:
    """One row per item, to be summed: its agreement, 1, its passes, its labels."""
    passes, n = np.nansum(table, axis=1), np.isfinite(table).sum(axis=1)
    fails = n - passes
    agree = (passes * (passes - 1) + fails * (fails - 1)) / np.maximum(n * (n - 1), 1)
    return np.column_stack([agree, np.ones(len(table)), passes, n])


def _fleiss(columns: Floats) -> Floats:
    """Fleiss' kappa of each row of sums of `_fleiss_columns`."""
    agree, items, passes, n = columns.T
    with np.errstate(invalid="ignore", divide="ignore"):
        share = passes / n
        by_chance = share**2 + (1 - share) ** 2
        kappa = (agree / items - by_chance) / (1 - by_chance)
    return np.asarray(np.where(1 - by_chance > 1e-12, kappa, nan))


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    """A judge of pairs that saw each pair in both orders.

    `consistent` is the share of pairs on which both orders name the same winner or both a tie; `first_shown` the
    share of decided verdicts for what was shown first: ½ without bias. A pair's verdict is the average of both orders.
    """

    n: int
    n_missing: int
    consistent: Estimate
    first_shown: Estimate
    wins: int
    ties: int
    losses: int


def position_bias(
    a_first: ArrayLike, b_first: ArrayLike, *, clusters: ArrayLike | None = None, level: float = 0.95, seed: int = 0
) -> PositionBias:
    """Bias by position from verdicts on pairs (A, B), once with A shown first and once with B shown first.

    Each verdict is about what is *shown*: 1 the first is better, -1 the second, 0 a tie, NaN not graded. A pair counts
    when both orders are graded. A wins where the two verdicts together favour it: preferred twice, or once and a tie.
    `clusters` (one a pair) are cases with several pairs, resampled whole.

    >>> found = position_bias([1, 1, 1, 0], [-1, 1, 0, 0])
    >>> found.consistent.point, found.first_shown.point, (found.wins, found.ties, found.losses)
    (0.5, 0.8, (2, 2, 0))
    """
    x, y = np.asarray(a_first, dtype=float), np.asarray(b_first, dtype=float)
    if x.shape != y.shape or x.ndim != 1:
        raise InputError("verdicts must be one a pair in both orders")
    graded = np.isfinite(x) & np.isfinite(y)
    both = np.stack([x, y])[:, graded]
    if not np.isin(both, (-1, 0, 1)).all():
        raise InputError("a verdict is 1 (the first shown is better), -1 (the second) or 0 (a tie)")
    for_a = both[0] - both[1]
    decided = both.ravel()[(both != 0).ravel()]
    units = np.arange(both.shape[1]) if clusters is None else cluster_codes(clusters)[graded]
    pair = np.tile(units, 2)[(both != 0).ravel()]
    own = None if clusters is None else units
    way = suitable_interval("wilson", rate=True, plain=clusters is None)
    drawing: dict[str, Any] = {"level": level, "seed": seed}
    same = estimate(both[0] == -both[1], aggregator="consistent", clusters=own, interval=way, **drawing)
    return PositionBias(
        n=int(graded.sum()),
        n_missing=int((~graded).sum()),
        consistent=same,
        first_shown=estimate(decided > 0, aggregator="first shown", clusters=pair, **drawing),
        wins=int((for_a > 0).sum()),
        ties=int((for_a == 0).sum()),
        losses=int((for_a < 0).sum()),
    )
