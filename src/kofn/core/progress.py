"""Progress on a terminal: a bar, rate, time left, tokens, money, errors and running estimates, drawn by rich.

Numbers only: text from a model or a data set, which could carry anything a terminal obeys, is never shown.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from kofn.core.document import interval_bar
from kofn.core.escape import escape_controls
from kofn.core.format import format_clock, format_count, format_money, format_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType
    from rich.text import Text

    from kofn.core.types import Estimate

INTERVAL = 0.2  # seconds between two drawings, and before the first: what is done by then is not drawn
_BAR = (6, 40)  # columns of the bar, at least and at most
_MOST_ESTIMATES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How far something is. `done`, `total` and `reused` count its units; `reused` of those done were there already.

    `unpriced` replies have no known price, and are not in `cost`. `estimates` are over the cases that are done, and
    `notes` are counts of other kinds, such as "3 failed".
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
    notes: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """New units per second: reused ones took no time and say nothing about those that are left."""
        return (self.done - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds to go; None before the first new unit, unless nothing is left."""
        left = max(0, self.total - self.done)
        if not left:
            return 0.0
        return left / self.rate if self.rate > 0 else None


@contextmanager
def show_progress(
    look: Callable[[], Snapshot], title: str, *, unit: str = "candidates", stream: TextIO | None = None
) -> Iterator[None]:
    """Draw progress on a terminal while the `with` block runs, and erase it at the end; elsewhere write nothing.

    A thread of its own draws, so that the display is fresh however long one step takes. `look` gives the numbers, and
    is called in that thread. rich is imported when something is drawn.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_draw, args=(look, title, unit, stream, ended), name="kofn display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _draw(look: Callable[[], Snapshot], title: str, unit: str, stream: TextIO, ended: threading.Event) -> None:
    """Draw until the end, from the first moment on at which the total is known."""
    while not ended.wait(INTERVAL):
        if look().total:
            break
    else:
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False)
    if console.is_dumb_terminal:  # it could not erase what it shows
        return
    # what others print to standard error meanwhile stands above; standard output may be a pipe, and is left alone
    with Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False) as live:
        while True:
            live.update(draw_progress(look(), title, unit, console), refresh=True)
            if ended.wait(INTERVAL):
                return


def draw_progress(now: Snapshot, title: str, unit: str, console: Console) -> RenderableType:
    """A line with the bar, one with what was spent and went wrong, and one per estimate; none wider than the terminal.

    What matters least is left out first where there is no room.
    """
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    plain, width = console.options.ascii_only, console.width
    head = Text(_printable(title, plain), style="bold", no_wrap=True, overflow="crop")
    counts = Text(f"{now.done:,}/{now.total:,}", no_wrap=True, overflow="crop")
    room = width - head.cell_len - counts.cell_len - 2
    for text, style in _first_parts(now, unit):
        if room >= _BAR[0] + len(text) + 2:
            counts.append(f"  {text}", style)
            room -= len(text) + 2
    first = Table.grid(padding=(0, 1))
    bar = ProgressBar(now.total, min(now.done, now.total), width=max(0, min(room, _BAR[1])), complete_style="cyan")
    first.add_row(head, bar, counts) if room >= _BAR[0] else first.add_row(counts)
    lines: list[RenderableType] = [first]
    if (second := _join(Text(), _second_parts(now), width, " - " if plain else " · ")).cell_len:
        lines.append(second)
    lines += _estimate_lines(now.estimates[:_MOST_ESTIMATES], width, plain=plain)
    return Group(*lines)


def _first_parts(now: Snapshot, unit: str) -> Iterator[tuple[str, str]]:
    """What stands behind the count, what matters most first; each with its style."""
    yield f"ETA {format_clock(now.eta)}", "bold"
    yield f"{now.rate:,.{1 if now.rate < 100 else 0}f} {unit}/s", ""
    yield f"{100 * now.done // now.total if now.total else 0}%", ""
    yield format_clock(now.seconds), "dim"


def _second_parts(now: Snapshot) -> Iterator[tuple[str, str]]:
    if now.errors:
        yield format_count(now.errors, "error"), "bold red"
    yield from ((note, "") for note in now.notes)
    if now.cost or now.unpriced:
        yield format_money(now.cost) + ("+?" if now.unpriced else "") if now.cost else "cost unknown", ""
    if now.tokens_in + now.tokens_out:
        yield f"{format_short(now.tokens_in + now.tokens_out)} tokens", ""
        yield f"{now.tokens_out / now.seconds if now.seconds > 0 else 0:,.0f} tokens/s", ""
    if now.retries:
        yield format_count(now.retries, "retry"), "yellow"
    if now.reused:
        yield f"{now.reused:,} stored before", "dim"


def _join(line: Text, parts: Iterator[tuple[str, str]], width: int, between: str) -> Text:
    """The parts for which there is room."""
    for text, style in parts:
        gap = between if line.cell_len else "  "
        if line.cell_len + len(gap) + len(text) <= width:
            line.append(gap, "dim").append(text, style)
    return line


def _estimate_lines(estimates: tuple[Estimate, ...], width: int, *, plain: bool) -> Iterator[Text]:
    from rich.text import Text

    names = [_printable(e.aggregator, plain) for e in estimates]
    room = max(map(len, names), default=0)
    for name, e in zip(names, estimates, strict=True):
        number = e.format(2)
        line = Text(f"  {name.ljust(room)}  {number}", no_wrap=True, overflow="crop")
        drawn = "" if plain else str(interval_bar(e))
        if drawn and line.cell_len + 2 + max(0, 17 - len(number)) + len(drawn) <= width:
            line.append(" " * (2 + max(0, 17 - len(number)))).append(drawn, "dim")
        line.truncate(width)
        yield line


def _printable(text: str, ascii_only: bool) -> str:
    shown = escape_controls(text)
    return shown.encode("ascii", "backslashreplace").decode() if ascii_only else shown
