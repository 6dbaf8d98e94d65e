"""Plain files: what looks wrong in one that can be read is said, and what cannot be read is refused kindly."""

from __future__ import annotations

import json

import polars as pl
import pytest

import kofn
from kofn.errors import InputError
from kofn.importers import read


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


LABELS = [1, "yes", True, 0, "no", False, 1.0, None]


@pytest.mark.parametrize("form", ["long", "wide", "groups", "late"])
def test_labels_of_several_types_are_read_as_one_and_told(form, tmp_path):
    if form == "wide":
        rows = [{"id": "a", "outputs": [{"text": "x", "correct": v} for v in LABELS]}]
        name = "correct"
    elif form == "groups":
        rows, name = [{"id": "a", "passes": LABELS}], "passes"
    else:
        rows, name = [{"id": f"q{i}", "output": "x", "correct": v} for i, v in enumerate(LABELS)], "correct"
        if form == "late":  # far beyond the lines that are sampled
            rows = [{"id": f"r{i}", "output": "x", "correct": True} for i in range(3000)] + rows
    table = read([lines(tmp_path / "f.jsonl", rows)])
    assert table.candidates["passed"].to_list()[-8:] == [1, 1, 1, 0, 0, 0, 1, None]
    assert tuple(map(str, table.notes)) == (
        f"field {name!r} holds numbers, text and true/false: all are read as pass or fail",
    )


def test_rows_in_memory_and_csv_are_told_alike(tmp_path):
    rows = [{"id": f"q{i}", "output": "x", "correct": v} for i, v in enumerate(LABELS)]
    said = "field 'correct' holds numbers, text and true/false: all are read as pass or fail"
    assert said in map(str, kofn.score(rows, aggregate="mean").warnings)
    path = tmp_path / "f.csv"
    path.write_text("id,output,correct\na,x,1\nb,x,TRUE\nc,x,no\nd,x,\n")
    table = read([path])
    assert table.candidates["passed"].to_list() == [1, 1, 0, None]
    assert tuple(map(str, table.notes)) == (said,)


@pytest.mark.parametrize("values", [[1, 0, 1.0], [True, False, None], ["yes", "no", "pass"], [True, "", False]])
def test_labels_of_one_type_are_not_worth_a_word(values, tmp_path):
    rows = [{"id": f"q{i}", "output": "x", "correct": v} for i, v in enumerate(values)]
    assert read([lines(tmp_path / "f.jsonl", rows)]).notes == ()


@pytest.mark.parametrize("form", ["long", "wide"])
def test_references_that_are_numbers_and_text_are_told(form, tmp_path):
    out = {"outputs": ["4"]} if form == "wide" else {"output": "4"}
    rows = [{"id": f"q{i}", "answer": v, **out} for i, v in enumerate([4, "4", 4.0])]
    table = read([lines(tmp_path / "f.jsonl", rows)])
    assert tuple(map(str, table.notes)) == ("field 'answer' holds numbers and text: all are read as text",)
    assert kofn.score(tmp_path / "f.jsonl", aggregate="mean").get("mean").point == 1.0


def test_scores_written_as_text_are_told(tmp_path):
    rows = [{"id": "a", "score": 0.5}, {"id": "b", "score": "0.25"}]
    table = read([lines(tmp_path / "f.jsonl", rows)])
    assert table.candidates["score"].to_list() == [0.5, 0.25]
    assert tuple(map(str, table.notes)) == ("field 'score' holds numbers and text: all are read as numbers",)


@pytest.mark.parametrize("container", ["jsonl", "csv"])
def test_a_label_that_cannot_be_read_is_refused_by_its_line_and_says_what_to_write(container, tmp_path):
    rows = [{"id": f"q{i}", "output": "x", "correct": v} for i, v in enumerate(["yes", "no", "maybe"])]
    path = tmp_path / f"f.{container}"
    if container == "csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        lines(path, rows)
    where = "row 3" if container == "csv" else "line 3"
    said = "expected true, false, 1, 0 or null, found 'maybe': write null where nobody graded it"
    with pytest.raises(InputError) as problem:
        read([path])
    assert str(problem.value) == f"{path}: {where}: field 'correct': {said}"


COPIED = [
    {"id": "a", "repeat": 0, "output": "x", "pass": 1, "reference": ["4", "four"]},
    {"id": "b", "repeat": 0, "output": "x", "pass": 0, "reference": ["4", "four"]},
    {"id": "a", "repeat": 1, "output": "x", "pass": 1, "reference": ["4", "four"]},
    {"id": "a", "repeat": 0, "output": "x", "pass": 1, "reference": ["4", "four"]},
]


@pytest.mark.parametrize("how", ["jsonl", "mixed", "rows", "csv", "parquet"])
def test_a_row_of_a_resumed_log_that_is_there_twice_counts_once_and_is_told(how, tmp_path):
    rows = COPIED if how not in ("csv", "parquet") else [{**row, "reference": "4"} for row in COPIED]
    if how == "mixed":
        rows = [*rows, {"id": "c", "repeat": 0, "output": "x", "pass": "no", "reference": "4"}]
    path = tmp_path / "f"
    data = path
    if how == "rows":
        data = rows
    elif how == "csv":
        pl.DataFrame(rows).write_csv(path)
    elif how == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        lines(path, rows)
    result = kofn.score(data, aggregate="mean")
    assert result.table.candidates.height == (3 if how != "mixed" else 4)
    assert result.get("mean").n == (2 if how != "mixed" else 3)
    assert "1 row is there twice, word for word (case a): a resumed log? it counts once" in map(str, result.warnings)


def test_a_repeat_that_is_there_twice_with_other_values_is_refused_by_its_own_line(tmp_path):
    path = lines(tmp_path / "f.jsonl", [*COPIED, {**COPIED[1], "output": "y"}])
    with pytest.raises(InputError, match="line 5: case 'b' has repeat 0 twice, with other values: remove one"):
        read([path])


def test_rows_without_a_repeat_index_are_repeats_even_where_they_say_the_same(tmp_path):
    rows = [{"id": "a", "output": "x", "pass": 1}] * 3
    assert read([lines(tmp_path / "f.jsonl", rows)]).n_candidates == 3
    some = [{**COPIED[0]}, {**COPIED[0]}, {**COPIED[0], "repeat": None}, {**COPIED[0], "repeat": None}]
    assert read([lines(tmp_path / "g.jsonl", some)]).n_candidates == 3


def test_a_case_that_is_there_again_with_the_same_outputs_is_told(tmp_path):
    rows = [{"id": c, "outputs": ["4", "5"], "reference": "4"} for c in "abca"]
    table = read([lines(tmp_path / "f.jsonl", rows)])
    assert table.n_candidates == 8
    assert str(table.notes[0]) == (
        "1 case is there again with the same outputs (a): a resumed log? they count as more candidates"
    )
    rows[3]["outputs"] = ["6", "7"]
    assert not any("there again" in line for line in map(str, read([lines(tmp_path / "f.jsonl", rows)]).notes))


@pytest.mark.parametrize("n", [15, 7])
def test_sets_of_identical_candidates_are_told_from_half_of_them_on(n, tmp_path):
    rows = [
        {"id": i, "repeat": r, "output": f"out {i}" if i < n else f"out {i} {r}", "pass": 1}
        for i in range(16)
        for r in range(3)
    ]
    warnings = map(str, kofn.score(lines(tmp_path / "f.jsonl", rows), aggregate="mean").warnings)
    notes = [w for w in warnings if w.startswith(f"{n} of 16 sets have identical candidates: a cache")]
    assert len(notes) == (1 if n == 15 else 0)


CSV = "id,output,pass\na,café,1\nb,naïve,0\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_utf_16_text_is_read(encoding, kind, tmp_path):
    text = CSV if kind == "csv" else CSV.replace(",", "\t")
    if kind == "jsonl":
        text = '{"id": "a", "output": "café", "pass": 1}\n{"id": "b", "output": "naïve", "pass": 0}\n'
    mark = "" if encoding == "utf-16" else "\ufeff"
    path = tmp_path / f"f.{kind}"
    path.write_bytes((mark + text.replace("\n", "\r\n")).encode(encoding))
    table = read([path])
    assert table.candidates["text"].to_list() == ["café", "naïve"]
    assert table.candidates["passed"].to_list() == [1, 0]
    assert table.sources == (str(path),)


def test_a_long_utf_16_file_is_read_to_its_end(tmp_path):
    rows = [{"id": i, "output": "é" * 97, "pass": i % 2} for i in range(20_000)]
    path = tmp_path / "f.jsonl"
    path.write_bytes("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode("utf-16"))
    table = read([path])
    assert table.n_candidates == 20_000
    assert table.candidates["text"].n_unique() == 1


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"', "sep=;\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_first_line_that_excel_writes_names_the_separator(first, mark, tmp_path):
    path = tmp_path / "f.csv"
    path.write_text(f"{mark}{first}\n" + CSV.replace(",", ";"), newline="")
    table = read([path])
    assert table.candidates["text"].to_list() == ["café", "naïve"]
    assert table.fields["passed"] == "pass"


@pytest.mark.parametrize(("sign", "in_file"), [(",", ","), ("\t", "\t")])
def test_it_may_name_any_separator_that_is_known(sign, in_file, tmp_path):
    path = tmp_path / "f.csv"
    path.write_text(f"sep={sign}\n" + CSV.replace(",", in_file))
    assert read([path]).n_candidates == 2


def test_a_separator_nobody_knows_is_refused(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("sep=|\n" + CSV.replace(",", "|"))
    with pytest.raises(InputError, match=r"line 1: sep=\|: expected a comma, a semicolon or a tab"):
        read([path])
