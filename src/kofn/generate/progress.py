"""How far a run is: one line on a terminal, rewritten in place, and nothing anywhere else.

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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.generate.calls import Tally

INTERVAL = 0.2  # seconds between two lines
_BAR_LEAST, _BAR_MOST = 6, 12


@dataclass(slots=True)
class Running:
    """Mean and spread of values that come one by one (Welford)."""

    n: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self._squares += step * (value - self.mean)

    @property
    def margin(self) -> float | None:
        """Half of a normal 95 % interval; None before there are two values."""
        return 1.96 * math.sqrt(self._squares / (self.n - 1) / self.n) if self.n > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a line is made of. `reused` of the `done` candidates were in the store already.

    `unpriced` replies have no known price, and are not in `cost`. `estimates` are (name, mean over cases, half of its
    interval).
    """

    done: int
    total: int
    seconds: float
    reused: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    errors: int = 0
    retries: int = 0
    estimates: tuple[tuple[str, float, float | None], ...] = ()

    @property
    def rate(self) -> float:
        """New candidates a second: what was reused took no time and says nothing about what is left."""
        return (self.done - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds to go; None before the first new candidate, unless nothing is left."""
        left = max(0, self.total - self.done)
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0 else None


def line(snapshot: Snapshot, width: int = 80) -> str:
    """The line, at most `width` characters: what matters least is left out first, the bar takes what is left over.

    >>> now = Snapshot(done=25, total=100, seconds=10, reused=5, tokens_out=900, tokens_in=600, cost=0.0123, errors=1)
    >>> line(now, 72)
    '[###---------] 25/100 2.0/s ETA 0:38 90 tok/s 1.5k tok $0.0123 1 error'
    >>> line(now, 24)
    '25/100 2.0/s ETA 0:38'
    >>> line(Snapshot(done=2, total=4, seconds=1, estimates=(("mean", 0.5, 0.1),)), 60)
    '[######------] 2/4 2.0/s ETA 0:01 0 tok/s mean 0.50±0.10'
    """
    count, *rest = _parts(snapshot)
    said = count
    for part in rest:
        if len(said) + 1 + len(part) <= width:
            said = f"{said} {part}"
    room = width - len(said) - 3
    if room >= _BAR_LEAST and snapshot.total:
        return f"{bar(snapshot.done / snapshot.total, min(room, _BAR_MOST))} {said}"
    return said[:width]


def _parts(now: Snapshot) -> list[str]:
    """The parts of a line, what matters most first."""
    parts = [f"{now.done}/{now.total}", f"{now.rate:.1f}/s", f"ETA {clock_time(now.eta)}"]
    parts.append(f"{now.tokens_out / now.seconds if now.seconds > 0 else 0:.0f} tok/s")
    if now.tokens_in + now.tokens_out:
        parts.append(f"{short(now.tokens_in + now.tokens_out)} tok")
    if now.cost:
        parts.append(dollars(now.cost) + ("+?" if now.unpriced else ""))
    parts += [_count(n, word) for n, word in ((now.errors, "error"), (now.retries, "retry")) if n]
    parts += [f"{name} {mean:.2f}" + ("" if half is None else f"±{half:.2f}") for name, mean, half in now.estimates]
    return parts


def _count(n: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{n} {word if n == 1 else plural}"


def bar(share: float, cells: int) -> str:
    """A share drawn in so many characters.

    >>> bar(0.5, 4)
    '[##--]'
    """
    full = int(min(1.0, share) * cells)
    return f"[{'#' * full}{'-' * (cells - full)}]"


def clock_time(seconds: float | None) -> str:
    """A length of time as people read it.

    >>> clock_time(None), clock_time(7), clock_time(3675), clock_time(200_000)
    ('?', '0:07', '1:01:15', '2d 07h')
    """
    if seconds is None:
        return "?"
    whole = math.ceil(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400}d {whole % 86_400 // 3600:02d}h"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def short(number: float) -> str:
    """A count in four characters or so.

    >>> short(950), short(1500), short(12_300_000)
    ('950', '1.5k', '12M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 10 * size else f"{number / size:.0f}{unit}"
    return f"{number:.0f}"


def dollars(amount: float) -> str:
    """Money with the digits that matter.

    >>> dollars(0), dollars(0.00042), dollars(0.0123), dollars(12.345)
    ('$0', '$0.00042', '$0.0123', '$12.35')
    """
    if amount == 0:
        return "$0"
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}" if amount >= 0.001 else f"${amount:.2g}"


@dataclass(slots=True)
class Progress:
    """Writes the line of a run to a terminal, at most five times a second; to anything else it writes nothing.

    Hand `on_case` to the runner, run `watch` beside it, and leave the `with` block to erase the line.
    """

    tally: Tally
    total_cases: int
    total_candidates: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    stages: int = 1
    _running: dict[str, Running] = field(default_factory=dict)
    _began: float = 0.0
    _last: float = -math.inf
    _shown: int = 0

    def __post_init__(self) -> None:
        self._began = self.clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def on_case(self, values: Mapping[str, float | None]) -> None:
        """A case is done: its value under each aggregator; None (undefined, not graded) is left out."""
        for name, value in values.items():
            if value is not None and not math.isnan(value):
                self._running.setdefault(name, Running()).add(value)
        self.update()

    async def watch(self) -> None:
        """Keep the line fresh until cancelled."""
        import asyncio

        while self.stream.isatty():
            self.update()
            await asyncio.sleep(INTERVAL)

    def update(self) -> None:
        """Write the line, unless the last one is too fresh or nobody looks at a terminal."""
        now = self.clock()
        if now - self._last < INTERVAL or not self.stream.isatty():
            return
        self._last = now
        said = line(self.snapshot(now), shutil.get_terminal_size().columns - 1)
        if "utf" not in (self.stream.encoding or "utf-8").lower():
            said = said.replace("±", "~")
        self.stream.write("\r" + said.ljust(self._shown))
        self.stream.flush()
        self._shown = len(said)

    def close(self) -> None:
        """Take the line away, so that what is printed next stands alone."""
        if self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self.stream.flush()
            self._shown = 0

    def snapshot(self, now: float) -> Snapshot:
        """The numbers of this moment."""
        tally = self.tally
        return Snapshot(
            done=tally.candidates,
            total=self.total_candidates,
            seconds=now - self._began,
            reused=min(tally.candidates, tally.reused // self.stages),
            tokens_in=tally.tokens_in,
            tokens_out=tally.tokens_out,
            cost=tally.cost,
            unpriced=tally.unpriced,
            errors=tally.errors,
            retries=tally.retries,
            estimates=tuple((name, run.mean, run.margin) for name, run in self._running.items()),
        )
