"""A run looked at from another process while it goes, when it stops, when it is killed; and what looking costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.waiting import LONGEST, wait_until

import kofn
from kofn.generate import interim_estimates
from kofn.generate.interim_estimates import MOST, SHARE, InterimGrader
from kofn.generate.preparation import prepare
from kofn.generate.progress_file import NAME, read_progress
from kofn.models.base import Model, Reply
from kofn.scoring.configuration import configure

KOFN = [sys.executable, "-m", "kofn"]
MODELS = """
import asyncio
from kofn.models.base import Reply

SECRET = "words of the model"

async def slow(prompt, repeat, case_id):
    await asyncio.sleep(0.05)
    number = int(case_id[1:])
    if number == 3:
        raise ValueError("this one fails")
    right = (7 * number + 3 * repeat) % 10 < 6
    return Reply(text=f"{SECRET}: {2 * number + (0 if right else 1)}", tokens_in=10, tokens_out=5)
"""


@pytest.fixture
def folder(tmp_path):
    """A task of two hundred cases, and a model that takes its time."""
    records = [{"id": f"q{i}", "question": f"secret-data {i} + {i}", "answer": str(2 * i)} for i in range(200)]
    (tmp_path / "sums.jsonl").write_text("\n".join(json.dumps(r) for r in records))
    (tmp_path / "sums.yaml").write_text(
        "name: sums\ndataset: sums.jsonl\nextract: number\nstages:\n  - {name: answer, prompt: '{question} ='}\n"
    )
    (tmp_path / "slow_models.py").write_text(MODELS)
    return tmp_path


@contextmanager
def running_command(folder, *more):
    """`kofn run` in a process of its own, without a terminal."""
    command = [*KOFN, "run", "sums.yaml", "-m", "fake:slow_models:slow", "-r", "2", "--out", "out", *more]
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(directory, holds):
    def as_wanted():
        found = read_progress(directory)
        return found if found is not None and holds(found) else None

    return wait_until(as_wanted, lambda: read_progress(directory))


@pytest.mark.commands
def test_a_run_is_seen_from_outside_while_it_goes_and_when_it_is_done(folder):
    out, seen = folder / "out", []
    with running_command(folder, "--concurrency", "8") as process:
        while process.poll() is None:
            found = read_progress(out)
            if found is not None and (not seen or seen[-1].updated != found.updated):
                seen.append(found)
            time.sleep(0.02)
        assert process.returncode == 0, process.communicate()[1]
    during = [one for one in seen if one.state == "running"]
    assert len(during) >= 2
    for one in during:
        assert (one.kind, one.pid, one.task, one.model) == ("run", process.pid, "sums", "fake:slow_models:slow")
        assert (one.cases_total, one.candidates_total, one.reused) == (200, 400, 0)
        assert one.candidates_done == 2 * one.cases_done
    assert [one.cases_done for one in during] == sorted(one.cases_done for one in during)
    last = [one for one in during if one.cases_done < 200][-1]
    assert last.cases_done > 0
    assert last.eta > 0
    assert last.rate > 0
    assert last.tokens_in == 20 * (last.cases_done - 1) or last.tokens_in > 0
    assert [e.aggregator for e in last.estimates] == ["mean", "any_pass", "majority"]
    assert 0 < last.estimates[0].n <= last.cases_done
    done = read_progress(out)
    assert (done.state, done.summary, done.alive, done.cases_done, done.errors) == ("done", "done", False, 200, 2)
    assert kofn.load_run(out).manifest["generation"]["stopped"] is None


@pytest.mark.long
def test_the_interval_narrows_and_whoever_comes_late_sees_how(folder):
    with running_command(folder, "--concurrency", "4"):
        late = wait_for(folder / "out", lambda found: bool(found.history) and found.history[-1][1].n > 60)
    points = [point for _, point in late.history]
    first, last = points[0], points[-1]
    assert (last.n, last.point) == (late.estimates[0].n, late.estimates[0].point)
    assert [p.n for p in points] == sorted({p.n for p in points})
    assert first.n < last.n
    assert last.high - last.low < 0.3 < first.high - first.low
    assert 0 < last.low < last.point < last.high < 1


@pytest.mark.kills
def test_a_killed_run_leaves_the_file_as_it_was_and_the_next_start_goes_on(folder):
    with running_command(folder, "--concurrency", "4") as process:
        wait_for(folder / "out", lambda found: found.cases_done > 5 and found.alive)
        process.kill()
        process.wait()
        left = read_progress(folder / "out")
        assert (left.state, left.pid, left.alive) == ("running", process.pid, False)
        assert left.summary.startswith("its process ended without a word")
    with running_command(folder, "--concurrency", "100") as process:
        _, errors = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, errors
    again = read_progress(folder / "out")
    assert again.state == "done"
    assert 10 <= again.reused < again.candidates_done == 400


@pytest.mark.commands
@pytest.mark.parametrize(
    ("bound", "code", "why"),
    [
        (("--token-budget", "300"), 3, "--token-budget 300 reached"),
        (("--max-time", "0.000001"), 3, "no candidate is whole yet"),
    ],
)
def test_a_run_that_reaches_a_bound_says_which(folder, bound, code, why):
    with running_command(folder, "--concurrency", "4", *bound) as process:
        assert process.wait(LONGEST) == code
    found = read_progress(folder / "out")
    assert (found.state, found.alive) == ("stopped", False)
    assert why in found.reason
    assert found.cases_done < 200


@pytest.mark.kills
def test_an_interrupted_run_says_so(folder):
    with running_command(folder, "--concurrency", "4") as process:
        wait_for(folder / "out", lambda found: found.cases_done > 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONGEST) == 130
    assert (read_progress(folder / "out").state, read_progress(folder / "out").reason) == ("stopped", "interrupted")


@pytest.mark.long
def test_the_file_holds_nothing_that_a_model_or_the_data_said(folder):
    with running_command(folder, "--limit", "40") as process:
        texts = set()
        while process.poll() is None:
            if (folder / "out" / NAME).is_file():
                texts.add((folder / "out" / NAME).read_text())
            time.sleep(0.02)
        assert process.returncode == 0
    texts.add((folder / "out" / NAME).read_text())
    for text in texts:
        assert "secret-data" not in text
        assert "words of the model" not in text
        assert len(text) < 20_000


@pytest.mark.kills
def test_a_second_process_that_is_refused_leaves_the_file_of_the_first(folder):
    with running_command(folder, "--concurrency", "2") as first:
        wait_for(folder / "out", lambda found: found.alive)
        with running_command(folder) as second:
            assert second.wait(LONGEST) == 2
        assert read_progress(folder / "out").pid == first.pid
        assert read_progress(folder / "out").alive


# here


class Digits(Model):
    """Right for two of three seeds."""

    name, concurrency, samples = "digits", 4, 4

    async def generate(self, requests):
        for place, request in enumerate(requests):
            for j in range(request.n):
                digit = 4 if (request.sampling.seed + j) % 3 else 7
                yield Reply(place=place, index=j, text=f"It is {digit}.", tokens_in=10, tokens_out=5)


def task(n=40, **more):
    records = [{"id": f"q{i}", "question": f"2 + {i}", "answer": "4"} for i in range(n)]
    return {"name": "sums", "dataset": records, "stages": [{"name": "answer", "prompt": "{question} ="}], **more}


@pytest.fixture
def every_look(monkeypatch):
    """What was graded while runs were going: looks come at once and at everything, and the estimates of the last."""
    found = []

    def add(self, item, rows, before=InterimGrader.add):
        before(self, item, rows)
        self._due, self._room = 0.0, MOST
        self.look()
        found[:] = [self.latest]

    monkeypatch.setattr(InterimGrader, "add", add)
    return lambda: found[0]


def same(live, result):
    estimates = {(e.metric, e.aggregator): (e.point, e.n, e.n_missing) for e in result.estimates}
    assert live
    for one in live:
        assert (one.point, one.n, one.n_missing) == (
            pytest.approx(estimates[one.metric, one.aggregator][0]),
            *estimates[one.metric, one.aggregator][1:],
        )


PLACES = [{"id": str(i), "question": "?", "options": ["Rome", "Oslo", "4"], "answer": "Oslo"} for i in range(30)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "options"),
    [
        (task(), {}),
        (task(), {"repeats": 1}),
        (task(), {"adaptive": True, "max_repeats": 6, "repeats": None}),
        (task(), {"metrics": ["contains"], "extract": "text"}),
        (task(), {"metrics": ["token_f1"], "extract": "text", "threshold": 0.1}),
        ({**task(), "dataset": PLACES, "stages": [{"prompt": "{question}"}]}, {}),
        (task(two_stage={"markovian": True}, stages=[]), {"compare_markovian": True}),
    ],
    ids=["numbers", "one", "adaptive", "contains", "threshold", "options", "both answers"],
)
def test_while_it_goes_a_run_is_graded_as_at_its_end(what, options, every_look, tmp_path):
    done = kofn.run(what, model=Digits(), out=tmp_path / "r", **{"repeats": 3, **options})
    same(every_look(), done.result)


def test_weights_and_clusters_of_cases_count(every_look, tmp_path):
    rows = [
        {"id": f"q{i}", "question": f"{i}", "answer": "4", "weight": 1 + i % 3, "cluster": f"c{i // 4}"}
        for i in range(40)
    ]
    done = kofn.run({**task(), "dataset": rows}, model=Digits(), repeats=3, out=tmp_path / "r")
    same(every_look(), done.result)


def test_a_function_of_ones_own_is_called_once_an_output_unless_it_says_that_it_is_quick(every_look, tmp_path):
    import tests.generate.test_run_progress as here

    calls = here.CALLS
    calls.clear()
    kofn.run(
        task(), model=Digits(), repeats=1, metrics=["tests.generate.test_run_progress:careful"], out=tmp_path / "a"
    )
    once = len(calls)
    assert once > 0
    assert read_progress(tmp_path / "a").state == "done"
    calls.clear()
    done = kofn.run(
        task(), model=Digits(), repeats=1, metrics=["tests.generate.test_run_progress:quick"], out=tmp_path / "b"
    )
    assert len(calls) > once
    same(every_look(), done.result)


CALLS: list[str] = []


def careful(prediction, reference):
    CALLS.append(prediction)
    return float(prediction == reference)


def quick(prediction, reference):
    return careful(prediction, reference)


quick.heavy = False


def test_what_cannot_be_graded_while_a_run_goes_never_stops_it(monkeypatch, tmp_path, every_look):
    monkeypatch.setattr(interim_estimates, "table_of_rows", lambda *_: 1 / 0)
    done = kofn.run(task(), model=Digits(), repeats=2, out=tmp_path / "r")
    assert done.result.n_candidates == 80
    assert every_look() == ()


@pytest.mark.parametrize("how", ["a folder", "read-only", "full"])
def test_a_run_whose_progress_cannot_be_written_is_a_run_like_any_other(tmp_path, monkeypatch, how):
    from pathlib import Path

    (tmp_path / "r").mkdir()
    if how == "a folder":
        (tmp_path / "r" / NAME / "x").mkdir(parents=True)
    else:
        write = Path.write_bytes
        problem = OSError(30, "Read-only file system") if how == "read-only" else OSError(28, "No space left on device")

        def refused(path, data):
            if NAME in path.name:
                raise problem
            return write(path, data)

        monkeypatch.setattr(Path, "write_bytes", refused)
    done = kofn.run(task(), model=Digits(), repeats=2, out=tmp_path / "r")
    other = kofn.run(task(), model=Digits(), repeats=2, out=tmp_path / "other")
    assert kofn.load_run(tmp_path / "r").result.estimates == other.result.estimates == done.result.estimates
    assert read_progress(tmp_path / "r") is None


# what looking costs


class World:
    """A clock that goes as fast as it is told; a look takes so long, and so much more for every candidate.

    The first two looks also load something.
    """

    def __init__(self, monkeypatch, fixed, each):
        self.now, self.spent, self.sizes, self.fixed, self.each = 0.0, 0.0, [], fixed, each
        for clock in ("perf_counter", "thread_time"):
            monkeypatch.setattr(interim_estimates, clock, lambda: self.now)
        monkeypatch.setattr(InterimGrader, "_grade", lambda _, done: self.grade(done))

    def grade(self, done):
        self.sizes.append(sum(len(rows) for _, rows in done))
        took = (
            self.fixed + self.each * self.sizes[-1] + (3.0 if len(self.sizes) == 1 else 0.0)
        )  # the first loads things
        self.now += took
        self.spent += took if len(self.sizes) > 1 else 0.0

    def go(self, seconds, a_second, repeats):
        looks = InterimGrader.of(prepare(task(4), configure(model=Digits(), repeats=repeats)))
        looks._began = 0.0
        rows, most = [_Row()] * repeats, 0
        while self.now < seconds:
            self.now += 0.2
            for _ in range(round(a_second * 0.2)):
                looks.add(None, rows)
            most = max(most, sum(len(of) for _, of in looks.waiting))
            looks.look()
        return most


class _Row:
    stage = "answer"


@pytest.mark.long(quick=1)
@pytest.mark.parametrize(
    ("fixed", "each", "a_second", "repeats"),
    [(0.006, 4e-6, 5000, 1), (0.006, 4e-6, 20, 8), (0.02, 0.02, 50, 16), (0.006, 1.0, 10, 1), (0.5, 1e-6, 100, 1)],
    ids=["fast calls", "usual", "slow metric", "very slow metric", "slow machine"],
)
def test_looks_take_a_hundredth_of_the_time_and_come_once_a_second(monkeypatch, fixed, each, a_second, repeats):
    world, seconds = World(monkeypatch, fixed, each), 600 if a_second < 5000 else 120
    most = world.go(seconds, a_second, repeats)
    assert world.spent <= 1.2 * SHARE * seconds
    assert 3 < len(world.sizes) <= seconds + 10
    assert most < MOST + repeats


def test_where_there_is_time_for_it_every_case_is_looked_at(monkeypatch):
    world = World(monkeypatch, 0.006, 4e-6)
    world.go(120, 30, 8)
    assert sum(world.sizes) > 0.95 * 120 * 30 * 8
    assert max(world.sizes) <= MOST + 8
