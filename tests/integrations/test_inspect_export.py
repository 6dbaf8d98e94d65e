"""Whatever kofn reads can be written as an Inspect log and read back the same."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

import kofn
from kofn.cli.export_verb import export_command as export
from kofn.cli.score_verb import score_command as score
from kofn.exporters.inspect_log import write
from kofn.importers import read
from kofn.runs.load import load_graded

ROWS = [
    {"id": "a", "reference": ["4", "four"], "output": "It is 4.", "pass": 1, "score": 0.9, "reward": 0.3, "cost": 0.5},
    {"id": "a", "reference": ["4", "four"], "output": "", "pass": 0, "score": 0.1, "reward": 0.1, "seconds": 2.5},
    {"id": "b", "reference": ["5", "five"], "output": None, "error": "timeout"},
    {"id": "b", "reference": ["5", "five"], "output": "5", "pass": 1, "reasoning": "hm", "tokens": 7},
    {"id": "c", "reference": ["6"], "output": "six", "pass": 0, "score": 0.25, "reward": -1.0, "note": "odd"},
]


def file_of(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def estimates(result):
    return {(e.metric, e.aggregator): (e.point, e.low, e.high, e.n, e.n_missing) for e in result.estimates}


@pytest.mark.parametrize(
    "more", [{}, {"cluster": "x", "weight": 2.0, "level": 3, "input": "2+2?", "choices": ["4", "5"]}]
)
def test_candidates_grades_and_numbers_survive_the_round_trip(more, tmp_path):
    first = load_graded(file_of(tmp_path / "f.jsonl", [{**row, **more} for row in ROWS]))
    assert [str(w) for w in write(first, tmp_path / "back.json")] == [
        "score does not pass from 1.0 here: score the file with --threshold, as this run was"
    ]
    back = load_graded(tmp_path / "back.json")
    ours, theirs = (one.table.candidates.drop("repeat", "answer", strict=False) for one in (first, back))
    assert_frame_equal(theirs, ours, check_column_order=False, check_dtypes=False)
    assert_frame_equal(back.table.cases, first.table.cases, check_column_order=False)
    assert estimates(back.result) == estimates(first.result)


def test_what_is_not_graded_has_no_score_and_what_failed_its_error(tmp_path):
    write(load_graded(file_of(tmp_path / "f.jsonl", ROWS)), tmp_path / "back.json")
    log = json.loads((tmp_path / "back.json").read_text())
    failed = log["samples"][2]
    assert (failed["id"], failed["epoch"], failed["scores"]) == ("b", 1, {})
    assert failed["error"]["message"] == "timeout"
    assert log["results"]["total_samples"] == 5
    assert log["results"]["completed_samples"] == 4
    assert log["eval"]["config"]["epochs"] == 2
    assert "sample_ids" not in log["eval"]["dataset"]  # c has one repeat, and none of it is missing
    assert not any("missing" in line for line in map(str, read([tmp_path / "back.json"]).notes))


def test_metrics_where_less_is_better_stay_so(tmp_path):
    def distance(prediction, reference):
        return abs(len(prediction) - len(reference))

    distance.higher_is_better = False
    rows = [
        {"id": 1, "reference": "four", "outputs": ["4", "five"]},
        {"id": 2, "reference": "x", "outputs": ["y", "zz"]},
    ]
    from kofn.scoring.configuration import GradingConfig

    first = load_graded(file_of(tmp_path / "f.jsonl", rows), GradingConfig(metrics=(distance,), extract="text"))
    write(first, tmp_path / "back.json")
    back = read([tmp_path / "back.json"])
    assert back.labels == {first.result.scored[0].metric: False}
    result = kofn.score(tmp_path / "back.json", aggregate="best_score")
    assert result.get("best_score").point == 0.0


def test_the_verb_writes_a_log_of_a_run_and_of_a_file(tmp_path):
    path = file_of(tmp_path / "f.jsonl", ROWS)
    run = CliRunner().invoke(score, [str(path), "--out", str(tmp_path / "run")])
    assert run.exit_code == 0
    for source in (path, tmp_path / "run"):
        out = tmp_path / f"{source.stem}.inspect.json"
        done = CliRunner().invoke(export, [str(source), "--to", str(out)])
        assert done.exit_code == 0, done.output
        assert "5 candidates of 3 cases written to" in done.output
        assert read([out]).form == "Inspect samples"


def test_real_sets_survive_the_round_trip(sets_folder, tmp_path):
    for name in ("qwen_math100x8", "nemo_math_50x3"):
        first = load_graded(sets_folder / f"{name}.jsonl")
        write(first, tmp_path / f"{name}.json")
        back = load_graded(tmp_path / f"{name}.json")
        assert (back.table.n_cases, back.table.n_candidates) == (first.table.n_cases, first.table.n_candidates)
        assert estimates(back.result) == estimates(first.result)
