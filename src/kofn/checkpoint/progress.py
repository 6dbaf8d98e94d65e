"""How far a verification is: one line on a terminal, rewritten in place, and a file for whoever looks from outside."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

from kofn.checkpoint.work import passed
from kofn.generate.progress import INTERVAL, Snapshot, bar, clock_time
from kofn.generate.pulse import Pulse
from kofn.types import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kofn.checkpoint.work import Done

    OnTotal = Callable[[int, int, int], None]
    OnCase = Callable[[Done], None]


def line(done: int, total: int, rate: float, n_passed: int, *, broken: int = 0, width: int = 80) -> str:
    """The line, at most `width` characters.

    >>> line(30, 120, 45.0, 28, width=72)
    '[###---------] 30/120 cases 45.0/s ETA 0:02 28 passed 2 failed'
    """
    eta = clock_time((total - done) / rate if rate > 0 else None)
    said = f"{done}/{total} cases {rate:.1f}/s ETA {eta} {n_passed} passed {done - n_passed - broken} failed"
    said += f" {broken} broken" if broken else ""
    return f"{bar(done / total, 12)} {said}" if total and len(said) + 15 <= width else said[:width]


@dataclass(slots=True)
class Count:
    """How many executions there are, and what came of those that are done; `before` were there already.

    `then_total` and `then_case` are told the same, after it.
    """

    clock: Callable[[], float] = time.monotonic
    then_total: OnTotal | None = None
    then_case: OnCase | None = None
    total: int = 0
    done: int = 0
    before: int = 0
    passed: int = 0
    broken: int = 0
    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.clock()

    def on_total(self, total: int, finished: int, n_passed: int) -> None:
        """There are so many; so many are finished already, and so many of those passed."""
        self.total, self.done, self.before, self.passed = total, finished, finished, n_passed
        self.began = self.clock()
        if self.then_total is not None:
            self.then_total(total, finished, n_passed)

    def on_case(self, done: Done) -> None:
        """One more."""
        self.done += 1
        self.passed += passed(done)
        self.broken += done.broken is not None
        if self.then_case is not None:
            self.then_case(done)

    @property
    def seconds(self) -> float:
        return self.clock() - self.began

    def snapshot(self) -> Snapshot:
        """As it is told of any work. The share that passed has no interval: these cases are all there are."""
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
def telling(out: Path | None, count: Count, task: str, programs: Sequence[str], *, keep: bool) -> Iterator[None]:
    """Tell whoever looks from outside, where there is a directory, of `programs` that are run; `keep` as of `Pulse`."""
    if out is None:
        yield
        return
    named = programs[0] if len(programs) == 1 else f"{len(programs):,} submissions"
    with Pulse(out, count.snapshot, kind="verify", task=task, model=named, keep=keep):
        yield


@dataclass(slots=True)
class Progress:
    """Writes the line at most five times a second, to a terminal; leaving the `with` block erases it."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    count: Count = field(init=False)
    _last: float = 0.0
    _shown: int = 0

    def __post_init__(self) -> None:
        self.count = Count(self.clock)

    def on_total(self, total: int, finished: int, n_passed: int) -> None:
        """As of `Count`."""
        self.count.on_total(total, finished, n_passed)
        self._last = self.count.began

    def on_case(self, done: Done) -> None:
        """One more."""
        count = self.count
        count.on_case(done)
        now = self.clock()
        if now - self._last < INTERVAL or not self.stream.isatty():
            return
        self._last = now
        rate = (count.done - count.before) / max(1e-9, now - count.began)
        width = shutil.get_terminal_size().columns - 1
        said = line(count.done, count.total, rate, count.passed, broken=count.broken, width=width)
        self.stream.write("\r" + said.ljust(self._shown))
        self.stream.flush()
        self._shown = len(said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self.stream.flush()
