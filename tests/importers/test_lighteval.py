"""lighteval's detail files, written with its own columns and types: all predictions are candidates."""

from __future__ import annotations

import polars as pl
import pytest

import kofn
from kofn.errors import InputError
from kofn.importers import importer_of, read
from kofn.importers.recognition import Peek

pa = pytest.importorskip("pyarrow", reason="pyarrow writes the files here")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow writes the files here")

NAME = "details_lighteval|gsm8k|0_2025-06-01T10-00-00.123456.parquet"


def written(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def new(i, texts, gold, metric, **response):
    """A row as versions from 0.10 on write it: the document, the response and the metrics, each as it is."""
    return {
        "doc": {
            "query": f"Question {i}?",
            "choices": [gold],
            "gold_index": [0],
            "id": str(i),
            "task_name": "lighteval|gsm8k|0",
            "num_samples": len(texts),
        },
        "metric": metric,
        "model_response": {
            "input": f"Question {i}?",
            "input_tokens": [1, 2, 3],
            "text": texts,
            "output_tokens": [[7] * (j + 1) for j in range(len(texts))],
            "text_post_processed": None,
            "reasonings": [None] * len(texts),
            "logprobs": [],
            "truncated_tokens_count": 0,
            **response,
        },
    }


def old(i, predictions, gold, metrics):
    """A row as versions until 0.9 write it: flat columns, sorted by name, without an id."""
    return {
        "choices": [],
        "cont_tokens": [[7] * (j + 1) for j in range(len(predictions))],
        "example": f"Question {i}?",
        "full_prompt": f"Shots. Question {i}?",
        "gold": [gold],
        "gold_index": [],
        "input_tokens": [[1, 2, 3]] * len(predictions),
        "instruction": "",
        "metrics": metrics,
        "num_asked_few_shots": 0,
        "num_effective_few_shots": 0,
        "padded": [0],
        "pred_logits": [],
        "predictions": predictions,
        "specifics": {"x": None},
        "truncated": [0],
    }


ONE = [("4", "4", 1.0), ("5", "4", 0.0), ("4", "4", 1.0)]


def rows_of(form):
    make = new if form != "old" else old
    rows = [make(i, [f"The answer is {said}."], gold, {"extractive_match": v}) for i, (said, gold, v) in enumerate(ONE)]
    return [{f"__{k}__": v for k, v in row.items()} for row in rows] if form == "underscored" else rows


@pytest.mark.parametrize("form", ["new", "underscored", "old"])
def test_metrics_of_single_predictions_are_labels(form, tmp_path):
    path = written(tmp_path / "details" / "org" / "model" / "2025-06-01T10-00-00.123456" / NAME, rows_of(form))
    assert importer_of(Peek(path)).name == "lighteval"
    result = kofn.score(path, aggregate=["mean", "first"])
    assert (result.n_cases, result.n_candidates, result.n_missing) == (3, 3, 0)
    assert result.table.labels == {"extractive_match": True}
    assert result.get("mean").point == pytest.approx(2 / 3)
    assert result.table.cases["case_id"].to_list() == ["0", "1", "2"]
    assert result.table.cases["reference"].to_list() == ["4"] * 3
    assert result.table.origin == {"tool": "lighteval", "task": "lighteval|gsm8k|0", "model": "org/model"}
    assert result.table.candidates["tokens"].to_list() == [1.0] * 3


@pytest.mark.parametrize("form", ["new", "old"])
def test_all_predictions_are_candidates_and_a_value_of_the_set_is_a_tag(form, tmp_path):
    make = new if form == "new" else old
    texts = ["The answer is 4.", "The answer is 5.", "The answer is 4.", "none"]
    rows = [make(i, texts, "4", {"pass@k:k=1&n=4": 0.5}) for i in range(3)]
    result = kofn.score(written(tmp_path / NAME, rows), aggregate=["mean", "pass@2", "majority"], everything=True)
    assert (result.n_cases, result.n_candidates) == (3, 12)
    assert result.table.labels == {}
    assert result.table.tags["pass@k:k=1&n=4"].to_list() == [0.5] * 3
    assert result.get("mean", metric="numeric").point == 0.5, "graded here, candidate by candidate"
    assert result.get("majority", metric="numeric").point == 1.0
    said = "lighteval has one value for all predictions of a document (3 of 3)"
    assert str(result.warnings[0]) == f"{said}: kept as tags; the candidates are graded here"
    assert result.table.candidates["tokens"].to_list()[:4] == [1.0, 2.0, 3.0, 4.0]


def test_the_text_that_was_graded_is_the_output_and_what_was_cut_its_reasoning(tmp_path):
    rows = [
        new(0, ["<think>hm</think>4"], "4", {"em": 1.0}, text_post_processed=["4"]),
        new(1, ["4"], "4", {"em": 1.0}, text_post_processed=["4"], reasonings=["thought"]),
    ]
    table = read([written(tmp_path / NAME, rows)])
    assert table.candidates["text"].to_list() == ["4", "4"]
    assert table.candidates["reasoning"].to_list() == ["<think>hm</think>4", "thought"]


@pytest.mark.parametrize("form", ["new", "old", "old pairs"])
def test_options_compared_by_likelihood_give_the_likeliest_one(form, tmp_path):
    rows = []
    for i, likelihoods in enumerate([[-1.0, -2.0], [-3.0, -0.5]]):
        if form == "new":
            row = new(i, [], "Paris", {"acc": float(i == 0)}, logprobs=likelihoods, output_tokens=[[1], [2]])
            row["doc"] |= {"choices": [" Paris", " Rome"], "gold_index": [0]}
        else:
            said = [[v, 1.0] for v in likelihoods] if form == "old pairs" else likelihoods
            row = old(i, said, "", {"acc": float(i == 0)}) | {"choices": [" Paris", " Rome"], "gold_index": [0]}
            row["gold"] = []
        rows.append(row)
    table = read([written(tmp_path / NAME, rows)])
    assert table.candidates["text"].to_list() == [" Paris", " Rome"]
    assert table.candidates["answer"].to_list() == ["Paris", "Rome"]
    assert table.candidates["label.acc"].to_list() == [1.0, 0.0]
    assert table.cases["reference"].to_list() == [" Paris"] * 2
    assert "options compared by likelihood: the likeliest is read as the output" in map(str, table.notes)


def test_nested_values_written_as_python_text_are_read(tmp_path):
    rows = [{k: v if isinstance(v, str) else str(v) for k, v in row.items()} for row in rows_of("old")]
    table = read([written(tmp_path / NAME, rows)])
    assert table.candidates["text"][0] == "The answer is 4."
    assert table.candidates["label.extractive_match"].to_list() == [1.0, 0.0, 1.0]


def test_perplexities_are_better_when_lower_and_what_is_no_number_is_told(tmp_path):
    rows = [new(i, ["x"], "y", {"word_perplexity": 3.5, "bleu": {"golds": ["a"], "preds": ["b"]}}) for i in range(2)]
    table = read([written(tmp_path / NAME, rows)])
    assert table.labels == {"word_perplexity": False}
    assert tuple(map(str, table.notes)) == ("metric bleu is no number in 2 documents: left out",)


def test_a_document_without_any_prediction_is_not_graded(tmp_path):
    rows = [new(0, ["4"], "4", {"em": 1.0}), new(1, [], "4", {"em": 0.0})]
    result = kofn.score(written(tmp_path / NAME, rows), aggregate="mean")
    assert (result.n_cases, result.n_candidates) == (2, 2)
    assert result.table.candidates["error"].to_list() == [None, "no prediction"]
    assert result.get("mean").n_missing == 1


def test_other_parquet_files_are_not_taken_for_details(tmp_path):
    path = tmp_path / NAME
    pl.DataFrame({"id": ["a"], "predictions": [["4", "5"]], "reference": ["4"]}).write_parquet(path)
    assert importer_of(Peek(path)) is None
    assert kofn.score(path, aggregate="mean").get("mean").point == 0.5


def test_a_file_that_was_cut_is_refused_in_one_line(tmp_path):
    path = written(tmp_path / NAME, rows_of("new"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="not readable as Parquet") as problem:
        read([path])
    assert str(path) in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_file_damaged_in_the_middle_is_refused_in_one_line(tmp_path):
    path = written(tmp_path / NAME, [new(i, [f"text {i} " * 50], "4", {"em": 1.0}) for i in range(200)])
    data = bytearray(path.read_bytes())
    data[200:4000] = bytes(3800)
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="not readable as Parquet") as problem:
        read([path])
    assert "\n" not in str(problem.value)
