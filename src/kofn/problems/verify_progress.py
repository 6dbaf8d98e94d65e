"""Progress of a verification: one line on a terminal, rewritten in place, and a progress file in its directory."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

from kofn.core.format import format_clock
from kofn.core.types import Estimate
from kofn.generate.progress_file import ProgressWriter
from kofn.generate.progress_line import INTERVAL, Snapshot, bar
from kofn.problems.case import has_passed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kofn.problems.case import CaseOutcome


def format_line(done: int, total: int, rate: float, n_passed: int, *, broken: int = 0, width: int = 80) -> str:
    """The line, at most `width` characters.

    >>> format_line(30, 120, 45.0, 28, width=72)
    '[###---------] 30/120 cases 45.0/s ETA 0:02 28 passed 2 failed'
    """
    eta = format_clock((total - done) / rate if rate > 0 else None)
    line = f"{done}/{total} cases {rate:.1f}/s ETA {eta} {n_passed} passed {done - n_passed - broken} failed"
    line += f" {broken} broken" if broken else ""
    return f"{bar(done / total, 12)} {line}" if total and len(line) + 15 <= width else line[:width]


@dataclass
class ExecutionCount:
    """How many executions there are, and the outcomes of those that are done; `before` were finished already."""

    clock: Callable[[], float] = time.monotonic
    total: int = field(default=0, init=False)
    done: int = field(default=0, init=False)
    before: int = field(default=0, init=False)
    passed: int = field(default=0, init=False)
    broken: int = field(default=0, init=False)
    began: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def on_total(self, total: int, finished: int, n_passed: int) -> None:
        """Set how many there are, how many are finished already, and how many of those passed."""
        self.total, self.done, self.before, self.passed = total, finished, finished, n_passed
        self.began = self.clock()

    def on_case(self, outcome: CaseOutcome) -> None:
        """Count one more."""
        self.done += 1
        self.passed += has_passed(outcome)
        self.broken += outcome.harness_error is not None

    @property
    def seconds(self) -> float:
        return self.clock() - self.began

    def snapshot(self) -> Snapshot:
        """The state for the progress file. The share that passed has no interval: these cases are all there are."""
        verified = self.done - self.broken
        share = Estimate(
            aggregator="mean",
            metric="pass",
            point=self.passed / verified if verified else None,
            low=None,
            high=None,
            level=0.95,
            n=verified,
            n_missing=self.broken,
            method="none",
        )
        return Snapshot(
            done=self.done,
            total=self.total,
            seconds=self.seconds,
            reused=self.before,
            cases_done=self.done,
            cases_total=self.total,
            errors=self.broken,
            estimates=(share,) if verified else (),
        )


@contextmanager
def write_progress(
    out: Path | None, count: ExecutionCount, task: str, programs: Sequence[str], *, keep: bool
) -> Iterator[None]:
    """Keep the progress file up to date where there is a directory; `keep` as of `ProgressWriter`."""
    if out is None:
        yield
        return
    label = programs[0] if len(programs) == 1 else f"{len(programs):,} submissions"
    with ProgressWriter(out, count.snapshot, kind="verify", task=task, model=label, keep=keep):
        yield


@dataclass
class VerifyProgress(ExecutionCount):
    """Writes the line at most five times a second, to a terminal; leaving the `with` block erases it."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _last: float = 0.0
    _width: int = 0

    def on_total(self, total: int, finished: int, n_passed: int) -> None:
        """As of `ExecutionCount`."""
        super().on_total(total, finished, n_passed)
        self._last = self.began

    def on_case(self, outcome: CaseOutcome) -> None:
        """Count one more, and rewrite the line."""
        super().on_case(outcome)
        now = self.clock()
        if now - self._last < INTERVAL or not self.stream.isatty():
            return
        self._last = now
        # of this command alone: cases that were finished before took no time
        rate = (self.done - self.before) / max(1e-9, now - self.began)
        width = shutil.get_terminal_size().columns - 1
        line = format_line(self.done, self.total, rate, self.passed, broken=self.broken, width=width)
        self.stream.write("\r" + line.ljust(self._width))
        self.stream.flush()
        self._width = len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self.stream.flush()
