"""`kofn new`: every file that it writes runs as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import kofn
from kofn.cli import kofn as program
from kofn.judge import load_rubric
from kofn.tasks import load_task

ANSWERS = {"17 + 25": "42", "8 + 6": "14", "31 - 4": "27", "90 - 45": "45"}
MODEL = f"fake:{__name__}:answer"


def answer(prompt):
    """A model that can add, and passes what it is given to judge."""
    found = [result for question, result in ANSWERS.items() if question in prompt]
    return "Verdict: pass" if "answer to grade" in prompt else f"It is {found[0]}." if found else "Paris"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args, code=0):
    done = CliRunner().invoke(program, [str(arg) for arg in args])
    assert (done.exit_code if code == 0 else bool(done.exit_code)) == (0 if code == 0 else True), done.output
    return done


def test_a_new_task_runs_and_its_right_answers_pass():
    invoke("new", "task", "quiz")
    invoke("run", "quiz.yaml", "--model", MODEL, "--out", "runs/quiz")
    result = kofn.load_run("runs/quiz").result
    assert (result.n_cases, result.n_candidates) == (4, 16)
    assert {e.aggregator: e.point for e in result.estimates if e.segment is None} == {
        "mean": 1.0,
        "any_pass": 1.0,
        "majority": 1.0,
    }
    (stage,) = load_task("quiz.yaml").spec.stages
    assert (stage.prompt, stage.temperature) == ("{question} Answer with the number only.", 0.7)


def test_a_new_rubric_grades_with_a_judge():
    rows = [{"id": "q", "input": "What is 8 + 6?", "outputs": ["14", "15"]}]
    invoke("new", "rubric", "polite")
    assert load_rubric("polite.yaml").name == "polite"
    judged = kofn.judge(rows, rubric="polite.yaml", model=answer, out="runs/judged")
    assert judged.scored_result.get("mean", metric="polite").point == 1.0


def test_the_commands_of_a_new_workflow_run():
    invoke("new", "task", "quiz")
    invoke("new", "ci", "--task", "quiz.yaml")
    workflow = yaml.safe_load(Path(".github/workflows/kofn.yml").read_text())
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0] == "pip install kofn"
    here = Path(__file__).parents[2]
    kofn_here = f'kofn() {{ "{sys.executable}" -m kofn "$@"; }}; '
    env = {**os.environ, **job["env"], "MODEL": MODEL, "PYTHONPATH": f"{here / 'src'}:{here}"}
    for command in commands[1:]:
        done = subprocess.run(["sh", "-c", kofn_here + command], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    uploaded = next(step["with"]["path"] for step in job["steps"] if "upload" in step.get("uses", ""))
    assert all(Path(one).exists() for one in uploaded.split())


@pytest.mark.parametrize("kind", ["task", "rubric"])
def test_a_file_that_exists_stays(kind):
    Path("mine.yaml").write_text("precious")
    for name in ("mine", "mine.yaml"):
        assert "mine.yaml: already exists" in str(invoke("new", kind, name, code=2).exception)
    assert Path("mine.yaml").read_text() == "precious"


def test_a_name_that_a_task_cannot_have_is_refused():
    assert "not a valid name" in str(invoke("new", "task", "a b", code=2).exception)
