"""How far a verification is: one line on a terminal, rewritten in place, and nothing anywhere else."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

from kofn.checkpoint.work import passed
from kofn.generate.progress import INTERVAL, bar, clock_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.checkpoint.work import Done


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
class Progress:
    """Writes the line at most five times a second, to a terminal; leaving the `with` block erases it."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _total: int = 0
    _done: int = 0
    _passed: int = 0
    _broken: int = 0
    _before: int = 0
    _began: float = 0.0
    _last: float = 0.0
    _shown: int = 0

    def on_total(self, total: int, finished: int, n_passed: int) -> None:
        """There are so many; so many are finished already, and so many of those passed."""
        self._total, self._done, self._before, self._passed = total, finished, finished, n_passed
        self._began = self._last = self.clock()

    def on_case(self, done: Done) -> None:
        """One more."""
        self._done += 1
        self._passed += passed(done)
        self._broken += done.broken is not None
        now = self.clock()
        if now - self._last < INTERVAL or not self.stream.isatty():
            return
        self._last = now
        rate = (self._done - self._before) / max(1e-9, now - self._began)
        width = shutil.get_terminal_size().columns - 1
        said = line(self._done, self._total, rate, self._passed, broken=self._broken, width=width)
        self.stream.write("\r" + said.ljust(self._shown))
        self.stream.flush()
        self._shown = len(said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self.stream.flush()
