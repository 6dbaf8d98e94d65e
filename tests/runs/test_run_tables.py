"""Texts are stored once: what a large run's other files say instead of them, and that readers find every text again."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.errors import InputError
from kofn.render.run_directory import results_line, write_run
from kofn.runs import CorrectnessResults, load_run, report_of, run_tables
from kofn.runs.case_reports import SCHEMA
from kofn.runs.index import load_stored
from kofn.runs.run_tables import with_references, with_stored_texts, with_texts
from kofn.scoring.configuration import ReportConfig

WORDS = st.text(max_size=12)
CASES = st.lists(
    st.fixed_dictionaries({"input": WORDS, "reference": WORDS, "outputs": st.lists(WORDS, min_size=1, max_size=3)}),
    min_size=1,
    max_size=5,
)


def texts_of(n, length):
    return [
        {"id": f"q{i}", "input": f"{i}: " + "why? " * length, "reference": f"right {i}", "kind": f"k{i % 2}",
         "outputs": [f"right {i}", f"wrong {i} " * length, f'"so" {j}\n' if (j := i % 3) else ""]}
        for i in range(n)
    ]  # fmt: skip


def write(rows, path):
    result = kofn.score(rows, everything=True, extract="text", metric="exact_match")
    return write_run(result, path, sources=[], options={"aggregate": []})


@pytest.fixture
def referring(monkeypatch):
    monkeypatch.setattr(run_tables, "MAX_REPEATED", 40)


@given(CASES)
def test_references_are_replaced_by_the_texts_they_stand_for(cases):
    rows = [{"id": f"q{i}", **case} for i, case in enumerate(cases)]
    result = kofn.score(rows, everything=True, extract="text", metric="exact_match")
    table, answers = result.table, result.scored[0].sets.answers
    _, reports = report_of(result)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_tables, "MAX_REPEATED", 0)
        stored = with_references(reports, answers, table.cases)
    assert stored.schema == SCHEMA
    assert with_texts(stored, answers, table.offsets, table.cases).equals(reports)


def test_a_small_run_repeats_its_texts_and_refers_to_nothing(tmp_path):
    write(texts_of(6, 2), tmp_path / "run")
    stored = pl.read_parquet(tmp_path / "run" / "reports.parquet")
    assert stored["results"][0][0]["actual"] == json.dumps(["right 0", "wrong 0 wrong 0", None], separators=(",", ":"))
    assert with_stored_texts(stored, tmp_path / "none").equals(stored)


def test_a_large_run_keeps_every_text_in_one_file(tmp_path, referring):
    rows = texts_of(30, 20)
    made = write(rows, tmp_path / "run")
    stored = pl.read_parquet(tmp_path / "run" / "reports.parquet")
    one = stored["results"][3][0]
    assert json.loads(one["actual"]) == {"see": "candidates.parquet", "column": "answer"}
    assert json.loads(one["expected"]) == {"see": "cases.parquet", "column": "reference"}
    fields = {field["attribute"]: field["value"] for field in stored["case"][3]}
    assert json.loads(fields.pop("input")) == {"see": "cases.parquet", "column": "input"}
    assert fields == {"kind": '"k1"', "candidates": "3", "passing": "1"}
    loaded = load_run(tmp_path / "run")
    assert loaded.reports.equals(made.reports)
    assert loaded.full() == CorrectnessResults.from_dir(tmp_path / "run")
    assert loaded.full().reports[3].results["exact_match"].actual == [
        "right 3",
        ("wrong 3 " * 20).strip(),
        None,
    ]
    texts = [text for row in rows for text in row["outputs"] if len(text) > 20]
    for path in (tmp_path / "run").iterdir():
        if path.suffix in (".json", ".jsonl"):
            content = path.read_text(encoding="utf-8")
            assert not any(text in content for text in texts), path.name


def test_a_run_read_without_texts_keeps_references_and_every_number(tmp_path, referring):
    write(texts_of(10, 20), tmp_path / "run")
    bare, full = load_run(tmp_path / "run", texts=False), load_run(tmp_path / "run")
    assert "candidates.parquet" in bare.reports["results"][0][0]["actual"]
    assert np.array_equal(kofn.runs.case_scores(bare.reports)["score"], kofn.runs.case_scores(full.reports)["score"])
    assert bare.result.estimates == full.result.estimates


def test_a_line_of_results_in_a_large_run_names_where_its_texts_are(tmp_path, referring):
    rows = texts_of(30, 20)
    made = write(rows, tmp_path / "run")
    line = json.loads((tmp_path / "run" / "results.jsonl").read_text())
    assert line["texts_in"] == {
        "question": {"see": "cases.parquet", "column": "input"},
        "generated_answer": {"see": "candidates.parquet", "column": "text"},
        "answer": {"see": "cases.parquet", "column": "reference"},
        "predicted": {"see": "candidates.parquet", "column": "answer"},
    }
    whole = results_line(made)
    candidates = pl.read_parquet(tmp_path / "run" / "candidates.parquet")
    cases = pl.read_parquet(tmp_path / "run" / "cases.parquet")
    for case, full in zip(line["detailed_results"], whole["detailed_results"], strict=True):
        one = cases.row(by_predicate=pl.col("case_id") == case["id"], named=True)
        assert (one["input"], one["reference"]) == (full["question"], full["answer"])
        assert {name: value for name, value in full.items() if name in ("id", "reasoning", "correct")} == {
            name: value for name, value in case.items() if name != "repeats"
        }
        for repeat, all_of_it in zip(case["repeats"], full["repeats"], strict=True):
            at = (pl.col("case_id") == case["id"]) & (pl.col("index") == repeat["index"])
            row = candidates.row(by_predicate=at, named=True)
            joined = {**repeat, "generated_answer": row["text"], "predicted": row["answer"]}
            assert {name: joined[name] for name in all_of_it} == all_of_it


def test_a_file_that_collects_lines_holds_every_text(tmp_path, referring):
    result = kofn.score(texts_of(6, 20), everything=True, extract="text", metric="exact_match")
    run = write_run(
        result, tmp_path / "run", sources=[], options={}, report=ReportConfig(append_results=tmp_path / "all.jsonl")
    )
    appended = json.loads((tmp_path / "all.jsonl").read_text())
    assert appended == json.loads(json.dumps(results_line(run)))
    assert "texts_in" not in appended
    assert appended["detailed_results"][1]["repeats"][1]["generated_answer"] == "wrong 1 " * 20


def test_evaluation_json_of_many_cases_names_the_file_of_their_scores(tmp_path, monkeypatch):
    write(texts_of(8, 2), tmp_path / "small")
    monkeypatch.setattr(run_tables, "MAX_SCORES", 7)
    write(texts_of(8, 2), tmp_path / "large")
    small, large = (json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("small", "large"))
    assert large["scores_in"] == "reports.parquet"
    assert large["group_outcomes"]["cases"]["results"] == {}
    assert len(small["group_outcomes"]["cases"]["results"]) == 8
    found = CorrectnessResults.from_dir(tmp_path / "large")
    assert found.group_outcomes == CorrectnessResults.from_dir(tmp_path / "small").group_outcomes
    assert load_stored(tmp_path / "large").evaluation.group_outcomes == found.group_outcomes
    change = {**large, "pass_counts": {"Core": 7}}
    (tmp_path / "large" / "evaluation.json").write_text(json.dumps(change))
    with pytest.raises(InputError, match="changed since it was written"):
        load_run(tmp_path / "large")
