"""What is written is read back: the same candidates, grades and numbers, in every form that has room for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.core.warnings import CodedWarning
from kofn.exporters.base import write_csv, write_long, write_wide
from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.runs.load import GradedCandidates, load_graded_files, load_table
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.evaluate import evaluate

WRITERS = {"jsonl": write_wide, "parquet": write_long, "csv": write_csv}


def graded(rows, **options):
    result = evaluate(load_table(rows, ReadOptions(everything=True)), GradingConfig(**options))
    return GradedCandidates(name="rows", path=Path("rows"), options=GradingConfig(**options), result=result)


def run(*args, code=0):
    done = subprocess.run([sys.executable, "-m", "kofn", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=12)


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(texts, st.sampled_from([0, 1, None])), min_size=1, max_size=4), texts),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(sorted(WRITERS)),
)
def test_numbers_survive_a_round_trip(tmp_path_factory, cases, ending):
    rows = [
        {
            "id": f"q{i}",
            "reference": "x",
            "level": f"l {tag}",
            "outputs": [{"text": f"t{t}", "pass": p} for t, p in outputs],
        }
        for i, (outputs, tag) in enumerate(cases)
    ]
    before = graded(rows)
    path = tmp_path_factory.mktemp("out") / f"f.{ending}"
    WRITERS[ending](before, path)
    after = kofn.score(str(path))
    assert after.n_candidates == before.result.n_candidates
    if not any(p is not None for outputs, _ in cases for _, p in outputs):
        return  # a column without any value is none
    for name in ("mean", "any_pass", "first"):
        assert after.get(name).point == before.result.get(name, metric="pass").point, name


def test_every_metric_and_answer_is_there_again(tmp_path):
    rows = [
        {
            "id": f"q{i}",
            "reference": "4",
            "outputs": [{"text": f"so {j}", "reward": j / 3, "cost": 0.1} for j in range(5)],
        }
        for i in range(3)
    ]
    before = graded(rows, metrics=("numeric", "exact_match"), extract="number")
    for ending, write in WRITERS.items():
        path = tmp_path / f"f.{ending}"
        assert write(before, path) == []
        table = read([path], ReadOptions(everything=True))
        assert table.labels == {"numeric": True, "exact_match": True}
        assert table.candidates["answer"].to_list() == [str(j) for _ in range(3) for j in range(5)]
        assert table.candidates["selector.reward"].to_list() == [j / 3 for _ in range(3) for j in range(5)]
        assert table.candidates["cost"].sum() == pytest.approx(1.5)
        again = kofn.score(str(path), aggregate=["mean", "majority", "selected(by='reward')"])
        assert again.get("mean", metric="numeric").point == pytest.approx(0.2)
        assert again.get("selected(by='reward')", metric="exact_match").point == 1.0


def test_a_tag_that_is_called_like_a_role_is_not_taken_for_one(tmp_path):
    rows = [{"id": "q", "reference": "4", "answer_key": "not this", "output": "4", "passed": True}]
    before = graded(rows)
    for ending, write in WRITERS.items():
        write(before, tmp_path / f"f.{ending}")
        table = read([tmp_path / f"f.{ending}"], ReadOptions(everything=True))
        assert table.cases["reference"].to_list() == ["4"]
        assert "tag.answer_key" in table.tags.columns


def test_a_spreadsheet_runs_nothing(tmp_path):
    hostile = ["=1+1", "+1", "@SUM(A1)", "-cmd|'/C calc'!A0", "-42", "\t=1"]
    before = graded([{"id": "q", "reference": "1", "outputs": hostile}])
    messages = write_csv(before, tmp_path / "f.csv")
    cells = pl.read_csv(tmp_path / "f.csv", infer_schema=False)["output"].to_list()
    assert cells == ["'=1+1", "'+1", "'@SUM(A1)", "'-cmd|'/C calc'!A0", "-42", "'\t=1"]
    assert messages[-1] == CodedWarning.of("formulas-escaped", n=5)


def test_what_a_file_cannot_say_is_said(tmp_path):
    rows = [{"id": "a", "outputs": [{"text": "x", "score": 0.6}]}, {"id": "b", "outputs": []}]
    messages = write_long(graded(rows, threshold=0.5), tmp_path / "f.parquet")
    assert [w.code for w in messages] == ["cases-without-row", "threshold-not-written"]
    assert str(messages[0]) == "1 case has no candidates and so no row"
    assert write_wide(graded(rows), tmp_path / "f.jsonl") == []
    assert read([tmp_path / "f.jsonl"]).n_cases == 2


def test_json_has_the_codes_beside_the_sentences(tmp_path):
    rows = [{"id": "a", "outputs": [{"text": "x", "passed": True}]}, *({"id": f"{i}", "outputs": []} for i in (1, 2))]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = json.loads(run("export", tmp_path / "o.jsonl", "--to", tmp_path / "f.parquet", "--json"))
    assert "2 cases have no candidates and so no row" in found["notes"]
    assert len(found["notes"]) == len(found["coded_notes"])
    assert {"code": "cases-without-row", "severity": "info", "values": {"n": 2}} in found["coded_notes"]


def test_a_large_file_is_written_in_blocks(tmp_path):
    rows = [{"id": f"q{i}", "reference": "1", "outputs": ["1", "2"][: 1 + i % 2]} for i in range(5000)]
    write_wide(graded(rows), tmp_path / "f.jsonl")
    lines = (tmp_path / "f.jsonl").read_text().splitlines()
    assert len(lines) == 5000
    assert [len(json.loads(line)["outputs"]) for line in lines] == [1 + i % 2 for i in range(5000)]


def test_an_every_eval_ever_record_has_what_that_schema_requires(tmp_path):
    rows = [
        {"id": f"q{i}", "input": "2+2?", "reference": ["4", "four"], "level": "easy",
         "outputs": [{"text": "4", "tokens": 3, "seconds": 0.5}, {"text": None, "error": "timeout"}]}
        for i in range(3)
    ]  # fmt: skip
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)))
    messages = run("export", tmp_path / "o.jsonl", "--to", tmp_path / "r.eee.json")
    assert "3 candidates were not graded" in messages
    record = json.loads((tmp_path / "r.eee.json").read_text())
    assert set(record) <= {
        *("schema_version", "evaluation_id", "evaluation_timestamp", "retrieved_timestamp", "source_metadata"),
        *("model_info", "eval_library", "evaluation_results", "detailed_evaluation_results"),
    }
    assert record["source_metadata"]["source_type"] == "evaluation_run"
    assert {"name", "version"} <= set(record["eval_library"])
    for one in record["evaluation_results"]:
        assert {"evaluation_name", "source_data", "metric_config", "score_details"} == set(one)
        assert one["source_data"]["source_type"] == "other"
        assert one["metric_config"]["min_score"] <= one["score_details"]["score"] <= one["metric_config"]["max_score"]
        assert all(isinstance(v, str) for v in one["score_details"]["details"].values())
        assert one["score_details"]["uncertainty"]["num_samples"] >= 0
    samples = (tmp_path / "r.eee_samples.jsonl").read_text().splitlines()
    assert len(samples) == record["detailed_evaluation_results"]["total_rows"] == 3
    for line in map(json.loads, samples):
        assert line["evaluation_id"] == record["evaluation_id"]
        assert line["input"] == {"raw": "2+2?", "reference": ["4", "four"], "choices": None}
        assert line["output"]["raw"] == ["4"]
        assert line["evaluation"] == {"score": 1.0, "is_correct": True}
        assert line["answer_attribution"][0]["extracted_value"] == "4"
        assert line["performance"] == {"latency_ms": 500.0}
        assert all(isinstance(v, str) for v in line["metadata"].values())


@pytest.mark.commands
def test_the_verb_refuses_what_it_cannot_do(tmp_path):
    path = tmp_path / "o.jsonl"
    path.write_text('{"id": "q", "reference": "1", "outputs": ["1"]}\n')
    assert "--as FORM" in run("export", path, "--to", tmp_path / "x.docx", code=2)
    assert "did you mean" in run("export", path, "--to", tmp_path / "x", "--as", "wid", code=2)
    assert "there is no directory" in run("export", path, "--to", tmp_path / "no" / "x.csv", code=2)
    run("export", path, "--to", tmp_path / "x.csv")
    assert "already there" in run("export", path, "--to", tmp_path / "x.csv", code=2)
    run("export", path, "--to", tmp_path / "x.csv", "--force")


def test_a_run_is_exported_with_its_own_grades(tmp_path):
    path = tmp_path / "o.jsonl"
    path.write_text('{"id": "q", "reference": "1", "outputs": ["1", "x = 2", "1"]}\n')
    run("score", path, "--extract", "number", "--metric", "numeric", "--out", tmp_path / "run")
    found = load_graded_files([str(tmp_path / "run")], GradingConfig(), reading=ReadOptions())
    write_long(found, tmp_path / "f.parquet")
    assert pl.read_parquet(tmp_path / "f.parquet")["label.numeric"].to_list() == [1.0, 0.0, 1.0]
