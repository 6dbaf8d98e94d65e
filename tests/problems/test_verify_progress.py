"""A verification looked at from outside, in a process of its own: while it goes, when it is killed, when it is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.programs import need_sandbox, problem_in, submission_in
from tests.waiting import wait_until

from kofn.generate.progress_file import NAME, read_progress
from kofn.problems.case import AttributeVerdict, CaseOutcome
from kofn.problems.case_store import ExecutionCount
from kofn.problems.verification import VerifyOptions, verify

SLOW = "import sys, time; time.sleep(0.2); n = int(sys.argv[1]); print(n if n % 5 else 'wrong')"

ROOT = Path(__file__).parents[2]


@pytest.fixture
def squares(tmp_path):
    need_sandbox()
    cases = [{"id": f"c{i}", "args": [str(i)], "expected": {"output": str(i)}} for i in range(40)]
    config = {"name": "same", "entry": "python main.py", "checkpoints": {"one": {"groups": {"g": {"cases": cases}}}}}
    return problem_in(tmp_path, json.dumps(config)), submission_in(tmp_path, SLOW)


@pytest.mark.kills
def test_it_is_seen_while_it_goes_and_after_a_kill_and_is_gone_when_all_is_done(squares, tmp_path):
    out = tmp_path / "out"
    script = Path(__file__).with_name("worker_killed.py")
    command = [sys.executable, str(script), *map(str, squares), str(out)]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    )
    try:
        found = wait_until(lambda: (live := read_progress(out)) and live.cases_done and live, "the first cases")
        assert (found.kind, found.task, found.model, found.pid) == ("verify", "same", "sub", process.pid)
        assert found.alive
        assert (found.cases_total, found.candidates_total) == (40, 40)
        (share,) = found.estimates
        assert (share.n, share.low, share.high) == (found.cases_done, None, None)
    finally:
        process.kill()
        process.wait()
    left = read_progress(out)
    assert (left.state, left.alive) == ("running", False)
    subprocess.run(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}, check=True
    )
    assert not (out / NAME).exists()  # a folder of runs is no run


def test_an_error_is_said(squares, tmp_path):
    from kofn.problems import load_problem

    problem = load_problem(squares[0])

    class Interrupted(ExecutionCount):
        def on_case(self, outcome):
            super().on_case(outcome)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(
            problem,
            [squares[1]],
            problem.checkpoints,
            out=tmp_path / "out",
            options=VerifyOptions(workers=1),
            progress=Interrupted(),
        )
    found = read_progress(tmp_path / "out")
    assert (found.state, found.reason, found.cases_done) == ("stopped", "interrupted", 1)


def test_what_the_harness_failed_at_is_an_error_and_neither_right_nor_wrong():
    count = ExecutionCount()
    count.on_total(10, 4, 3)
    right = AttributeVerdict(attribute="output", correct=True)
    for done in (
        CaseOutcome(key="a", verdicts=(right,)),
        CaseOutcome(key="b"),
        CaseOutcome(key="c", harness_error="no space"),
    ):
        count.on_case(done)
    now = count.snapshot()
    assert (now.done, now.total, now.reused, now.errors) == (7, 10, 4, 1)
    assert (now.estimates[0].point, now.estimates[0].n, now.estimates[0].n_missing) == (4 / 6, 6, 1)
    assert ExecutionCount().snapshot().estimates == ()


@pytest.mark.programs
def test_samples_of_a_data_set_end_in_a_run_whose_file_says_done(tmp_path):
    need_sandbox()
    functions = Path(__file__).parents[2] / "examples" / "functions"
    command = [sys.executable, "-m", "kofn", "verify", functions / "tasks.jsonl", functions / "samples.jsonl"]
    subprocess.run([*map(str, command), "--out", str(tmp_path / "out")], check=True, capture_output=True)
    found = read_progress(tmp_path / "out")
    assert (found.kind, found.task, found.model, found.state) == ("verify", "tasks", "samples.jsonl", "done")
    assert found.cases_done == found.cases_total > 0
    assert (tmp_path / "out" / "run.json").exists()
