"""Samples of lm-evaluation-harness: all responses are candidates, and what a line's grade is of is kept apart."""

from __future__ import annotations

import gzip
import json
import shutil
import sys

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.shared import LOGS, needs_shared

import kofn
from kofn.cli import main
from kofn.errors import InputError
from kofn.importers import importer_of, lm_eval, lm_eval_lines, read
from kofn.importers.base import ReadOptions
from kofn.importers.jsonl import MixedTypes
from kofn.importers.lm_eval import Results
from kofn.importers.recognition import Peek

SAMPLES, RESULTS = (
    "samples_math_perturbed_full_2026-01-21T03-44-18.458309.jsonl",
    "results_2026-01-21T03-44-18.458309.json",
)
NAME = "samples_sums_2026-01-01T00-00-00.000000.jsonl"
needs_logs = needs_shared(LOGS)


def line(doc=0, responses=("4",), made=None, of="none", target="4", arguments=None, **grades):
    """A line as the tool writes it: the keys in its order."""
    grades = grades or {"exact_match": 1.0}
    return {
        "doc_id": doc,
        "doc": {"question": f"{doc}?", "level": doc % 2, "kind": "even" if doc % 2 == 0 else "odd"},
        "target": target,
        "arguments": arguments or {"gen_args_0": {"arg_0": f"Q: {doc}?", "arg_1": {"until": ["\n"]}}},
        "resps": [list(responses)],
        "filtered_resps": list(responses[:1]) if made is None else made,
        "filter": of,
        "metrics": list(grades),
        "doc_hash": "a" * 64,
        "prompt_hash": "b" * 64,
        "target_hash": "c" * 64,
        **grades,
    }


def options_line(doc, options, likelihoods, target, *, context="Q:", **grades):
    """A line of options compared by likelihood: a request an option, a pair a repeat, all as text."""
    return line(doc, target=str(target), **(grades or {"acc": 1.0})) | {
        "arguments": {f"gen_args_{i}": {"arg_0": context, "arg_1": f" {o}"} for i, o in enumerate(options)},
        "resps": [[[str(v), str(i == 0)] for v in row] for i, row in enumerate(zip(*likelihoods, strict=True))],
        "filtered_resps": [[str(v), str(i == 0)] for i, v in enumerate(likelihoods[0])],
    }


def written(folder, rows, name=NAME, ensure_ascii=False):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=ensure_ascii) + "\n" for row in rows))
    return path


# --- the real files


@needs_logs
def test_a_real_log_is_read_with_its_results():
    table = read([LOGS / SAMPLES], ReadOptions(everything=True, keep=("level", "type")))
    assert importer_of(Peek(LOGS / SAMPLES)).name == "lm_eval"
    assert (table.n_cases, table.n_candidates, table.labels) == (10, 10, {"exact_match": True})
    assert table.candidates["label.exact_match"].to_list() == [0.0] * 10
    assert table.cases["case_id"].to_list() == [str(i) for i in range(10)]
    assert table.cases["reference"][0] == "3"
    assert table.candidates["text"][0].startswith(" 1. The graph of $y=1.")
    assert table.cases["input"][0].endswith("have?\n\nSolution:")
    assert table.tags["level"][0] == "Level 3"
    assert table.origin["task"] == "math_perturbed_full"
    assert table.origin["model"] == "RylanSchaeffer/mem_Qwen3-93M_minerva_math_rep_0_sbst_1.0000_epch_1_ot_1"
    assert tuple(map(str, table.notes)) == (
        "10 documents here, and the results are of 5,000: the log is cut short, or a part of it",
    )


@needs_logs
def test_a_real_folder_says_what_the_results_table_says(tmp_path):
    for name in (SAMPLES, RESULTS):
        shutil.copy(LOGS / name, tmp_path / name)
    said = json.loads((LOGS / RESULTS).read_text())["results"]["math_perturbed_full"]["exact_match,none"]
    result = kofn.score(tmp_path, aggregate=["mean", "first"])
    assert result.get("mean").point == result.get("first").point == said == 0.0


@needs_logs
def test_both_readers_agree_on_a_real_log():
    peek, selection = Peek(LOGS / SAMPLES), lm_eval_lines.LineSelection(input=True, tags=("level", "idx"))
    found, rest = lm_eval_lines.read_fast(peek.path, selection)
    assert not rest
    slow, notes = lm_eval_lines.read_by_row(peek, selection)
    assert notes == ()
    assert_frame_equal(found.select(slow.columns), slow)


# --- what a candidate is


def test_every_response_is_a_candidate_and_the_grade_of_several_is_a_tag_of_the_case(tmp_path):
    rows = [line(i, ["4", "5", "4", "6"], ["4"], exact_match=1.0) for i in range(3)]
    result = kofn.score(written(tmp_path, rows), aggregate=["first", "mean", "majority", "pass@2"], everything=True)
    assert (result.n_cases, result.n_candidates) == (3, 12)
    assert result.table.labels == {}
    assert result.table.candidates["text"].to_list()[:4] == ["4", "5", "4", "6"]
    assert result.table.tags["lm_eval.exact_match"].to_list() == [1.0] * 3
    assert result.get("first").point == result.get("majority").point == 1.0
    assert result.get("mean").point == 0.5
    assert result.get("pass@2").point == pytest.approx(1 - 1 / 6)
    assert str(result.warnings[0]) == (
        "exact_match: lm-eval's value is of what its filter made of up to 4 responses, not of each: it is the tag "
        "lm_eval.exact_match, and candidates are graded here"
    )


def test_the_grade_of_one_response_is_its_label(tmp_path):
    rows = [line(i, [text], exact_match=float(text == "4")) for i, text in enumerate(["4", "5", "4"])]
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    assert result.table.labels == {"exact_match": True}
    assert result.table.candidates["label.exact_match"].to_list() == [1.0, 0.0, 1.0]
    assert result.get("mean").point == pytest.approx(2 / 3)
    assert result.table.notes == ()


def test_lines_of_several_filters_are_one_set_with_the_grades_of_each(tmp_path):
    rows = []
    for i, (strict, flexible) in enumerate([(1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]):
        rows.append(line(i, [f"so {i}"], ["[invalid]" if not strict else "4"], "strict-match", exact_match=strict))
        rows.append(line(i, [f"so {i}"], ["4"], "flexible-extract", exact_match=flexible))
    path = written(tmp_path, rows)
    table = read([path])
    assert (table.n_cases, table.n_candidates) == (3, 3)
    assert list(table.labels) == ["exact_match,strict-match", "exact_match,flexible-extract"]
    assert table.candidates["label.exact_match,strict-match"].to_list() == [1.0, 0.0, 0.0]
    assert table.candidates["label.exact_match,flexible-extract"].to_list() == [1.0, 1.0, 0.0]
    assert table.candidates["answer"].to_list() == ["4", None, None], "what a filter puts for nothing is no answer"
    assert tuple(map(str, table.notes)) == (
        "2 filters (strict-match, flexible-extract): answers are those of strict-match; --where filter=NAME takes one",
    )
    one = read([path], ReadOptions(where={"filter": "flexible-extract"}))
    assert one.labels == {"exact_match": True}
    assert one.candidates["label.exact_match"].to_list() == [1.0, 1.0, 0.0]
    assert one.candidates["answer"].to_list() == ["4", "4", "4"]
    assert one.notes == ()


def test_filters_of_several_responses_keep_all_of_them(tmp_path):
    rows = []
    for i in range(2):
        rows.append(line(i, ["4", "5", "5"], ["4"], "first", exact_match=1.0))
        rows.append(line(i, ["4", "5", "5"], ["5"], "maj@3", exact_match=0.0))
    result = kofn.score(written(tmp_path, rows), aggregate=["first", "majority"], everything=True)
    assert (result.n_cases, result.n_candidates) == (2, 6)
    assert result.table.tags["lm_eval.exact_match,first"].to_list() == [1.0, 1.0]
    assert result.table.tags["lm_eval.exact_match,maj@3"].to_list() == [0.0, 0.0]
    assert (result.get("first").point, result.get("majority").point) == (1.0, 0.0)


def test_what_a_filter_makes_of_each_response_is_its_answer(tmp_path):
    rows = [line(i, ["so 4", "so 5"], [["4", "[invalid]"]], "each", exact_match=1.0) for i in range(2)]
    assert read([written(tmp_path, rows)]).candidates["answer"].to_list() == ["4", None] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"gen_args_0": {"arg_0": "Q: 0?", "arg_1": {"until": ["\n"]}}},
        [["Q: 0?", {"until": ["\n"]}]],
        [{"arg_0": "Q: 0?"}],
    ],
    ids=["objects", "lists", "list of objects"],
)
def test_the_prompt_is_found_in_every_form_of_arguments(arguments, tmp_path):
    path = written(tmp_path, [line(i, arguments=arguments) for i in range(2)])
    table = read([path], ReadOptions(everything=True))
    assert table.cases["input"].to_list() == ["Q: 0?"] * 2
    assert "input" not in read([path]).cases.columns, "a number needs no prompt"


def test_samples_in_memory_read_as_those_of_a_file_do(tmp_path):
    rows = [line(i, ["4", "5"], ["4"], arguments=[("Q", {"until": []})], target=4) for i in range(3)]
    found, notes = lm_eval_lines.read_samples(rows, lm_eval_lines.LineSelection(input=True))
    memory = lm_eval.table_of_lines(found, "memory", ReadOptions(everything=True), Results(task="sums"), notes)
    of_file = [r | {"target": "4", "arguments": {"gen_args_0": {"arg_0": "Q", "arg_1": {"until": []}}}} for r in rows]
    assert_same_table(memory, read([written(tmp_path, of_file)], ReadOptions(everything=True)))


def test_fields_of_documents_are_tags_where_they_are_asked_for(tmp_path):
    path = written(tmp_path, [line(i, exact_match=float(i < 2)) for i in range(4)])
    table = read([path], ReadOptions(keep=("level", "kind")))
    assert table.tags["level"].to_list() == [0, 1, 0, 1]
    assert table.tags["kind"].to_list() == ["even", "odd"] * 2
    assert read([path]).tags.width == 0
    result = kofn.score(path, aggregate="mean", by="kind")
    assert {s.segment: s.point for s in result.estimates if s.segment} == {"kind=even": 0.5, "kind=odd": 0.5}
    assert read([path], ReadOptions(where={"kind": "odd"})).cases["case_id"].to_list() == ["1", "3"]


def test_targets_that_list_several_texts_are_several_references(tmp_path):
    rows = [line(i, target=target) for i, target in enumerate(["['Paris', 'paris']", "x", "[1, 2]"])]
    table = read([written(tmp_path, rows)])
    assert table.cases["reference"].to_list() == [["Paris", "paris"], ["x"], ["[1, 2]"]]


# --- options compared by likelihood


def test_the_likeliest_option_is_the_output(tmp_path):
    rows = [
        options_line(0, ["Paris", "Rome"], [[-1.0, -2.0]], 0, acc=1.0, acc_norm=1.0),
        options_line(1, ["Paris", "Rome"], [[-1.0, -0.5]], 0, acc=0.0, acc_norm=0.0),
    ]
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    table = result.table
    assert table.candidates["text"].to_list() == ["Paris", "Rome"]
    assert table.candidates["answer"].to_list() == ["A", "B"]
    assert table.cases["reference"].to_list() == ["A", "A"]
    assert list(table.labels) == ["acc", "acc_norm"]
    assert result.get("mean", metric="acc").point == 0.5


def test_repeats_of_options_are_graded_one_by_one_as_the_tool_would(tmp_path):
    likelihoods = [[-1.0, -2.0], [-3.0, -2.0], [-1.0, -1.5]]
    rows = [options_line(i, ["no", "certainly"], likelihoods, 0, acc=1.0, acc_norm=0.0) for i in range(2)]
    result = kofn.score(written(tmp_path, rows), aggregate=["first", "mean", "majority"])
    assert (result.n_cases, result.n_candidates) == (2, 6)
    assert result.table.candidates["label.acc"].to_list() == [1.0, 0.0, 1.0] * 2
    assert result.table.candidates["label.acc_norm"].to_list() == [0.0, 0.0, 0.0] * 2
    assert result.get("first", metric="acc").point == 1.0
    assert result.get("mean", metric="acc").point == pytest.approx(2 / 3)
    assert result.get("majority", metric="acc").point == 1.0
    assert result.table.candidates["selector.logprob"].to_list() == [-1.0, -2.0, -1.0] * 2


@pytest.mark.parametrize(("target", "right"), [("1", "B"), ("Rome", "B"), ("['0', '1']", ["A", "B"])])
def test_targets_are_places_or_texts_of_options(target, right, tmp_path):
    acc = 1.0 if isinstance(right, list) else 0.0
    rows = [options_line(i, ["Paris", "Rome"], [[-1.0, -2.0]], target, acc=acc) for i in range(2)]
    assert read([written(tmp_path, rows)]).cases["reference"].to_list() == [right] * 2


@pytest.mark.parametrize(("acc", "right"), [(1.0, "A"), (0.0, "B")])
def test_options_that_are_numbers_are_read_as_the_tools_accuracy_has_it(acc, right, tmp_path):
    """Target "1" of the options 1, 0, 7 is the first one, where `acc` says that choosing it was right."""
    rows = [options_line(i, ["1", "0", "7"], [[-1.0, -2.0, -3.0]], "1", acc=acc) for i in range(2)]
    assert read([written(tmp_path, rows)]).cases["reference"].to_list() == [right] * 2


def test_requests_without_context_are_those_of_mutual_information(tmp_path):
    rows = []
    for i in range(2):
        row = options_line(i, ["Paris", "Rome"], [[-1.0, -2.0]], 0, acc=1.0, acc_mutual_info=0.0)
        row["arguments"] |= {f"gen_args_{n}": {"arg_0": "", "arg_1": t} for n, t in ((2, " Paris"), (3, " Rome"))}
        row["resps"] += [[["-0.1", "True"]], [["-5.0", "False"]]]
        rows.append(row)
    table = read([written(tmp_path, rows)])
    assert table.candidates["text"].to_list() == ["Paris", "Paris"]
    assert list(table.labels) == ["acc", "acc_mutual_info"]


def test_contexts_are_the_options_where_continuations_are_all_the_same(tmp_path):
    rows = []
    for i in range(2):
        row = options_line(i, ["x", "x"], [[-2.0, -1.0]], 1, acc=1.0)
        row["arguments"] = {
            f"gen_args_{n}": {"arg_0": f"The cup fell because {what}", "arg_1": " broke."}
            for n, what in enumerate(["it", "the table"])
        }
        rows.append(row)
    table = read([written(tmp_path, rows)])
    assert table.candidates["text"].to_list() == ["the table"] * 2
    assert table.candidates["label.acc"].to_list() == [1.0, 1.0]


def test_a_continuation_that_is_not_the_greedy_one_is_graded_and_has_no_text(tmp_path):
    """What a `loglikelihood` task asks: is this text what the model would say?"""
    rows = []
    for i, greedy in enumerate(["True", "False"]):
        row = line(i, target="end", perplexity=-1.5, acc=float(greedy == "True"))
        row |= {"resps": [[["-1.5", greedy]]], "filtered_resps": [["-1.5", greedy]]}
        row["arguments"] = {"gen_args_0": {"arg_0": "The", "arg_1": " end"}}
        rows.append(row)
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    assert result.table.candidates["text"].to_list() == [" end", None]
    assert (result.get("mean", metric="acc").point, result.n_missing) == (0.5, 0)
    assert "perplexity is one number over all cases, and its column has log-likelihoods: left out" in map(
        str, result.warnings
    )


def test_perplexities_of_whole_texts_are_told_and_left_out(tmp_path):
    """`loglikelihood_rolling`: a number for each text, of which the tool makes one over all."""
    rows = []
    for i in range(2):
        row = line(i, word_perplexity=[-3.5, 10], byte_perplexity=[-3.5, 40])
        rows.append(row | {"resps": [["-3.5"]], "filtered_resps": ["-3.5"]})
    table = read([written(tmp_path, rows)])
    assert table.labels == {}
    assert tuple(map(str, table.notes[:2])) == tuple(
        f"metric {name} is no single number on 2 lines (lm-eval computes it over all cases): left out"
        for name in ("word_perplexity", "byte_perplexity")
    )


# --- what looks wrong


def test_a_resumed_log_counts_each_document_once(tmp_path):
    rows = [line(i) for i in range(3)]
    table = read([written(tmp_path, [*rows, rows[1], rows[2]])])
    assert (table.n_cases, table.n_candidates) == (3, 3)
    assert tuple(map(str, table.notes)) == (
        "2 lines of a document and filter that were there before (doc_id 1, 2): a resumed log? word for word the same",
    )
    table = read([written(tmp_path, [*rows, line(1, ["7"], exact_match=0.0)])])
    assert table.candidates["text"].to_list() == ["4", "7", "4"], "the last counts, in the place of the first"
    before = "1 line of a document and filter that were there before (doc_id 1): a resumed log?"
    assert tuple(map(str, table.notes)) == (f"{before} 1 with other values: the last counts",)


def test_documents_that_lack_repeats_are_counted(tmp_path):
    rows = [line(i, ["4", "5", "4"][: 3 if i else 2], ["4"]) for i in range(5)]
    result = kofn.score(written(tmp_path, rows), aggregate=["mean", "pass@3"])
    assert (result.n_cases, result.n_candidates) == (5, 14)
    assert "1 of 5 cases have 2 of 3 repeats (0)" in map(str, result.warnings)
    assert result.get("pass@3").n_missing == 1, "undefined for two candidates, and counted"


def test_repeats_that_are_byte_for_byte_the_same_are_told(tmp_path):
    rows = [line(i, ["4", "4", "4"], ["4"]) for i in range(4)]
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    assert "4 of 4 sets have identical candidates: a cache, or temperature 0?" in map(str, result.warnings)


def test_grades_of_several_types_are_read_as_one_and_told(tmp_path):
    """What Python's numpy leaves in a log: True as text beside numbers."""
    values = [1.0, True, "False", 0, "0.5", None]
    table = read([written(tmp_path, [line(i, exact_match=v) for i, v in enumerate(values)])])
    assert table.candidates["label.exact_match"].to_list() == [1.0, 1.0, 0.0, 0.0, 0.5, None]
    assert tuple(map(str, table.notes)) == (
        "field 'exact_match' holds numbers, text and true/false: all are read as numbers",
    )


@pytest.mark.parametrize("late", [False, True])
def test_grades_without_a_value_are_not_graded(late, tmp_path):
    values = [1.0, float("nan"), 0.0, None, float("inf")]
    rows = [line(i, exact_match=v) for i, v in enumerate([1.0] * (3000 if late else 0) + values)]
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    assert result.table.candidates["label.exact_match"].to_list()[-5:] == [1.0, None, 0.0, None, None]
    assert result.get("mean").n_missing == 3


def test_grades_that_are_no_numbers_are_told(tmp_path):
    rows = [line(i, bleu=["x", "y"], exact_match=1.0) for i in range(2)]
    table = read([written(tmp_path, rows)])
    assert table.labels == {"exact_match": True}
    assert tuple(map(str, table.notes)) == (
        "metric bleu is no single number on 2 lines (lm-eval computes it over all cases): left out",
    )


@pytest.mark.parametrize("nothing", [[[]], [], [[None]]], ids=["no response", "no request", "null"])
def test_a_document_without_a_response_keeps_its_place_and_is_not_graded(nothing, tmp_path):
    rows = [line(i, exact_match=1.0) for i in range(3)]
    rows[1] |= {"resps": nothing, "filtered_resps": [], "exact_match": 0.0}
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    assert (result.n_cases, result.n_candidates) == (3, 3)
    assert result.table.candidates["error"].to_list() == [None, "no response in the log", None]
    assert (result.get("mean").point, result.get("mean").n_missing) == (1.0, 1)


def test_an_empty_response_is_a_response(tmp_path):
    rows = [line(i, [""], exact_match=0.0) for i in range(3)]
    result = kofn.score(written(tmp_path, rows), aggregate="mean")
    assert result.table.candidates["text"].to_list() == [""] * 3
    assert (result.get("mean").point, result.n_missing) == (0.0, 0)


def test_older_logs_without_filter_names_and_lists_of_metrics_are_read(tmp_path):
    rows = []
    for i in range(2):
        for made, value in (("4", 1.0), ("5", 0.0)):
            row = line(i, ["so 4"], [made], exact_match=value)
            rows.append({k: v for k, v in row.items() if k not in ("filter", "metrics")})
    table = read([written(tmp_path, rows)])
    assert list(table.labels) == ["exact_match,filter 1", "exact_match,filter 2"]
    assert "the log names no filters: lines of one document are told apart by their order" in map(str, table.notes)


# --- the results beside


def results_of(**parts):
    return {
        "results": {"sums": {"exact_match,none": 1.0}},
        "configs": {"sums": {"task": "sums", "metric_list": [{"metric": "exact_match", "aggregation": "mean"}]}},
        "model_name": "org/model",
        "lm_eval_version": "0.4.13",
        **parts,
    }


def with_results(folder, results, rows=None):
    path = written(folder, rows or [line(i) for i in range(3)])
    text = results if isinstance(results, str) else json.dumps(results)
    (folder / "results_2026-01-01T00-00-00.000000.json").write_text(text)
    return path


def test_results_beside_say_the_model_and_which_way_is_better(tmp_path):
    more = {"higher_is_better": {"sums": {"distance": False}}, "n-samples": {"sums": {"effective": 3}}}
    path = with_results(tmp_path, results_of(**more), [line(i, distance=0.5) for i in range(3)])
    table = read([path])
    assert table.labels == {"distance": False}
    assert (table.origin["task"], table.origin["model"], table.origin["version"]) == ("sums", "org/model", "0.4.13")
    assert table.notes == ()


def test_what_a_filter_of_the_task_puts_for_nothing_is_no_answer(tmp_path):
    steps = [{"name": "f", "filter": [{"function": "regex", "fallback": "none found"}]}]
    results = results_of(configs={"sums": {"filter_list": steps}})
    table = read([with_results(tmp_path, results, [line(0, ["so 4"], ["4"]), line(1, ["so"], ["none found"])])])
    assert table.candidates["answer"].to_list() == ["4", None]


def test_metrics_that_are_not_means_over_cases_are_told(tmp_path):
    configs = {"sums": {"metric_list": [{"metric": "exact_match", "aggregation": "median"}]}}
    table = read([with_results(tmp_path, results_of(configs=configs))])
    assert tuple(map(str, table.notes)) == ("exact_match: lm-eval's number over cases is median; here it is the mean",)


@pytest.mark.parametrize(
    "results", ["{not json", "[]", "null", '{"configs": 3, "results": []}', '{"configs": {"other": {}, "more": {}}}']
)
def test_results_that_are_not_as_the_tool_writes_them_do_no_harm(results, tmp_path):
    table = read([with_results(tmp_path, results)])
    assert table.n_cases == 3
    assert len(table.notes) == (1 if results == "{not json" else 0)
    for said in map(str, table.notes):
        assert said == (
            "results_2026-01-01T00-00-00.000000.json beside it cannot be read as JSON: model and task are not known"
        )


# --- folders, patterns, compression


@pytest.fixture
def folder(tmp_path):
    """What the tool writes for two tasks, one of them run twice."""
    model = tmp_path / "out" / "org__model"
    written(model, [line(i, exact_match=0.0) for i in range(2)], "samples_sums_2026-01-01T00-00-00.000000.jsonl")
    written(model, [line(i) for i in range(2)], "samples_sums_2026-01-02T00-00-00.000000.jsonl")
    written(model, [line(i, ["x"], acc=0.0) for i in range(3)], "samples_words_2026-01-02T00-00-00.000000.jsonl")
    (model / "results_2026-01-02T00-00-00.000000.json").write_text(
        json.dumps({"configs": {"sums": {}, "words": {}}, "model_name": "org/model"})
    )
    return tmp_path / "out"


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_is_all_its_tasks_the_latest_run_of_each(inside, folder):
    place = folder / "org__model" if inside else folder
    table = read([place])
    assert table.cases["case_id"].to_list() == ["sums/0", "sums/1", "words/0", "words/1", "words/2"]
    assert table.tags["task"].to_list() == ["sums"] * 2 + ["words"] * 3
    assert table.candidates["label.exact_match"].to_list() == [1.0, 1.0, None, None, None]
    assert table.origin["model"] == "org/model"
    assert f"1 older samples file of the same tasks in {place}: not read" in map(str, table.notes)


def test_one_task_of_a_folder_is_taken(folder):
    table = read([folder], ReadOptions(where={"task": "words"}))
    assert table.cases["case_id"].to_list() == ["0", "1", "2"]
    assert list(table.labels) == ["acc"]
    with pytest.raises(InputError, match=r"no case has task=sum: there is sums, words$"):
        read([folder], ReadOptions(where={"task": "sum"}))


def test_samples_of_several_models_are_refused(folder):
    shutil.copytree(folder / "org__model", folder / "org__other")
    with pytest.raises(InputError, match=r"samples of several models \(org__model, org__other\): score each"):
        read([folder])


def test_files_of_two_tasks_and_a_pattern_are_led_by_their_task(folder):
    table = read([str(folder / "*" / "samples_*_2026-01-02*.jsonl")])
    assert table.cases["case_id"].to_list() == ["sums/0", "sums/1", "words/0", "words/1", "words/2"]


def test_files_of_one_task_are_repeats_where_that_is_said(tmp_path):
    for seed in range(3):
        written(tmp_path / str(seed), [line(i, [f"{seed}"], exact_match=float(seed == i)) for i in range(3)])
    table = read([tmp_path / str(seed) / NAME for seed in range(3)], as_repeats=True)
    assert (table.n_cases, table.n_candidates) == (3, 9)
    assert table.candidates["label.exact_match"].to_list() == [1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_a_compressed_log_is_read_under_its_name(tmp_path):
    path = with_results(tmp_path, results_of())
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    table = read([packed])
    assert_same_table(table, read([path]))
    assert (table.sources, table.origin["task"]) == ((str(packed),), "sums")


# --- what cannot be read


@pytest.fixture
def said(monkeypatch, capsys):
    """The one line that `kofn score` ends with."""

    def run(path, *arguments):
        monkeypatch.setattr(sys, "argv", ["kofn", "score", str(path), *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        (only,) = capsys.readouterr().err.strip().splitlines()
        return only

    return run


def good(n=3):
    return [json.dumps(line(i)) for i in range(n)]


@pytest.mark.parametrize("n", [3, 3000])
@pytest.mark.parametrize(
    ("last", "what"),
    [
        (good()[0][:-30], "not JSON (unexpected end of data, column {}): expected one object a line"),
        ('{"doc_id": 1, "doc": }', "not JSON (unexpected character"),
        (
            json.dumps({k: v for k, v in line(1).items() if k != "resps"}),
            "no 'resps': expected it on every line of lm-eval samples, found doc_id, doc, target, arguments, filtered_",
        ),
        (
            '{"id": "q1", "output": "4"}',
            "no 'doc_id': expected it on every line of lm-eval samples, found id, output",
        ),
        ("[1, 2]", "expected a JSON object, found list"),
        ('"text"', "expected a JSON object, found str"),
    ],
    ids=["truncated", "invalid", "no resps", "another tool's", "list", "text"],
)
def test_a_line_that_cannot_be_read_is_named(said, last, what, n, tmp_path):
    path = tmp_path / NAME
    path.write_text("\n".join([*good(n), last]))
    column = len(last) + 1 if "column {}" in what else ""
    assert said(path).startswith(f"kofn: {path}: line {n + 1}: {what.format(column)}")


def test_a_log_that_is_not_utf8_is_refused_by_its_line(said, tmp_path):
    path = tmp_path / NAME
    path.write_bytes(("\n".join(good(2)) + "\n").encode() + good(3)[2].encode().replace(b"2?", b"\xff?"))
    assert f"{path}: line 3: not UTF-8" in said(path)


def test_a_log_without_lines_says_so(said, tmp_path):
    path = tmp_path / NAME
    path.write_text("\n\n")
    assert said(path, "--format", "lm_eval") == (
        f"kofn: {path}: no candidates in these lm-eval samples: the log is empty, or its run had not begun"
    )


def test_options_with_unequal_repeats_are_refused(said, tmp_path):
    row = options_line(0, ["a", "b"], [[-1.0, -2.0], [-1.0, -2.0]], 0)
    row["resps"][1] = row["resps"][1][:1]
    assert "options with unequal numbers of repeats" in said(written(tmp_path, [row, row]))


def test_a_likelihood_that_is_no_number_is_refused(said, tmp_path):
    row = options_line(0, ["a", "b"], [[-1.0, -2.0]], 0)
    row["resps"][1] = [["much", "True"]]
    assert "line 1: resps: expected a log-likelihood, found 'much'" in said(written(tmp_path, [row]))


@pytest.mark.parametrize("whole", [False, True])
def test_results_alone_are_refused_with_what_to_do(whole, said, tmp_path):
    path = tmp_path / "results_2026-01-01T00-00-00.000000.json"
    path.write_text(json.dumps(results_of(), indent=2))
    place = tmp_path if whole else path
    what = "results of lm-eval without samples: run it with --log_samples, and give samples_*.jsonl"
    assert said(place) == f"kofn: {place}: {what}"


def test_a_field_that_documents_lack_is_refused_with_those_they_have(said, tmp_path):
    path = written(tmp_path, [line(i) for i in range(3)])
    assert said(path, "--by", "colour") == f"kofn: {path}: no field 'colour': its documents have question, level, kind"
    assert said(path, "--where", "knd=odd") == f"kofn: {path}: no field 'knd': did you mean kind?"


def test_a_filter_nobody_used_is_refused_with_those_there_are(said, tmp_path):
    path = written(tmp_path, [line(0, of="strict"), line(0, of="loose")])
    assert said(path, "--where", "filter=lose") == f"kofn: {path}: no case has filter=lose: there is strict, loose"


# --- two readers, one result


KEYS = (  # what a reader that looks for keys may take for one
    *('", "resps": [["', '"]], "filtered_resps": [', '], "filter": "', '}, "target": "', ', "doc": {', '", "arg_1": '),
    *(', "arguments": {"gen_args_0": {"arg_0": "', '{"doc_id": ', '"doc_id": ', '", "metrics": ["exact_match"]'),
)
SIGNS = ('", "', '\\"', '\\\\"', "\\n", "\r\n", *'\\"\n\t/\x7f\x85\u2028é😀[] 4')
WORDS = ("[invalid]", "NaN", "Infinity", "null", "true", "\\u0041")
RARE = ("\x00", "\x1f", "\b", "\f", "\ufffe", "\uffff", "\ufeff")  # written as \\u, or what the fast reader marks with
mild = st.lists(st.sampled_from([*KEYS, *SIGNS, *WORDS]), max_size=6).map("".join)
wild = st.lists(st.sampled_from([*KEYS, *SIGNS, *RARE]) | st.text(st.characters(codec="utf-8"), max_size=5), max_size=6)
texts = st.one_of(mild, mild, mild, mild, mild, mild, mild, wild.map("".join))
values = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), texts, st.lists(texts, max_size=2))
names = st.sampled_from(["question", "doc_id", "target", "resps", "arguments", "filter"]) | texts
documents = st.dictionaries(names, st.one_of(values, st.dictionaries(texts, values, max_size=2)), max_size=2)
grades = st.one_of(st.just(1.0), st.floats(0, 1), st.integers(0, 1), st.booleans(), st.none(), st.just(float("nan")))
made_of = st.one_of(st.none(), texts, st.lists(texts, min_size=1, max_size=2))


@st.composite
def logs(draw):
    """Lines of documents with a response or several, under a filter or two: first a plain one, then of every kind."""
    filters = draw(st.sampled_from([["none"], ["none"], ["strict", "flex"], ["strict", 'fl"ex']]))
    repeats = draw(st.sampled_from([1, 1, 3]))
    rows = [line(99, ["p", "q", "r"][:repeats], ["p"], name) | {"doc": {"q": "0"}} for name in filters]
    for i in range(draw(st.integers(1, 5))):
        responses = draw(st.lists(texts, min_size=repeats, max_size=repeats))
        document = {"q": draw(st.sampled_from(["1", "é\n", "2"]))} | draw(st.just({}) | documents)
        prompt, target = draw(texts), draw(texts)
        for name in filters:
            made = draw(made_of)
            row = line(i, responses, None if made is None else [made], name, target, exact_match=draw(grades))
            row["arguments"] = {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": [draw(texts)]}}}
            rows.append(row | {"doc": document})
    return rows


def read_by(reader, path, selection, options):
    """The table a reader makes, or what it says."""
    peek = Peek(path)
    try:
        found, notes = reader(peek, selection)
        return lm_eval.table_of_lines(found, "log", options, Results(task="sums"), notes)
    except InputError as problem:
        return str(problem)


def read_fast(peek, selection):
    found, rest = lm_eval_lines.read_fast(peek.path, selection)
    return lm_eval_lines._merge_in_order(found, rest, peek, selection), ()


def assert_same_table(one, other):
    assert_frame_equal(one.candidates, other.candidates, check_column_order=False)
    assert_frame_equal(one.cases, other.cases, check_column_order=False)
    assert_frame_equal(one.tags, other.tags, check_column_order=False)
    assert one.offsets.tolist() == other.offsets.tolist()
    assert (one.labels, one.notes) == (other.labels, other.notes)


@pytest.mark.long
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    rows=logs(), in_ascii=st.sampled_from([False, False, False, True]), everything=st.booleans(), tagged=st.booleans()
)
def test_the_fast_reader_gives_what_the_row_reader_gives(rows, in_ascii, everything, tagged, tmp_path, monkeypatch):
    """Only the plain lines are sampled, so that what is unlike them has to be noticed line by line."""
    path = written(tmp_path, rows, ensure_ascii=in_ascii)
    plain = [json.dumps(row).encode() for row in rows if row["doc_id"] == 99]
    monkeypatch.setattr(lm_eval_lines, "sample_lines", lambda _: iter(plain))
    tags = ("q",) if tagged else ()
    selection = lm_eval_lines.LineSelection(input=everything, tags=tags)
    options = ReadOptions(everything=everything, keep=tags)
    try:
        fast = read_by(read_fast, path, selection, options)
    except (MixedTypes, pl.exceptions.PolarsError):
        return  # the whole file is then read with care
    by_row = read_by(lm_eval_lines.read_by_row, path, selection, options)
    if isinstance(by_row, str) or isinstance(fast, str):
        assert fast == by_row
    else:
        assert_same_table(fast, by_row)


@pytest.mark.long
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(responses=st.lists(texts, min_size=1, max_size=8), prompt=texts, target=texts)
def test_hostile_texts_are_read_as_they_were_written(responses, prompt, target, tmp_path):
    rows = [line(i, responses, [responses[0]], target=target or "x") for i in range(2)]
    for row in rows:
        row["arguments"]["gen_args_0"]["arg_0"] = prompt
    table = read([written(tmp_path, rows)], ReadOptions(everything=True))
    assert table.candidates["text"].to_list() == responses * 2
    assert table.cases["input"].to_list() == [prompt] * 2


def test_most_logs_are_read_by_the_fast_reader(tmp_path, monkeypatch):
    """Else the test above says little: one odd line among many is read with care, and by itself."""
    rows = [line(i, ['so\n"4" \\frac{1}{2}'], ["4"]) for i in range(500)]
    rows[300] |= {"doc": {"doc_id": 7}, "resps": [["caf\u00e9 \u0001"]]}
    path = written(tmp_path, rows)
    selection = lm_eval_lines.LineSelection()
    found, rest = lm_eval_lines.read_fast(path, selection)
    assert (found.height, rest) == (499, {301})
    monkeypatch.setattr(lm_eval_lines, "read_by_row", None)
    table = read([path])
    assert table.candidates["text"][300] == "caf\u00e9 \u0001"
    assert table.candidates["text"][299] == 'so\n"4" \\frac{1}{2}'
