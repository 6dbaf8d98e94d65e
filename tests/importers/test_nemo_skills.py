"""NeMo-Skills: seeds are repeats, whatever tells the cases apart."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.shared import LOGS, needs_shared

import kofn
from kofn.errors import InputError
from kofn.importers import importer_of, read
from kofn.importers.recognition import Peek

NEMO = LOGS / "nemo"
real = needs_shared(NEMO)
SEEDS = ["output-rs0.jsonl", "output-rs1.jsonl", "output-rs2.jsonl"]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labels(name):
    return [json.loads(line)["symbolic_correct"] for line in (NEMO / name).read_text().splitlines()]


@real
@pytest.mark.parametrize("how", ["folder", "files", "repeats"])
def test_three_seeds_are_five_cases_of_three(how):
    paths = [NEMO] if how == "folder" else [NEMO / name for name in SEEDS]
    table = read(paths, as_repeats=how == "repeats")
    assert (table.n_cases, table.n_candidates, table.labels) == (5, 15, {"symbolic_correct": True})
    assert np.diff(table.offsets).tolist() == [3] * 5
    result = kofn.score(
        [str(p) for p in paths], aggregate=["mean", "any_pass", "majority"], as_repeats=how == "repeats"
    )
    every = np.array([labels(name) for name in SEEDS])
    assert result.get("mean").point == pytest.approx(every.mean(), abs=1e-12)
    assert result.get("any_pass").point == pytest.approx(every.any(axis=0).mean(), abs=1e-12)
    assert result.n_missing == 0
    assert result.table.candidates["label.symbolic_correct"].to_list() == every.T.astype(float).ravel().tolist()


@real
def test_one_seed_is_five_cases_of_one_with_its_answers_references_and_tags():
    table = read([NEMO / "output-rs1.jsonl"])
    assert (table.n_cases, table.n_candidates) == (5, 5)
    first = json.loads((NEMO / "output-rs1.jsonl").read_text().splitlines()[0])
    assert table.cases["case_id"][0] == first["id"]
    assert table.candidates["answer"][0] == first["predicted_answer"]
    assert table.cases["reference"][0] == first["expected_answer"]
    assert set(table.tags.columns) >= {"level", "type"}
    assert "error" not in table.candidates.columns, "<not_executed> is no error"
    assert "note" not in table.candidates.columns
    assert table.origin["tool"] == "nemo-skills"


@real
def test_the_greedy_file_beside_the_seeds_is_left_out_and_told_to_be_a_copy():
    said = "output.jsonl (greedy, a copy of output-rs0.jsonl) is left out: give it by itself to score it"
    assert said in map(str, read([NEMO]).notes)
    done = subprocess.run(
        [sys.executable, "-m", "kofn", "score", NEMO, "-a", "mean"], capture_output=True, text=True, check=True
    )
    assert "5 cases x 3 candidates" in done.stdout
    assert f"! {said}" in done.stdout


@real
def test_the_greedy_file_given_with_the_seeds_is_told_to_be_one_of_them():
    table = read([str(NEMO / "*.jsonl")])
    assert (table.n_cases, table.n_candidates) == (5, 20)
    said = f"{NEMO}/output.jsonl holds the candidates of {NEMO}/output-rs0.jsonl, word for word: "
    assert tuple(map(str, table.notes)) == (f"{said}the same file twice, or a cache? they count twice",)


@real
@pytest.mark.parametrize("spoil", ["half a line", "no generation", "no case", "a label that is none"])
def test_a_spoiled_copy_is_refused_by_file_and_line(spoil, tmp_path):
    folder = tmp_path / "nemo"
    folder.mkdir()
    for name in SEEDS:
        shutil.copyfile(NEMO / name, folder / name)
    path = folder / SEEDS[1]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    if spoil == "half a line":
        path.write_bytes(path.read_bytes()[:-700])
        said = "line 5: not JSON"
    elif spoil == "no generation":
        del rows[2]["generation"]
        said = "line 3: no 'generation': expected it on every line"
    elif spoil == "no case":
        del rows[2]["id"], rows[2]["problem"]
        said = "line 3: no id and no problem"
    else:
        rows[2]["symbolic_correct"] = "perhaps"
        said = "line 3: label.symbolic_correct: expected a finite number or null, found 'perhaps'"
    if spoil != "half a line":
        lines(path, rows)
    with pytest.raises(InputError) as problem:
        read([folder])
    assert str(folder) in str(problem.value)
    assert SEEDS[1] in str(problem.value)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


LONG = "A train leaves at noon and goes on and on through the whole of the country, at what time is it late?"


def seed(i, *, ids=False, problems=("2 + 2?", LONG, "3 + 3?")):
    rows = []
    for j, problem in enumerate(problems):
        row = {"generation": f"g{i}{j}", "problem": problem, "expected_answer": "4", "predicted_answer": str(4 + j * i)}
        rows.append({"id": f"q{j}", **row} if ids else row)
    return rows


def test_without_ids_seeds_meet_by_the_text_of_the_problem(tmp_path):
    paths = [lines(tmp_path / f"output-rs{i}.jsonl", seed(i)) for i in range(2)]
    lines(paths[1], seed(1)[::-1])
    table = read([tmp_path])
    assert (table.n_cases, table.n_candidates) == (3, 6)
    first, long, _ = table.cases["case_id"].to_list()
    assert first == "2 + 2?"
    assert len(long) < 64
    assert long.startswith("A train leaves at noon")
    assert table.candidates["text"].to_list()[:2] == ["g00", "g10"]
    assert read(paths).n_cases == 3
    assert read(paths, as_repeats=True).n_cases == 3


def test_problems_that_begin_alike_are_not_one_case(tmp_path):
    rows = seed(0, problems=[LONG + " In the morning?", LONG + " In the evening?"])
    assert read([lines(tmp_path / "output-rs0.jsonl", rows)]).n_cases == 2


def test_a_problem_that_a_file_has_twice_is_two_cases_in_every_seed(tmp_path):
    for i in range(3):
        lines(tmp_path / f"output-rs{i}.jsonl", seed(i, problems=["2 + 2?", "2 + 2?"]))
    table = read([tmp_path])
    assert table.cases["case_id"].to_list() == ["2 + 2?", "2 + 2? #2"]
    assert np.diff(table.offsets).tolist() == [3, 3]
    assert "3 lines have the problem of an earlier line of their file: read as cases of their own" in map(
        str, table.notes
    )


def test_seeds_come_in_the_order_of_their_numbers_and_a_line_twice_counts_once(tmp_path):
    for i in (10, 2, 1):
        rows = seed(i, ids=True)
        lines(tmp_path / f"output-rs{i}.jsonl", [*rows, rows[0]])
    table = read([tmp_path])
    at = table.offsets[table.cases["case_id"].to_list().index("q0")]
    assert table.candidates["text"].to_list()[at : at + 3] == ["g10", "g20", "g100"]
    assert table.n_candidates == 9
    assert "3 rows are there twice, word for word (case q0): a resumed log? they count once" in map(str, table.notes)


def test_verdicts_of_a_judge_are_read_from_its_text_and_unread_ones_are_not_graded(tmp_path):
    rows = seed(0, ids=True)
    for row, said in zip(rows, ["Reasoning: same.\nJudgement: Yes", "Judgement: No.", "cannot say"], strict=True):
        row["judgement"] = said
        row["is_correct"] = True
    result = kofn.score(lines(tmp_path / "output-rs0.jsonl", rows), aggregate="mean")
    assert {e.metric: (e.point, e.n_missing) for e in result.estimates} == {
        "symbolic_correct": (1.0, 0),
        "judge_correct": (0.5, 1),
    }
    assert "1 judgements say neither yes nor no: not graded (NeMo-Skills counts them as no)" in map(
        str, result.warnings
    )


def test_a_generation_that_failed_is_not_graded_and_one_whose_code_failed_is(tmp_path):
    rows = seed(0, ids=True)
    for row in rows:
        row |= {"symbolic_correct": False, "num_generated_tokens": 7, "generation_time": 0.5, "error_message": ""}
    rows[0] |= {"generation": "", "error": "context_window_exceeded"}
    rows[1] |= {"error_message": "NameError: x"}
    rows[2] |= {"reward_model_score": 0.3}
    table = read([lines(tmp_path / "output-rs0.jsonl", rows)])
    assert table.candidates["error"].to_list() == ["context_window_exceeded", None, None]
    assert table.candidates["label.symbolic_correct"].to_list() == [None, 0.0, 0.0]
    assert table.candidates["note"].to_list() == [None, "NameError: x", None]
    assert table.candidates["tokens"].sum() == 21
    assert table.candidates["seconds"].sum() == 1.5
    assert table.candidates["selector.reward_model_score"].to_list() == [None, None, 0.3]
    assert "1 generations failed: not graded (NeMo-Skills counts them as wrong)" in map(str, table.notes)


def test_repeats_that_some_cases_lack_are_told(tmp_path):
    lines(tmp_path / "output-rs0.jsonl", seed(0, ids=True))
    lines(tmp_path / "output-rs1.jsonl", seed(1, ids=True)[:2])
    assert "1 of 3 cases have 1 of 2 repeats (q2)" in map(str, read([tmp_path]).notes)


def test_outputs_that_were_not_graded_yet_are_compared_here(tmp_path):
    rows = [{"problem": "2 + 2?", "generation": f"It is {i}.", "expected_answer": "4"} for i in (4,)]
    result = kofn.score(lines(tmp_path / "output-rs0.jsonl", rows), aggregate="mean")
    assert result.get("mean").point == 1.0


def test_a_folder_is_chosen_by_what_its_files_hold(tmp_path):
    lines(tmp_path / "output-rs0.jsonl", [{"id": 1, "output": "x"}])
    assert importer_of(Peek(tmp_path)) is None
    path = lines(tmp_path / "plain.jsonl", [{"id": 1, "generation": "x", "is_correct": True}])
    assert importer_of(Peek(path)) is None, "nothing there that only NeMo-Skills writes"
    assert kofn.score(path, aggregate="mean").get("mean").point == 1.0
