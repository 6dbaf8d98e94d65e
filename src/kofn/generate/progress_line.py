"""The progress line of a run on a terminal, rewritten in place, and how it formats counts, times and money.

The line holds counts, rates, money and running estimates. It never holds text from a model or a dataset, which could
carry anything a terminal obeys.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

from kofn.core.format import format_clock, format_count, format_money, format_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.core.types import Estimate
    from kofn.generate.calls import CallTally

INTERVAL = 0.2  # seconds between two updates of the line
_BAR_LEAST, _BAR_MOST = 6, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How far a run is. `done`, `total` and `reused` count candidates; `reused` of those done were there already.

    `unpriced` replies have no known price, and are not in `cost`. `estimates` are over the cases that are done.
    """

    done: int
    total: int
    seconds: float
    reused: int = 0
    cases_done: int = 0
    cases_total: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    errors: int = 0
    retries: int = 0
    estimates: tuple[Estimate, ...] = ()

    @property
    def rate(self) -> float:
        """New candidates per second: reused ones took no time and say nothing about those that are left."""
        return (self.done - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds to go; None before the first new candidate, unless nothing is left."""
        left = max(0, self.total - self.done)
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0 else None


def format_line(snapshot: Snapshot, width: int = 80) -> str:
    """The line, at most `width` characters: what matters least is left out first, the bar takes what is left over.

    >>> now = Snapshot(done=25, total=100, seconds=10, reused=5, tokens_out=900, tokens_in=600, cost=0.0123, errors=1)
    >>> format_line(now, 72)
    '[###---------] 25/100 2.0/s ETA 0:38 90 tok/s 1.5k tok $0.0123 1 error'
    >>> format_line(now, 24)
    '25/100 2.0/s ETA 0:38'
    >>> from kofn.core.types import Estimate
    >>> half = Estimate(aggregator="mean", point=0.5, low=0.4, high=0.6, level=0.95, n=2, n_missing=0, method="t")
    >>> format_line(Snapshot(done=2, total=4, seconds=1, estimates=(half,)), 70)
    '[######------] 2/4 2.0/s ETA 0:01 0 tok/s mean 0.50 [0.40, 0.60]'
    """
    count, *rest = _parts(snapshot)
    line = count
    for part in rest:
        if len(line) + 1 + len(part) <= width:
            line = f"{line} {part}"
    room = width - len(line) - 3
    if room >= _BAR_LEAST and snapshot.total:
        return f"{bar(snapshot.done / snapshot.total, min(room, _BAR_MOST))} {line}"
    return line[:width]


def _parts(now: Snapshot) -> list[str]:
    """The parts of a line, what matters most first."""
    parts = [f"{now.done}/{now.total}", f"{now.rate:.1f}/s", f"ETA {format_clock(now.eta)}"]
    parts.append(f"{now.tokens_out / now.seconds if now.seconds > 0 else 0:.0f} tok/s")
    if now.tokens_in + now.tokens_out:
        parts.append(f"{format_short(now.tokens_in + now.tokens_out)} tok")
    if now.cost:
        parts.append(format_money(now.cost) + ("+?" if now.unpriced else ""))
    parts += [format_count(n, word) for n, word in ((now.errors, "error"), (now.retries, "retry")) if n]
    return parts + [f"{e.aggregator} {e.format(2)}" for e in now.estimates]


def bar(share: float, cells: int) -> str:
    """A share drawn in so many characters.

    >>> bar(0.5, 4)
    '[##--]'
    """
    full = int(min(1.0, share) * cells)
    return f"[{'#' * full}{'-' * (cells - full)}]"


def snapshot_of(
    tally: CallTally,
    cases: int,
    candidates: int,
    seconds: float,
    *,
    stages: int = 1,
    estimates: tuple[Estimate, ...] = (),
) -> Snapshot:
    """A tally as a snapshot of a run of so many cases and candidates; a candidate that was asked twice counts once."""
    done = min(tally.candidates, candidates)
    return Snapshot(
        done=done,
        total=candidates,
        seconds=seconds,
        reused=min(done, tally.reused // stages),
        cases_done=min(tally.cases, cases),
        cases_total=cases,
        tokens_in=tally.tokens_in,
        tokens_out=tally.tokens_out,
        cost=tally.cost,
        unpriced=tally.unpriced,
        errors=tally.errors,
        retries=tally.retries,
        estimates=estimates,
    )


@dataclass(slots=True)
class ProgressLine:
    """Writes the line of a run to a terminal, at most five times a second; to anything else it writes nothing.

    Run `watch` beside the runner, and leave the `with` block to erase the line. `estimates` are whatever is known.
    """

    tally: CallTally
    total_cases: int
    total_candidates: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    stages: int = 1
    estimates: tuple[Estimate, ...] = ()
    _began: float = 0.0
    _last: float = -math.inf
    _width: int = 0

    def __post_init__(self) -> None:
        self._began = self.clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    async def watch(self) -> None:
        """Keep the line fresh until cancelled."""
        import asyncio

        while self.stream.isatty():
            self.update()
            await asyncio.sleep(INTERVAL)

    def update(self) -> None:
        """Write the line, unless the last one is too fresh or the stream is not a terminal."""
        now = self.clock()
        if now - self._last < INTERVAL or not self.stream.isatty():
            return
        self._last = now
        line = format_line(self.snapshot(now), shutil.get_terminal_size().columns - 1)
        self.stream.write("\r" + line.ljust(self._width))  # padded, to cover what a longer line left
        self.stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """Take the line away, so that what is printed next stands alone."""
        if self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self.stream.flush()
            self._width = 0

    def snapshot(self, now: float | None = None) -> Snapshot:
        """The numbers of this moment."""
        seconds = (self.clock() if now is None else now) - self._began
        return snapshot_of(
            self.tally,
            self.total_cases,
            self.total_candidates,
            seconds,
            stages=self.stages,
            estimates=self.estimates,
        )
