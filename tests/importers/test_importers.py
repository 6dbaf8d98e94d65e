"""One table whatever the file looked like."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.importers.jsonl import read_lines

CASES = [("a", "4", ["4", "5", "4"], [1, 0, 1]), ("b", "7", ["8", "9", None], [0, 0, None])]


def long_rows():
    return [
        {"id": i, "repeat": r, "output": t, "reference": ref, "passed": p, "cost": 0.5, "country": "BR"}
        for i, ref, texts, passes in CASES
        for r, (t, p) in enumerate(zip(texts, passes, strict=True))
    ]


def wide_rows():
    return [
        {
            "question_id": i,
            "gold": ref,
            "country": "BR",
            "responses": [{"text": t, "pass": p, "cost": 0.5} for t, p in zip(texts, passes, strict=True)],
        }
        for i, ref, texts, passes in CASES
    ]


def group_rows():
    return [
        {"id": i, "target": ref, "texts": texts, "passes": passes, "country": "BR"} for i, ref, texts, passes in CASES
    ]


def write(path, rows):
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    return path


FORMS = {"long": long_rows, "wide": wide_rows, "groups": group_rows}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["file", "rows"])
def test_every_form_gives_the_same_numbers(form, how, tmp_path):
    rows = FORMS[form]()
    data = write(tmp_path / "f.jsonl", rows) if how == "file" else rows
    result = kofn.score(data, aggregate=["first", "mean", "any_pass"], by="country")
    assert result.understood["form"] == form
    assert (result.n_cases, result.n_candidates, result.n_missing) == (2, 6, 1)
    assert result.get("mean").point == pytest.approx((2 / 3 + 0) / 2)
    assert result.get("any_pass", segment="country=BR").point == 0.5


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "array", "shuffled", "polars"])
def test_other_containers_of_the_long_form(kind, tmp_path):
    rows = long_rows()
    frame = pl.DataFrame(rows)
    path = tmp_path / f"f.{kind}"
    data = path
    if kind in ("csv", "tsv"):
        frame.write_csv(path, separator="," if kind == "csv" else "\t")
    elif kind == "parquet":
        frame.write_parquet(path)
    elif kind == "array":
        path.write_text(json.dumps(rows, indent=1))
    elif kind == "shuffled":
        write(path, [rows[i] for i in (5, 0, 3, 2, 4, 1)])
    else:
        data = frame
    result = kofn.score(data, aggregate=["mean", "any_pass", "majority"], extract="text")
    assert (result.n_cases, result.n_candidates, result.n_missing) == (2, 6, 1)
    assert {e.aggregator: e.point for e in result.estimates} == {
        "mean": pytest.approx(1 / 3),
        "any_pass": 0.5,
        "majority": 0.5,
    }


def test_repeat_gives_the_order_of_candidates(tmp_path):
    rows = [{"id": "a", "repeat": 1, "pass": 0}, {"id": "a", "repeat": 0, "pass": 1}]
    assert kofn.score(write(tmp_path / "f.jsonl", rows), aggregate="first").get("first").point == 1.0


def test_ids_that_are_numbers_and_ids_that_are_text_are_one_id(tmp_path):
    rows = [{"id": 7, "pass": 1}, {"id": "7", "pass": 0}]
    assert kofn.score(write(tmp_path / "f.jsonl", rows)).n_cases == 1


def test_a_field_that_changes_its_type_late_is_not_lost(tmp_path):
    rows = [{"id": i, "score": 1.0, "pass": True} for i in range(1000)] + [{"id": "x", "score": "0.5", "pass": "no"}]
    result = kofn.score(write(tmp_path / "f.jsonl", rows), aggregate="mean")
    assert result.n_cases == 1001
    assert result.get("mean", metric="pass").point == pytest.approx(1000 / 1001)


def test_a_case_without_candidates_keeps_its_place_and_is_undefined(tmp_path):
    rows = [{"id": "a", "outputs": [{"pass": 1}]}, {"id": "b", "outputs": []}]
    result = kofn.score(write(tmp_path / "f.jsonl", rows), aggregate="any_pass")
    assert result.n_cases == 2
    assert (result.get("any_pass").n, result.get("any_pass").n_missing) == (1, 1)
    assert "1 case without candidates: undefined, counted as missing" in map(str, result.warnings)


def test_several_references_are_alternatives():
    rows = [{"id": "a", "reference": ["four", "4"], "outputs": ["4", "five"]}]
    assert kofn.score(rows, metric="exact_match", extract="text", aggregate="mean").get("mean").point == 0.5


def test_no_answer_scores_zero_but_a_failed_call_is_not_graded():
    rows = [{"id": "a", "reference": "4", "outputs": ["I cannot say", "4"]}]
    assert kofn.score(rows, extract="number", aggregate="mean").get("mean").point == 0.5
    rows = [{"id": "a", "reference": "4", "outputs": [{"text": None, "error": "timeout"}, {"text": "4"}]}]
    result = kofn.score(rows, extract="number", aggregate="mean")
    assert (result.get("mean").point, result.n_missing) == (1.0, 1)


def test_solutions_as_references_are_reduced_to_their_answer():
    rows = [{"question_id": 1, "answer": "16 - 3 = <<16-3=13>>13 eggs.\n#### 1,080", "output": "So 1080 in all."}]
    result = kofn.score(rows, aggregate="mean")
    assert result.get("mean").point == 1.0
    assert result.extraction["extractor"] == "number"


def test_field_option_names_what_a_file_calls_otherwise():
    rows = [{"key": "a", "reply": "4", "truth": "4"}, {"key": "a", "reply": "5", "truth": "4"}]
    result = kofn.score(rows, fields={"id": "key", "text": "reply", "reference": "truth"}, aggregate="mean")
    assert result.get("mean").point == 0.5


def test_files_are_one_data_set_and_sets_grow_across_them(tmp_path):
    one = write(tmp_path / "1.jsonl", [{"id": "a", "pass": 1}, {"id": "b", "pass": 0}])
    two = write(tmp_path / "2.jsonl", [{"id": "a", "pass": 0}, {"id": "c", "pass": 1}])
    result = kofn.score([one, two], aggregate="mean")
    assert (result.n_cases, result.n_candidates) == (3, 4)
    assert result.get("mean").point == pytest.approx((0.5 + 0 + 1) / 3)


def test_a_field_that_varies_within_a_case_cannot_be_sliced_by(tmp_path):
    rows = [{"id": i % 3, "model": m, "pass": 1} for m in ("one", "two") for i in range(3)]
    assert kofn.score(write(tmp_path / "f.jsonl", rows)).n_cases == 3
    with pytest.raises(kofn.InputError, match=r"line 4: case '0' has model 'two' here and 'one' before"):
        kofn.score(tmp_path / "f.jsonl", by="model")
    with pytest.raises(kofn.InputError, match="row 4: case '0' has model"):
        kofn.score(rows, by="model")


def test_two_references_under_one_id_are_two_cases_by_mistake(tmp_path):
    one = write(tmp_path / "1.jsonl", [{"id": 0, "output": "4", "reference": "4"}])
    two = write(tmp_path / "2.jsonl", [{"id": 0, "output": "9", "reference": "9"}])
    with pytest.raises(kofn.InputError, match=r"2\.jsonl: case '0' has reference '9' here and '4' before"):
        kofn.score([one, two])
    with pytest.raises(kofn.InputError, match="given twice"):
        kofn.score([one, one])


@pytest.mark.parametrize(
    ("choices", "references", "outputs"),
    [
        (["London", "Paris"], ["B", "A"], ["The answer is B.", "The answer is A."]),
        (["London", "Paris"], ["Paris", "London"], ["The answer is B.", "London"]),
        (["London", "Paris"], [1, 0], ["The answer is B.", "The answer is (A)"]),
        (["London", "Paris"], [2, 1], ["The answer is B.", "The answer is (A)"]),
        (["1", "2"], ["B", "A"], ["The answer is B.", "The answer is (A)"]),
        (["1", "2"], ["2", "1"], ["The answer is 2.", "The answer is (1)"]),
        (["A) London", "B) Paris"], ["B", "A"], ["The answer is B.", "The answer is (A)"]),
    ],
)
def test_multiple_choice_references_may_be_letters_texts_or_places(choices, references, outputs):
    rows = [
        {"id": i, "choices": choices, "answer": reference, "output": output}
        for i, (reference, output) in enumerate(zip(references, outputs, strict=True))
    ]
    assert kofn.score(rows, aggregate="mean").get("mean").point == 1.0


def test_a_reference_that_names_no_option_is_remarked():
    rows = [{"id": 1, "choices": ["London", "Paris"], "answer": "Rome", "output": "The answer is B."}]
    assert any("1 reference name none of the case's options" in w for w in map(str, kofn.score(rows).warnings))


def test_lists_beside_the_outputs_are_theirs_and_answers_are_references():
    rows = [{"id": 1, "outputs": ["4", "5"], "passes": [1, 0], "scores": [0.9, 0.1]}]
    result = kofn.score(rows, aggregate=["mean", "majority", "selected"])
    assert result.get("selected", metric="pass").point == 1.0
    assert result.get("majority", metric="pass").point == 1.0
    rows = [{"id": 1, "answers": ["Paris", "Lutetia"], "outputs": ["Lutetia", "Rome"]}]
    result = kofn.score(rows, aggregate="mean")
    assert (result.n_candidates, result.get("mean").point) == (2, 0.5)


def test_a_list_of_outputs_under_another_name_can_be_named(tmp_path):
    rows = [{"id": 1, "retrieved": ["d1", "d7"], "required": ["d1", "d2"]}]
    for data in (rows, write(tmp_path / "f.jsonl", rows)):
        result = kofn.score(data, fields={"outputs": "retrieved"})
        assert result.get("coverage").point == 0.5


def test_a_rare_error_is_not_missed(tmp_path):
    rows = [{"id": i, "output": "4", "reference": "4"} for i in range(20_000)]
    rows[10_501] |= {"output": "", "error": "timeout"}
    assert kofn.score(write(tmp_path / "f.jsonl", rows), aggregate="mean").n_missing == 1


def test_frames_and_parquet_may_hold_lists_of_outputs(tmp_path):
    frame = pl.DataFrame({"id": [1, 2], "reference": ["4", "5"], "outputs": [["4", "5"], ["5", "5"]]})
    frame.write_parquet(tmp_path / "f.parquet")
    for data in (frame, tmp_path / "f.parquet"):
        assert kofn.score(data, aggregate="mean").get("mean").point == 0.75


def test_spreadsheets_with_semicolons_and_capitals(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text('\ufeffID;Output;Pass\n1;"a;\nb";1\n1;c;0\n')
    assert kofn.score(path, aggregate="mean").get("mean").point == 0.5


@pytest.mark.commands
def test_standard_input_and_pipes_are_read(tmp_path):
    rows = "".join(json.dumps(r) + "\n" for r in wide_rows())
    command = [sys.executable, "-m", "kofn", "score", "--json"]
    for name in ("-", "/dev/stdin"):
        done = subprocess.run([*command, name], input=rows, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["n_cases"] == 2
    done = subprocess.run([*command, "-"], input="hello", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kofn: standard input: line 1")


json_scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=5)
records = st.fixed_dictionaries(
    {"id": st.integers(0, 3) | st.sampled_from(["x", "y"])},
    optional={
        "output": st.none() | st.text(max_size=8),
        "pass": st.none() | st.booleans() | st.sampled_from([0, 1]),
        "score": st.none() | st.floats(0, 1),
        "reference": st.none() | st.text(max_size=4) | st.integers(0, 9),
        "country": json_scalars,
        "extra": st.lists(st.integers(), max_size=2),
    },
)


@given(st.lists(records, min_size=1, max_size=12))
def test_the_fast_and_the_row_reader_agree(tmp_path_factory, rows):
    path = write(tmp_path_factory.mktemp("agree") / "f.jsonl", rows)
    options = ReadOptions(everything=True)
    try:
        by_row = read_lines(path, options)
    except kofn.InputError:
        with pytest.raises(kofn.InputError):
            read([path], options)
        return
    fast = read([path], options)
    assert fast.cases["case_id"].to_list() == by_row.cases["case_id"].to_list()
    assert fast.offsets.tolist() == by_row.offsets.tolist()
    for column in by_row.candidates.columns:
        assert fast.candidates[column].to_list() == pytest.approx(by_row.candidates[column].to_list(), nan_ok=True)
