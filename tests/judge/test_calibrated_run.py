"""From a judge's verdicts to a corrected rate in every report of the run; the checklist says what holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import kofn
from kofn.cli import kofn as command
from kofn.judge import JudgeSettings, judge
from kofn.judge.labels import read_labels


def lenient(prompt):
    """Passes what is good, and one in three of what is not."""
    text = prompt.partition("reply ")[2]
    return "Verdict: pass" if text.startswith("good") or text.partition(" ")[2][:1] in "147" else "Verdict: fail"


@pytest.fixture
def run(tmp_path):
    """80 cases of 3; a judge graded them. Also which candidates are good."""
    good = np.random.default_rng(0).random((80, 3)) < 0.4
    rows = [
        {"id": f"q{i}", "kind": "ab"[i % 2], "outputs": [
            {"text": f"reply {'good' if good[i, j] else 'bad'} {i * 3 + j}", "reward": float(j)} for j in range(3)]}
        for i in range(80)
    ]  # fmt: skip
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rubric = {"name": "ok", "prompt": "{output}"}
    judge(tmp_path / "f.jsonl", rubric, JudgeSettings(models=(lenient,)), out=tmp_path / "run")
    return tmp_path / "run", good


def kofn_says(*args):
    return CliRunner().invoke(command, [str(a) for a in args], catch_exceptions=False)


def labels(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def answer(run, item):
    record = json.loads(kofn_says("report", run, "--json").stdout)
    return next(line["answer"] for line in record["checklist"] if item in line["item"])


@pytest.mark.long
def test_a_saved_correction_is_in_every_report_and_survives_the_same_judge_again(run, tmp_path):
    path, good = run
    assert answer(path, "calibrated") == "no"
    rows = [{"id": f"q{i}", "human": int(good[i].any())} for i in range(50)]
    done = kofn_says("calibrate", labels(tmp_path / "l.jsonl", rows), "--apply", path, "--save", "--json")
    assert done.exit_code == 0, done.output
    corrected = json.loads(done.stdout[: done.stdout.rindex("}") + 1])["corrected"]
    assert corrected["low"] < good.any(axis=1).mean() < corrected["high"]
    assert answer(path, "calibrated") == "yes"
    number = f"{corrected['point']:.3f}"
    for form in ("--markdown", "--detailed"):
        assert number in kofn_says("report", path, form).stdout
    assert number in (path / "report.html").read_text()
    found = kofn.load_run(path)
    assert not any("not corrected for its errors" in w for w in map(str, found.result.warnings))
    assert found.manifest["result"]["judges"]["ok"]["calibration"]["labels"]["sha256"]
    judge(path, {"name": "ok", "prompt": "{output}"}, JudgeSettings(models=(lenient,)))
    assert answer(path, "calibrated") == "yes"


def test_labels_of_picks_correct_the_rate_of_picks_and_nothing_else(run, tmp_path):
    path, good = run
    sheet = tmp_path / "sheet.jsonl"
    done = kofn_says("calibrate", path, "--sample", 60, "--selected", "--by-selector", "reward", "-o", sheet)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in sheet.read_text().splitlines()]
    assert {row["picked"] for row in rows} == {2}  # the highest reward
    filled = labels(tmp_path / "l.jsonl", [{**r, "human": int(good[int(r["id"][1:]), r["picked"]])} for r in rows])
    refused = kofn_says("calibrate", filled, "--apply", path)
    assert refused.exit_code == 2
    assert "give --selected" in refused.output
    record = kofn_says("calibrate", filled, "--apply", path, "--selected", "--by-selector", "reward", "--json")
    corrected = json.loads(record.stdout)["corrected"]
    assert corrected["low"] < good[:, 2].mean() < corrected["high"]
    again = kofn_says("calibrate", path, "--sample", 60, "-o", sheet)
    assert again.exit_code == 2
    assert len(read_labels(sheet)) == 60


def test_scores_on_the_scale_of_a_rubric_are_brought_to_that_of_the_run(tmp_path):
    rng = np.random.default_rng(1)
    truth = rng.integers(1, 6, 60)
    said = np.clip(truth + rng.integers(-1, 2, 60), 1, 5)
    rows = [{"id": f"q{i}", "input": "?", "outputs": [f"reply {said[i]} {i}"]} for i in range(60)]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def stars(prompt):
        return f"Score: {prompt.partition('reply ')[2][0]}"

    judge(tmp_path / "f.jsonl", "helpfulness", JudgeSettings(models=(stars,)), out=tmp_path / "run")
    people = labels(tmp_path / "l.jsonl", [{"id": f"q{i}", "human": int(truth[i])} for i in range(30)])
    record = json.loads(kofn_says("calibrate", people, "--apply", tmp_path / "run", "--json").stdout)
    assert record["raw"]["point"] == pytest.approx((said.mean() - 1) / 4)
    assert record["corrected"]["low"] < (truth.mean() - 1) / 4 < record["corrected"]["high"]
    passing = json.loads(kofn_says("calibrate", people, "--apply", tmp_path / "run", "--threshold", 4, "--json").stdout)
    assert passing["raw"]["point"] == pytest.approx((said >= 4).mean())


@pytest.mark.long
def test_runs_of_different_judges_are_compared_with_a_warning(run, tmp_path):
    def other(prompt):
        return "Verdict: fail"

    path, _ = run
    source = path.parent / "f.jsonl"
    judge(source, {"name": "ok", "prompt": "{output}"}, JudgeSettings(models=(other,)), out=tmp_path / "other")
    record = json.loads(kofn_says("compare", path, tmp_path / "other", "--json").stdout)
    assert any("by different judges" in w for w in record["warnings"])


def test_the_checklist_of_a_judged_run_answers_every_question(run):
    path, _ = run
    record = json.loads(kofn_says("report", path, "--json").stdout)["checklist"]
    assert [line["answer"] for line in record] == ["unknown", "yes", "yes", "no", "n/a", "no", "no", "yes"]
    assert all(line["reason"] for line in record)
    assert kofn_says("check", path, "--strict", "--require", "mean >= 0", "--allow-missing").exit_code == 0


def test_repeated_scores_of_a_real_judge_split_into_case_candidate_and_judge(sets_folder):
    """100 cases x 10 texts x 5 scores; a fit by restricted maximum likelihood gives the same shares."""
    from kofn.judge.client import JudgeVerdict
    from kofn.judge.judge_metrics import judge_scores, variance_entry
    from kofn.judge.rubric import load_rubric

    text = (sets_folder / "tot_writing_gpt4_io_100x10.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    lists = [
        tuple(JudgeVerdict(None if v is None else float(v), "", None, repaired=False) for v in output["judge_repeats"])
        for row in rows
        for output in row["outputs"]
    ]
    owner = np.repeat(np.arange(len(rows)), [len(row["outputs"]) for row in rows])
    rubric = load_rubric({"name": "x", "prompt": "{output}", "scale": "0-10", "threshold": 7})
    found = variance_entry({"gpt4": lists}, owner, rubric)
    shares = [found["shares"][name] for name in ("case", "candidate", "judge")]
    assert shares == pytest.approx([0.412, 0.455, 0.133], abs=0.002)
    scores = [output["score"] / 10 for row in rows for output in row["outputs"]]
    np.testing.assert_allclose(judge_scores("x", lists, rubric).values, scores, atol=0.05)
