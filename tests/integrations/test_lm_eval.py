"""The real lm-eval: kofn reads what it writes, reports what it reports, and scores all repeats as a task file says."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from polars.testing import assert_frame_equal
from tests.peers import needs_peer, run_peer

import kofn
from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.integrations.lm_eval import score_repeats, task_config

SCRIPT = Path(__file__).with_name("lm_eval_run.py.txt")  # not .py: only the peers can import it
NUMBER = {"function": "regex", "regex_pattern": r"(-?\d+(?:\.\d+)?)", "group_select": -1}
FIRST, VOTE = {"function": "take_first"}, {"function": "majority_vote"}

pytestmark = [pytest.mark.peers, needs_peer("lm_eval")]


def metric(of, repeat=None, **more):
    given = {"metric": of, "aggregation": "mean", "higher_is_better": True, **more}
    return given | ({} if repeat is None else {"repeat_aggregation": repeat})


SUMS = {
    "task": "sums",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "plain.jsonl"}},
    "test_split": "test",
    "output_type": "generate_until",
    "description": "Sums of {numbers}.\n",
    "doc_to_text": "Q: {{question}}\nA:",
    "doc_to_target": "{{answer}}",
    "repeats": 5,
    "generation_kwargs": {"until": ["Q:"], "do_sample": True, "temperature": 0.7},
    "filter_list": [
        {"name": "first", "filter": [NUMBER, FIRST]},
        {"name": "vote", "filter": [NUMBER, VOTE, FIRST]},
    ],
    "metric_list": [
        metric("exact_match"),
        metric("exact_match", "majority", name="vote"),
        metric("exact_match", "mean", name="mean"),
        metric("exact_match", "pass@2", name="pass@2"),
        metric("exact_match", "any", name="any"),
    ],
}
TASKS = {
    "sums": SUMS,
    "wild": SUMS | {"task": "wild", "dataset_kwargs": {"data_files": {"test": "wild.jsonl"}}},
    "pass": SUMS
    | {
        "task": "pass",
        "filter_list": [{"name": "all", "filter": [NUMBER, {"function": "take_first_k", "k": 5}]}],
        "metric_list": [{"metric": "!metrics.pass_at_2", "aggregation": "mean", "higher_is_better": True}],
    },
    "own": SUMS
    | {
        "task": "own",
        "metric_list": [metric("!metrics.close", "majority"), metric("!metrics.close", "mean", name="m")],
    },
    "choices": {
        **{key: SUMS[key] for key in ("dataset_path", "dataset_kwargs", "test_split", "doc_to_text")},
        "task": "choices",
        "repeats": 3,
        "output_type": "multiple_choice",
        "doc_to_choice": ["yes", "certainly not", "no"],
        "doc_to_target": "{{place}}",
        "metric_list": [
            metric("acc"),
            metric("acc_norm"),
            metric("acc", "majority", name="vote"),
            metric("acc_norm", "mean", name="mean"),
        ],
    },
    "ends": {
        **{key: SUMS[key] for key in ("dataset_path", "dataset_kwargs", "test_split", "doc_to_text", "doc_to_target")},
        "task": "ends",
        "repeats": 2,
        "output_type": "loglikelihood",
        "metric_list": [metric("acc", "any"), metric("acc", name="first")],
    },
}
FUNCTIONS = """
from math import comb

def pass_at_2(references, predictions):
    ((said,), (right,)) = (predictions, references)
    said = [said] * 5 if isinstance(said, str) else said  # to lm-eval a whole set is one prediction
    n, c = len(said), sum(one == right for one in said)
    return 1 - comb(n - c, 2) / comb(n, 2)

def close(references, predictions):
    try:
        return float(abs(float(predictions[0]) - float(references[0])) <= 0.5)
    except ValueError:
        return 0.0
"""


def dumped(task):
    """A task as YAML; "!name" is what `!function` names."""
    return yaml.safe_dump(task, sort_keys=False).replace("'!", "!function '")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, functions and task files."""
    folder = tmp_path_factory.mktemp("lm_eval")
    for kind in ("plain", "wild"):
        rows = [{"question": f"{i}+{i}?", "answer": str(2 * i), "place": i % 3, "kind": kind} for i in range(30)]
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "metrics.py").write_text(FUNCTIONS)
    for name, task in TASKS.items():
        (folder / f"{name}.yaml").write_text(dumped(task))
    return folder


@pytest.fixture(scope="module")
def made(folder):
    """What lm-eval reports of each task, and where its logs are."""
    script = folder / "lm_eval_run.py"
    script.write_text(SCRIPT.read_text())
    logs = json.loads(run_peer(script, folder, *(f"{name}.yaml" for name in TASKS), cwd=folder).splitlines()[-1])
    return {Path(file).stem: found for file, found in logs.items()}


# --- logs of the real writer


@pytest.mark.parametrize(("name", "repeats"), [("sums", 5), ("wild", 5), ("choices", 3), ("ends", 2), ("pass", 5)])
def test_logs_of_the_real_writer_are_read_whole(name, repeats, made):
    table = read([made[name]["log"]], ReadOptions(everything=True))
    assert (table.n_cases, table.n_candidates) == (30, 30 * repeats)
    assert table.cases["case_id"].to_list() == [str(i) for i in range(30)]
    assert table.origin["task"] == name
    assert table.origin["tool"] == "lm-eval"
    assert table.origin["version"].startswith("0.")
    assert read([Path(made[name]["log"]).parent]).n_candidates == 30 * repeats


def test_one_response_a_line_is_graded_as_lm_eval_reports_under_every_filter(made):
    for one in made["wild"]["alone"]:
        result = kofn.score(one["log"], aggregate=["mean", "first"])
        assert list(result.table.labels) == ["exact_match,first", "exact_match,vote"]
        for label in result.table.labels:
            assert result.get("mean", metric=label).point == pytest.approx(one["results"][label], abs=1e-12)
            assert result.get("first", metric=label).point == pytest.approx(one["results"][label], abs=1e-12)


def test_options_are_graded_as_lm_eval_reports(made):
    for one in made["choices"]["alone"]:
        result = kofn.score(one["log"], aggregate="mean")
        for name in ("acc", "acc_norm"):
            assert result.get("mean", metric=name).point == pytest.approx(one["results"][f"{name},none"], abs=1e-12)
        again = kofn.score(one["log"], aggregate="mean", metric="choice")
        assert again.get("mean").point == result.get("mean", metric="acc").point, "the right option is known too"


def test_continuations_are_graded_as_lm_eval_reports(made):
    for one in made["ends"]["alone"]:
        result = kofn.score(one["log"], aggregate="mean")
        assert result.get("mean", metric="acc").point == pytest.approx(one["results"]["acc,none"], abs=1e-12)


# --- all repeats


def test_first_vote_mean_and_pass_at_k_are_lm_evals(made):
    """Its own filters say the first and the vote, runs of single repeats the mean, a function of the task pass@k."""
    sums, results = made["sums"]["memory"], made["sums"]["results"]
    assert sums["exact_match"] == pytest.approx(results["exact_match,first"], abs=1e-12)
    assert sums["vote"] == pytest.approx(results["exact_match,vote"], abs=1e-12)
    alone = [one["results"]["exact_match,first"] for one in made["sums"]["alone"]]
    assert sums["mean"] == pytest.approx(fmean(alone), abs=1e-12)
    assert sums["pass@2"] == pytest.approx(made["pass"]["results"]["pass_at_2,all"], abs=1e-12)
    assert len({round(v, 6) for v in sums.values()}) == 5, "five numbers, of which none is another by accident"


def test_votes_differ_only_where_no_answer_was_found_or_one_is_written_in_two_ways(made):
    """lm-eval lets "[invalid]" vote, and 4 and 4.0 are two answers to it."""
    lines = [json.loads(line) for line in Path(made["wild"]["log"]).read_text().splitlines()]
    theirs = {str(one["doc_id"]): one["exact_match"] for one in lines if one["filter"] == "vote"}
    texts = {str(one["doc_id"]): one["resps"][0] for one in lines}
    differ = [row["doc_id"] for row in made["wild"]["cases"] if row["vote"] != theirs[row["doc_id"]]]
    assert differ
    assert all(any(".0" in text or "none" in text for text in texts[doc]) for doc in differ)
    assert len(differ) < len(theirs)


def test_repeats_of_options_are_those_of_runs_of_single_repeats(made):
    choices = made["choices"]
    assert choices["memory"]["acc"] == choices["results"]["acc,none"]
    assert choices["memory"]["acc_norm"] == choices["results"]["acc_norm,none"]
    alone = [one["results"]["acc_norm,none"] for one in choices["alone"]]
    assert choices["memory"]["mean"] == pytest.approx(fmean(alone), abs=1e-12)
    result = kofn.score([one["log"] for one in choices["alone"]], as_repeats=True, aggregate=["mean", "majority"])
    assert result.get("majority", metric="acc").point == pytest.approx(choices["memory"]["vote"])
    graded = read([choices["log"]]).candidates.select("label.acc", "label.acc_norm")
    assert_frame_equal(graded, result.table.candidates.select("label.acc", "label.acc_norm"))


def test_repeats_of_continuations_are_graded_one_by_one(made):
    alone = [read([one["log"]]).candidates["label.acc"].to_list() for one in made["ends"]["alone"]]
    assert made["ends"]["memory"]["acc"] == pytest.approx(fmean(map(max, *alone)))
    assert made["ends"]["memory"]["first"] == made["ends"]["results"]["acc,none"]


def test_a_function_of_the_task_grades_each_response(made):
    """The metric that lm-eval applies to the first response, applied to all of them."""
    cases = made["own"]["cases"]
    assert made["own"]["memory"]["m"] == pytest.approx(fmean(fmean(row["m_repeats"]) for row in cases))
    first = fmean(row["close_repeats"][0] for row in cases)
    assert first == pytest.approx(made["own"]["results"]["close,first"], abs=1e-12)


@pytest.mark.parametrize("name", list(TASKS))
def test_memory_file_and_folder_give_the_same(name, made, folder):
    config = task_config(folder / f"{name}.yaml")
    assert made[name]["afterwards"] == made[name]["memory"], "samples that the writer has changed in place"
    for place in (made[name]["log"], Path(made[name]["log"]).parent):
        scores = score_repeats(place, config)
        assert scores.values == pytest.approx(made[name]["memory"], abs=1e-12)
        assert scores.cases() == made[name]["cases"]


def test_the_result_of_a_case_has_its_repeats_beside_it(made):
    row = made["sums"]["cases"][3]
    assert list(row)[:3] == ["doc_id", "exact_match", "exact_match_repeats"]
    assert len(row["exact_match_repeats"]) == 5
    assert row["exact_match"] == row["exact_match_repeats"][0]
    assert row["mean"] == pytest.approx(fmean(row["mean_repeats"]))


# --- the same file by kofn alone


def test_score_by_the_task_file_gives_the_same(made, folder):
    for name in ("sums", "wild"):
        done = kofn_json("score", made[name]["log"], "--task", folder / f"{name}.yaml", "--json")
        found = {e["aggregator"]: e["point"] for e in done["estimates"] if e["metric"] == "exact_match"}
        memory = made[name]["memory"]
        expected = {"first": "exact_match", "majority": "vote", "mean": "mean", "pass@2": "pass@2", "any_pass": "any"}
        for aggregator, entry in expected.items():
            assert found[aggregator] == pytest.approx(memory[entry], abs=1e-12), aggregator


def kofn_json(*arguments):
    import subprocess
    import sys

    command = [sys.executable, "-m", "kofn", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_run_asks_what_lm_eval_asks_and_grades_alike(made, folder):
    """kofn sends lm-eval's prompts, word for word; to the responses of its log it gives the same numbers."""
    lines = [json.loads(line) for line in Path(made["sums"]["log"]).read_text().splitlines()]
    replies = {one["arguments"]["gen_args_0"]["arg_0"]: one["resps"][0] for one in lines}
    assert next(iter(replies)).startswith("Sums of {numbers}.\nQ: 0+0?")

    def stored(prompt, repeat):
        return replies[prompt][repeat]

    run = kofn.run(folder / "sums.yaml", model=stored)
    assert (run.result.n_cases, run.result.n_candidates) == (30, 150)
    memory = made["sums"]["memory"]
    expected = {"first": "exact_match", "majority": "vote", "mean": "mean", "pass@2": "pass@2", "any_pass": "any"}
    for aggregator, entry in expected.items():
        assert run.result.get(aggregator).point == pytest.approx(memory[entry], abs=1e-12), aggregator


# --- lm-eval's command


@pytest.mark.slow
def test_the_built_in_dummy_model_through_the_command_with_a_file_that_includes_the_task(folder, tmp_path):
    """As in the documentation: lm-eval runs the task, a file of our own that includes it says what to make of it."""
    task = {key: value for key, value in SUMS.items() if key != "metric_list"} | {"task": "plain_sums"}
    task["dataset_kwargs"] = {"data_files": {"test": str(folder / "plain.jsonl")}}
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "plain_sums.yaml").write_text(dumped(task | {"metric_list": [metric("exact_match")]}))
    own = {"include": "tasks/plain_sums.yaml", "metric_list": SUMS["metric_list"]}
    (tmp_path / "repeats.yaml").write_text(dumped(own))
    command = ("-m", "lm_eval", "run", "--model", "dummy", "--tasks", "plain_sums", "--include_path", "tasks")
    run_peer(*command, "--output_path", "out", "--log_samples", cwd=tmp_path)
    scores = score_repeats(tmp_path / "out", tmp_path / "repeats.yaml")
    assert scores.values == {"exact_match": 0.0, "vote": 0.0, "mean": 0.0, "pass@2": 0.0, "any": 0.0}
    assert scores.result.n_candidates == 150
    assert scores.result.table.origin["model"] == "dummy"
    assert "30 of 30 sets have identical candidates: a cache, or temperature 0?" in map(str, scores.result.warnings)


def test_what_lm_eval_refuses_without_us(folder):
    """The keys that are taken out of a file are ones it would hand to the metric's function."""
    code = f"""
import yaml
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
task = yaml.safe_load(open({str(folder / "sums.yaml")!r}))
task["dataset_kwargs"]["data_files"]["test"] = {str(folder / "plain.jsonl")!r}
try:
    manager = TaskManager(include_defaults=False)
    simple_evaluate(model="dummy", tasks=[task], task_manager=manager, bootstrap_iters=0)
except TypeError as problem:
    print("refused", problem)
"""
    assert "refused" in run_peer("-c", code)
