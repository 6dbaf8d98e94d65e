"""The progress line: what it says, that it fits, and that only a terminal sees it."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.core.format import format_clock
from kofn.core.types import Estimate
from kofn.generate.calls import CallTally
from kofn.generate.progress_line import INTERVAL, ProgressLine, Snapshot, format_line


def estimate(name, point, low=None, high=None):
    return Estimate(
        aggregator=name, point=point, low=low, high=high, level=0.95, n=9, n_missing=0, method="t" if low else "none"
    )


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch):
    """A real terminal: what is written to `stream` can be read from `seen()`."""
    main, side = os.openpty()
    monkeypatch.setenv("COLUMNS", "70")
    stream = os.fdopen(side, "w", encoding="utf-8")
    os.set_blocking(main, False)

    def seen() -> str:
        try:
            return os.read(main, 65536).decode()
        except BlockingIOError:
            return ""

    yield stream, seen
    stream.close()
    os.close(main)


def screen(written: str, width: int = 200) -> str:
    """What is left on the screen after everything was written: a carriage return goes back, letters overwrite."""
    cells, at = [" "] * width, 0
    for sign in written:
        if sign == "\r":
            at = 0
        else:
            cells[at], at = sign, at + 1
    return "".join(cells).rstrip()


@given(
    st.builds(
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
    ),
    st.integers(1, 200),
)
def test_a_line_is_one_line_and_never_wider_than_the_terminal(snapshot, width):
    said = format_line(snapshot, width)
    assert len(said) <= width
    assert "\n" not in said
    assert said.isprintable()
    assert said.isascii()  # any terminal can show it


def test_a_wide_line_says_everything():
    said = format_line(
        Snapshot(
            done=600,
            total=1000,
            seconds=100,
            tokens_in=1_000_000,
            tokens_out=200_000,
            cost=1.5,
            errors=2,
            retries=1,
            estimates=(estimate("mean", 0.512, 0.478, 0.546), estimate("any_pass", 0.8)),
        ),
        200,
    )
    for part in ("600/1000", "6.0/s", "2000 tok/s", "ETA 1:07", "1.2M tok", "$1.50", "2 errors", "1 retry"):
        assert part in said
    assert said.endswith("mean 0.51 [0.48, 0.55] any_pass 0.80")


def test_what_was_reused_does_not_make_the_rest_look_quick():
    """900 of 1000 came from the store at once; the ten new ones took ten seconds, so ninety are left to wait for."""
    assert Snapshot(done=910, total=1000, seconds=10, reused=900).eta == 90
    assert Snapshot(done=900, total=1000, seconds=10, reused=900).eta is None
    assert "ETA ?" in format_line(Snapshot(done=900, total=1000, seconds=10, reused=900))
    assert Snapshot(done=1000, total=1000, seconds=1, reused=1000).eta == 0


def test_money_that_is_not_known_is_not_shown_as_nothing():
    assert "$" not in format_line(Snapshot(done=1, total=2, seconds=1, unpriced=1), 200)
    assert "$0.5000+? " in format_line(Snapshot(done=2, total=2, seconds=1, cost=0.5, unpriced=1, errors=1), 200)


def test_only_a_terminal_sees_anything():
    stream = io.StringIO()
    with ProgressLine(CallTally(), 1, 1, stream) as progress:
        progress.update()
    assert stream.getvalue() == ""


def test_the_line_is_rewritten_in_place_and_erased_at_the_end(terminal):
    stream, seen = terminal
    tally, clock = CallTally(candidates=10, errors=1000), Clock()
    with ProgressLine(tally, 10, 20, stream, clock) as progress:
        clock.now += 5
        progress.update()
        first = seen()
        assert "10/20" in screen(first)
        assert "1,000 errors" in screen(first)
        tally.candidates, tally.errors = 15, 0
        clock.now += 1
        progress.update()
        second = first + seen()
        assert "15/20" in screen(second)
        assert "errors" not in screen(second)
    after = second + seen()
    assert screen(after) == ""
    assert "\n" not in after


def test_lines_come_at_most_five_times_a_second(terminal):
    stream, seen = terminal
    clock = Clock()
    progress = ProgressLine(CallTally(), 1000, 1000, stream, clock)
    for _ in range(1000):
        clock.now += 0.001
        progress.update()
    assert 4 <= seen().count("\r") <= 1 / INTERVAL + 1


def test_a_line_fits_the_terminal_it_is_on(terminal):
    stream, seen = terminal
    ProgressLine(CallTally(candidates=5, tokens_out=10**6, errors=3, retries=5), 9, 9, stream).update()
    assert len(seen().strip("\r")) < 70


def test_what_is_known_by_now_is_on_the_line(terminal):
    stream, seen = terminal
    progress = ProgressLine(CallTally(candidates=1), 2, 2, stream)
    progress.estimates = (estimate("mean", 0.5, 0.1, 0.9),)
    progress.update()
    assert "mean 0.50 [0.10, 0.90]" in screen(seen())


def test_the_watch_ends_when_it_is_cancelled_and_never_starts_without_a_terminal(terminal):
    import asyncio

    stream, seen = terminal

    async def go() -> None:
        await ProgressLine(CallTally(), 1, 1, io.StringIO()).watch()  # returns at once
        task = asyncio.create_task(ProgressLine(CallTally(candidates=1), 1, 1, stream).watch())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert "1/1" in screen(seen())


def test_several_stages_count_one_candidate(terminal):
    tally = CallTally(candidates=5, reused=10)
    progress = ProgressLine(tally, 10, 10, terminal[0], stages=2)
    assert progress.snapshot().reused == 5


def test_what_is_asked_again_to_repair_it_counts_once(terminal):
    now = ProgressLine(CallTally(candidates=12, cases=12), 10, 10, terminal[0]).snapshot()
    assert (now.done, now.cases_done, now.eta) == (10, 10, 0)


def test_long_times_stay_short():
    assert format_clock(10**9) == "11574d 01h"
