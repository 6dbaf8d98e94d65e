"""What every benchmark returns: rows for the page, with the physical limit of the work beside kofn and its peer."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HEADINGS = ("work", "kofn", "peer", "theirs", "ratio", "physical limit", "its cost", "kofn / limit")
LEFT_OUT: list[str] = []  # peers that are not there, a line each
FAILED: list[str] = []  # peers that are there and could not do the work


class PeerFailed(Exception):
    """A peer that is there and cannot do its work."""


class Limit(NamedTuple):
    """What nobody can do the work without, and what that costs, in the unit of its row."""

    what: str
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: the work, what kofn took, who else did it and what they took, and the limit.

    `scaled`: the peer did a part of the work, and its cost was multiplied. Of a rate ("tokens/s") more is better.

    >>> Row(work="a", kofn=2.0, peer="b", theirs=3.0, limit=Limit("c", 0.5)).cells()
    ('a', '2.00 s', 'b', '3.00 s', '1.5x', 'c', '500 ms', '4.0x')
    """

    work: str
    kofn: float
    limit: Limit
    peer: str = "-"
    theirs: float | None = None
    unit: str = "s"
    scaled: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times what kofn takes the peer takes."""
        if self.theirs is None:
            return None
        return self.kofn / self.theirs if self.unit.endswith("/s") else self.theirs / self.kofn

    @property
    def factor(self) -> float:
        """How many times the limit kofn takes."""
        return self.limit.cost / self.kofn if self.unit.endswith("/s") else self.kofn / self.limit.cost

    def cells(self) -> tuple[str, ...]:
        theirs = "-" if self.theirs is None else ("~" if self.scaled else "") + amount(self.theirs, self.unit)
        ratio = "-" if self.ratio is None else times(self.ratio)
        least = amount(self.limit.cost, self.unit)
        own = amount(self.kofn, self.unit)
        return self.work, own, self.peer, theirs, ratio, self.limit.what, least, times(self.factor)


def amount(x: float, unit: str) -> str:
    """A cost with its unit; seconds in a sensible one.

    >>> amount(0.00123, "s"), amount(12.3, "s"), amount(1234.5, "MB"), amount(2e-6, "s")
    ('1.23 ms', '12.3 s', '1,234 MB', '2 µs')
    """
    if unit != "s":
        return f"{x:,.0f} {unit}"
    if x >= 10:
        return f"{x:,.1f} s"
    return f"{x:.2f} s" if x >= 1 else f"{1e3 * x:.3g} ms" if x >= 1e-4 else f"{1e6 * x:.3g} µs"


def times(x: float) -> str:
    """A factor with two or three digits.

    >>> times(0.0012), times(0.123), times(1.52), times(23.4), times(123456)
    ('0.0012x', '0.12x', '1.5x', '23x', '123,456x')
    """
    return f"{x:.2g}x" if x < 0.1 else f"{x:.2f}x" if x < 1.2 else f"{x:.1f}x" if x < 10 else f"{x:,.0f}x"


def show(row: Row) -> Row:
    """Print a row as it is found."""
    work, kofn, peer, theirs, ratio, what, least, factor = row.cells()
    beside = "" if row.theirs is None else f", {peer} {theirs}: {ratio}"
    print(f"{work}: kofn {kofn}{beside}; {what} {least}: {factor}", flush=True)
    return row


def left_out(line: str) -> None:
    """Say that a peer is not there; the benchmark goes on without it."""
    if line not in LEFT_OUT:
        LEFT_OUT.append(line)
        print(f"left out: {line}", file=sys.stderr, flush=True)


def failed(line: str) -> None:
    """Say that a peer, or a part, could not do its work; the run goes on and its exit code says so."""
    FAILED.append(line)
    print(f"failed: {line}", file=sys.stderr, flush=True)


class Run(NamedTuple):
    """The shortest of several runs, and what the last one gave."""

    seconds: float
    value: Any


def timed(work: Callable[[], Any]) -> Run:
    start = time.perf_counter()
    value = work()
    return Run(time.perf_counter() - start, value)


def race(runners: Mapping[str, Any], rounds: int = 3) -> dict[str, Run]:
    """The best of several rounds of each, in turn, so that all see the same machine.

    A runner is a callable, or a peer with a method `round` that times itself in its own process; None is not there.
    """
    found: dict[str, Run] = {}
    running = {name: runner for name, runner in runners.items() if runner is not None}
    for _ in range(rounds):
        for name, runner in list(running.items()):
            try:
                took, value = runner.round() if hasattr(runner, "round") else timed(runner)
            except PeerFailed as problem:
                failed(f"{name}: {problem}")
                del running[name]
                found.pop(name, None)
                continue
            found[name] = Run(min(took, found[name].seconds if name in found else took), value)
    return found


def fastest(work: Callable[[], object], budget: float = 0.5) -> float:
    """The shortest of the runs that fit into some seconds: for work of micro- and milliseconds."""
    seen: list[float] = []
    while not seen or sum(seen) < budget:
        seen.append(timed(work).seconds)
    return min(seen)


def one_pass(n_bytes: int, what: str = "one pass over the bytes in memory") -> Limit:
    """Adding up as many bytes as the work has to look at, by numpy: what memory allows one core."""
    import numpy as np

    there = np.ones(max(1, n_bytes // 8), dtype=np.int64)
    return Limit(what, fastest(there.sum, 0.1))
