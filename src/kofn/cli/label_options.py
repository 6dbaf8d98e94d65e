"""Options of `kofn calibrate` and `kofn curve` for labels of single candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kofn import analysis, stats
from kofn.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.core.candidate_sets import Floats
    from kofn.judge.labels import LabelRows
    from kofn.scoring.grade import Graded


def labels_of(path: Path, scored: Graded, *, candidates: bool = True) -> analysis.JudgeErrors:
    """Verdicts of people and of the judge from a file, as `kofn calibrate` takes them.

    Of a candidate that the metric graded its verdict counts, whatever the file says of the judge. Labels that are all
    of these candidates stand for those with the same verdict (weights N_v/n_v): they may have been drawn by verdict.
    Rows that are not labelled or not graded are left out. With `candidates` labels of whole cases are refused: they say
    nothing of how often the judge is right about one candidate.
    """
    from kofn.judge.labels import read_labels

    rows = read_labels(path)
    if rows.scores:
        raise InputError(f"{path}: scores, not verdicts: expected 0 and 1, or pass and fail")
    if candidates and not rows.of_candidates:
        raise InputError(f"{path}: one label a case: expected labels of candidates, with their place in `index`")
    assert rows.human is not None
    theirs = _verdicts(rows, scored)
    if rows.judge is None and rows.indices is None:
        raise InputError(f"{path}: no column `judge`, and no `index` to look its verdicts up with")
    said = np.full(len(rows), np.nan) if rows.judge is None else rows.judge
    judge = np.where(np.isnan(theirs), said, theirs)
    kept = ~np.isnan(rows.human) & ~np.isnan(judge)
    if not kept.any():
        raise InputError(f"{path}: no row has a verdict of a person and one of the judge")
    inside = not bool(np.isnan(theirs[kept]).any())
    weights = None if rows.weights is None else rows.weights[kept]
    if inside and weights is None:
        weights = stats.weights_by_verdict(judge[kept], scored.sets.passes.astype(float))
    differ = int((np.isfinite(said) & np.isfinite(theirs) & (said != theirs)).sum())
    return analysis.JudgeErrors(
        human=rows.human[kept],
        judge=judge[kept],
        cases=[name for name, there in zip(rows.ids, kept, strict=True) if there],
        weights=weights,
        notes=(f"the judge's verdict in {path} differs on {differ} labels: that of the run counts",) if differ else (),
    )


def _verdicts(rows: LabelRows, scored: Graded) -> Floats:
    """What the metric says of each labelled candidate, by case and place; NaN where it says nothing."""
    from kofn.core.candidate_sets import NOT_GRADED

    sets = scored.sets
    out = np.full(len(rows), np.nan)
    if rows.indices is None:
        return out
    place = {name: i for i, name in enumerate(sets.case_ids.to_list())}
    for row, (name, index) in enumerate(zip(rows.ids, rows.indices, strict=True)):
        i = place.get(name)
        if i is not None and 0 <= index < int(sets.sizes[i]):
            verdict = int(sets.passes[int(sets.offsets[i]) + index])
            out[row] = np.nan if verdict == NOT_GRADED else verdict
    return out
