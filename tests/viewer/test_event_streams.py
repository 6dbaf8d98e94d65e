"""Runs that are going on: the page follows until they end, streams are few and end at once, a killed run is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from http.client import HTTPConnection

import anyio
import pytest
from tests.viewer.progress import estimate, in_progress, left_by_a_dead_process
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import ask, served
from tests.waiting import LONGEST, wait_until

from kofn.viewer import event_streams
from kofn.viewer.event_streams import EventStreams
from kofn.viewer.live_page import domain, estimate_chart
from kofn.viewer.run_folder import read_status


class Stream:
    """Server-sent events as they come."""

    def __init__(self, base, path):
        self.connection = HTTPConnection(base.removeprefix("http://"), timeout=LONGEST)
        self.connection.request("GET", path)
        self.answer = self.connection.getresponse()

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.connection.close()
        self.answer.close()

    def lines(self):
        while line := self.answer.readline():
            yield line.decode().rstrip("\n")

    def events(self):
        """(name, data) of every event."""
        name = ""
        for line in self.lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))
                name = ""


# --- how a run stands


def test_a_run_is_going_while_its_process_says_so_and_stopped_when_that_is_gone(tmp_path):
    with in_progress(tmp_path / "a"):
        now = read_status(tmp_path / "a")
        assert (now.label, now.active, now.detail) == ("Running", True, "3 of 10 cases")
    assert not read_status(tmp_path / "a").active
    left_by_a_dead_process(tmp_path / "b")
    now = read_status(tmp_path / "b")
    assert (now.label, now.active) == ("Stopped", False)
    assert "ended without a word: run the same command again" in now.detail


def test_a_run_that_stopped_for_a_reason_gives_it_and_says_what_to_do(tmp_path):
    with pytest.raises(KeyboardInterrupt), in_progress(tmp_path / "a"):
        raise KeyboardInterrupt
    assert read_status(tmp_path / "a").detail == "interrupted: run the same command again to go on"


def test_results_older_than_the_process_are_those_of_before_and_newer_ones_are_its_own(tmp_path):
    path = write(tmp_path / "a", small_rows(6))
    os.utime(path / "run.json", (0, 0))
    with in_progress(path):
        again = read_status(path)
        assert (again.label, again.finished) == ("Being run again", True)
        (path / "run.json").touch()
        assert read_status(path).label == "Finished"
        assert read_status(path).phase != again.phase


def test_a_judge_that_said_done_is_at_it_until_it_has_written(tmp_path):
    path = write(tmp_path / "a", small_rows(6))
    os.utime(path / "run.json", (0, 0))
    with in_progress(path / "judging", kind="judge"):
        assert read_status(path).label == "Being judged"
    now = read_status(path)
    assert (now.label, now.detail, now.live.state) == ("Being judged", "scoring", "done")
    (path / "run.json").touch()
    assert read_status(path).label == "Finished"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "x" * 2_000_000])
def test_a_file_that_says_nothing_breaks_nothing(tmp_path, text):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "progress.json").write_text(text)
    with served(tmp_path) as base:
        page = ask(base, "/run/a")
        assert page.status == 200
        assert "not finished" in page.text
        assert "stopped" in ask(base, "/").text


# --- the chart


def history(*points, total=100):
    class Progress:
        history = tuple((seconds, estimate(point, low, high, n)) for seconds, n, point, low, high in points)
        estimates = (estimate(0.5, 0.4, 0.6),)
        cases_total = total

    return estimate_chart(Progress())


def test_the_chart_draws_every_point_and_a_band_where_there_are_ends():
    found = history((1.0, 10, 0.5, None, None), (2.0, 50, 0.5, 0.25, 0.75), (3.0, 100, 0.5, 0.4, 0.6))
    band, line, dots = found.plot.layers
    assert line.points == ((10, 0.5), (50, 0.5), (100, 0.5))
    assert band.points == ((50, 0.25, 0.75), (100, 0.4, 0.6))
    assert (dots.dots[0].x, dots.dots[0].y) == (100, 0.5)
    assert (found.plot.x.domain, found.plot.y.domain) == ((0, 100), (0.0, 1.0))
    assert [row[0] for row in found.rows] == ["10", "50", "100"]
    assert "0.500 [0.400, 0.600] after 100" in found.label


def test_there_is_no_chart_of_one_point_or_of_nonsense():
    assert history((1.0, 10, 0.5, 0.4, 0.6)) is None
    assert history((1.0, 10, 1e300, 0.4, 0.6), (1.0, 10, -1e300, 0.4, 0.6)) is None


def test_the_scale_holds_every_value():
    for values in ([0.2, 0.9], [-3.0, 8.0], [120.0, 450.0], [7.0], [-0.001, 0.5]):
        low, high = domain(values)
        assert low < high
        assert low <= min(values) <= max(values) <= high


# --- streams


@pytest.fixture
def pauses(monkeypatch):
    """How long streams paused after each look; here the pauses are short."""
    pauses_asked, pause = [], anyio.move_on_after
    monkeypatch.setattr(
        event_streams.anyio, "move_on_after", lambda seconds: pauses_asked.append(seconds) or pause(0.02)
    )
    return pauses_asked


def test_a_stream_tells_what_changes_at_most_once_a_second_and_ends_when_the_run_does(tmp_path, pauses):
    with served(tmp_path) as base, ExitStack() as ended:
        tell = ended.enter_context(in_progress(tmp_path / "a", estimates=(estimate(0.5, 0.2, 0.8),)))
        with Stream(base, "/run/a/-/events") as stream:
            assert stream.answer.headers["content-type"].startswith("text/event-stream")
            assert stream.answer.headers["cache-control"] == "no-store"
            events = stream.events()
            name, first = next(events)
            assert name == ""
            assert first["candidates"] == [3, 10]
            assert first["estimate"] == ["mean", 0.5, 0.2, 0.8]
            for done in (4, 5):
                tell(done=done, cases_done=done)
                while next(events)[1]["cases"][0] != done:
                    pass
            ended.close()
            *_, last = events
            assert last == ("done", {"to": "/run/a"})
    assert len(pauses) >= 3  # one after each message but the last
    assert min(pauses) >= 1.0


def test_a_page_that_shows_something_older_is_told_at_once(tmp_path):
    write(tmp_path / "a", small_rows(6))
    with served(tmp_path) as base, Stream(base, "/run/a/-/events?seen=going%201%20then") as stream:
        assert list(stream.events()) == [("done", {"to": "/run/a"})]


def test_a_run_that_is_removed_ends_its_stream(tmp_path):
    with served(tmp_path) as base, Stream(base, "/run/none/-/events") as stream:
        assert list(stream.events()) == [("done", {"to": "/?q=none"})]


def test_a_stream_says_that_it_is_still_there(tmp_path, monkeypatch, pauses):
    monkeypatch.setattr(event_streams, "KEEP_ALIVE", 0.05)
    left_by_a_dead_process(tmp_path / "a")
    with served(tmp_path) as base, Stream(base, "/run/a/-/events") as stream:
        lines = stream.lines()
        assert ": still here" in [next(lines) for _ in range(6)]


def test_only_so_many_streams_are_open_and_one_that_is_left_makes_room(tmp_path):
    left_by_a_dead_process(tmp_path / "a")
    with served(tmp_path, streams=EventStreams(max_streams=3)) as base:
        streams_open = [Stream(base, "/run/a/-/events") for _ in range(3)]
        assert [one.answer.status for one in streams_open] == [200] * 3
        refused = ask(base, "/run/a/-/events")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "15"
        assert "3 pages are told of changes already" in refused.text
        assert ask(base, "/events").status == 503
        assert ask(base, "/run/a").status == 200
        streams_open.pop().__exit__()
        wait_until(lambda: _status_of_a_stream(base) == 200, "room for a stream")
        for one in streams_open:
            one.__exit__()
        assert ask(base, "/events", method="HEAD").status == 200


def _status_of_a_stream(base):
    with Stream(base, "/run/a/-/events") as stream:
        return stream.answer.status


@pytest.mark.long
def test_the_list_says_which_runs_changed_came_and_went(tmp_path, pauses):
    write(tmp_path / "old", small_rows(6))
    with served(tmp_path) as base, in_progress(tmp_path / "a") as tell, Stream(base, "/events") as stream:
        events = stream.events()
        assert next(events) == ("", {"running": 1})
        tell(done=9, cases_done=9)
        assert next(events) == ("", {"changed": ["a"], "new": [], "gone": [], "running": 1})
        (tmp_path / "old").rename(tmp_path / "new")
        assert next(events) == ("", {"changed": [], "new": ["new"], "gone": ["old"], "running": 1})


@pytest.mark.long
def test_a_name_that_is_no_text_is_told_too(tmp_path, pauses):
    with served(tmp_path) as base, Stream(base, "/events") as stream:
        events = stream.events()
        assert next(events)[1] == {"running": 0}
        write(tmp_path.parent / "made", small_rows(6)).rename(tmp_path / os.fsdecode(b"a\xff"))
        assert next(events)[1]["new"] == ["a?"]


def test_ctrl_c_ends_the_viewer_at_once_though_streams_are_open(tmp_path):
    left_by_a_dead_process(tmp_path / "a")
    command = [sys.executable, "-m", "kofn", "view", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as viewer:
        base = viewer.stderr.readline().split(" at ")[1].split("/ ")[0]
        with Stream(base, "/run/a/-/events") as one, Stream(base, "/events") as other:
            assert next(one.lines()) == next(other.lines()) == "retry: 2000"
            viewer.send_signal(signal.SIGINT)
            for stream in (one, other):
                list(stream.lines())  # to its end, which without a signal never comes
            viewer.wait(LONGEST)
        said = viewer.stderr.read()
        assert "graceful shutdown exceeded" not in said  # they ended by themselves, and not because time was up
        assert "Traceback" not in said


def test_many_who_watch_the_list_share_one_look_at_the_folder(tmp_path):
    from kofn.viewer.server import Viewer

    write(tmp_path / "one", small_rows(6))
    viewer, looks = Viewer(tmp_path), []
    lines = viewer.run_list.lines
    viewer.run_list.lines = lambda: looks.append(1) or lines()
    threads = [threading.Thread(target=viewer.recent.lines) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(looks) == 1
