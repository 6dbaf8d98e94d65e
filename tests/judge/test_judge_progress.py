"""A judge looked at from outside: its file lies beside its store, counts a whole panel, and says how it ended."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from tests.waiting import wait_until

from kofn.errors import InputError
from kofn.generate.limits import Limits
from kofn.generate.progress_file import read_progress
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


@pytest.mark.long
def test_it_is_seen_while_it_goes_and_when_it_is_done(file, tmp_path):
    folder, seen, calls = tmp_path / "run" / "judging", [], []

    async def seen_at_work(prompt):
        calls.append(prompt)
        while len(calls) > 5 and not any(one.cases_done for one in seen):
            await asyncio.sleep(0.02)
        return "Verdict: pass"

    work = threading.Thread(
        target=judge, args=(file, OK, settings(seen_at_work, other)), kwargs={"out": tmp_path / "run"}, daemon=True
    )
    work.start()

    def ended():
        if (found := read_progress(folder)) is not None:
            seen.append(found)
        return not work.is_alive()

    wait_until(ended, "judging")
    during = [one for one in seen if one.state == "running" and one.cases_done]
    assert during
    assert all(one.alive for one in during)
    assert {(one.kind, one.task, one.cases_total) for one in seen} == {("judge", "ok", 40)}
    assert during[0].model.count("fake:") == 2
    done = read_progress(folder)
    assert (done.state, done.cases_done, done.candidates_done, done.estimates) == ("done", 40, 40, ())
    assert read_progress(tmp_path / "run") is None  # the run itself is not going


@pytest.mark.long
def test_a_bound_and_an_error_are_said(file, tmp_path):
    judge(file, OK, settings(slow, max_time=1.5), out=tmp_path / "run")
    found = read_progress(tmp_path / "run" / "judging")
    assert (found.state, found.reason) == ("stopped", "--max-time 1.5 reached")
    assert 0 < found.cases_done < 20

    def refused(prompt):
        raise InputError("the key was refused")

    with pytest.raises(InputError):
        judge(file, OK, settings(refused), out=tmp_path / "bad")
    assert read_progress(tmp_path / "bad" / "judging").reason == "the key was refused"
