"""The progress line: what it says, that it fits, and that only a terminal sees it."""

from __future__ import annotations

import io
import os
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.generate.calls import Tally
from kofn.generate.progress import INTERVAL, Progress, Running, Snapshot, clock_time, line


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


def shown(written: str, width: int = 200) -> str:
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
        estimates=st.just((("mean", 0.5, None), ("any_pass", 0.9, 0.02))),
    ),
    st.integers(1, 200),
)
def test_a_line_is_one_line_and_never_wider_than_the_terminal(snapshot, width):
    said = line(snapshot, width)
    assert len(said) <= width
    assert "\n" not in said
    assert said.isprintable()


def test_a_wide_line_says_everything():
    said = line(
        Snapshot(
            done=600,
            total=1000,
            seconds=100,
            tokens_in=1_000_000,
            tokens_out=200_000,
            cost=1.5,
            errors=2,
            retries=1,
            estimates=(("mean", 0.512, 0.034), ("any_pass", 0.8, 0.05)),
        ),
        200,
    )
    for part in ("600/1000", "6.0/s", "2000 tok/s", "ETA 1:07", "1.2M tok", "$1.50", "2 errors", "1 retry"):
        assert part in said
    assert "mean 0.51±0.03 any_pass 0.80±0.05" in said


def test_what_was_reused_does_not_make_the_rest_look_quick():
    """900 of 1000 came from the store at once; the ten new ones took ten seconds, so ninety are left to wait for."""
    assert Snapshot(done=910, total=1000, seconds=10, reused=900).eta == 90
    assert Snapshot(done=900, total=1000, seconds=10, reused=900).eta is None
    assert "ETA ?" in line(Snapshot(done=900, total=1000, seconds=10, reused=900))
    assert Snapshot(done=1000, total=1000, seconds=1, reused=1000).eta == 0


def test_money_that_is_not_known_is_not_shown_as_nothing():
    assert "$" not in line(Snapshot(done=1, total=2, seconds=1, unpriced=1), 200)
    assert "$0.5000+? " in line(Snapshot(done=2, total=2, seconds=1, cost=0.5, unpriced=1, errors=1), 200)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=50))
def test_running_estimates_are_the_mean_over_cases_and_its_interval(values):
    run = Running()
    for value in values:
        run.add(value)
    assert run.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert run.margin == pytest.approx(1.96 * statistics.stdev(values) / len(values) ** 0.5, abs=1e-6)


def test_a_case_without_a_value_is_left_out_of_the_running_estimate(terminal):
    stream, _ = terminal
    progress = Progress(Tally(candidates=3), 3, 9, stream)
    for value in (1.0, None, 0.0, float("nan")):
        progress.on_case({"mean": value})
    assert progress.snapshot(progress.clock()).estimates[0][:2] == ("mean", 0.5)


def test_only_a_terminal_sees_anything():
    stream = io.StringIO()
    with Progress(Tally(), 1, 1, stream) as progress:
        progress.update()
        progress.on_case({"mean": 1.0})
    assert stream.getvalue() == ""


def test_the_line_is_rewritten_in_place_and_erased_at_the_end(terminal):
    stream, seen = terminal
    tally, clock = Tally(candidates=10, errors=1000), Clock()
    with Progress(tally, 10, 20, stream, clock) as progress:
        clock.now += 5
        progress.update()
        first = seen()
        assert "10/20" in shown(first)
        assert "1000 errors" in shown(first)
        tally.candidates, tally.errors = 15, 0
        clock.now += 1
        progress.update()
        second = first + seen()
        assert "15/20" in shown(second)
        assert "errors" not in shown(second)
    after = second + seen()
    assert shown(after) == ""
    assert "\n" not in after


def test_lines_come_at_most_five_times_a_second(terminal):
    stream, seen = terminal
    clock = Clock()
    progress = Progress(Tally(), 1000, 1000, stream, clock)
    for _ in range(1000):
        clock.now += 0.001
        progress.on_case({"mean": 1.0})
    assert 4 <= seen().count("\r") <= 1 / INTERVAL + 1


def test_a_line_fits_the_terminal_it_is_on(terminal):
    stream, seen = terminal
    Progress(Tally(candidates=5, tokens_out=10**6, errors=3, retries=5), 9, 9, stream).update()
    assert len(seen().strip("\r")) < 70


def test_a_terminal_of_another_encoding_gets_signs_it_can_show():
    class Old(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    stream = Old(io.BytesIO(), encoding="ascii", write_through=True)
    clock = Clock()
    progress = Progress(Tally(candidates=1), 2, 2, stream, clock)
    progress.on_case({"mean": 1.0})
    clock.now += 1
    progress.on_case({"mean": 0.0})
    assert b"mean 0.50~0.98" in stream.buffer.getvalue()


def test_the_watch_ends_when_it_is_cancelled_and_never_starts_without_a_terminal(terminal):
    import asyncio

    stream, seen = terminal

    async def go() -> None:
        await Progress(Tally(), 1, 1, io.StringIO()).watch()  # returns at once
        task = asyncio.create_task(Progress(Tally(candidates=1), 1, 1, stream).watch())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert "1/1" in shown(seen())


def test_several_stages_count_one_candidate(terminal):
    tally = Tally(candidates=5, reused=10)
    progress = Progress(tally, 10, 10, terminal[0], stages=2)
    assert progress.snapshot(progress.clock()).reused == 5


def test_long_times_stay_short():
    assert clock_time(10**9) == "11574d 01h"
