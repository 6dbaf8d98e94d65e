"""A stored run graded again: the changes are what comparing the two runs by hand gives, and the parent is named."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest

from kofn.analysis.rescore import rescore
from kofn.errors import InputError
from kofn.runs.record import load_run
from kofn.scoring.configuration import GradingConfig

TEXTS = ["The answer is 4. (x = 1)", "x = 4", "Answer: 5 = 4", "no idea"]


def kofn(*args, code=0):
    done = subprocess.run([sys.executable, "-m", "kofn", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def turned(i):
    return TEXTS[i % 4 :] + TEXTS[: i % 4]


@pytest.fixture
def parent(tmp_path):
    rows = [
        {
            "id": f"q{i}",
            "input": "2+2?",
            "reference": "4",
            "level": str(i % 2),
            "outputs": TEXTS[i % 4 :] + TEXTS[: i % 4],
        }
        for i in range(12)
    ]
    path = tmp_path / "outputs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    kofn("score", path, "--extract", "number", "--metric", "numeric", "--out", tmp_path / "parent")
    return tmp_path / "parent"


@pytest.mark.commands
def test_every_verdict_that_changed_is_there_and_no_other(parent, tmp_path):
    kofn("score", parent, "--extract", "number_simple", "--out", tmp_path / "child")
    before = pl.read_parquet(parent / "candidates.parquet")
    after = pl.read_parquet(tmp_path / "child" / "candidates.parquet")
    expected = {
        (c, i)
        for c, i, a, b in zip(
            before["case_id"], before["index"], before["passed.numeric"], after["passed.numeric"], strict=True
        )
        if a != b
    }
    changes = pl.read_parquet(tmp_path / "child" / "changes.parquet")
    moved = changes.filter(pl.col("passed_before") != pl.col("passed_after"))
    assert set(zip(moved["case_id"], moved["index"], strict=True)) == expected != set()
    parent_entry = json.loads((tmp_path / "child" / "run.json").read_text())["parent"]
    assert parent_entry["name"] == "parent"
    assert sum(m["n"] for m in parent_entry["changes"][0]["moved"]) == len(expected)
    mean = parent_entry["changes"][0]["numbers"]["mean"]
    assert mean["a"] == before["passed.numeric"].mean()
    assert mean["b"] == after["passed.numeric"].mean()


@pytest.mark.long
def test_the_child_is_graded_as_the_outputs_themselves_would_be(parent, tmp_path):
    """Grading a stored run is grading its file."""
    again = rescore(parent, GradingConfig(extract="number_simple"))
    fresh = json.loads(
        kofn("score", tmp_path / "outputs.jsonl", "--extract", "number_simple", "--metric", "numeric", "--json")
    )
    mine = [(e.aggregator, e.point, e.low, e.high) for e in again.result.estimates]
    assert mine == [(e["aggregator"], e["point"], e["low"], e["high"]) for e in fresh["estimates"]]


@pytest.mark.commands
def test_what_changed_is_shown_wherever_the_child_is(parent, tmp_path):
    printed = kofn("score", parent, "--extract", "number_simple", "--out", tmp_path / "child")
    for text in (
        printed,
        kofn("report", tmp_path / "child"),
        kofn("report", tmp_path / "child", "--markdown"),
        (tmp_path / "child" / "report.html").read_text(),
    ):
        assert "raded again from" in text or "Graded again" in text
        assert "48 candidates changed" in text
    assert load_run(tmp_path / "child").manifest["parent"]["changes"]


def test_a_run_is_shown_with_other_numbers_without_being_graded_again(parent):
    again = rescore(parent, GradingConfig(aggregate=("any_pass",), by=("level",)))
    assert again.changes == ()
    assert {e.segment for e in again.result.estimates} == {None, "level=0", "level=1"}
    stored = load_run(parent)
    assert again.result.get("any_pass").point == stored.result.get("any_pass").point


@pytest.mark.commands
def test_verdicts_of_a_judge_are_kept_and_nothing_is_asked(parent, tmp_path, monkeypatch):
    (tmp_path / "kofn_kind_judge.py").write_text("def reply(prompt):\n    return 'Verdict: pass'\n")
    monkeypatch.chdir(tmp_path)
    kofn("judge", parent, "--rubric", "correctness", "--model", "fake:kofn_kind_judge:reply")
    again = rescore(parent, GradingConfig(extract="number_simple"))
    assert [one.metric for one in again.result.scored] == ["numeric", "correctness"]
    assert "correctness" in again.result.judges
    assert again.result.get("mean", metric="correctness").point == 1.0


def test_a_threshold_alone_grades_again(tmp_path):
    rows = [{"id": f"q{i}", "outputs": [{"text": "a", "score": s} for s in (0.2, 0.6, 1.0)]} for i in range(4)]
    path = tmp_path / "f.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    kofn("score", path, "--out", tmp_path / "r")
    again = rescore(tmp_path / "r", GradingConfig(threshold=0.5))
    assert again.changes[0].moved == {("fail", "pass"): 4}
    assert again.result.get("mean").point == pytest.approx(0.6)


@pytest.mark.commands
def test_grading_a_child_again_points_at_the_child(parent, tmp_path):
    kofn("score", parent, "--extract", "number_simple", "--out", tmp_path / "child")
    kofn("score", tmp_path / "child", "--extract", "number", "--out", tmp_path / "grandchild")
    parent_entry = load_run(tmp_path / "grandchild").manifest["parent"]
    assert parent_entry["name"] == "child"
    back = {(m["before"], m["after"]): m["n"] for m in parent_entry["changes"][0]["moved"]}
    there = load_run(tmp_path / "child").manifest["parent"]["changes"][0]["moved"]
    assert back == {(m["after"], m["before"]): m["n"] for m in there}


@pytest.mark.commands
def test_runs_are_files_like_any_other_as_repeats(parent, tmp_path):
    kofn("score", tmp_path / "outputs.jsonl", "--out", tmp_path / "two")
    printed = kofn("score", parent, tmp_path / "two", "--as-repeats", "--extract", "number")
    assert "12 cases x 8 candidates" in printed


@pytest.mark.commands
def test_what_cannot_be_graded_again_says_so(parent, tmp_path):
    assert "a run is read as it is" in kofn("score", parent, "--where", "level=0", code=2)
    assert "unknown extractor" in kofn("score", parent, "--extract", "nosuch", code=2)
    manifest = parent / "run.json"
    manifest.write_text(manifest.read_text().replace('"parent"', '"parent"')[:-40])
    with pytest.raises(InputError, match=r"run\.json"):
        rescore(parent, GradingConfig(extract="number"))


@pytest.mark.commands
def test_a_parent_of_the_wrong_shape_is_refused_by_its_field(parent, tmp_path):
    kofn("score", parent, "--extract", "number_simple", "--out", tmp_path / "child")
    path = tmp_path / "child" / "run.json"
    parent_entry = json.loads(path.read_text())
    parent_entry["parent"]["changes"][0]["n"] = "many"
    path.write_text(json.dumps(parent_entry))
    assert "parent" in kofn("report", tmp_path / "child", code=2)
