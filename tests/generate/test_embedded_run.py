"""The whole walk on a real language model: the embedded one, on the task that ships with kofn."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import polars as pl
import pytest
from tests.embedded import weights

import kofn

pytestmark = pytest.mark.skipif(weights() is None, reason="the weights of smollm2 are not installed")

COMMAND = [sys.executable, "-m", "kofn", "run", "starter", "--ids", "fact-01,fact-07,problem-03", "-r", "3"]
ENV = {**os.environ, "KOFN_THREADS": "1", "GOMP_SPINCOUNT": "1000"}


def candidates(folder):
    return pl.read_parquet(folder / "candidates.parquet").select("case_id", "index", "text", "tokens", "finish")


def command(*more, cwd):
    return subprocess.run([*COMMAND, *more], cwd=cwd, capture_output=True, text=True, check=False, env=ENV)


def test_the_starter_task_runs_from_the_command_line_to_a_report(tmp_path):
    done = command("--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 cases x 3 candidates" in done.stdout
    run = kofn.load_run(tmp_path / "run")
    generation = run.manifest["generation"]
    assert generation["mode"] == "fast"
    assert generation["described"]["actor"]["sha256"].startswith("b179c952")
    assert generation["tokens_out"] > 9
    assert generation["cost"] == 0
    assert run.result.table.tags["group"].to_list() == ["facts", "facts", "word_problems"]
    assert "Tokyo" in " ".join(run.result.table.candidates["text"].to_list())
    assert "smollm2" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.model
def test_a_reproducible_run_is_the_same_bit_for_bit_also_when_it_was_cut(tmp_path):
    first = command("--reproducible", "--out", "a", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    cut = command("--reproducible", "--out", "b", "--token-budget", "40", cwd=tmp_path)
    assert cut.returncode == 3
    second = command("--reproducible", "--out", "b", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert candidates(tmp_path / "a").equals(candidates(tmp_path / "b"))
    manifest = json.loads((tmp_path / "b" / "run.json").read_text())
    assert manifest["generation"]["mode"] == "reproducible"
    assert manifest["generation"]["reused"] > 0
    grown = command("--reproducible", "--out", "b", "-r", "4", cwd=tmp_path)
    assert grown.returncode == 0
    kept = candidates(tmp_path / "b").filter(pl.col("index") < 3)
    assert kept.equals(candidates(tmp_path / "a"))


@pytest.mark.model
def test_another_seed_gives_other_outputs(tmp_path):
    kofn.run("starter", ids=["fact-01", "problem-03"], repeats=2, seed=0, out=tmp_path / "a", reproducible=True)
    kofn.run("starter", ids=["fact-01", "problem-03"], repeats=2, seed=1, out=tmp_path / "b", reproducible=True)
    assert candidates(tmp_path / "a")["text"].to_list() != candidates(tmp_path / "b")["text"].to_list()


@pytest.mark.model
def test_options_are_compared_by_their_likelihood(tmp_path):
    records = [
        {
            "id": "france",
            "question": "What is the capital of France?",
            "choices": ["Rome", "Paris", "Oslo"],
            "answer": "B",
        },
        {"id": "sky", "question": "What colour is a clear sky?", "choices": ["blue", "green", "pink"], "answer": "A"},
    ]
    task = {"name": "mcq", "dataset": records, "output_type": "multiple_choice"}
    done = kofn.run(task, repeats=2, out=tmp_path / "r")
    assert done.result.n_missing == 0
    assert done.result.get("mean").point >= 0.5
    assert set(done.result.table.candidates["text"]) <= {"A", "B", "C"}
