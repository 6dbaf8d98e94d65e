"""Inspect logs: what is in them is read, what is missing or damaged is said."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shared import LOGS, needs_shared

import kofn
from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.importers.inspect_log import grade
from kofn.importers.log_table import iter_members
from kofn.importers.sources import zstd_module

if TYPE_CHECKING:
    from pathlib import Path

needs_logs = needs_shared(LOGS)


def sample(case=1, epoch=1, value="C", **more):
    """A sample as Inspect writes one."""
    return {
        "id": case,
        "epoch": epoch,
        "input": "2+2?",
        "target": "4",
        "messages": [],
        "output": {"model": "m", "completion": "4", "choices": [_choice("4")]},
        "scores": {"match": {"value": value, "answer": "4"}},
        **more,
    }


def _choice(content):
    return {"message": {"role": "assistant", "content": content}, "stop_reason": "stop"}


def header(status="success", **spec):
    return {
        "version": 2,
        "status": status,
        "eval": {
            "task": "sums",
            "model": "m",
            "created": "2026-01-01T00:00:00+00:00",
            "dataset": {},
            "config": {},
            **spec,
        },
        "plan": {"name": "plan", "steps": []},
    }


def write_json(path, samples, **head):
    path.write_text(json.dumps({**header(**head), "samples": samples}, indent=1))
    return path


def write_eval(path, samples, head=None):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps({k: v for k, v in header().items() if k != "status"}))
        for one in samples:
            archive.writestr(f"samples/{one.get('id')}_epoch_{one.get('epoch')}.json", json.dumps(one))
        if head is not None:
            archive.writestr("header.json", json.dumps(head))
    return path


def as_zstd(source: Path, target: Path) -> Path:
    """A copy of a zip whose entries are compressed with zstd (method 93), as Inspect writes them by default."""
    body, directory = b"", b""
    with zipfile.ZipFile(source) as archive:
        entries = [(info.filename.encode(), archive.read(info)) for info in archive.infolist()]
    for at, (name, plain) in enumerate(entries):
        half = len(plain) // 2 if at % 2 else len(plain)  # every second entry is two frames, one after the other
        packed = b"".join(zstd_module().compress(part) for part in (plain[:half], plain[half:]) if part)
        sizes = struct.pack("<IIIHH", zlib.crc32(plain), len(packed), len(plain), len(name), 0)
        directory += b"PK\x01\x02" + struct.pack("<HHHHHH", 63, 63, 0, 93, 0, 0x21) + sizes
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name
        body += b"PK\x03\x04" + struct.pack("<HHHHH", 63, 0, 93, 0, 0x21) + sizes + name + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    target.write_bytes(body + directory + b"PK\x05\x06" + end)
    return target


REAL = {  # file -> (cases, candidates, labels of `match` that are 1, 0, none), counted by hand
    "inspect_popularity.eval": (10, 10, None),
    "log_formats.eval": (1, 1, (0, 1, 0)),
    "log_formats.json": (1, 1, (0, 1, 0)),
    "log_streaming.eval": (2, 4, (3, 1, 0)),
}


@needs_logs
@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("name", REAL)
def test_real_logs_have_the_cases_candidates_and_labels_that_are_in_them(name, zstd, tmp_path):
    cases, candidates, labels = REAL[name]
    path = LOGS / name
    if zstd:
        if name.endswith(".json"):
            pytest.skip("a JSON log has no entries to compress")
        path = as_zstd(path, tmp_path / name)
    table = read([path], ReadOptions(everything=True))
    assert (table.n_cases, table.n_candidates) == (cases, candidates)
    assert table.origin["tool"] == "inspect"
    assert table.origin["task"] == "popularity"
    assert table.candidates["text"].null_count() == 0
    assert table.candidates["tokens"].null_count() == 0
    assert set(table.cases["reference"]) <= {" Yes", " No"}
    assert all(text.startswith("Is the following") for text in table.cases["input"])
    if labels is None:
        assert not table.labels
        assert tuple(map(str, table.notes)) == ("no sample of this log is scored",)
    else:
        column = table.candidates["label.match"]
        assert ((column == 1).sum(), (column == 0).sum(), column.null_count()) == labels
        assert table.notes == ()


@needs_logs
def test_the_mean_of_a_real_log_is_the_accuracy_it_reports():
    with zipfile.ZipFile(LOGS / "log_streaming.eval") as archive:
        reported = json.loads(archive.read("header.json"))["results"]["scores"][0]["metrics"]["accuracy"]["value"]
    result = kofn.score(LOGS / "log_streaming.eval", aggregate=["mean", "pass@2"])
    assert result.get("mean", metric="match").point == reported == 0.75
    assert result.get("pass@2", metric="match").point == 1.0
    assert result.table.cases["case_id"].to_list() == ["1", "2"]  # as in the data set, not as they were finished
    assert result.table.candidates["answer"].to_list() == ["No", "Yes.", "No.", "No"]


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_a_sample_becomes_a_candidate_with_everything_it_says(kind, tmp_path):
    content = [{"type": "reasoning", "reasoning": "two and two"}, {"type": "text", "text": "4"}]
    one = sample(
        case="q/1",
        choices=["3", "4"],
        target=["B", "4"],
        input=[{"role": "system", "content": "attachment://" + "a" * 32}, {"role": "user", "content": "2+2?"}],
        output={"choices": [_choice(content)], "usage": {"input_tokens": 1, "output_tokens": 2}},
        scores={
            "match": {"value": "P"},
            "parts": {"value": {"right": True, "length": 3, "tone": None}, "answer": "B"},
            "spread": {"value": [1, 2]},
            "words": {"value": "kind", "answer": "kind"},
            "again": {"value": float("nan"), "answer": "C"},
        },
        metadata={"level": 3, "nested": {"a": 1}, "source": "attachment://" + "b" * 32},
        model_usage={
            "m": {"input_tokens": 10, "output_tokens": 5, "input_tokens_cache_read": 7, "total_cost": 0.25},
            "grader": {"input_tokens": 99, "output_tokens": 99},
        },
        total_time=3.0,
        working_time=2.5,
        attachments={"a" * 32: "Be brief.", "b" * 32: "a book"},
        limit={"type": "token", "limit": 5},
    )
    path = tmp_path / f"log.{kind}"
    table = read(
        [write_json(path, [one]) if kind == "json" else write_eval(path, [one], header())], ReadOptions(everything=True)
    )
    row = table.candidates.row(0, named=True)
    assert (row["text"], row["reasoning"], row["answer"]) == ("4", "two and two", "B")
    assert (row["tokens"], row["tokens_in"], row["cost"], row["seconds"]) == (5, 17, 0.25, 2.5)
    assert {k: v for k, v in row.items() if k.startswith("label.")} == {
        "label.match": 0.5,
        "label.parts.right": 1.0,
        "label.parts.length": 3.0,
    }
    assert table.cases.row(0, named=True) == {
        "case_id": "q/1",
        "reference": ["B", "4"],
        "choices": ["3", "4"],
        "input": "system: Be brief.\n\nuser: 2+2?",
    }
    assert table.tags.row(0, named=True) == {"level": 3, "source": "a book"}
    assert tuple(map(str, table.notes)) == (
        "1 sample stopped by a token limit: graded as far as it went",
        "scorer spread gave lists for 1 sample: no grade, left out",
        "scorer words gave texts such as 'kind' for 1 sample: no grade, left out",
        "tokens and cost are those of the model evaluated, not of grader",
    )


@given(
    st.sampled_from(["C", "I", "P", "N", "yes", "No", "TRUE", "false", "0.5", "c", "x"]) | st.floats() | st.booleans()
)
def test_grades_are_those_of_inspects_own_conversion_where_it_has_one(value):
    want = {
        "C": 1,
        "I": 0,
        "P": 0.5,
        "N": 0,
        "yes": 1,
        "No": 0,
        "TRUE": 1,
        "false": 0,
        "0.5": 0.5,
        "c": None,
        "x": None,
    }
    if isinstance(value, str):
        assert grade(value) == want[value]
    elif value != value or value in (float("inf"), float("-inf")):
        assert grade(value) is None
    else:
        assert grade(value) == float(value)


def test_a_failed_sample_is_an_error_and_not_graded(tmp_path):
    error = {"message": "ValueError('boom')\nmore", "traceback": "", "traceback_ansi": ""}
    failed = sample(epoch=2, error=error, output={"choices": []})
    path = write_json(tmp_path / "log.json", [sample(), failed])
    result = kofn.score(path, aggregate=["mean", "pass@1"])
    assert (result.get("mean").point, result.n_missing) == (1.0, 1)
    assert result.table.candidates["error"].to_list() == [None, "ValueError('boom')\nmore"]
    assert result.table.candidates["text"].to_list() == ["4", None]
    assert "1 of 2 samples failed (ValueError('boom')): not graded" in map(str, result.warnings)
    graded = write_json(
        tmp_path / "graded.json",
        [sample(), {**failed, "scores": {"match": {"value": "I"}}}],
        config={"score_on_error": True},
    )
    result = kofn.score(graded, aggregate="mean")
    assert (result.get("mean").point, result.n_missing) == (0.5, 0)
    assert any("score_on_error" in line for line in map(str, result.warnings))


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ("started", "the log is not finished: the run was going, or was killed; samples read: 1"),
        ("cancelled", "the run ended with status cancelled"),
        ("error", "the run ended with status error (no disk)"),
    ],
)
def test_logs_that_did_not_end_well_are_read_and_told(status, line, tmp_path):
    head = header(status, dataset={"samples": 2, "sample_ids": [1, 2]}, config={"epochs": 2})
    head |= {"error": {"message": "no disk"}} if status == "error" else {}
    table = read([write_eval(tmp_path / "log.eval", [sample()], None if status == "started" else head)])
    assert line in map(str, table.notes)
    if status != "started":
        assert "3 of 4 samples are missing (1 epoch 2, 2 epoch 1, 2 epoch 2)" in map(str, table.notes)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"dataset": {"samples": 100}, "config": {"limit": 2, "epochs": 3}}, "5 of 6 samples are missing"),
        ({"dataset": {"samples": 100}, "config": {"limit": [10, 12]}}, "1 of 2 samples are missing"),
        ({"dataset": {"samples": 1}, "config": {}}, None),
    ],
)
def test_what_a_log_says_it_should_hold_is_counted(spec, line, tmp_path):
    notes = read([write_json(tmp_path / "log.json", [sample()], **spec)]).notes
    assert tuple(map(str, notes)) == (() if line is None else (line,))


def test_a_sample_that_is_there_twice_counts_once(tmp_path):
    path = tmp_path / "log.eval"
    write_eval(path, [sample(value="I"), sample(epoch=2)], header())
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample(value="C")))
    table = read([path])
    assert table.candidates["label.match"].to_list() == [1.0, 1.0]
    assert tuple(map(str, table.notes)) == (
        "1 row is there again with other values (case 1): a resumed log? the last one counts",
    )


def test_a_log_and_a_later_attempt_of_it_count_each_sample_once(tmp_path):
    error = {"message": "boom"}
    first = write_json(tmp_path / "1.json", [sample(1), sample(2, error=error, scores={})], task_id="t")
    again = write_json(
        tmp_path / "0.json",
        [sample(1), sample(2), sample(3, value="I")],
        task_id="t",
        created="2026-01-02T00:00:00+00:00",
    )
    for order in ([first, again], [again, first]):
        result = kofn.score(order, aggregate="mean")
        assert (result.n_cases, result.n_candidates, result.n_missing) == (3, 3, 0)
        assert result.get("mean").point == pytest.approx(2 / 3)
        assert any(
            "also in a later attempt of the same run: counted there" in line for line in map(str, result.warnings)
        )


def test_a_sample_stored_in_chunks_is_read_whole(tmp_path):
    shell = {k: v for k, v in sample().items() if k != "messages"} | {"target": "attachment://2"}
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header()))
        archive.writestr("samples/1_epoch_1/sample.json", json.dumps(shell))
        archive.writestr("samples/1_epoch_1/metadata.json", json.dumps({"level": "attachment://0"}))
        archive.writestr("samples/1_epoch_1/attachments/2.json", json.dumps(["four"]))
        archive.writestr("samples/1_epoch_1/attachments/0.json", json.dumps(["hard", "never"]))
        archive.writestr("samples/1_epoch_1/events/0.json", "[]")
    table = read([path])
    assert table.cases["reference"].to_list() == ["four"]
    assert table.tags["level"].to_list() == ["hard"]


class TestDamagedLogs:
    """One line each; what can be read of them is."""

    def test_a_truncated_zip_is_refused_by_name(self, tmp_path):
        whole = write_eval(tmp_path / "log.eval", [sample()], header()).read_bytes()
        for size in (60, len(whole) // 2, len(whole) - 5):
            path = tmp_path / f"cut{size}.eval"
            path.write_bytes(whole[:size])
            with pytest.raises(kofn.InputError) as problem:
                read([path])
            assert str(problem.value).startswith(f"{path}: a damaged zip archive (")
            assert "\n" not in str(problem.value)

    @pytest.mark.parametrize("zstd", [False, True])
    def test_a_damaged_entry_is_left_out_and_named(self, zstd, tmp_path):
        path = write_eval(tmp_path / "log.eval", [sample(1), sample(2), sample(3)], header())
        path = as_zstd(path, tmp_path / "z.eval") if zstd else path
        data = bytearray(path.read_bytes())
        start = data.index(b"samples/2_epoch_1.json") + len(b"samples/2_epoch_1.json")
        data[start + 20 : start + 40] = bytes(20)
        path.write_bytes(data)
        table = read([path])
        assert table.cases["case_id"].to_list() == ["1", "3"]
        assert len(table.notes) == 1
        assert str(table.notes[0]).startswith("1 sample cannot be read and is left out: samples/2_epoch_1.json (")

    def test_samples_that_are_no_json_or_lack_their_id_are_left_out_and_counted(self, tmp_path):
        path = write_eval(tmp_path / "log.eval", [sample(1)], header())
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("samples/2_epoch_1.json", "{not json")
            archive.writestr("samples/3_epoch_1.json", json.dumps({"epoch": 1}))
            archive.writestr("samples/4_epoch_1.json", "[]")
        (notes,) = read([path]).notes
        assert str(notes).startswith("3 samples cannot be read and are left out: samples/2_epoch_1.json (not JSON: ")
        assert "samples/3_epoch_1.json (no 'id'), samples/4_epoch_1.json (expected an object, found list)" in str(notes)

    def test_a_damaged_header_is_told_and_the_journal_taken(self, tmp_path):
        path = write_eval(tmp_path / "log.eval", [sample()])
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("header.json", "{")
        table = read([path])
        assert table.origin["task"] == "sums"
        assert str(table.notes[0]).startswith("header.json cannot be read (not JSON")

    def test_a_log_in_which_nothing_can_be_read_is_refused(self, tmp_path):
        path = write_eval(tmp_path / "log.eval", [], header())
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("samples/1_epoch_1.json", "no")
        with pytest.raises(
            kofn.InputError, match=r"none of its 1 samples can be read: samples/1_epoch_1\.json \(not JSON"
        ):
            read([path])
        empty = write_json(tmp_path / "log.json", [], status="error")
        with pytest.raises(kofn.InputError, match=r"log\.json: no samples in this Inspect log \(status error\)"):
            read([empty])
        empty = write_json(tmp_path / "log.json", None, config={"log_samples": False})
        with pytest.raises(kofn.InputError, match="made without them"):
            read([empty])

    def test_a_json_log_that_ends_early_or_is_garbled_is_one_line(self, tmp_path):
        text = write_json(tmp_path / "log.json", [sample(1), sample(2)]).read_text()
        (tmp_path / "cut.json").write_text(text[:-200])
        with pytest.raises(kofn.InputError, match=r"cut\.json: the JSON ends too early"):
            read([tmp_path / "cut.json"])
        (tmp_path / "bad.json").write_text(text.replace('"id": 2', '"id": two') + " " * 200)
        with pytest.raises(kofn.InputError, match=r"bad\.json: not JSON \(.*, character \d+\)"):
            read([tmp_path / "bad.json"])
        (tmp_path / "latin.json").write_bytes(text.replace("2+2?", "caf\xe9").encode("latin-1"))
        with pytest.raises(kofn.InputError, match="not UTF-8"):
            read([tmp_path / "latin.json"])

    def test_mixed_samples_keep_what_each_has(self, tmp_path):
        rows = [
            sample(1),
            sample(2, scores={"match": {"value": 0.25}, "new": {"value": True}}),
            sample(3, scores=None),
            "x",
        ]
        table = read([write_json(tmp_path / "log.json", rows)])
        assert table.candidates["label.match"].to_list() == [1.0, 0.25, None]
        assert table.candidates["label.new"].to_list() == [None, 1.0, None]
        assert tuple(map(str, table.notes)) == (
            "1 sample cannot be read and is left out: sample 4 (expected an object, found str)",
        )


def test_what_no_column_can_hold_is_no_traceback(tmp_path):
    odd = sample(metadata={"big": 2**70, "nan": float("nan"), "fine": 1}, output={"choices": [_choice("cut \ud83d")]})
    table = read([write_json(tmp_path / "log.json", [odd])])
    assert table.candidates["text"].to_list() == ["cut \ufffd"]
    assert table.tags.columns == ["fine"]
    path = write_eval(tmp_path / "log.eval", [odd], header())
    assert read([path]).candidates["text"].to_list() == ["cut \ufffd"]
    deep = "[" * 100_000
    text = write_json(tmp_path / "log.json", []).read_text()
    (tmp_path / "deep.json").write_text(text.replace('"steps": []', f'"steps": {deep}'))
    with pytest.raises(kofn.InputError, match=r"deep\.json: (JSON that cannot be read|the JSON ends too early)"):
        read([tmp_path / "deep.json"])
    (tmp_path / "long.json").write_text(text.replace('"steps": []', f'"steps": {"9" * 9000}'))
    with pytest.raises(kofn.InputError, match=r"long\.json: JSON that cannot be read"):
        read([tmp_path / "long.json"])


def test_lines_of_somebody_elses_are_not_taken_for_a_log(tmp_path):
    row = {"id": 1, "version": 2, "status": "ok", "eval": "a", "task": "t", "output": "4", "pass": 1}
    (tmp_path / "f.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"id": 2}) + "\n")
    assert read([tmp_path / "f.jsonl"]).form == "long"


def test_other_zips_and_documents_are_not_taken_for_inspect_logs(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("data.csv", "a,b\n")
    with pytest.raises(kofn.InputError, match="a zip archive that is no Inspect log"):
        read([tmp_path / "other.zip"])
    (tmp_path / "f.json").write_text(json.dumps([{"id": 1, "output": "4", "eval": {}, "version": 2, "pass": 1}]))
    assert read([tmp_path / "f.json"]).form == "long"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_infinity=False, allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["a", "list", "z"]), json_values, max_size=3),
    st.lists(json_values, max_size=5),
    st.sampled_from([None, 1]),
    st.integers(1, 40),
)
def test_a_document_read_in_pieces_is_the_document(tmp_path_factory, plain, items, indent, chunk):
    import kofn.importers.log_table as documents

    path = tmp_path_factory.mktemp("doc") / "d.json"
    whole = {**plain, "list": items, "in": {"list": items, "more": plain}}
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=False), encoding="utf-8")
    before, documents._CHUNK = documents._CHUNK, chunk
    try:
        found = list(iter_members(path, "d", [("list",), ("in", "list")]))
    finally:
        documents._CHUNK = before
    assert [v for p, v in found if p == ("list",)] == items
    assert [v for p, v in found if p == ("in", "list")] == items
    assert {p: v for p, v in found if p[-1] != "list"} == {
        **{(k,): v for k, v in plain.items() if k != "list"},
        ("in", "more"): plain,
    }


def test_tokens_are_whole_columns_of_numbers(tmp_path):
    table = read([write_json(tmp_path / "log.json", [sample(), sample(2, model_usage={"m": {"output_tokens": 3}})])])
    assert table.candidates["tokens"].dtype == pl.Float64


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_memory_holds_one_sample_at_a_time(kind, tmp_path):
    """40 samples with a megabyte of events each: neither the log nor its events are ever whole in memory."""
    import tracemalloc

    events = ["x" * 1000] * 1000
    rows = [sample(case, events=events) for case in range(40)]
    path = tmp_path / f"log.{kind}"
    write_json(path, rows) if kind == "json" else write_eval(path, rows, header())
    del rows
    tracemalloc.start()
    table = read([path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.n_cases == 40
    assert peak < 25e6
