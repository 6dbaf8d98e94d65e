"""HELM runs: completions of all trials are candidates, its statistics are labels of those they are about."""

from __future__ import annotations

import json

import pytest

import kofn
from kofn.importers import read
from kofn.importers.base import ReadOptions


def state(case="id0", texts=("4",), trial=0, reference=None, perturbation=None, **more):
    """A request state as `asdict_without_nones` writes it."""
    instance = {
        "input": {"text": "2+2?"},
        "references": [
            {"output": {"text": "three"}, "tags": []},
            {"output": {"text": "four"}, "tags": ["correct"]},
        ],
        "split": "test",
        "id": case,
        **({"perturbation": {"name": perturbation, "robustness": True}} if perturbation else {}),
    }
    tokens = [{"text": "4", "logprob": -0.1}]
    return {
        "instance": instance,
        **({"reference_index": reference} if reference is not None else {}),
        "train_trial_index": trial,
        "request": {"model": "openai/davinci", "prompt": "Q: 2+2?\nA:", "num_completions": len(texts)},
        "result": {
            "success": True,
            "completions": [{"text": text, "logprob": -0.1, "tokens": tokens} for text in texts],
            "cached": True,
            "request_time": 0.5,
        },
        "num_train_instances": 0,
        "prompt_truncated": False,
        **more,
    }


def stats(case="id0", trial=0, perturbation=None, **values):
    named = {"num_references": 2, "num_prompt_tokens": 12, "finish_reason_stop": 1, **values}
    return {
        "instance_id": case,
        **({"perturbation": {"name": perturbation}} if perturbation else {}),
        "train_trial_index": trial,
        "stats": [
            {"name": {"name": name.replace("_at_", "@"), "split": "test"}, "count": 1, "mean": v}
            for name, v in named.items()
        ],
    }


def write(folder, states, per_instance=None, name="gsm:model=openai_davinci,stop=none"):
    folder.mkdir(exist_ok=True)
    document = {"adapter_spec": {"method": "generation", "model": "openai/davinci"}, "request_states": states}
    (folder / "scenario_state.json").write_text(json.dumps(document, indent=2))
    (folder / "run_spec.json").write_text(json.dumps({"name": name, "adapter_spec": {"model": "openai/davinci"}}))
    if per_instance is not None:
        (folder / "per_instance_stats.json").write_text(json.dumps(per_instance, indent=2))
    return folder


@pytest.mark.parametrize("given", ["folder", "file"])
def test_trials_are_repeats_with_their_labels(given, tmp_path):
    states = [state(case, [text], trial) for trial, text in enumerate(["4", "5"]) for case in ("id0", "id1")]
    labels = [stats(case, trial, exact_match=float(trial == 0)) for trial in (0, 1) for case in ("id0", "id1")]
    folder = write(tmp_path / "run", states, labels)
    path = folder if given == "folder" else folder / "scenario_state.json"
    table = read([path], ReadOptions(everything=True))
    assert table.cases["case_id"].to_list() == ["id0", "id1"]
    assert table.offsets.tolist() == [0, 2, 4]
    assert table.candidates["text"].to_list() == ["4", "5", "4", "5"]
    assert table.candidates["label.exact_match"].to_list() == [1, 0, 1, 0]
    assert list(table.labels) == ["exact_match"]
    assert table.cases["reference"].to_list() == ["four", "four"]
    assert table.cases["input"][0] == "2+2?"
    assert table.candidates["tokens_in"].to_list() == [12] * 4
    assert table.origin == {"tool": "helm", "task": "gsm:stop=none", "model": "openai/davinci"}
    assert table.notes == ()
    assert kofn.score(path, aggregate="mean").get("mean").point == 0.5


def test_only_the_first_of_several_completions_is_graded_by_helm(tmp_path):
    folder = write(
        tmp_path / "run",
        [state(texts=["4", "5", "6"])],
        [stats(exact_match=1.0, exact_match_at_3=1.0, **{"pass": 0.4})],
    )
    table = read([folder])
    assert table.candidates["text"].to_list() == ["4", "5", "6"]
    assert table.candidates["label.exact_match"].to_list() == [1.0, None, None]
    assert list(table.labels) == ["exact_match"]
    assert tuple(map(str, table.notes)) == (
        "2 completions not graded: HELM's statistics are of the first completion of a request",
    )


def test_options_of_a_question_and_their_letters(tmp_path):
    states = [
        state(case, [text], output_mapping={"A": "three", "B": "four"}) for case, text in (("id0", " B"), ("id1", "A"))
    ]
    result = kofn.score(write(tmp_path / "run", states), aggregate="mean")
    assert result.get("mean").point == 0.5
    assert result.extraction["extractor"] == "letter"
    assert "no per_instance_stats.json beside it: HELM's own grades are left out" in map(str, result.warnings)


def test_options_scored_one_by_one_are_the_one_that_was_chosen(tmp_path):
    states = [state(reference=i) for i in range(2)] + [state(reference=1, request_mode="calibration")]
    folder = write(tmp_path / "run", states, [stats(exact_match=1.0, predicted_index=1)])
    table = read([folder])
    assert table.candidates["text"].to_list() == ["four"]
    (folder / "per_instance_stats.json").write_text(json.dumps([stats(exact_match=1.0)]))
    with pytest.raises(kofn.InputError, match="no candidates in these HELM request states"):
        read([folder])


def test_perturbed_instances_are_cases_of_their_own_in_one_cluster(tmp_path):
    states = [state(), state(perturbation="typos")]
    folder = write(tmp_path / "run", states, [stats(exact_match=1.0), stats(perturbation="typos", exact_match=0.0)])
    table = read([folder])
    assert table.cases["case_id"].to_list() == ["id0 | none", "id0 | typos"]
    assert table.cases["cluster"].to_list() == ["id0", "id0"]
    assert table.candidates["label.exact_match"].to_list() == [1.0, 0.0]


def test_failed_requests_are_errors(tmp_path):
    failed = state(trial=1)
    failed["result"] = {"success": False, "completions": [], "error": "timeout", "cached": False}
    waiting = {k: v for k, v in state(trial=2).items() if k != "result"}
    table = read([write(tmp_path / "run", [state(), failed, waiting], [stats(exact_match=1.0)])])
    assert table.candidates["error"].to_list() == [None, "timeout", "not executed"]
    assert table.candidates["label.exact_match"].to_list() == [1.0, None, None]
    assert tuple(map(str, table.notes)) == ("2 requests failed or not executed: not graded",)


def test_damaged_runs_are_refused_in_one_line(tmp_path):
    folder = write(tmp_path / "run", [state()], [{"instance_id": "id0"}])
    with pytest.raises(kofn.InputError, match=r"per_instance_stats\.json: not a list of HELM's statistics"):
        read([folder])
    (folder / "per_instance_stats.json").unlink()
    path = folder / "scenario_state.json"
    path.write_text(path.read_text()[:-100])
    with pytest.raises(kofn.InputError, match=r"run: the JSON ends too early"):
        read([folder])
    spoiled = state()
    del spoiled["instance"]["id"]
    with pytest.raises(kofn.InputError, match=r"run: request state 1: expected an instance with an id"):
        read([write(tmp_path / "run", [spoiled])])
