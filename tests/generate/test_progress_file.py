"""progress.json: what is written can be read, whatever else is there cannot hurt, and no disk can fail a run."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import wait_until

from kofn.core.progress import Snapshot
from kofn.core.types import Estimate
from kofn.errors import WorldError
from kofn.generate import progress_file
from kofn.generate.progress_file import (
    MOST,
    NAME,
    RECENT,
    ProgressWriter,
    read_progress,
)

MEAN = Estimate(
    aggregator="mean", metric="numeric", point=0.5, low=0.2, high=0.8, level=0.95, n=4, n_missing=0, method="wilson"
)
NOW = Snapshot(
    done=8, total=40, seconds=2.0, reused=2, cases_done=4, cases_total=20, tokens_in=80, cost=0.25, estimates=(MEAN,)
)


def pulsing(directory, look=lambda: NOW, **more):
    return ProgressWriter(directory, look, **{"kind": "run", "task": "sums", "model": "m", **more})


@pytest.fixture
def record(tmp_path):
    """What a file holds while a run is going."""
    with pulsing(tmp_path):
        return json.loads((tmp_path / NAME).read_text())


def written(directory, body):
    (directory / NAME).write_text(json.dumps(body))
    return read_progress(directory)


def test_the_file_holds_what_was_promised(record):
    assert list(record) == [
        "version", "kind", "pid", "host", "started", "updated", "state", "reason", "task", "model", "cases",
        "candidates", "errors", "retries", "tokens_in", "tokens_out", "cost", "unpriced", "seconds", "rate", "eta",
        "estimates", "history",
    ]  # fmt: skip
    assert (record["version"], record["kind"], record["state"], record["reason"]) == (1, "run", "running", None)
    assert (record["pid"], record["host"]) == (os.getpid(), socket.gethostname())
    assert record["cases"] == {"done": 4, "total": 20}
    assert record["candidates"] == {"done": 8, "total": 40, "reused": 2}
    assert (record["rate"], record["eta"], record["cost"]) == (3.0, 32 / 3, 0.25)
    (one,) = record["estimates"]
    assert one | {"n_missing": 0, "method": "wilson"} == one
    assert (one["metric"], one["aggregator"], one["point"], one["low"], one["high"]) == (
        "numeric",
        "mean",
        0.5,
        0.2,
        0.8,
    )
    assert record["history"] == [[record["seconds"], 4, 0.5, 0.2, 0.8]]
    assert datetime.fromisoformat(record["updated"]).utcoffset() == timedelta(0)


def test_what_is_written_is_what_is_read(tmp_path, record):
    found = written(tmp_path, record)
    assert found.estimates == (MEAN,)
    assert found.history == ((record["seconds"], MEAN),)
    assert found.to_dict() == record
    assert found.alive
    assert found.summary == "4 of 20 cases"
    assert replace(found, state="scoring").summary == "scoring"


# who reads


def test_nothing_is_told_where_there_is_no_file(tmp_path):
    assert read_progress(tmp_path) is None
    assert read_progress(tmp_path / "nowhere") is None


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "huge", "empty", "deep", "text", "list", "nan"])
def test_what_is_no_such_file_is_not_read(tmp_path, kind, record):
    path = tmp_path / "d" / NAME
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "other").write_text(json.dumps(record))
        path.symlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(path)  # who opens it would wait for somebody to write
    else:
        said = json.dumps(record)
        path.write_bytes({
            "huge": said.encode() + b" " * progress_file.LARGEST, "empty": b"", "deep": b"[" * 100_000,
            "text": b"\xff\x00",
            "list": b"[1, 2]", "nan": said.replace("0.25", "NaN").encode(),
        }[kind])  # fmt: skip
    assert read_progress(path.parent) is None


@pytest.mark.parametrize(
    "name", ["version", "kind", "pid", "updated", "state", "cases", "cost", "estimates", "history"]
)
@pytest.mark.parametrize("value", [None, True, "x", -1, 7.5, [], {}, [[]], {"done": "1"}])
def test_a_file_that_others_wrote_is_read_or_not_but_never_an_error(tmp_path, record, name, value):
    found = written(tmp_path, {**record, name: value})
    if found is not None:  # a name may be any text, money any number, and there need be no estimate
        assert isinstance(found.alive, bool)
        assert isinstance(found.summary, str)
        assert (name, type(value)) in {
            ("kind", str), ("cost", int), ("cost", float), ("estimates", list), ("history", list),
            ("estimates", dict), ("history", dict),
        }  # fmt: skip
    without = {key: of for key, of in record.items() if key != name}
    assert written(tmp_path, without) is None


@given(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=8))
def test_no_damage_to_the_bytes_is_an_error(tmp_path_factory, place, length, other):
    folder = tmp_path_factory.mktemp("damaged")
    with pulsing(folder):
        whole = bytearray((folder / NAME).read_bytes())
    at = int(place * len(whole))
    whole[at : at + length] = other
    (folder / NAME).write_bytes(whole)
    found = read_progress(folder)
    assert found is None or isinstance(found.summary, str)


def test_entries_that_a_later_version_adds_are_passed_over(tmp_path, record):
    assert written(tmp_path, {**record, "more": 1}) is not None
    assert written(tmp_path, {**record, "version": 2}) is None


def test_whether_a_process_lives_is_told_by_its_number_its_word_and_the_time(tmp_path, record):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    found = written(tmp_path, record)
    assert found.alive
    gone = replace(found, pid=ended.pid)
    assert not gone.alive
    assert gone.summary == "its process ended without a word: run the same command again to go on"
    assert replace(gone, host="elsewhere").alive  # of another machine only its word is known
    assert replace(found, pid=1).alive  # somebody else's is there, too
    assert not replace(found, pid=10**30).alive
    for state in ("done", "stopped"):
        assert not replace(found, state=state).alive
    old = (datetime.now(UTC) - timedelta(seconds=RECENT + 5)).isoformat()
    assert not replace(found, updated=old).alive
    assert not replace(found, updated=old, host="elsewhere").alive


# who writes


def test_it_ends_done_or_stopped_with_the_reason(tmp_path):
    with pulsing(tmp_path) as one:
        one.mark_scoring()
    assert (read_progress(tmp_path).state, read_progress(tmp_path).summary, read_progress(tmp_path).eta) == (
        "done",
        "done",
        None,
    )
    with pulsing(tmp_path) as one:
        one.stop("max_cost reached")
    assert (read_progress(tmp_path).state, read_progress(tmp_path).summary) == ("stopped", "max_cost reached")
    with pytest.raises(WorldError), pulsing(tmp_path):
        raise WorldError("the server\nis gone")
    assert read_progress(tmp_path).summary == "the server is gone"
    with pytest.raises(KeyboardInterrupt), pulsing(tmp_path):
        raise KeyboardInterrupt
    assert read_progress(tmp_path).summary == "interrupted"
    with pytest.raises(KeyError), pulsing(tmp_path):
        raise KeyError("a text of the data")
    assert read_progress(tmp_path).summary == "KeyError"
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


def test_of_a_folder_of_runs_it_is_gone_when_all_is_done_and_stays_when_not(tmp_path):
    with pulsing(tmp_path, keep=False):
        assert (tmp_path / NAME).exists()
    assert not (tmp_path / NAME).exists()
    with pytest.raises(KeyboardInterrupt), pulsing(tmp_path, keep=False):
        raise KeyboardInterrupt
    assert read_progress(tmp_path).state == "stopped"


def test_it_is_written_once_a_second_also_while_the_process_is_busy(tmp_path, monkeypatch):
    waits, written, replaced = [], [], Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: written.append(to) or replaced(self, to))

    class Short(threading.Event):
        """What the writer waits by, faster."""

        def wait(self, timeout=None):
            waits.append(timeout)
            return super().wait(0.01)

    one = pulsing(tmp_path)
    one._ended = Short()
    with one:
        wait_until(lambda: sum(range(1_000_000)) and len(written) >= 4, "writing while the process is busy")
    assert set(waits) == {1.0}
    assert len(written) <= len(waits) + 2  # and as it begins, and as it ends


def test_when_everything_is_asked_the_numbers_stay_and_the_clock_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(progress_file, "EVERY", 0.02)
    moments = iter(range(1000))
    with pulsing(tmp_path, lambda: replace(NOW, errors=next(moments))) as one:
        one.mark_scoring()
        first = wait_for(tmp_path, lambda found: found.state == "scoring")
        later = wait_for(tmp_path, lambda found: found.seconds > first.seconds)
        assert later.errors == first.errors
        assert (later.rate, later.eta) == (first.rate, None)


def wait_for(directory, holds):
    def as_wanted():
        found = read_progress(directory)
        return found if found is not None and holds(found) else None

    return wait_until(as_wanted, lambda: read_progress(directory))


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_a_disk_that_cannot_be_written_is_nobodys_problem(tmp_path, monkeypatch, problem):
    def refused(*_, **__):
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(Path, "write_bytes", refused)
    with pulsing(tmp_path) as one:
        one.mark_scoring()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_really_full_leaves_nothing_half_written(tmp_path):
    (tmp_path / f".{NAME}.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pulsing(tmp_path):
        assert list(tmp_path.iterdir()) == []
    assert read_progress(tmp_path).state == "done"  # by then there was room again


def test_a_place_that_is_taken_or_gone_is_nobodys_problem(tmp_path):
    (tmp_path / NAME / "x").mkdir(parents=True)
    with pulsing(tmp_path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == [NAME]
    with pulsing(tmp_path / "nowhere", keep=False):
        pass
    assert not (tmp_path / "nowhere").exists()


def test_names_and_numbers_that_no_json_holds_are_nobodys_problem(tmp_path):
    with pulsing(tmp_path, task="\udcff", model="a\x00b"):
        assert read_progress(tmp_path).task == "\\udcff"
    with pulsing(tmp_path / "x", lambda: replace(NOW, tokens_in=10**40, cost=float("nan"))):
        assert read_progress(tmp_path / "x") is None


# how an interval narrowed


@given(st.lists(st.floats(0.01, 100), max_size=700))
def test_a_history_stays_small_and_keeps_its_first_and_newest_point(gaps):
    writer, now = pulsing(Path()), 0.0
    for n, gap in enumerate(gaps):
        now += gap
        writer.remember(now, replace(MEAN, n=n))
        assert len(writer.history) <= MOST
        assert writer.history[-1][1].n == n
    seconds = [seconds for seconds, _ in writer.history]
    assert seconds == sorted(seconds)
    if gaps:
        assert writer.history[0][1].n == 0


def test_points_of_a_long_history_lie_about_equally_apart():
    writer = pulsing(Path())
    for n in range(50_000):
        writer.remember(float(n), MEAN)
    assert MOST / 2 <= len(writer.history) <= MOST
    gaps = [b - a for (a, _), (b, _) in pairwise(writer.history)]
    assert max(gaps) < 2.5 * 50_000 / (MOST / 2)
