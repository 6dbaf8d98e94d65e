"""A calibration kept in the run it corrects: raw and corrected then stand side by side in every report of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.calibration.calibrate import Calibration
    from kofn.calibration.judged import Judged
    from kofn.report.run import Run


def save(directory: Path, found: Calibration, judged: Judged, labels: Path | None) -> Run:
    """Write a calibration to a run's manifest and make its page again. The judge's grades stay as they are."""
    from kofn.generate.store import held

    if not directory.is_dir():
        raise InputError(f"{directory}: a file keeps no calibration: --save is for a run directory")
    with held(directory):
        return _saved(directory, found, judged, labels)


def _saved(directory: Path, found: Calibration, judged: Judged, labels: Path | None) -> Run:
    """The same in a directory that is held."""
    from kofn.opened import again_of, opened
    from kofn.report.files import update_run

    what = opened(directory)
    judges = what.result.judges
    if judged.metric not in judges:
        known = f"its judges are {', '.join(judges)}" if judges else "no judge of kofn judge graded it"
        raise InputError(f"{directory}: --save: metric {judged.metric} is no judge's: {known}")
    if found.rates is None or found.raw is None or found.corrected is None or not found.n_labels:
        raise InputError(
            f"{directory}: --save keeps what labels say, and there are none: give labels that are verdicts"
        )
    kept = {**judges[judged.metric], "calibrated": True, "calibration": calibration_of(found, judged, labels)}
    result = replace(what.result, judges={**judges, judged.metric: kept})
    assert what.run is not None
    return update_run(what.run, again_of(result, what.options))


def calibration_of(found: Calibration, judged: Judged, labels: Path | None) -> dict[str, Any]:
    """What run.json keeps: the rates, which labels they are of, and what was corrected."""
    from kofn.calibration.told import to_dict
    from kofn.report.files import digest

    told = to_dict(found)
    names = ("of", "n_labels", "confusion", "sensitivity", "specificity", "kappa", "raw", "corrected", "warnings")
    of = f"{judged.aggregate} of {judged.metric}" if found.of == "set" and judged.aggregate else judged.metric
    corrected = told["corrected"]
    return {
        **{name: told[name] for name in names},
        "corrected": {**corrected, "clipped": bool(corrected["clipped"])},
        "labels": None if labels is None else {"path": str(labels), "sha256": digest(labels)},
        "note": f"{judged.metric}: {of}, corrected by {found.n_labels:,} labels of {found.of}s, {corrected['method']}",
    }
