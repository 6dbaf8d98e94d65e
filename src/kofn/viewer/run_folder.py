"""The folder of runs: its directories by name, and how far each run is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from kofn.generate.progress_file import read_progress
from kofn.runs.files import CHECKS, MANIFEST
from kofn.runs.index import list_entries
from kofn.runs.run_tables import EVALUATION, REPORTS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Stamp = tuple[tuple[int, int], ...]
    from kofn.generate.progress_file import ProgressRecord

PROGRESS_FILE, STORE_FILE = "progress.json", "store.sqlite"
RUN_FILES = (MANIFEST, EVALUATION, REPORTS, PROGRESS_FILE, STORE_FILE)
MAX_DEPTH = 12  # folders below the root


class NotFound(Exception):
    """There is nothing at this URL; the message says what is missing."""


class RunEntry(NamedTuple):
    """A directory that looks like a run: its name below the folder, and when its files last changed."""

    name: str
    path: Path
    stamp: tuple[tuple[str, int, int], ...]


class RunFolder:
    """A folder of runs, or a run itself."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def run(self, name: str) -> Path:
        """The run directory of a name, such as "models/first"; "" is the folder itself."""
        parts = [part for part in name.split("/") if part]
        if any(part in (".", "..") or "\0" in part for part in parts):
            raise NotFound("no such run here")
        path = self.root.joinpath(*parts)
        try:
            real = path.resolve()
            if not (self._contains(real) and path.is_dir() and any((path / file).is_file() for file in RUN_FILES)):
                raise NotFound("no such run here: it may have been moved or deleted meanwhile")
            # somebody else may have written the run: a link in it must not lead a page to other files of this machine
            if any(e.is_symlink() and not self._contains((path / e.name).resolve()) for e in list_entries(path)):
                raise NotFound("a file of this run is a link that leads out of the folder: it is not opened")
        except OSError as problem:
            raise NotFound(f"cannot be read: {problem.strerror}") from None
        return path

    def _contains(self, real: Path) -> bool:
        return real == self.root or self.root in real.parents

    def runs(self) -> Iterator[RunEntry]:
        """Every directory at or below the folder that holds a file of a run, in order of name.

        Links are not followed: they may lead out of the folder, or round in a circle. Runs are not searched for runs.
        """
        pending = [(self.root, "", 0)]
        while pending:
            path, name, depth = pending.pop()
            entries = list_entries(path)
            known = [e for e in entries if e.name in (*RUN_FILES, CHECKS) and _fits(e.is_file)]
            # a check alone is no run
            stamp = tuple(map(_file_stamp, known)) if any(e.name != CHECKS for e in known) else ()
            if stamp:
                yield RunEntry(name, path, stamp)
            # `kofn verify` writes its progress file above the runs that it makes: such a folder is searched too
            if depth < MAX_DEPTH and all(file == PROGRESS_FILE for file, _, _ in stamp):
                below = [e for e in entries if not e.name.startswith(".") and _fits(e.is_dir)]
                pending += [(path / e.name, f"{name}/{e.name}" if name else e.name, depth + 1) for e in below]


def run_stamp(run: Path, *more: str) -> Stamp:
    """When the files of a run were written, and `more` files of it; (0, 0) for a missing one."""
    stamps = []
    for name in (MANIFEST, EVALUATION, REPORTS, *more):
        try:
            stat = (run / name).stat()
            stamps.append((stat.st_mtime_ns, stat.st_size))
        except FileNotFoundError:
            stamps.append((0, 0))
    return tuple(stamps)


def _fits(is_kind: Callable[..., bool]) -> bool:
    try:
        return is_kind(follow_symlinks=False)
    except OSError:
        return False


def _file_stamp(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        stat = entry.stat(follow_symlinks=False)
        return entry.name, stat.st_mtime_ns, stat.st_size
    except OSError:
        return entry.name, 0, 0


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
        other = "Being run again" if self.finished else "Running"
        return {"judge": "Being judged", "verify": "Being verified"}.get(self.live.kind, other)

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
    # a judge's store has its results in the run above it
    results_directory = path.parent if path.name == JUDGING else path
    try:
        written: float | None = (results_directory / MANIFEST).stat().st_mtime
    except OSError:
        written = None
    own = read_progress(path)
    for live in (own, read_progress(path / JUDGING)):
        if live is not None and _is_active(live, written):
            results = written is not None and path == results_directory
            return RunStatus(phase=f"going {live.pid} {live.started}", live=live, active=True, finished=results)
    finished = written is not None or ((path / EVALUATION).is_file() and not (path / STORE_FILE).is_file())
    phase = f"finished {written}" if finished else f"stopped {own.started} {own.state}" if own else "stopped"
    return RunStatus(phase=phase, live=own, active=False, finished=finished)


def fraction_done(live: ProgressRecord) -> float:
    """The share of the work that is done, from 0 to 1."""
    return min(1.0, max(0.0, live.candidates_done / live.candidates_total)) if live.candidates_total > 0 else 0.0


def _is_active(live: ProgressRecord, written: float | None) -> bool:
    """Whether a process is at work. Once the results are written it is not, whatever it still does."""
    if written is not None and written >= datetime.fromisoformat(live.started).timestamp():
        return False
    # a judge marks its progress as done before it writes the results: until then it counts as scoring
    late = live.kind == "judge" and live.state == "done"
    return live.alive or (late and replace(live, state="scoring").alive)
