"""How far verdicts agree with the labels of a sheet so far, and the command that corrects a rate by them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from kofn.judge.calibration import CalibrationSettings, calibrate
from kofn.judge.labels import read_labels
from kofn.judge.verdict_source import picked_candidates
from kofn.stats import Confusion, weights_by_verdict
from kofn.viewer.label_files import row_key
from kofn.viewer.label_sampling import graded_metrics, verdicts_of

if TYPE_CHECKING:
    from kofn.judge.calibration import Calibration
    from kofn.viewer.label_files import LabelFile
    from kofn.viewer.run_view import RunView

N_RESAMPLES = 2_000


class SheetCalibration(NamedTuple):
    """The metric, its agreement with the labels, and the labels counted by verdict."""

    metric: str
    calibration: Calibration
    counts: Confusion


def calibrate_sheet(view: RunView, sheet: LabelFile) -> SheetCalibration | None:
    """The agreement of verdicts with the labels so far; None where there are no labels or no verdicts."""
    graded, spec = graded_metrics(view), sheet.spec
    if not graded or not sheet.done:
        return None
    metric = spec.metric if spec.metric in graded else graded[0]
    verdicts = verdicts_of(view, spec, metric)
    rows = replace(read_labels(sheet.path), judge=_verdicts_of_rows(view, sheet, verdicts), source=sheet.path.name)
    both = np.isfinite(rows.human_values) & np.isfinite(rows.judge_values)
    counts = Confusion.of(rows.human_values[both], rows.judge_values[both])
    weights = np.ones(sheet.total)
    if spec.of == "picks":
        assert view.sets is not None
        verdicts = verdicts[picked_candidates(view.sets, spec.selector)]
    # as `kofn calibrate --apply` weighs labels: by the share of their verdict among all that could be drawn
    weights[both] = weights_by_verdict(rows.judge_values[both], verdicts[np.isfinite(verdicts)])
    rows = replace(rows, weights=weights)
    return SheetCalibration(metric, calibrate(rows, None, CalibrationSettings(n_resamples=N_RESAMPLES)), counts)


def _verdicts_of_rows(view: RunView, sheet: LabelFile, verdicts: Any) -> Any:
    """The verdict on every row as it is now; NaN where it is not graded, or no longer there."""
    assert view.sets is not None
    keys = [row_key(row) for row in sheet.rows]
    known = view.scores.select("id", at=pl.int_range(pl.len()))
    at = pl.DataFrame({"id": [case for case, _ in keys]}).join(known, on="id", how="left", maintain_order="left")["at"]
    out = np.full(len(keys), np.nan)
    for i, (case, (_, index)) in enumerate(zip(at.to_list(), keys, strict=True)):
        if case is None or (index is not None and not 0 <= index < view.sets.sizes[case]):
            continue
        out[i] = verdicts[case if index is None else view.sets.offsets[case] + index]
    return out


def calibrate_commands(view: RunView, sheet: LabelFile) -> dict[str, Any]:
    """What to type when the labels are there; without verdicts first what makes a judge give them."""
    graded, spec = graded_metrics(view), sheet.spec
    words = ["kofn", "calibrate", str(sheet.path), "--apply", str(view.path)]
    metric = spec.metric if spec.metric in graded else ""
    words += ["--metric", metric] if metric and metric != graded[0] else []
    words += ["--aggregate", spec.aggregate] if spec.of == "sets" and spec.aggregate != "any_pass" else []
    words += ["--selected", "--by-selector", spec.selector] if spec.of == "picks" else []
    judge = shlex.join(["kofn", "judge", str(view.path)]) if not graded else ""
    return {"command": shlex.join(words), "judge_command": judge, "graded": bool(graded)}
