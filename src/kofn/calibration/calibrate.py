"""Labels, and what a judge said of other cases -> how good the judge is, and the rate corrected for its errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.errors import InputError, UnknownName
from kofn.stats import (
    FEW_LABELS,
    Confusion,
    Corrected,
    any_of_candidates,
    corrected_rate,
    corrected_with_known_rates,
    estimate,
    judge_rates,
    labels_to_halve,
    ppi_mean,
    weights_by_verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kofn.calibration.judged import Judged
    from kofn.calibration.labels import Rows
    from kofn.stats import AnyOfCandidates, JudgeRates, MoreLabels, PredictionPowered
    from kofn.types import Estimate

NO_SEGMENT = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to calibrate. `known` is (sensitivity, specificity) taken as exact."""

    method: str = "auto"
    level: float = 0.95
    seed: int = 0
    n_resamples: int = 10_000
    known: tuple[float, float] | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of people and judge on the same things: both means, how they go together, and how far apart they are."""

    human: Estimate
    judge: Estimate
    difference: Estimate
    correlation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What labels say of a judge and, where a judged file was given, of its rate.

    n_labels counts labels that count: labelled by people and graded by the judge. `of` is what a label is about: set or
    candidate. corrected is a `Corrected` rate, or for scores a `PredictionPowered` mean; `why` says why there is none.
    """

    segment: str | None = None
    of: str = "set"
    n_rows: int
    n_labels: int
    n_unlabelled: int
    n_not_graded: int
    n_judged: int | None = None
    n_judged_not_graded: int | None = None
    rates: JudgeRates | None = None
    scores: Scores | None = None
    raw: Estimate | None = None
    corrected: Corrected | PredictionPowered | None = None
    why: str | None = None
    sets: AnyOfCandidates | None = None
    raw_sets: Estimate | None = None
    more: MoreLabels | None = None
    warnings: tuple[str, ...] = ()
    segments: tuple[Calibration, ...] = field(default=())

    def _repr_html_(self) -> str:
        from kofn.calibration.told import document
        from kofn.notebook import as_html

        return as_html(document(self))


def calibrate(labels: Rows | None, judged: Judged | None, settings: Settings) -> Calibration:
    """Calibrate, over everything and in each segment.

    Labels without a judge's verdict take that of the judged rows with the same id (and place). Where both have one and
    they differ, that of the judged rows counts, and a warning says so. A rate that cannot be corrected is refused; that
    of a segment has the reason instead.
    """
    if labels is None:
        if judged is None or settings.known is None:
            raise InputError("nothing to calibrate with: give labels, or known rates and what to correct")
        rows = judged.sets if judged.candidates is None else judged.candidates
        assert rows is not None
        return _alone(rows, judged, settings)
    target = None if judged is None else _matching(labels, judged)
    labels, differing = _with_verdicts(labels, target)
    found = _one(labels, target, settings)
    if found.why is not None:
        raise InputError(f"{labels.source}: {found.why}")
    warnings = [*_warnings(found, judged, settings), *([differing] if differing else [])]
    if labels.indices is None and labels.of_candidates:
        warnings.append(
            "ids are there several times and have no index: taken as candidates of one case; or is it twice?"
        )
    names = settings.by or tuple(name for name in ("segment",) if name in labels.fields)
    segments = tuple(segment for name in names for segment in _segments(labels, target, settings, name))
    return replace(found, warnings=tuple(warnings), segments=segments)


def _alone(rows: Rows, judged: Judged, settings: Settings) -> Calibration:
    """Known rates and no labels."""
    nothing = replace(rows.take(np.empty(0, dtype=np.intp)), human=np.empty(0), judge=np.empty(0))
    found = _one(nothing, rows, settings)
    return replace(found, warnings=tuple(_warnings(found, judged, settings)))


def _matching(labels: Rows, judged: Judged) -> Rows:
    """The judged rows labels are about: sets for labels of sets, candidates for those of candidates."""
    if labels.of_candidates:
        if judged.candidates is None:
            raise InputError(
                f"{labels.source} has labels of candidates but {judged.name} one verdict a case: label cases"
            )
        return judged.candidates
    if judged.sets is None:
        raise InputError(
            f"{labels.source} has one label a case but {judged.name} several verdicts: give the label's index too"
        )
    return judged.sets


def _with_verdicts(labels: Rows, target: Rows | None) -> tuple[Rows, str | None]:
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
    judge[there] = np.where(np.isfinite(theirs), theirs, judge[there])
    told = (
        f"the judge's verdict in {labels.source} differs from that in {target.source} on {differ} "
        f"{'label' if differ == 1 else 'labels'}: the latter counts"
    )
    return replace(labels, judge=judge), told if differ and not labels.scores else None


def places(labels: Rows, target: Rows) -> NDArray[np.intp]:
    """Where each label stands among the judged rows; -1 where it does not."""
    if labels.of_candidates and labels.indices is None:
        return np.full(len(labels), -1, dtype=np.intp)
    at = {key: i for i, key in enumerate(target.things())}
    return np.array([at.get(key, -1) for key in labels.things()], dtype=np.intp)


def _one(labels: Rows, target: Rows | None, settings: Settings) -> Calibration:
    """Everything but warnings and segments."""
    labelled, graded = np.isfinite(labels.people), np.isfinite(labels.said)
    used = labels.take(np.flatnonzero(labelled & graded))
    known = Calibration(
        of="candidate" if (target or labels).of_candidates else "set",
        n_rows=len(labels),
        n_labels=len(used),
        n_unlabelled=int((~labelled).sum()),
        n_not_graded=int((labelled & ~graded).sum()),
    )
    if labels.scores:
        return _of_scores(known, used, target, settings)
    common: dict[str, Any] = {"level": settings.level, "seed": settings.seed, "n_resamples": settings.n_resamples}
    found = replace(known, rates=_rates(used, target, common))
    return found if target is None else _corrected(found, used, target, settings, common)


def _rates(used: Rows, target: Rows | None, common: dict[str, Any]) -> JudgeRates:
    """How often the judge is right, by its labels; those among the judged rows stand for the rows with their verdict.

    The confusion stays that of the labels as they are.
    """
    seen = None if target is None else _graded(target)
    inside = seen is not None and len(used) > 0 and bool((places(used, seen) >= 0).all())
    weights = weights_by_verdict(used.said, seen.said, used.weights) if inside and seen is not None else used.weights
    found = judge_rates(used.people, used.said, weights=weights, clusters=_names(used), **common)
    return replace(found, confusion=Confusion.of(used.people, used.said, used.weights))


def _names(rows: Rows) -> Any:
    """Clusters as an array of names, None standing alone; None where every row stands alone."""
    units = rows.units()
    if units is None:
        return None
    names = np.empty(len(units), dtype=object)
    names[:] = units
    return names


def _corrected(found: Calibration, used: Rows, target: Rows, settings: Settings, common: dict[str, Any]) -> Calibration:
    """With the judged rate and what the labels make of it."""
    seen = _graded(target)
    found = replace(found, n_judged=len(seen), n_judged_not_graded=len(target) - len(seen))
    if not len(seen):
        return replace(found, why="no judged case has a verdict")
    if settings.known is None and not len(used):
        return replace(found, why=_why_none(found))
    raw = estimate(seen.said, clusters=_codes(seen), aggregator="raw", **common)
    found = replace(found, raw=raw)
    if settings.known is not None:
        s, t = settings.known
        known = corrected_with_known_rates(seen.said, s, t, judged_clusters=seen.units(), level=settings.level)
        return replace(found, corrected=known)
    at = places(used, seen)
    try:
        corrected = corrected_rate(
            used.people,
            used.said,
            seen.said,
            weights=used.weights,
            clusters=used.units(),
            judged_clusters=seen.units(),
            labelled_at=at,
            method=settings.method,
            **common,
        )
    except InputError as problem:
        return replace(found, why=str(problem))
    found = replace(found, corrected=corrected, more=labels_to_halve(corrected))
    return found if not seen.of_candidates else _sets_of(found, used, seen, common)


def _why_none(found: Calibration) -> str:
    """Why no label counts."""
    if found.n_unlabelled == found.n_rows:
        return "no row is labelled yet: fill in the column `human`"
    return "no labelled row has a verdict of the judge: its ids are not among the judged ones, and its `judge` is empty"


def _unit_names(rows: Rows) -> Any:
    """As `_names`, where every row stands alone what it is about: a label and its judged row are one."""
    names = np.empty(len(rows), dtype=object)
    names[:] = rows.units() or rows.things()
    return names


def _codes(rows: Rows) -> NDArray[np.intp] | None:
    from kofn.stats.intervals import cluster_codes

    names = _names(rows)
    return None if names is None else cluster_codes(names)


def _sets_of(found: Calibration, used: Rows, seen: Rows, common: dict[str, Any]) -> Calibration:
    """From labels of candidates to the rate of sets: an upper bound, beside the raw rate."""
    if seen.indices is None or not isinstance(found.corrected, Corrected):
        return found
    try:
        bound = any_of_candidates(
            used.people,
            used.said,
            seen.said,
            seen.ids,
            seen.indices,
            weights=weights_by_verdict(used.said, seen.said, used.weights)
            if found.corrected.design == "inside"
            else used.weights,
            clusters=used.units(),
            **common,
        )
    except InputError:  # the judge knows too little for this; the candidates' own rate may still stand
        return found
    by_case: dict[str, float] = {}
    for case, verdict in zip(seen.ids, seen.said.tolist(), strict=True):
        by_case[case] = max(by_case.get(case, 0.0), verdict)
    return replace(found, sets=bound, raw_sets=estimate(list(by_case.values()), aggregator="any_pass", **common))


def _graded(rows: Rows) -> Rows:
    return rows.take(np.flatnonzero(np.isfinite(rows.said)))


def _of_scores(known: Calibration, used: Rows, target: Rows | None, settings: Settings) -> Calibration:
    """Means instead of rates, and ppi++ instead of Rogan and Gladen."""
    human, judge = used.people, used.said
    common: dict[str, Any] = {"level": settings.level, "seed": settings.seed, "rate": False, "clusters": _codes(used)}
    spread = human.size > 1 and bool(np.ptp(human) and np.ptp(judge))
    scores = Scores(
        human=estimate(human, aggregator="human", **common),
        judge=estimate(judge, aggregator="judge", **common),
        difference=estimate(judge - human, aggregator="judge - human", **common),
        correlation=float(np.corrcoef(human, judge)[0, 1]) if spread else None,
    )
    found = replace(known, scores=scores)
    return found if target is None else _corrected_mean(found, used, target, settings)


def _corrected_mean(found: Calibration, used: Rows, target: Rows, settings: Settings) -> Calibration:
    """With the judged mean and what the labels make of it; judged rows that are labelled are not counted twice."""
    if settings.known is not None:
        raise InputError("known rates are of verdicts: scores are corrected by labels (ppi++)")
    seen = _graded(target)
    _check_scale(used.people, seen.said)
    raw = estimate(seen.said, clusters=_codes(seen), aggregator="raw", level=settings.level, rate=False)
    found = replace(found, raw=raw, n_judged=len(seen), n_judged_not_graded=len(target) - len(seen))
    weighted = used.weights is not None  # drawn by score: what is left over is no random sample, all of it is
    labelled = set() if weighted else set(places(used, seen).tolist())
    others = seen.take(np.array([i for i in range(len(seen)) if i not in labelled], dtype=np.intp))
    try:
        corrected = ppi_mean(
            used.people,
            used.said,
            others.said,
            weights=used.weights,
            clusters=_unit_names(used) if weighted else _names(used),
            unlabelled_clusters=_unit_names(others) if weighted else _names(others),
            level=settings.level,
        )
    except InputError as problem:
        return replace(found, why=str(problem))
    return replace(found, corrected=corrected)


def _check_scale(human: NDArray[np.float64], judge: NDArray[np.float64]) -> None:
    """Refuse scores of people and of a judge that can hardly be on one scale: one spans three times the other."""
    if not human.size or not judge.size:
        return
    spans = [max(float(np.ptp(x)), 1e-9) for x in (human, judge)]
    apart = human.min() > judge.max() or judge.min() > human.max()
    if apart or max(spans) > 3 * min(spans) > 3e-9:
        told = [f"{x.min():g} to {x.max():g}" for x in (human, judge)]
        raise InputError(f"people score from {told[0]} and the judge from {told[1]}: expected one scale")


def _segments(labels: Rows, target: Rows | None, settings: Settings, name: str) -> list[Calibration]:
    """The same within each value of a field. Labels that lack it have it from the judged rows."""
    own, theirs = labels.fields.get(name), None if target is None else target.fields.get(name)
    if own is None and theirs is None:
        known = dict.fromkeys([*labels.fields, *(target.fields if target is not None else ())])
        raise UnknownName("field", name, list(known))
    if own is None:
        assert target is not None
        assert theirs is not None
        of_case = dict(zip(target.ids, theirs, strict=True))
        own = tuple(of_case.get(case) for case in labels.ids)
    names = sorted({value or NO_SEGMENT for value in (*own, *(theirs or ()))})
    found = []
    for value in names:
        some = labels.take(_where(own, value))
        part = None if target is None or theirs is None else target.take(_where(theirs, value))
        found.append(replace(_one(some, part, settings), segment=f"{name}={value}"))
    return found


def _where(column: Sequence[str | None], value: str) -> NDArray[np.intp]:
    return np.array([i for i, own in enumerate(column) if (own or NO_SEGMENT) == value], dtype=np.intp)


def _warnings(found: Calibration, judged: Judged | None, settings: Settings) -> list[str]:
    """What somebody should know before using the numbers."""
    out = []
    if found.rates is not None and found.n_rows:
        out += _few(("pass", found.rates.n_passing), ("fail", found.rates.n_failing))
    if found.n_not_graded:
        out.append(
            f"{found.n_not_graded} {_plural(found.n_not_graded, 'label')} without a verdict of the judge: left out"
        )
    if found.n_judged_not_graded:
        n = found.n_judged_not_graded
        out.append(
            f"{n} judged {_plural(n, 'candidate' if found.of == 'candidate' else 'case')} without a verdict: left out"
        )
    if judged is not None and judged.weighted:
        out.append("the cases have weights: they are not used here, every case counts alike")
    return out + _about_the_correction(found, settings)


def _few(*classes: tuple[str, int]) -> list[str]:
    return [
        f"{n} {_plural(n, 'label')} that people {word}: below {FEW_LABELS} the judge's rate there is uncertain"
        for word, n in classes
        if n < FEW_LABELS
    ]


def _about_the_correction(found: Calibration, settings: Settings) -> list[str]:
    out = []
    corrected = found.corrected
    if settings.known is not None:
        out.append(
            "sensitivity and specificity are taken as exact: from labels they are not, and this interval is too narrow"
        )
    if settings.method == "lang_reiczigel" and getattr(corrected, "design", "") in ("inside", "overlapping"):
        out.append(
            "lang_reiczigel is made for labels of other cases: for labels of the judged cases take --method auto"
        )
    fits = getattr(corrected, "fits", True)
    if not fits:
        out.append(
            "the judged rate does not fit the labels: the judge must have erred otherwise on those cases; "
            "do not use the corrected rate"
        )
    elif isinstance(corrected, Corrected) and corrected.clipped:
        out.append(f"the corrected rate is clipped: the formula gives {corrected.unclipped:.3f}")
    if found.sets is not None:
        out.append(f"the corrected rate of sets {found.sets.assumption}: label whole sets for the rate itself")
    return out


def _plural(n: int, noun: str) -> str:
    return noun if n == 1 else f"{noun}s"
