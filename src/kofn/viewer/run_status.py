"""The status of a run directory: finished, in progress, or stopped before its end, from its files alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kofn.generate.progress_file import read_progress
from kofn.runs.evaluation_files import EVALUATION
from kofn.runs.files import MANIFEST
from kofn.viewer.run_folder import STORE_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.generate.progress_file import ProgressRecord

JUDGING = "judging"  # the folder of a judge's store, in the directory of the run it judges
UNITS = {"run": ("cases", "candidates"), "judge": ("outputs", "verdicts"), "verify": ("executions", "")}  # counted
RESUME = "run the same command again to go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How far a run is.

    phase     the same text as long as an open page of the run need not become another page
    live      the progress that its process wrote last; None where there is none
    active    whether that process is at work
    finished  whether there are results to show, perhaps those of an earlier start
    """

    phase: str
    live: ProgressRecord | None
    active: bool
    finished: bool

    @property
    def label(self) -> str:
        """What is being done, in a word or two."""
        if not self.active or self.live is None:
            return "Finished" if self.finished else "Stopped"
        if self.live.kind in ("judge", "verify"):
            return {"judge": "Being judged", "verify": "Being verified"}[self.live.kind]
        return "Being run again" if self.finished else "Running"

    @property
    def detail(self) -> str:
        """How far it is, or why it stopped and what to do then."""
        live = self.live
        if live is None:
            return f"not finished: {RESUME}"
        if self.active and live.state == "running":
            unit, _ = UNITS.get(live.kind, UNITS["run"])
            return f"{live.cases_done:,} of {live.cases_total:,} {unit}"
        if self.active:
            return "scoring"
        if live.state == "done":
            return f"its results are not there: {RESUME}"
        return live.summary if RESUME in live.summary else f"{live.summary}: {RESUME}"


def read_status(path: Path) -> RunStatus:
    """The status of a run now."""
    written = _modified(results_directory(path) / MANIFEST)
    own = read_progress(path)
    for live in (own, read_progress(path / JUDGING)):
        if live is not None and _is_active(live, written):
            results = written is not None and path == results_directory(path)
            return RunStatus(phase=f"going {live.pid} {live.started}", live=live, active=True, finished=results)
    finished = written is not None or ((path / EVALUATION).is_file() and not (path / STORE_FILE).is_file())
    phase = f"finished {written}" if finished else f"stopped {own.started} {own.state}" if own else "stopped"
    return RunStatus(phase=phase, live=own, active=False, finished=finished)


def fraction_done(live: ProgressRecord) -> float:
    """The share of the work that is done, from 0 to 1."""
    return min(1.0, max(0.0, live.candidates_done / live.candidates_total)) if live.candidates_total > 0 else 0.0


def results_directory(path: Path) -> Path:
    """The directory that gets the results: for a judge's store, the run above it."""
    return path.parent if path.name == JUDGING else path


def _modified(path: Path) -> float | None:
    """When a file was written; None where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _is_active(live: ProgressRecord, written: float | None) -> bool:
    """Whether a process is at work. Once the results are written it is not, whatever it still does."""
    if written is not None and written >= datetime.fromisoformat(live.started).timestamp():
        return False
    # a judge marks its progress as done before it writes the results: until then it counts as scoring
    late = live.kind == "judge" and live.state == "done"
    return live.alive or (late and replace(live, state="scoring").alive)
