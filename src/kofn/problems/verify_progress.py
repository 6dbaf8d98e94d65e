"""Progress of a verification: counts for the display on a terminal and for the progress file in its directory."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kofn.core.progress import Snapshot, show_progress
from kofn.core.types import Estimate
from kofn.generate.progress_file import ProgressWriter
from kofn.problems.case import has_passed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kofn.problems.case import CaseOutcome


@dataclass(slots=True)
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
            notes=(f"{self.passed:,} passed", f"{verified - self.passed:,} failed"),
        )


def display_progress(count: ExecutionCount) -> AbstractContextManager[None]:
    """The display of a terminal, for a `with` block."""
    return show_progress(count.snapshot, "Verifying", unit="cases")


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
