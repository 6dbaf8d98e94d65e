"""results.jsonl: one line a run, appended, with what every case was asked, said and got."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import kofn
from kofn.render.run_directory import append_line, results_line
from kofn.runs import report_of
from kofn.runs.record import Run
from kofn.scoring.configuration import ReportConfig

LETTERS = [
    # the older rule takes the first of A to E anywhere, so that "The" is an E
    {
        "id": "a",
        "question": "?",
        "reference": "B",
        "choices": ["x", "y"],
        "outputs": ["The answer is B", "The answer is A"],
    },
    {"id": "b", "question": "?", "reference": "A", "choices": ["x", "y"], "outputs": ["A", "The answer is A"]},
]


def run_of(rows, **plan):
    result = kofn.score(rows, everything=True)
    evaluation, reports = report_of(result, ReportConfig(task="t", **plan))
    return Run(name="r", evaluation=evaluation, reports=reports, manifest={}, result=result)


def line_of(rows, *, metric=(), **plan):
    result = kofn.score(rows, everything=True, metric=metric)
    evaluation, reports = report_of(result, ReportConfig(task="t", **plan))
    run = Run(name="r", evaluation=evaluation, reports=reports, manifest={}, result=result)
    return results_line(run, ReportConfig(task="t", **plan))


def kofn_command(*args):
    return subprocess.run([sys.executable, "-m", "kofn", *map(str, args)], capture_output=True, text=True, check=False)


def test_accuracy_is_the_share_of_cases_whose_verdict_is_right_and_the_details_say_the_same():
    line = results_line(run_of(LETTERS, verdict="all_pass"))
    assert line["task_type"] == "t"
    assert line["num_examples"] == 2
    assert [d["correct"] for d in line["detailed_results"]] == [False, True]
    assert line["accuracy"] == 0.5
    first = line["detailed_results"][0]
    assert (first["question"], first["answer"]) == ("?", "B")
    assert (first["generated_answer"], first["predicted"]) == ("The answer is B", "B")
    assert [r["correct"] for r in first["repeats"]] == [True, False]
    assert "batch_index" not in line
    assert not [key for key in line if key.startswith("haiku")]


def test_the_older_rule_is_reported_beside_it():
    line = results_line(run_of(LETTERS))
    assert line["accuracy"] == 1.0
    assert line["accuracy_legacy"] == 0.5  # "The answer is B" reads as E


def test_the_older_rule_keeps_metric_and_threshold():
    rows = [{"id": i, "reference": "10", "outputs": ["It is 11", "It is 10"]} for i in range(4)]
    near = line_of(rows, metric="numeric(tolerance=1)", verdict="all_pass")
    assert (near["accuracy"], near["accuracy_legacy"]) == (1.0, 1.0)
    exact = line_of(rows, verdict="all_pass")
    assert (exact["accuracy"], exact["accuracy_legacy"]) == (0.0, 0.0)


def test_a_metric_that_reads_whole_texts_has_no_older_rule():
    rows = [{"id": i, "reference": "10", "outputs": ["I cannot help with that", "It is 10"]} for i in range(4)]
    line = line_of(rows, metric="refused", verdict="mean <= 0.5")
    assert line["accuracy"] == 1.0
    assert line["accuracy_legacy"] is None


def test_there_is_no_older_rule_for_labels():
    assert results_line(run_of([{"id": 1, "passes": [1, 0]}]))["accuracy_legacy"] is None


def test_a_case_that_was_not_graded_is_neither_right_nor_wrong():
    line = results_line(run_of([{"id": 1, "passes": [None]}, {"id": 2, "passes": [1]}]))
    assert line["accuracy"] == 1.0
    assert [d["correct"] for d in line["detailed_results"]] == [None, True]


def test_what_a_model_that_extracts_found_has_its_own_fields():
    found = {"llm_extraction": {"accuracy": 0.75, "cost_usd": 0.01, "num_calls": 4, "n_failed": 0}}
    run = replace(run_of(LETTERS), manifest={"generation": found})
    line = results_line(run, ReportConfig(batch_index=7))
    assert (line["haiku_accuracy"], line["haiku_cost_usd"], line["haiku_num_calls"]) == (0.75, 0.01, 4)
    assert line["batch_index"] == 7


def test_of_very_many_candidates_the_line_says_where_they_are(monkeypatch):
    monkeypatch.setattr("kofn.render.run_directory.MOST_CANDIDATES", 3)
    line = results_line(run_of(LETTERS))
    assert line["detailed_results"] == []
    assert line["detailed_results_in"] == "candidates.parquet"
    assert line["num_examples"] == 2


def test_lines_are_appended_and_an_open_last_line_is_closed_first(tmp_path):
    path = tmp_path / "deep" / "results.jsonl"
    append_line(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"cut')
    append_line(path, {"b": 2})
    assert path.read_text().splitlines() == ['{"a":1}', '{"cut', '{"b":2}']


@pytest.mark.commands
def test_batches_of_a_training_loop_share_one_file(tmp_path):
    rows, shared = tmp_path / "rows.jsonl", tmp_path / "results.jsonl"
    rows.write_text("\n".join(json.dumps(row) for row in LETTERS))
    for step in (100, 200):
        options = ("--batch-index", step, "--append-results", shared, "--task", "mcq")
        done = kofn_command("score", rows, "--out", tmp_path / str(step), *options)
        assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in shared.read_text().splitlines()]
    assert [(line["batch_index"], line["task_type"]) for line in lines] == [(100, "mcq"), (200, "mcq")]
    assert json.loads((tmp_path / "100" / "results.jsonl").read_text()) == lines[0]


@pytest.mark.commands(quick=2)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--verdict", "majority"], "--verdict shapes the run directory: give --out DIR too"),
        (["--out", "OUT", "--verdict", "unique_answers"], "say from where on a case passes"),
        (["--out", "OUT", "--group-type", "cases"], "--group-type 'cases': expected GROUP=TYPE"),
        (["--out", "OUT", "--group-type", "cases=core"], "unknown group type 'core'"),
        (["--out", "OUT", "--group-type", "x=Core"], "unknown group 'x'"),
        (["--out", "OUT", "--group-weight", "cases=0"], "above 0"),
        (["--out", "OUT", "--group-weight", "cases=much"], "expected a number above 0"),
        (["--out", "OUT", "--metric-weight", "bleu=2"], "unknown metric 'bleu'"),
        (["--out", "OUT", "--group", "nothing"], "unknown field 'nothing'"),
        (["--out", "OUT", "--policy", "most"], "unknown policy 'most'"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_report_that_cannot_be_made_is_refused_in_one_line_and_nothing_is_written(args, said, tmp_path):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "run"
    rows.write_text("\n".join(json.dumps(row) for row in LETTERS))
    done = kofn_command("score", rows, *(out if a == "OUT" else a for a in args))
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not out.exists()


def test_a_reader_that_leaves_early_is_no_failed_check():
    script = f"{sys.executable} -m kofn list aggregators | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0"
