"""Verdicts to correct, from a run, a file of outputs, or plain lines {id, judge}."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.analysis.selectors import Selector
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.document import Displayable
from kofn.errors import InputError
from kofn.judge.labels import LabelRows, read_judge_rows
from kofn.registry import aggregator
from kofn.runs.load import load_graded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import CandidateSets
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.grade import Graded

DEFAULT_AGGREGATE = "any_pass"
DEFAULT_OF_SCORES = "mean"


@dataclass(frozen=True, kw_only=True)
class VerdictRows:
    """A judge's verdicts on candidates and, where there are sets, on sets; `weighted`: the cases have weights."""

    name: str
    metric: str
    candidates: LabelRows | None
    sets: LabelRows | None
    aggregate: str | None = None
    weighted: bool = False
    graded: GradedCandidates | None = None
    scored: Graded | None = None


def open_verdicts(
    source: Any,
    *,
    metric: str | None = None,
    aggregate: str | None = None,
    threshold: float | None = None,
    scores: bool = False,
    selected: bool = False,
    selector: str | None = None,
) -> VerdictRows:
    """Verdicts (or scores) from a run, a file, rows or a frame. `selected`: of sets, what a selector picks.

    Of a run the metric named, else that of its first judge, else the one called judge, else the first; of its sets
    what the aggregator says, any_pass unless named (the mean, of scores).
    """
    path = Path(source) if isinstance(source, (str, Path)) else None
    is_run = path.is_dir() if path is not None else isinstance(source, Displayable)
    if not is_run and metric is None and (rows := read_judge_rows(source, threshold)) is not None:
        if aggregate is not None:
            raise InputError(f"{rows.source}: --aggregate is for sets of candidates: this file has one verdict a line")
        of_candidates = rows.of_candidates
        return VerdictRows(
            name="rows" if path is None else path.name,
            metric="judge",
            candidates=rows if of_candidates else None,
            sets=None if of_candidates else rows,
        )

    run = load_graded(source)
    scored = _metric(run, metric)
    fields = _case_fields(run)
    name = aggregate or (DEFAULT_OF_SCORES if scores else DEFAULT_AGGREGATE)
    threshold = _threshold_on_run_scale(run, scored.metric, threshold)
    found = VerdictRows(
        name=run.name,
        metric=scored.metric,
        candidates=_candidates(run, _with_threshold(scored.sets, threshold), fields, scores=scores),
        sets=_sets(run, _with_threshold(scored.sets, threshold), fields, name, scores=scores),
        aggregate=name,
        weighted=run.units()["weights"] is not None,
        graded=run,
        scored=scored,
    )
    return _select_picks(found, selector) if selected else found


def _select_picks(verdicts: VerdictRows, selector: str | None) -> VerdictRows:
    """With sets that pass where the selector's pick does; of equal scores the first, as the sheet has it."""

    at = picked_rows(verdicts, selector)
    assert verdicts.candidates is not None
    rows = replace(verdicts.candidates.take(at), indices=None)
    return replace(verdicts, sets=rows, candidates=None, aggregate=f"the pick of {selector or 'the selector'}")


def scale_of(run: GradedCandidates | None, metric: str) -> tuple[float, float] | None:
    """The ends of the scale that a judge's rubric has; None for pass/fail, and for a metric that is no judge's."""
    entry = None if run is None else run.result.judges.get(metric)
    low, sign, high = str((entry or {}).get("scale", "")).partition("-")
    return (float(low), float(high)) if sign and low.isdigit() and high.isdigit() else None


def _threshold_on_run_scale(run: GradedCandidates, metric: str, threshold: float | None) -> float | None:
    """A threshold on the rubric's scale, as the run's scores in [0, 1] have it."""
    scale = scale_of(run, metric)
    if threshold is None or scale is None:
        return threshold
    return (threshold - scale[0]) / (scale[1] - scale[0])


def labels_on_run_scale(labels: LabelRows, verdicts: VerdictRows | None) -> LabelRows:
    """Scores that people gave on a rubric's scale, such as 1 to 5, in [0, 1] as the run has the judge's."""
    scale = None if verdicts is None else scale_of(verdicts.graded, verdicts.metric)
    if not labels.scores or scale is None or not bool((np.nan_to_num(labels.human_values) > 1).any()):
        return labels
    low, span = scale[0], scale[1] - scale[0]
    judge = None if labels.judge is None else (labels.judge - low) / span
    return replace(labels, human=(labels.human_values - low) / span, judge=judge)


def _metric(run: GradedCandidates, name: str | None) -> Graded:
    if name is None:
        graded = [one.metric for one in run.result.scored]
        named = [m for m in graded if m in run.result.judges] or [m for m in graded if "judge" in m.lower()]
        name = named[0] if named else None
    return run.metric(name)


def _case_fields(run: GradedCandidates) -> dict[str, tuple[str | None, ...]]:
    """Every tag of the cases as text."""
    tags = run.table.tags
    return {name: tuple(tags[name].cast(str).to_list()) for name in tags.columns}


def _clusters(run: GradedCandidates) -> tuple[str | None, ...] | None:
    codes = run.units()["clusters"]
    return None if codes is None else tuple(str(code) for code in codes)


def _with_threshold(sets: CandidateSets, threshold: float | None) -> CandidateSets:
    """The sets, with what passes decided by the threshold where there is one."""
    return sets if threshold is None else sets.passing_from(threshold)


def _candidates(
    run: GradedCandidates, sets: CandidateSets, fields: Mapping[str, tuple[str | None, ...]], *, scores: bool
) -> LabelRows:
    """A row a candidate: 1, 0, or NaN where it is not graded; or its score."""
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    ids = sets.case_ids.to_list()
    clusters = _clusters(run)
    return LabelRows(
        source=str(run.path),
        ids=tuple(ids[i] for i in owner),
        indices=tuple((np.arange(owner.size) - sets.offsets[owner]).tolist()),
        human=None,
        judge=sets.values if scores else np.where(sets.passes == NOT_GRADED, np.nan, sets.passes.astype(float)),
        weights=None,
        clusters=None if clusters is None else tuple(clusters[i] for i in owner),
        fields={name: tuple(column[i] for i in owner) for name, column in fields.items()},
        scores=scores,
    )


def _sets(
    run: GradedCandidates,
    sets: CandidateSets,
    fields: Mapping[str, tuple[str | None, ...]],
    aggregate: str,
    *,
    scores: bool,
) -> LabelRows:
    """A row a case: what the aggregator says of its set."""
    values = np.asarray(aggregator(aggregate)(sets), dtype=float)
    if not scores and not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
        raise InputError(
            f"--aggregate {aggregate} gives other numbers than 0 and 1: take one that says pass or fail, as any_pass"
        )
    return LabelRows(
        source=str(run.path),
        ids=tuple(sets.case_ids.to_list()),
        indices=None,
        human=None,
        judge=values,
        weights=None,
        clusters=_clusters(run),
        fields=fields,
        scores=scores,
    )


def picked_rows(verdicts: VerdictRows, name: str | None) -> NDArray[np.intp]:
    """The row each set's selector ranks first; the first of those that tie; no row where nothing can be picked."""
    if verdicts.scored is None:
        raise InputError("--selected needs a run or a file of outputs: plain verdicts have no selector")
    sets = verdicts.scored.sets
    if name is None:
        if len(sets.selectors) != 1:
            known = ", ".join(sets.selectors) or "vote, length, first"
            raise InputError(f"--selected: which selector? give --by-selector, such as {known}")
        name = next(iter(sets.selectors))
    return picked_candidates(sets, name)


def picked_candidates(sets: CandidateSets, name: str) -> NDArray[np.intp]:
    """The row of each set that a selector ranks first, as `picked_rows` has them."""
    scores = Selector(name=name, by=name).scores(sets)
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    found = [
        low + int(np.argmax(ranked[low:high]))
        for low, high in zip(sets.offsets, sets.offsets[1:], strict=False)
        if high > low
    ]
    return np.array([place for place in found if np.isfinite(scores[place])], dtype=np.intp)
