"""Keeps a calibration in the run that it corrects: reports of the run then show raw and corrected side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.judge.calibration_text import to_dict
from kofn.render.run_directory import update_run
from kofn.runs.files import digest
from kofn.runs.load import load_graded, reestimate
from kofn.runs.staging import lock_directory

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.judge.calibration import Calibration
    from kofn.judge.verdict_source import VerdictRows
    from kofn.runs.record import Run


def save_calibration(directory: Path, calibration: Calibration, verdicts: VerdictRows, labels: Path | None) -> Run:
    """Write a calibration to a run's manifest and make its page again. The judge's grades stay as they are."""
    if not directory.is_dir():
        raise InputError(f"{directory}: a file keeps no calibration: --save is for a run directory")
    with lock_directory(directory):
        return _save(directory, calibration, verdicts, labels)


def _save(directory: Path, calibration: Calibration, verdicts: VerdictRows, labels: Path | None) -> Run:
    """The same in a directory that is locked."""
    what = load_graded(directory)
    judges = what.result.judges
    if verdicts.metric not in judges:
        known = f"its judges are {', '.join(judges)}" if judges else "no judge of kofn judge graded it"
        raise InputError(f"{directory}: --save: metric {verdicts.metric} is no judge's: {known}")
    if (
        calibration.rates is None
        or calibration.raw is None
        or calibration.corrected is None
        or not calibration.n_labels
    ):
        raise InputError(
            f"{directory}: --save keeps what labels say, and there are none: give labels that are verdicts"
        )
    kept = {
        **judges[verdicts.metric],
        "calibrated": True,
        "calibration": calibration_entry(calibration, verdicts, labels),
    }
    result = replace(what.result, judges={**judges, verdicts.metric: kept})
    assert what.run is not None
    return update_run(what.run, reestimate(result, what.options))


def calibration_entry(calibration: Calibration, verdicts: VerdictRows, labels: Path | None) -> dict[str, Any]:
    """What run.json keeps: the rates, which labels they are of, and what was corrected."""
    entry = to_dict(calibration)
    names = (
        "of",
        "n_labels",
        "confusion",
        "sensitivity",
        "specificity",
        "kappa",
        "raw",
        "corrected",
        "warnings",
        "coded_warnings",
    )
    of = (
        f"{verdicts.aggregate} of {verdicts.metric}"
        if calibration.of == "set" and verdicts.aggregate
        else verdicts.metric
    )
    corrected, labelled = entry["corrected"], f"{calibration.n_labels:,} labels of {calibration.of}s"
    return {
        **{name: entry[name] for name in names},
        "corrected": {**corrected, "clipped": bool(corrected["clipped"])},
        "labels": None if labels is None else {"path": str(labels), "sha256": digest(labels)},
        "note": f"{verdicts.metric}: {of}, corrected by {labelled}, {corrected['method']}",
    }
