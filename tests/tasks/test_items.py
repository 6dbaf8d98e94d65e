"""From records to items: files of every kind, ids, which items are taken, and where data is looked for."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest

from kofn.errors import InputError, MissingExtra, UnknownName, WorldError
from kofn.tasks import load_task

ROWS = [
    {"id": f"q{i}", "question": f"{i} + 1?", "answer": i + 1, "level": "easy" if i < 6 else "hard"} for i in range(9)
]


def task_of(dataset, **more):
    return load_task({"name": "mine", "dataset": dataset, **more})


def saved(folder, kind):
    path = folder / f"rows.{kind}"
    lines = "\n".join(json.dumps(row) for row in ROWS)
    if kind == "jsonl":
        path.write_text(lines + "\n\n")
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif kind == "json":
        path.write_text(json.dumps(ROWS, indent=1))
    elif kind == "parquet":
        pl.DataFrame(ROWS).write_parquet(path)
    else:
        pl.DataFrame(ROWS).write_csv(path, separator="\t" if kind == "tsv" else ",")
    return path


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "parquet", "csv", "tsv"])
def test_a_file_of_any_kind_gives_the_same_items(tmp_path, kind):
    items = task_of(str(saved(tmp_path, kind))).items()
    assert [i.case.id for i in items] == [row["id"] for row in ROWS]
    assert items[3].case.input == "3 + 1?"
    assert items[3].case.references == ("4",)
    assert items[3].case.tags == {"level": "easy"}
    assert items == task_of(ROWS).items()


def test_a_folder_is_its_files_in_order(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": name, "answer": 1}))
    items = task_of(str(tmp_path)).items()
    assert [i.fields["file"] for i in items] == ["a", "b"]
    assert [i.case.id for i in items] == ["mine/0", "mine/1"]


def test_fields_say_what_is_what_by_name_or_template():
    rows = [{"key": 7, "a": "x{y}", "b": "z", "truth": [1, 2.0], "w": 2, "part": "p", "fam": "f"}]
    fields = {"id": "key", "question": "{a} and {b}", "reference": "truth", "weight": "w", "group": "part",
              "cluster": "fam"}  # fmt: skip
    case = task_of(rows, fields=fields).items()[0].case
    assert (case.id, case.input, case.references) == ("7", "x{y} and z", ("1", "2"))
    assert (case.weight, case.cluster, case.tags["group"]) == (2.0, "f", "p")


def test_options_are_labelled_and_the_reference_is_a_label():
    rows = [{"question": "?", "choices": ["red", "blue"], "answer": a} for a in ("blue", "B", "1", "(b)")]
    items = task_of(rows, extract="letter").items()
    assert {(i.case.choices, i.case.references) for i in items} == {(("A) red", "B) blue"), ("B",))}
    assert items[0].fields["options"] == "A) red\nB) blue"
    assert items[0].fields["question_and_options"] == "?\nA) red\nB) blue"


def test_an_extractor_of_texts_keeps_options_as_they_are():
    rows = [{"question": "?", "choices": ["x", "y"], "answer": "y"}]
    case = task_of(rows, extract="kofn.tasks.starter:answer").items()[0].case
    assert (case.choices, case.references) == (("x", "y"), ("y",))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"question": "?"', "line 2: expected one JSON object a line"),
        ("[1]", "line 2: expected an object"),
        ('{"answer": 1}', "line 2: no question: there is answer"),
        ('{"id": "q0", "question": "?", "answer": 1}', "line 2: id 'q0' is there already"),
        ('{"question": "?", "choices": ["x", "y"], "answer": "q"}', "line 2: reference 'q' names none of the options"),
        ('{"question": "?", "answer": 1, "weight": -1}', "line 2: weight: expected a number of at least 0"),
        ('{"question": "?", "choices": "xy", "answer": 1}', "line 2: choices: expected a list of options"),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(tmp_path, line, said):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    with pytest.raises(InputError) as caught:
        task_of(str(path)).items()
    assert str(caught.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.csv", b'question,answer\n"a\nb",1\nc\n', "line 4: 1 fields, and the header has 2"),
        ("rows.csv", b'question,answer\n"a,1\n', "line 2: not CSV"),
        ("rows.csv", b"question,answer\n\xff,1\n", "byte 16 is not UTF-8"),
        ("rows.json", b"[{}", "not JSON"),
        ("rows.jsonl", b"", "the file is empty"),
        ("rows.parquet", b"PAR1nonsense", "not Parquet"),
        ("rows.jsonl.gz", b"\x1f\x8b nonsense", "cannot be decompressed"),
    ],
)
def test_a_broken_file_says_where(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        task_of(str(path)).items()
    assert str(caught.value).startswith(f"{path}: {said}")


def test_a_prompt_that_names_what_an_item_has_not_is_refused_with_what_there_is():
    rows = [*ROWS, {"id": "odd", "question": "?", "answer": 1}]
    task = task_of(rows, stages=[{"prompt": "{level}: {question}"}])
    with pytest.raises(
        InputError, match=r"mine: stage answer: \{level\} is no field of item 'odd': there is answer, id"
    ):
        task.items()


def test_a_stage_may_name_earlier_stages_and_not_later_ones():
    stages = [{"name": "plan"}, {"name": "say", "prompt": "{plan} {cot}"}]
    assert len(task_of(ROWS, stages=stages).items()) == 9
    with pytest.raises(InputError, match=r"stage plan: \{say\} is no field"):
        task_of(ROWS, stages=[{"name": "plan", "prompt": "{say}"}, stages[1]]).items()


def test_limit_takes_the_first_and_ids_are_picked_in_the_order_of_the_file():
    task = task_of(ROWS, limit=4)
    assert [i.case.id for i in task.items()] == ["q0", "q1", "q2", "q3"]
    assert len(task.items(limit=9)) == 9
    assert [i.case.id for i in task.items(ids=["q8", "q2"])] == ["q2", "q8"]
    with pytest.raises(UnknownName, match="did you mean q8"):
        task.items(ids=["q88"])
    with pytest.raises(InputError, match="limit: expected a whole number of at least 1"):
        task.items(limit=0)


def test_a_sample_is_stratified_seeded_and_keeps_the_order():
    task = task_of(ROWS, groups={"field": "level"})
    ids = [[i.case.id for i in task.items(sample=3, seed=s)] for s in range(20)]
    assert all(one == sorted(one) and len(one) == 3 for one in ids)
    assert all(sum(i < "q6" for i in one) == 2 for one in ids)
    assert len({tuple(one) for one in ids}) > 5
    assert ids[4] == [i.case.id for i in task.items(sample=3, seed=4)]
    assert len(task.items(sample=100)) == 9


def test_data_is_looked_for_where_one_says_then_in_the_usual_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    task = task_of({"files": ["rows.jsonl", "mine/rows.jsonl"]})
    places = [tmp_path / "env", tmp_path / "data", tmp_path / "home" / ".cache" / "kofn" / "data"]
    monkeypatch.setenv("KOFN_DATA", str(places[0]))
    for place in reversed(places):
        place.mkdir(parents=True)
        assert saved(place, "jsonl").samefile(task.locate_data())
    other = tmp_path / "other"
    (other / "mine").mkdir(parents=True)
    own = saved(other / "mine", "jsonl")
    assert own.samefile(task.locate_data(other))
    assert own.samefile(task.locate_data(own))
    with pytest.raises(InputError, match="no such file or folder"):
        task.locate_data(tmp_path / "nowhere")


def test_data_that_is_not_there_is_one_line_that_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KOFN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kofn.tasks.items.find_spec", lambda _: None)
    with pytest.raises(InputError) as caught:
        load_task("gsm8k").items()
    said = str(caught.value)
    assert "\n" not in said
    for part in ("gsm8k_test.jsonl", "gsm8k/test.jsonl", ".cache/kofn/data", "https://github.com/openai", "--data",
                 "pip install 'kofn[datasets]'", "openai/gsm8k"):  # fmt: skip
        assert part in said


def test_a_hugging_face_id_needs_the_extra():
    task = task_of({"hf": "nobody/nothing"})
    try:
        import datasets  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match=r"pip install 'kofn\[datasets\]'"):
            task.items()
        from kofn.tasks.items import hub_records

        with pytest.raises(MissingExtra):
            next(hub_records(task.spec.dataset))
    else:
        with pytest.raises(WorldError, match="nobody/nothing"):
            task.items()


def test_the_digest_is_of_the_content_not_of_the_file(tmp_path):
    task = task_of(str(saved(tmp_path, "jsonl")))
    items = task.items()
    assert task.dataset_digest(items) == task_of(ROWS).dataset_digest(task_of(ROWS).items())
    assert task.dataset_digest(items) != task.dataset_digest(items[1:])
