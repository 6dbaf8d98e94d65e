"""How a run directory stands: finished, going on, or stopped before its end. Told from its files alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kofn.generate.live import read_live
from kofn.report.evaluation import EVALUATION
from kofn.report.files import MANIFEST
from kofn.web.folder import STORE

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.generate.live import Live

JUDGING = "judging"  # where a judge's store is, in the directory of the run it judges
UNITS = {"run": ("cases", "candidates"), "judge": ("outputs", "verdicts"), "verify": ("executions", "")}  # counted
AGAIN = "run the same command again to go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`phase` is the same word as long as a page of the run need not be another one.

    live      what its process says of itself, or said; None where none does
    going     whether that process is at it
    finished  whether there are results to show, be they of before
    """

    phase: str
    live: Live | None
    going: bool
    finished: bool

    @property
    def word(self) -> str:
        """What is being done, in a word or two."""
        if not self.going or self.live is None:
            return "Finished" if self.finished else "Stopped"
        if self.live.kind in ("judge", "verify"):
            return {"judge": "Being judged", "verify": "Being verified"}[self.live.kind]
        return "Being run again" if self.finished else "Running"

    @property
    def why(self) -> str:
        """How far it is, or why it stopped and what to do then."""
        live = self.live
        if live is None:
            return f"not finished: {AGAIN}"
        if self.going and live.state == "running":
            unit, _ = UNITS.get(live.kind, UNITS["run"])
            return f"{live.cases_done:,} of {live.cases_total:,} {unit}"
        if self.going:
            return "scoring"
        if live.state == "done":
            return f"its results are not there: {AGAIN}"
        return live.told if AGAIN in live.told else f"{live.told}: {AGAIN}"


def standing(path: Path) -> Standing:
    """How a run stands now."""
    written = _written(home(path) / MANIFEST)
    own = read_live(path)
    for live in (own, read_live(path / JUDGING)):
        if live is not None and _is_going(live, written):
            whole = written is not None and path == home(path)
            return Standing(phase=f"going {live.pid} {live.started}", live=live, going=True, finished=whole)
    finished = written is not None or ((path / EVALUATION).is_file() and not (path / STORE).is_file())
    phase = f"finished {written}" if finished else f"stopped {own.started} {own.state}" if own else "stopped"
    return Standing(phase=phase, live=own, going=False, finished=finished)


def share(live: Live) -> float:
    """How much of it is done, from 0 to 1."""
    return min(1.0, max(0.0, live.candidates_done / live.candidates_total)) if live.candidates_total > 0 else 0.0


def home(path: Path) -> Path:
    """The directory that gets the results: of a judge's store, the one above it."""
    return path.parent if path.name == JUDGING else path


def _written(path: Path) -> float | None:
    """When a file was written; None where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _is_going(live: Live, written: float | None) -> bool:
    """Whether a process is at it. Once the results are written it is not, whatever it still does.

    A judge says that it is done before it writes them.
    """
    if written is not None and written >= datetime.fromisoformat(live.started).timestamp():
        return False
    late = live.kind == "judge" and live.state == "done"
    return live.alive or (late and replace(live, state="scoring").alive)
