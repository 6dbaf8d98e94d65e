"""Logs of OpenAI evals: events of a sample are its candidates and their labels."""

from __future__ import annotations

import json

import pytest

import kofn
from kofn.importers import read
from kofn.importers.base import ReadOptions

MATCH, GRADED = "evals.elsuite.basic.match:Match", "evals.elsuite.modelgraded.classify:ModelBasedClassify"


def write(path, events, cls=MATCH, report=True, **spec):
    """The lines LocalRecorder writes: the spec, the events, the final report."""
    first = {
        "completion_fns": ["gpt-3.5-turbo"],
        "eval_name": "test-match.s1.simple-v0",
        "base_eval": "test-match",
        "split": "s1",
        "run_config": {"eval_spec": {"cls": cls}, "seed": 1},
        "run_id": "230417220821DPM75QNS",
        **spec,
    }
    lines = [{"spec": first}]
    for number, (sample, kind, data) in enumerate(events):
        lines.append({"run_id": "r", "event_id": number, "sample_id": sample, "type": kind, "data": data})
    lines += [{"final_report": {"accuracy": 0.5}}] if report else []
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def sampling(text, **more):
    return {"prompt": [{"role": "user", "content": "2+2?"}], "sampled": text, **more}


def match(correct, text, picked="4"):
    return {"correct": correct, "expected": "4", "picked": picked, "sampled": text, "options": ["4"]}


def test_a_log_of_matches_is_read_with_its_labels(tmp_path):
    events = [
        ("s.1", "sampling", sampling(["4"], usage={"completion_tokens": 2, "prompt_tokens": 9})),
        ("s.0", "sampling", sampling("five")),
        ("s.1", "match", match(True, "4")),
        ("s.0", "match", match(False, "five", None)),
    ]
    path = write(tmp_path / "log.jsonl", events)
    table = read([path], ReadOptions(everything=True))
    assert table.cases["case_id"].to_list() == ["s.1", "s.0"]
    assert table.cases["input"].to_list() == ["2+2?", "2+2?"]
    assert table.cases["reference"].to_list() == ["4", "4"]
    row = {k: v[0] for k, v in table.candidates.to_dict(as_series=False).items()}
    assert row == {"text": "4", "answer": "4", "tokens": 2, "tokens_in": 9, "label.match": 1.0, "reference": "4"}
    assert table.origin == {"tool": "openai-evals", "task": "test-match.s1.simple-v0", "model": "gpt-3.5-turbo"}
    assert kofn.score(path, aggregate="mean").get("mean", metric="match").point == 0.5  # its final report


def test_several_choices_and_several_samplings_are_candidates(tmp_path):
    events = [
        ("s.0", "sampling", sampling(["4", "5"])),
        ("s.0", "sampling", sampling("4 again")),
        ("s.0", "match", match(True, "4")),
        ("s.0", "match", match(False, "5")),
        ("s.0", "match", match(True, "4 again")),
        ("s.1", "sampling", sampling(["a", "b"])),
        ("s.1", "match", match(True, "b")),
        ("s.1", "match", match(True, "nobody said this")),
        ("s.1", "match", match(True, "nor this")),
    ]
    table = read([write(tmp_path / "log.jsonl", events)])
    assert table.offsets.tolist() == [0, 3, 5]
    assert table.candidates["label.match"].to_list() == [1, 0, 1, None, 1]
    assert tuple(map(str, table.notes)) == ("2 verdicts on what was not sampled: left out",)


def test_what_a_grading_model_wrote_is_no_candidate(tmp_path):
    events = [
        ("s.0", "sampling", sampling("Paris")),
        ("s.0", "sampling", sampling("The answer is right. Yes")),
        ("s.0", "metrics", {"choice": "Yes", "score": 1.0}),
        ("s.0", "raw_sample", {"input": "Capital?", "ideal": ["Paris", "paris"]}),
    ]
    table = read([write(tmp_path / "log.jsonl", events, cls=GRADED)])
    assert table.candidates["text"].to_list() == ["Paris"]
    assert table.candidates["label.score"].to_list() == [1.0]
    assert table.candidates["note"].to_list() == ["Yes"]
    assert table.cases["reference"].to_list() == [["Paris", "paris"]]
    assert tuple(map(str, table.notes)) == ("1 sample graded by a model: what it wrote is no candidate",)


def test_failures_unfinished_runs_and_other_events_are_told(tmp_path):
    events = [
        ("s.0", "sampling", sampling(["4", "5"])),
        ("s.0", "metrics", {"accuracy": True}),
        ("s.0", "embedding", {"prompt": "x"}),
        ("s.1", "error", {"type": "RateLimitError", "message": "slow down"}),
    ]
    table = read([write(tmp_path / "log.jsonl", events, report=False)])
    assert table.candidates["error"].to_list() == [None, None, "slow down"]
    assert tuple(map(str, table.notes)) == (
        "1 sample failed: not graded",
        "1 sample with metrics of the whole sample and not of each output: left out",
        "no final report: the run was not finished",
        "events that are no outputs and no grades are left out: 1 embedding",
    )


def test_damaged_logs_are_refused_by_their_line(tmp_path):
    path = write(tmp_path / "log.jsonl", [("s.0", "sampling", sampling("4"))])
    whole = path.read_text()
    path.write_text(whole[:-30])
    with pytest.raises(kofn.InputError, match=r"log\.jsonl: line 3: not JSON"):
        read([path])
    path.write_text(whole.replace('"sample_id"', '"other"'))
    with pytest.raises(kofn.InputError, match=r"log\.jsonl: line 2: no 'sample_id': expected it in every event"):
        read([path])
    with pytest.raises(kofn.InputError, match="no events of samples"):
        read([write(path, [])])
