"""Calibration of a judge: how often it errs by labels of people, and a rate corrected for those errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kofn.core.document import Displayable
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName
from kofn.stats import (
    FEW_LABELS,
    Confusion,
    Corrected,
    annotator_agreement,
    any_of_candidates,
    corrected_rate,
    corrected_with_known_rates,
    estimate,
    judge_rates,
    labels_to_halve,
    ppi_mean,
    weights_by_verdict,
)
from kofn.stats.intervals import cluster_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.types import Estimate
    from kofn.judge.labels import LabelRows, VerdictRows
    from kofn.stats import AnnotatorAgreement, AnyOfCandidates, JudgeRates, MoreLabels, PredictionPowered

NO_SEGMENT = "(none)"
_NOT_LABELLED = "no row is labelled yet: fill in the column `human`"
_NOT_JUDGED = (
    "no labelled row has a verdict of the judge: its ids are not among the judged ones, and its `judge` is empty"
)
_RATES = ("sensitivity", "specificity", "agreement", "kappa", "human", "judge", "difference", "raw", "corrected",
          "raw_sets", "corrected_sets")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How to calibrate. `known` is (sensitivity, specificity) taken as exact."""

    method: str = "auto"
    level: float = 0.95
    seed: int = 0
    n_resamples: int = 10_000
    known: tuple[float, float] | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCorrection:
    """Scores of people and judge on the same things: both means, how they go together, and how far apart they are."""

    human: Estimate
    judge: Estimate
    difference: Estimate
    correlation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotators:
    """Several people who labelled the same things: how many labels each gave, and how far they agree.

    n_labels    name -> number of labels; n_tied: things with as many passes as failures, which are left out
    together    the agreement of all, by items with at least two labels; pairs: that of every two annotators
    """

    n_labels: Mapping[str, int]
    n_tied: int
    together: AnnotatorAgreement
    pairs: tuple[AnnotatorAgreement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calibration(Displayable):
    """What labels say of a judge and, where a judged file was given, of its rate.

    n_labels counts labels that count: labelled by people and graded by the judge. `of` is what a label is about: set or
    candidate. corrected is a `Corrected` rate, or for scores a `PredictionPowered` mean; `why` says why there is none.
    """

    view: ClassVar[str] = "kofn.judge.calibration_report:document"
    printer: ClassVar[str] = "kofn.judge.calibration_report:as_text"
    data: ClassVar[str] = "kofn.judge.calibration_report:to_dict"

    segment: str | None = None
    of: str = "set"
    n_rows: int
    n_labels: int
    n_unlabelled: int
    n_not_graded: int
    annotators: Annotators | None = None
    n_judged: int | None = None
    n_judged_not_graded: int | None = None
    rates: JudgeRates | None = None
    scores: ScoreCorrection | None = None
    raw: Estimate | None = None
    corrected: Corrected | PredictionPowered | None = None
    why: str | None = None
    sets: AnyOfCandidates | None = None
    raw_sets: Estimate | None = None
    more: MoreLabels | None = None
    warnings: tuple[CodedWarning, ...] = ()
    segments: tuple[Calibration, ...] = field(default=())
    source: Mapping[str, str] = field(default_factory=dict)  # name and metric of what was corrected

    def rows(self) -> list[dict[str, Any]]:
        """One row per rate: those of the judge, then raw and corrected ones, over everything and by segment."""
        data = self.to_dict()
        parts = [(None, data), *((part["segment"], part) for part in data["segments"])]
        scores = [(segment, part["scores"]) for segment, part in parts if part["scores"]]
        described = ("point", "low", "high", "level", "n", "method")
        return [
            {"segment": segment, "rate": name, **{key: part[name].get(key) for key in described}}
            for segment, part in (*parts, *scores)
            for name in _RATES
            if part.get(name)
        ]


def calibrate(labels: LabelRows | None, verdicts: VerdictRows | None, settings: CalibrationSettings) -> Calibration:
    """Calibrate, over everything and in each segment.

    Labels without a judge's verdict take that of the judged rows with the same id (and place). Where both have one and
    they differ, that of the judged rows counts, and a warning says so. A rate that cannot be corrected is refused; that
    of a segment has the reason instead.
    """
    if labels is None:
        if verdicts is None or settings.known is None:
            raise InputError("nothing to calibrate with: give labels, or known rates and what to correct")
        rows = verdicts.sets if verdicts.candidates is None else verdicts.candidates
        assert rows is not None
        nothing = replace(rows.take(np.empty(0, dtype=np.intp)), human=np.empty(0), judge=np.empty(0))
        calibration = _calibrate_rows(nothing, rows, settings)
        return replace(calibration, warnings=tuple(_warnings(calibration, verdicts, settings)))
    target = None if verdicts is None else _matching_rows(labels, verdicts)
    labels, differing = _with_verdicts(labels, target)
    calibration = replace(_calibrate_rows(labels, target, settings), annotators=annotators_of(labels, settings))
    if calibration.why is not None:
        raise InputError(f"{labels.source}: {calibration.why}")
    warnings = [*_warnings(calibration, verdicts, settings), *([differing] if differing else [])]
    if labels.indices is None and labels.of_candidates:
        warnings.append(CodedWarning.of("labels-without-index"))
    names = settings.by or tuple(name for name in ("segment",) if name in labels.fields)
    segments = tuple(segment for name in names for segment in _segments(labels, target, settings, name))
    return replace(calibration, warnings=tuple(warnings), segments=segments)


def annotators_of(labels: LabelRows, settings: CalibrationSettings) -> Annotators | None:
    """How far annotators agree; None for one annotator, and for scores."""
    if labels.votes is None or labels.scores or len(labels.annotators) < 2:
        return None
    drawing: dict[str, Any] = {"level": settings.level, "seed": settings.seed, "n_resamples": settings.n_resamples}
    votes, names, clusters = labels.votes, labels.annotators, _cluster_names(labels)

    def agreement(*columns: int) -> AnnotatorAgreement:
        some = [names[i] for i in columns]
        return annotator_agreement(votes[:, list(columns)], some, clusters=clusters, **drawing)

    return Annotators(
        n_labels=dict(zip(names, np.isfinite(votes).sum(axis=0).tolist(), strict=True)),
        n_tied=int(labels.tied.sum()),
        together=agreement(*range(len(names))),
        pairs=tuple(agreement(i, k) for i, k in combinations(range(len(names)), 2)) if len(names) > 2 else (),
    )


def _matching_rows(labels: LabelRows, verdicts: VerdictRows) -> LabelRows:
    """The judged rows labels are about: sets for labels of sets, candidates for those of candidates."""
    if labels.of_candidates:
        if verdicts.candidates is None:
            raise InputError(
                f"{labels.source} has labels of candidates but {verdicts.name} one verdict a case: label cases"
            )
        return verdicts.candidates
    if verdicts.sets is None:
        raise InputError(
            f"{labels.source} has one label a case but {verdicts.name} several verdicts: give the label's index too"
        )
    return verdicts.sets


def _with_verdicts(labels: LabelRows, target: LabelRows | None) -> tuple[LabelRows, CodedWarning | None]:
    """Labels with the verdict of the judged row that is the same thing, where there is one."""
    if target is None or target.judge is None or (labels.of_candidates and labels.indices is None):
        if labels.judge is None:
            raise InputError(
                f"{labels.source}: no column judge: give it, or the run that has the verdicts (--apply RUN)"
            )
        return labels, None
    at = places(labels, target)
    judge = np.full(len(labels), np.nan) if labels.judge is None else labels.judge.copy()
    there = at >= 0
    theirs = target.judge[at[there]]
    differ = int((np.isfinite(judge[there]) & np.isfinite(theirs) & (judge[there] != theirs)).sum())
    # the verdicts of the run are those whose rate is corrected, so they count where a sheet has older ones
    judge[there] = np.where(np.isfinite(theirs), theirs, judge[there])
    warning = CodedWarning.of("verdicts-differ", sheet=str(labels.source), labels=str(target.source), n=differ)
    return replace(labels, judge=judge), warning if differ and not labels.scores else None


def places(labels: LabelRows, target: LabelRows) -> NDArray[np.intp]:
    """Where each label stands among the judged rows; -1 where it does not."""
    if labels.of_candidates and labels.indices is None:
        return np.full(len(labels), -1, dtype=np.intp)
    at = {key: i for i, key in enumerate(target.things())}
    return np.array([at.get(key, -1) for key in labels.things()], dtype=np.intp)


def _calibrate_rows(labels: LabelRows, target: LabelRows | None, settings: CalibrationSettings) -> Calibration:
    """Everything but warnings and segments."""
    has_label, has_verdict = np.isfinite(labels.human_values), np.isfinite(labels.judge_values)
    labelled = labels.take(np.flatnonzero(has_label & has_verdict))
    known = Calibration(
        of="candidate" if (target or labels).of_candidates else "set",
        n_rows=len(labels),
        n_labels=len(labelled),
        n_unlabelled=int((~has_label & ~labels.tied).sum()),
        n_not_graded=int((has_label & ~has_verdict).sum()),
    )
    if labels.scores:
        return _calibrate_scores(known, labelled, target, settings)
    common: dict[str, Any] = {"level": settings.level, "seed": settings.seed, "n_resamples": settings.n_resamples}
    calibration = replace(known, rates=_rates(labelled, target, common))
    return calibration if target is None else _correct_rate(calibration, labelled, target, settings, common)


def _rates(labelled: LabelRows, target: LabelRows | None, common: dict[str, Any]) -> JudgeRates:
    """How often the judge is right, by its labels; those among the judged rows stand for the rows with their verdict.

    The confusion stays that of the labels as they are.
    """
    judged_rows = None if target is None else _graded(target)
    inside = judged_rows is not None and len(labelled) > 0 and bool((places(labelled, judged_rows) >= 0).all())
    weights = (
        weights_by_verdict(labelled.judge_values, judged_rows.judge_values, labelled.weights)
        if inside and judged_rows is not None
        else labelled.weights
    )
    found = judge_rates(
        labelled.human_values, labelled.judge_values, weights=weights, clusters=_cluster_names(labelled), **common
    )
    return replace(found, confusion=Confusion.of(labelled.human_values, labelled.judge_values, labelled.weights))


def _cluster_names(rows: LabelRows) -> Any:
    """Clusters as an array of names, None standing alone; None where every row stands alone."""
    return None if rows.units() is None else _unit_names(rows)


def _unit_names(rows: LabelRows) -> Any:
    """The same, where every row stands alone what it is about: a label and its judged row are one."""
    # into an array of objects: np.array(units) would make a matrix of the tuples that name clusters
    names = np.empty(len(rows), dtype=object)
    names[:] = rows.units() or rows.things()
    return names


def _correct_rate(
    calibration: Calibration,
    labelled: LabelRows,
    target: LabelRows,
    settings: CalibrationSettings,
    common: dict[str, Any],
) -> Calibration:
    """With the judged rate and what the labels make of it."""
    judged_rows = _graded(target)
    calibration = replace(calibration, n_judged=len(judged_rows), n_judged_not_graded=len(target) - len(judged_rows))
    if not len(judged_rows):
        return replace(calibration, why="no judged case has a verdict")
    if settings.known is None and not len(labelled):
        nobody = calibration.n_unlabelled == calibration.n_rows
        return replace(calibration, why=_NOT_LABELLED if nobody else _NOT_JUDGED)
    raw = estimate(judged_rows.judge_values, clusters=_cluster_codes(judged_rows), aggregator="raw", **common)
    calibration = replace(calibration, raw=raw)
    if settings.known is not None:
        s, t = settings.known
        known = corrected_with_known_rates(
            judged_rows.judge_values, s, t, judged_clusters=judged_rows.units(), level=settings.level
        )
        return replace(calibration, corrected=known)
    at = places(labelled, judged_rows)
    try:
        corrected = corrected_rate(
            labelled.human_values,
            labelled.judge_values,
            judged_rows.judge_values,
            weights=labelled.weights,
            clusters=labelled.units(),
            judged_clusters=judged_rows.units(),
            labelled_at=at,
            method=settings.method,
            **common,
        )
    except InputError as problem:
        return replace(calibration, why=str(problem))
    calibration = replace(calibration, corrected=corrected, more=labels_to_halve(corrected))
    return calibration if not judged_rows.of_candidates else _bound_sets(calibration, labelled, judged_rows, common)


def _cluster_codes(rows: LabelRows) -> NDArray[np.intp] | None:
    names = _cluster_names(rows)
    return None if names is None else cluster_codes(names)


def _bound_sets(
    calibration: Calibration, labelled: LabelRows, judged_rows: LabelRows, common: dict[str, Any]
) -> Calibration:
    """From labels of candidates to the rate of sets: an upper bound, beside the raw rate."""
    if judged_rows.indices is None or not isinstance(calibration.corrected, Corrected):
        return calibration
    try:
        bound = any_of_candidates(
            labelled.human_values,
            labelled.judge_values,
            judged_rows.judge_values,
            judged_rows.ids,
            judged_rows.indices,
            weights=weights_by_verdict(labelled.judge_values, judged_rows.judge_values, labelled.weights)
            if calibration.corrected.design == "inside"
            else labelled.weights,
            clusters=labelled.units(),
            **common,
        )
    except InputError:  # the judge knows too little for this; the candidates' own rate may still stand
        return calibration
    by_case: dict[str, float] = {}  # a set passes where one of its candidates does
    for case, verdict in zip(judged_rows.ids, judged_rows.judge_values.tolist(), strict=True):
        by_case[case] = max(by_case.get(case, 0.0), verdict)
    return replace(calibration, sets=bound, raw_sets=estimate(list(by_case.values()), aggregator="any_pass", **common))


def _graded(rows: LabelRows) -> LabelRows:
    return rows.take(np.flatnonzero(np.isfinite(rows.judge_values)))


def _calibrate_scores(
    known: Calibration, labelled: LabelRows, target: LabelRows | None, settings: CalibrationSettings
) -> Calibration:
    """Means instead of rates, and ppi++ instead of Rogan and Gladen."""
    human, judge = labelled.human_values, labelled.judge_values
    common: dict[str, Any] = {
        "level": settings.level,
        "seed": settings.seed,
        "rate": False,
        "clusters": _cluster_codes(labelled),
    }
    spread = human.size > 1 and bool(np.ptp(human) and np.ptp(judge))
    scores = ScoreCorrection(
        human=estimate(human, aggregator="human", **common),
        judge=estimate(judge, aggregator="judge", **common),
        difference=estimate(judge - human, aggregator="judge - human", **common),
        correlation=float(np.corrcoef(human, judge)[0, 1]) if spread else None,
    )
    calibration = replace(known, scores=scores)
    return calibration if target is None else _correct_mean(calibration, labelled, target, settings)


def _correct_mean(
    calibration: Calibration, labelled: LabelRows, target: LabelRows, settings: CalibrationSettings
) -> Calibration:
    """With the judged mean and what the labels make of it; judged rows that are labelled are not counted twice."""
    if settings.known is not None:
        raise InputError("known rates are of verdicts: scores are corrected by labels (ppi++)")
    judged_rows = _graded(target)
    _check_scale(labelled.human_values, judged_rows.judge_values)
    raw = estimate(
        judged_rows.judge_values,
        clusters=_cluster_codes(judged_rows),
        aggregator="raw",
        level=settings.level,
        rate=False,
    )
    calibration = replace(
        calibration, raw=raw, n_judged=len(judged_rows), n_judged_not_graded=len(target) - len(judged_rows)
    )
    weighted = labelled.weights is not None  # drawn by score: what is left over is no random sample, all of it is
    also_labelled = set() if weighted else set(places(labelled, judged_rows).tolist())
    rest = [i for i in range(len(judged_rows)) if i not in also_labelled]
    others = judged_rows.take(np.array(rest, dtype=np.intp))
    try:
        corrected = ppi_mean(
            labelled.human_values,
            labelled.judge_values,
            others.judge_values,
            weights=labelled.weights,
            clusters=_unit_names(labelled) if weighted else _cluster_names(labelled),
            unlabelled_clusters=_unit_names(others) if weighted else _cluster_names(others),
            level=settings.level,
        )
    except InputError as problem:
        return replace(calibration, why=str(problem))
    return replace(calibration, corrected=corrected)


def _check_scale(human: NDArray[np.float64], judge: NDArray[np.float64]) -> None:
    """Refuse scores of people and of a judge that can hardly be on one scale: one spans three times the other."""
    if not human.size or not judge.size:
        return
    spans = [max(float(np.ptp(x)), 1e-9) for x in (human, judge)]  # 1e-9 where all scores are equal
    disjoint = human.min() > judge.max() or judge.min() > human.max()
    if disjoint or max(spans) > 3 * min(spans) > 3e-9:
        scales = [f"{x.min():g} to {x.max():g}" for x in (human, judge)]
        raise InputError(f"people score from {scales[0]} and the judge from {scales[1]}: expected one scale")


def _segments(
    labels: LabelRows, target: LabelRows | None, settings: CalibrationSettings, name: str
) -> list[Calibration]:
    """The same within each value of a field. Labels that lack it have it from the judged rows."""
    label_values, judged_values = labels.fields.get(name), None if target is None else target.fields.get(name)
    if label_values is None:
        if target is None or judged_values is None:
            raise UnknownName("field", name, list(dict.fromkeys([*labels.fields, *(target.fields if target else ())])))
        of_case = dict(zip(target.ids, judged_values, strict=True))
        label_values = tuple(of_case.get(case) for case in labels.ids)
    names = sorted({value or NO_SEGMENT for value in (*label_values, *(judged_values or ()))})
    found = []
    for value in names:
        some = labels.take(_rows_with(label_values, value))
        part = None if target is None or judged_values is None else target.take(_rows_with(judged_values, value))
        found.append(replace(_calibrate_rows(some, part, settings), segment=f"{name}={value}"))
    return found


def _rows_with(column: Sequence[str | None], value: str) -> NDArray[np.intp]:
    return np.array([i for i, one in enumerate(column) if (one or NO_SEGMENT) == value], dtype=np.intp)


def _warnings(
    calibration: Calibration, verdicts: VerdictRows | None, settings: CalibrationSettings
) -> list[CodedWarning]:
    """What somebody should know before using the numbers."""
    out = []
    if calibration.rates is not None and calibration.n_rows:
        for verdict, n in (("pass", calibration.rates.n_passing), ("fail", calibration.rates.n_failing)):
            if n < FEW_LABELS:
                out.append(CodedWarning.of("few-labels", n=n, verdict=verdict, fewest=FEW_LABELS))
    if calibration.annotators is not None and calibration.annotators.n_tied:
        out.append(CodedWarning.of("annotators-tied", n=calibration.annotators.n_tied))
    if calibration.n_not_graded:
        out.append(CodedWarning.of("without-verdict", n=calibration.n_not_graded, noun="label"))
    if calibration.n_judged_not_graded:
        noun = "candidate" if calibration.of == "candidate" else "case"
        out.append(CodedWarning.of("without-verdict", n=calibration.n_judged_not_graded, noun=noun))
    if verdicts is not None and verdicts.weighted:
        out.append(CodedWarning.of("weights-not-used"))
    corrected = calibration.corrected
    if settings.known is not None:
        out.append(CodedWarning.of("rates-taken-as-exact"))
    if settings.method == "lang_reiczigel" and getattr(corrected, "design", "") in ("inside", "overlapping"):
        out.append(CodedWarning.of("lang-reiczigel-overlap"))
    fits = getattr(corrected, "fits", True)
    if not fits:
        out.append(CodedWarning.of("labels-do-not-fit"))
    elif isinstance(corrected, Corrected) and corrected.clipped:
        out.append(CodedWarning.of("corrected-rate-clipped", value=corrected.unclipped))
    if calibration.sets is not None:
        out.append(CodedWarning.of("sets-assumed-independent", assumption=calibration.sets.assumption))
    return out
