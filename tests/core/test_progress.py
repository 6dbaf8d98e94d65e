"""The display of progress: what it says, that it fits, that only a terminal sees it, and that nothing is left of it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.waiting import wait_until

from kofn.core.format import format_clock
from kofn.core.progress import Snapshot, draw_progress, show_progress
from kofn.core.types import Estimate
from kofn.generate.calls import CallTally
from kofn.generate.progress_file import snapshot_of


def estimate(name, point, low=None, high=None):
    return Estimate(
        aggregator=name, point=point, low=low, high=high, level=0.95, n=9, n_missing=0, method="t" if low else "none"
    )


def drawn(snapshot, width=200, *, title="Generating", unit="candidates", encoding="utf-8"):
    """The lines as a terminal of this width shows them, without colours."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(draw_progress(snapshot, title, unit, console))
    file.flush()
    return [line.rstrip() for line in file.buffer.getvalue().decode(encoding).split("\n")[:-1]]


SNAPSHOTS = st.builds(
    Snapshot,
    done=st.integers(0, 10**7),
    total=st.integers(0, 10**7),
    seconds=st.floats(0, 10**6),
    reused=st.integers(0, 10**7),
    tokens_in=st.integers(0, 10**11),
    tokens_out=st.integers(0, 10**11),
    cost=st.floats(0, 10**6),
    unpriced=st.integers(0, 10**6),
    errors=st.integers(0, 10**6),
    retries=st.integers(0, 10**6),
    estimates=st.just((estimate("mean", 0.5), estimate("any_pass", 0.9, 0.88, 0.92))),
    notes=st.just(("3 passed", "2 failed")),
)


@given(SNAPSHOTS, st.integers(20, 200))
def test_no_line_is_wider_than_the_terminal_and_none_is_broken(snapshot, width):
    lines = drawn(snapshot, width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert f"{snapshot.done:,}/{snapshot.total:,}"[:width] in lines[0]


@given(SNAPSHOTS, st.integers(20, 200))
def test_any_terminal_can_show_it(snapshot, width):
    lines = drawn(snapshot, width, title="日本", encoding="ascii")
    assert len(lines) == 4
    assert max(map(len, lines)) <= width


def test_a_wide_terminal_shows_everything():
    now = Snapshot(
        done=600,
        total=1000,
        seconds=100,
        tokens_in=1_000_000,
        tokens_out=200_000,
        cost=1.5,
        errors=2,
        retries=1,
        reused=0,
        estimates=(estimate("mean", 0.512, 0.478, 0.546), estimate("any_pass", 0.8)),
        notes=("5 skipped",),
    )
    first, second, *rest = drawn(now)
    for part in ("Generating", "600/1,000", "6.0 candidates/s", "ETA 1:07", "60%", "1:40"):
        assert part in first
    for part in ("2,000 tokens/s", "1.2M tokens", "$1.50", "2 errors", "1 retry", "5 skipped"):
        assert part in second
    assert rest[0].startswith("  mean      0.51 [0.48, 0.55]  ····")
    assert rest[1].startswith("  any_pass  0.80")


def test_a_narrow_terminal_shows_what_matters_most():
    now = Snapshot(done=25, total=100, seconds=10, tokens_out=900, cost=0.01, errors=1, retries=2)
    assert [part in drawn(now, 44)[0] for part in ("25/100", "ETA 0:30", "candidates/s")] == [True, True, False]
    assert [part in drawn(now, 20)[1] for part in ("1 error", "retries")] == [True, False]


def test_what_was_reused_does_not_make_the_rest_look_quick():
    """900 of 1000 came from the store at once; the ten new ones took ten seconds, so ninety are left to wait for."""
    assert Snapshot(done=910, total=1000, seconds=10, reused=900).eta == 90
    assert Snapshot(done=900, total=1000, seconds=10, reused=900).eta is None
    assert "ETA ?" in drawn(Snapshot(done=900, total=1000, seconds=10, reused=900))[0]
    assert Snapshot(done=1000, total=1000, seconds=1, reused=1000).eta == 0


def test_money_that_is_not_known_is_not_shown_as_nothing():
    assert "cost unknown" in drawn(Snapshot(done=1, total=2, seconds=1, unpriced=1))[1]
    assert "$0.5000+?" in drawn(Snapshot(done=2, total=2, seconds=1, cost=0.5, unpriced=1, errors=1))[1]
    assert "$" not in "".join(drawn(Snapshot(done=1, total=2, seconds=1)))


def test_a_title_cannot_move_the_cursor_and_is_no_markup_of_rich():
    (line,) = drawn(Snapshot(done=1, total=2, seconds=1), title="[red]a\x1b[2J\n[/red]")
    assert r"[red]a\x1b[2J\n[/red]" in line


def test_only_a_terminal_sees_anything_and_rich_is_not_imported_elsewhere(tmp_path):
    code = (
        "import sys, time\nfrom kofn.core.progress import *\n"
        "with show_progress(lambda: Snapshot(done=1, total=2, seconds=1), 'Scoring'): time.sleep(0.5)\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


class Screen:
    """A terminal of a few lines: what a program wrote there, and whether the cursor shows."""

    def __init__(self):
        self.main, self.side = os.openpty()
        self.lines, self.row, self.column, self.cursor, self.seen = [""], 0, 0, True, ""

    def read(self):
        os.set_blocking(self.main, False)
        try:
            while data := os.read(self.main, 65536).decode():
                self.feed(data)
        except (BlockingIOError, OSError):
            return

    def feed(self, data):
        self.seen += data
        for code, end, sign in re.findall(r"\x1b\[([?\d;]*)([A-Za-z])|([^\x1b])", data):
            if end == "A":
                self.row = max(0, self.row - int(code or 1))
            elif end == "K":
                self.lines[self.row] = "" if code == "2" else self.lines[self.row][: self.column]
            elif end in "hl" and code == "?25" and end:
                self.cursor = end == "h"
            elif sign == "\r":
                self.column = 0
            elif sign == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif sign:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + sign + line[self.column + 1 :]
                self.column += 1

    @property
    def shown(self):
        self.read()
        return "\n".join(self.lines).rstrip()

    def close(self):
        os.close(self.main)
        os.close(self.side)


@pytest.fixture
def screen(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("LINES", "20")
    found = Screen()
    yield found
    found.close()


def test_it_is_redrawn_in_place_and_erased_at_the_end(screen):
    counts = {"done": 0, "total": 0}
    with (
        os.fdopen(os.dup(screen.side), "w", encoding="utf-8") as stream,
        show_progress(lambda: Snapshot(**counts, seconds=1), "Scoring", stream=stream),
    ):
        counts.update(done=10, total=20)
        wait_until(lambda: "10/20" in screen.shown, "the first drawing")
        assert not screen.cursor
        counts.update(done=15)
        wait_until(lambda: "15/20" in screen.shown, "the second drawing")
        assert "10/20" not in screen.shown
        assert screen.shown.count("Scoring") == 1
    assert screen.shown == ""
    assert screen.cursor


def test_what_others_print_meanwhile_stays_above_it(screen, monkeypatch):
    stream = os.fdopen(os.dup(screen.side), "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    with stream:
        with show_progress(lambda: Snapshot(done=1, total=2, seconds=1), "Scoring"):
            wait_until(lambda: "1/2" in screen.shown, "a drawing")
            print("a warning", file=sys.stderr, flush=True)  # noqa: T201 - as any library may
            wait_until(lambda: "a warning" in screen.shown, "the warning")
        assert screen.shown == "a warning"


@pytest.mark.parametrize("terminal", ["dumb", "unknown"])
def test_a_terminal_that_cannot_erase_sees_nothing(screen, monkeypatch, terminal):
    monkeypatch.setenv("TERM", terminal)
    looked = threading.Semaphore(0)

    def look():
        looked.release()
        return Snapshot(done=1, total=2, seconds=1)

    with (
        os.fdopen(os.dup(screen.side), "w", encoding="utf-8") as stream,
        show_progress(look, "Scoring", stream=stream),
    ):
        assert looked.acquire(timeout=60)
    assert screen.shown == ""


INTERRUPTED = """
import time
from kofn.core.progress import *
with show_progress(lambda: Snapshot(done=1, total=2, seconds=1), "Scoring"):
    time.sleep(600)
"""


def test_an_interrupt_leaves_a_clean_terminal(screen):
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stderr=screen.side, stdin=screen.side) as process:
        wait_until(lambda: "1/2" in screen.shown, "a drawing")
        assert not screen.cursor
        process.send_signal(signal.SIGINT)
        process.wait()
    assert "1/2" not in screen.shown
    assert screen.shown.endswith("KeyboardInterrupt")
    assert screen.cursor


def test_several_stages_count_one_candidate():
    assert snapshot_of(CallTally(candidates=5, reused=10), 10, 10, 1.0, stages=2).reused == 5


def test_what_is_asked_again_to_repair_it_counts_once():
    now = snapshot_of(CallTally(candidates=12, cases=12), 10, 10, 1.0)
    assert (now.done, now.cases_done, now.eta) == (10, 10, 0)


def test_a_count_knows_its_rate():
    now = Snapshot(done=10, total=30, seconds=5.0)
    assert (now.rate, now.eta) == (2.0, 10.0)


def test_long_times_stay_short():
    assert format_clock(10**9) == "11574d 01h"
