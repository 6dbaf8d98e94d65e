"""Every benchmark works, on little data: its rows come, and what it checks of both sides' numbers holds. No times."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers import PYTHON, needs_peer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
QUICK = ("aggregation", "bootstrap", "extraction", "judge", "ranking", "reports")
SLOW = ("calls", "embedded", "logs", "memory", "score", "startup", "verify", "view")


def run(*parts: str, tools: str = "", ir: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--small", *(f"--only={part}" for part in parts)]
    env = {**os.environ, "KOFN_PEERS_PYTHON": tools, "KOFN_PEERS_IR_PYTHON": ir}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=500, check=False)


def rows(done: subprocess.CompletedProcess[str]) -> int:
    """How many rows a run says it has."""
    return sum(int(n) for n in re.findall(r"^-- \w+: (\d+) rows in", done.stdout, re.MULTILINE))


def kofn_rows(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if ": kofn " in line]


def test_every_benchmark_is_known_to_the_tests():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import run; print(*sorted(run.PARTS))"
    found = subprocess.run([sys.executable, "-c", code, str(BENCHMARKS)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == sorted(QUICK + SLOW)


@pytest.mark.long(quick=1)
@pytest.mark.parametrize("part", [*QUICK, *(pytest.param(part, marks=pytest.mark.slow) for part in SLOW)])
def test_a_benchmark_gives_rows_without_its_peers_and_says_who_is_missing(part):
    done = run(part)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(done) == len(kofn_rows(done)) > 0, done.stdout
    assert ("left out: " in done.stderr) == (part not in ("score", "view", "embedded")), done.stderr


@pytest.mark.long
def test_a_peer_that_fails_leaves_the_other_rows_and_the_exit_code_says_so():
    done = run("judge", ir="/bin/false")
    assert done.returncode == 1
    assert "failed: judge: judgy: exit code 1" in done.stdout
    assert rows(done) == 2


@pytest.mark.slow
@needs_peer("lm_eval")
@pytest.mark.parametrize("part", ["aggregation", "bootstrap", "calls", "extraction", "logs", "memory", "reports"])
def test_a_benchmark_and_its_peers_give_the_same_numbers(part):
    done = run(part, tools=str(PYTHON))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr.count("left out: "), done.stderr
    assert rows(done) > rows(run(part)) or part in ("calls", "startup")


def test_the_page_shows_what_was_measured():
    """docs/benchmarks.md is made from benchmarks/measured.json and from nothing else."""
    code = "import json, sys; sys.path.insert(0, sys.argv[1]); import run; print(run.page(run.kept()), end='')"
    made = subprocess.run([sys.executable, "-c", code, str(BENCHMARKS)], capture_output=True, text=True, check=True)
    assert made.stdout == (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
    kept = json.loads((BENCHMARKS / "measured.json").read_text())
    assert kept["parts"].keys() <= {*QUICK, *SLOW}
    assert all(row["limit"][1] > 0 for part in kept["parts"].values() for row in part["rows"])


def test_the_examples_in_the_table_of_the_benchmarks_hold():
    subprocess.run([sys.executable, "-m", "doctest", str(BENCHMARKS / "table.py")], check=True)
