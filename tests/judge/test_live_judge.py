"""A judge looked at from outside: its file lies beside its store, counts a whole panel, and says how it ended."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from kofn.errors import InputError
from kofn.generate.limits import Limits
from kofn.generate.live import read_live
from kofn.judge import JudgeSettings, judge

OK = {"name": "ok", "prompt": "{output}"}


@pytest.fixture
def file(tmp_path):
    rows = [{"id": f"q{i}", "outputs": [f"a{i}", f"b{i}", f"b{i}"]} for i in range(10)]
    path = tmp_path / "out.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


async def slow(prompt):
    await asyncio.sleep(0.15)
    return "Verdict: pass"


async def other(prompt):
    return "Verdict: fail"


def settings(*models, **more):
    return JudgeSettings(models=models, limits=Limits(concurrency=1, **more))


def test_it_is_seen_while_it_goes_and_when_it_is_done(file, tmp_path):
    folder, seen = tmp_path / "run" / "judging", []
    work = threading.Thread(target=judge, args=(file, OK, settings(slow, other)), kwargs={"out": tmp_path / "run"})
    work.start()
    while work.is_alive():
        if (found := read_live(folder)) is not None:
            seen.append(found)
        time.sleep(0.02)
    during = [one for one in seen if one.state == "running" and one.cases_done]
    assert during
    assert all(one.alive for one in during)
    assert {(one.kind, one.task, one.cases_total) for one in seen} == {("judge", "ok", 40)}
    assert during[0].model.count("fake:") == 2
    done = read_live(folder)
    assert (done.state, done.cases_done, done.candidates_done, done.estimates) == ("done", 40, 40, ())
    assert read_live(tmp_path / "run") is None  # the run itself is not going


def test_a_bound_and_an_error_are_said(file, tmp_path):
    judge(file, OK, settings(slow, max_time=0.4), out=tmp_path / "run")
    found = read_live(tmp_path / "run" / "judging")
    assert (found.state, found.reason) == ("stopped", "--max-time 0.4 reached")
    assert 0 < found.cases_done < 20

    def refused(prompt):
        raise InputError("the key was refused")

    with pytest.raises(InputError):
        judge(file, OK, settings(refused), out=tmp_path / "bad")
    assert read_live(tmp_path / "bad" / "judging").reason == "the key was refused"
