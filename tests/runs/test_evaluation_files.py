"""evaluation.json and reports.parquet: what goes in comes out, others read it, a killed writer spoils nothing."""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn.errors import InputError, WorldError
from kofn.runs import AttributeResult, CorrectnessResults, GroupReport, GroupType, PassPolicy, VerifierReport
from kofn.runs.run_tables import EVALUATION, REPORTS

NOW = datetime(2024, 3, 1, 8, 30, 0, 123456, tzinfo=UTC)


def attribute(mark=True, **more):
    return AttributeResult(is_correct=mark, **more)


def report(name="c", group="g", kind="Core", **more):
    return VerifierReport(id=name, group=group, type=kind, **{"timestamp": NOW, **more})


def evaluation(**more):
    return CorrectnessResults(**{"problem_name": "p", "name": "c", "timestamp": NOW, **more})


def of_cases(cases, **more):
    """An evaluation of one group with these cases."""
    results = evaluation(**more)
    results.add_group_report("g", "Core", 1.0, cases)
    return results


def again(results, directory=None):
    """What comes back from the disk."""
    if directory is not None:
        results.save(directory)
        return CorrectnessResults.from_dir(directory)
    with tempfile.TemporaryDirectory() as new:
        return again(results, Path(new))


# round trip

any_text = st.text(st.characters(exclude_categories=()))  # half surrogate pairs among it
name = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | finite | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
zones = st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
times = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones | st.none())
weights = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
seconds = st.floats(min_value=0, max_value=1e9)
attribute_results = st.builds(
    AttributeResult,
    is_correct=st.sampled_from([True, False, None]),
    weight=weights,
    expected=json_values,
    actual=json_values,
    diff=any_text,
)


@st.composite
def evaluations(draw):
    """Anything the classes let be made by `add_group_report`."""
    results = CorrectnessResults(
        problem_name=draw(name),
        problem_version=draw(st.integers(-(2**63), 2**63 - 1)),
        name=draw(name),
        version=draw(st.integers(-(2**63), 2**63 - 1)),
        timestamp=draw(times),
        duration=draw(seconds),
        policy=draw(st.sampled_from(PassPolicy)),
        verdict=draw(st.none() | any_text),
        infrastructure_failure=draw(st.none() | any_text),
    )
    for group in draw(st.lists(name, unique=True, max_size=3)):
        kind = draw(st.sampled_from(GroupType))
        reports = [
            VerifierReport(
                id=case,
                group=group,
                type=kind,
                timestamp=draw(times),
                duration=draw(seconds),
                results=draw(st.dictionaries(name, attribute_results, max_size=3)),
                case=draw(st.dictionaries(name, json_values, max_size=3)),
                original_checkpoint=draw(st.none() | name),
                original_group=draw(st.none() | name),
            )
            for case in draw(st.lists(name, unique=True, max_size=3))
        ]
        results.add_group_report(group, kind, draw(seconds), reports, weight=draw(weights))
    return results


@settings(max_examples=100)
@given(results=evaluations())
def test_what_is_saved_comes_back_equal(results):
    assert again(results) == results


@settings(max_examples=100)
@given(value=json_values)
def test_any_json_value_comes_back_as_it_was(value):
    results = of_cases([report(results={"a": attribute(expected=value, actual=[value])}, case={"k": value})])
    found = again(results).reports[0]
    for stored in (found.results["a"].expected, found.results["a"].actual[0], found.case["k"]):
        assert stored == value
        assert json.dumps(stored) == json.dumps(value)  # True is not 1, and 1.0 is not 1


@pytest.mark.parametrize(
    "value",
    [
        "123", 123, 123.0, "null", None, "true", True, 1, "", " ", "NaN", "[]", [], {}, [{}], {"": {}},
        {"a.b": {"c.d": 1}}, 2**64, -(2**70), 10**400, 1e308, 5e-324, -0.0, "\ud83d", ["a\udc80"],
        {"\ud83d": "\ud83d"}, "😀", "\x00", "\u2028", '"', "\\", '\\"', "a\nb", [[[[[[1]]]]]],
    ],
    ids=lambda v: f"{type(v).__name__} {ascii(v)[:20]}",
)  # fmt: skip
def test_values_keep_their_type_and_text(value):
    results = of_cases([report(results={"a.b": attribute(expected=value)}, case={"k.l": value})])
    found = again(results).reports[0]
    assert json.dumps(found.results["a.b"].expected) == json.dumps(value)
    assert json.dumps(found.case["k.l"]) == json.dumps(value)


@pytest.mark.parametrize(
    "results",
    [
        evaluation(),
        evaluation(infrastructure_failure="no disk", verdict="majority >= 1", policy="any"),
        evaluation(reports=[report()]),
        evaluation(reports=[report(), report(group="h")], duration=3.5),
        evaluation(group_outcomes={"g": GroupReport(results={"x": 0.8, "y": None}, weight=2)}),
        evaluation(group_outcomes={"g": GroupReport()}, total_counts={"Core": 2}, pass_counts={"Core": 1}),
        evaluation(group_outcomes={"g": GroupReport(results={"other": 0.25})}, reports=[report()]),
        of_cases([]),
        of_cases([report(), report("d", results={"a": attribute(None)})]),
    ],
    ids=[
        "nothing", "failure", "reports alone", "reports of two groups", "scores alone", "counts alone",
        "scores of other cases", "an empty group", "unverified",
    ],
)  # fmt: skip
def test_evaluations_put_together_by_hand_come_back_equal_too(results, tmp_path):
    assert again(results, tmp_path) == results


def test_a_class_of_ones_own_comes_back_as_itself(tmp_path):
    class Mine(CorrectnessResults):
        note: str = ""

    mine = Mine(problem_name="p", name="c", note="n")
    mine.save(tmp_path)
    assert Mine.from_dir(tmp_path) == mine


def test_saving_over_an_evaluation_replaces_it(tmp_path):
    again(of_cases([report(str(i)) for i in range(5)]), tmp_path)
    results = of_cases([report("only")])
    assert again(results, tmp_path) == results


def test_a_directory_that_cannot_be_made_is_an_error_of_the_world(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError, match=r"file.*cannot write the evaluation"):
        evaluation().save(tmp_path / "file" / "run")


# evaluation.json


@pytest.fixture
def sample():
    results = evaluation(duration=2.0, infrastructure_failure=None)
    right, wrong = attribute(expected="4", actual="4"), attribute(False, weight=0.5, expected=[1, "1"], diff="- 1")
    results.add_group_report(
        "g", "Core", 1, [report("x", results={"a": right, "b": wrong}, case={"n": 1, "s": "1"}), report("y")], weight=2
    )
    results.add_group_report("e", "Error", 1, [report("x", "e", "Error", results={"a": right})])
    return results


def test_evaluation_json_has_the_promised_fields_in_a_stable_order(sample, tmp_path):
    sample.save(tmp_path)
    body = json.loads((tmp_path / EVALUATION).read_text())
    assert list(body) == [
        "schema_version", "problem_name", "problem_version", "name", "version", "timestamp", "duration",
        "group_outcomes", "pass_counts", "total_counts", "policy", "verdict", "infrastructure_failure", "n_unverified",
        "score", "policies", "digest", "reports_sha256",
    ]  # fmt: skip
    assert body["group_outcomes"] == {
        "g": {"duration": 1.0, "results": {"x": pytest.approx(2 / 3), "y": None}, "type": "Core", "weight": 2.0},
        "e": {"duration": 1.0, "results": {"x": 1.0}, "type": "Error", "weight": 1.0},
    }
    assert body["timestamp"] == "2024-03-01T08:30:00.123456Z"
    assert (body["pass_counts"], body["total_counts"]) == ({"Core": 0, "Error": 1}, {"Core": 2, "Error": 1})
    assert body["score"] == sample.score()
    assert body["n_unverified"] == 1
    assert list(body["policies"]) == [p.value for p in PassPolicy]
    for policy in PassPolicy:
        decision = sample.decide(policy)
        assert body["policies"][policy.value] == {"passed": decision.passed, "reason": decision.reason}


def test_saving_the_same_evaluation_again_gives_the_same_bytes(sample, tmp_path):
    files = []
    for directory in ("a", "b", "b"):
        sample.save(tmp_path / directory)
        files.append([(tmp_path / directory / name).read_bytes() for name in (EVALUATION, REPORTS)])
    CorrectnessResults.from_dir(tmp_path / "a").save(tmp_path / "c")
    files.append([(tmp_path / "c" / name).read_bytes() for name in (EVALUATION, REPORTS)])
    assert files[0] == files[1] == files[2]
    assert files[0][0] == files[3][0]


def test_nothing_but_the_two_files_is_left(sample, tmp_path):
    sample.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [EVALUATION, REPORTS]


# reports.parquet, read by others


def test_reports_parquet_is_zstd_with_a_real_timestamp(sample, tmp_path):
    sample.save(tmp_path)
    file = pq.ParquetFile(tmp_path / REPORTS)
    group = file.metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}
    assert file.schema_arrow.names == list(sample.to_polars().columns)
    assert str(file.schema_arrow.field("timestamp").type) == "timestamp[us, tz=UTC]"
    stamp = file.metadata.schema.column(file.schema_arrow.names.index("timestamp")).logical_type
    assert stamp.type == "TIMESTAMP"


def test_polars_reads_it_back_as_it_was(sample, tmp_path):
    sample.save(tmp_path)
    assert pl.read_parquet(tmp_path / REPORTS).equals(sample.to_polars())


def test_pandas_explodes_its_attributes(sample, tmp_path):
    sample.save(tmp_path)
    frame = pd.read_parquet(tmp_path / REPORTS)
    assert isinstance(frame["timestamp"].dtype, pd.DatetimeTZDtype)
    assert frame["timestamp"][0] == pd.Timestamp(NOW)
    rows = frame[["id", "group", "results"]].explode("results").dropna(subset=["results"])
    flat = pd.concat(
        [rows[["id", "group"]].reset_index(drop=True), pd.json_normalize(rows["results"].tolist())], axis=1
    )
    assert flat[["id", "group", "attribute", "is_correct", "weight"]].values.tolist() == [
        ["x", "g", "a", True, 1.0],
        ["x", "g", "b", False, 0.5],
        ["x", "e", "a", True, 1.0],
    ]
    assert json.loads(flat["expected"][1]) == [1, "1"]
    assert {f["attribute"]: json.loads(f["value"]) for f in frame["case"][0]} == {"n": 1, "s": "1"}


def test_duckdb_unnests_its_attributes(sample, tmp_path):
    sample.save(tmp_path)
    path, connection = str(tmp_path / REPORTS), duckdb.connect()
    rows = connection.execute(
        "select id, a.attribute, a.is_correct, a.weight, json(a.expected) ->> '$[1]' "
        "from (select id, unnest(results) as a from read_parquet(?)) order by id, a.attribute, a.weight",
        [path],
    ).fetchall()
    assert rows == [("x", "a", True, 1.0, None), ("x", "a", True, 1.0, None), ("x", "b", False, 0.5, "1")]
    by_type = connection.execute(
        'select "type", count(*), count(*) filter (len(results) = 0) from read_parquet(?) group by all order by all',
        [path],
    ).fetchall()
    assert by_type == [("Core", 2, 1), ("Error", 1, 0)]
    found = connection.execute(
        "select typeof(any_value(timestamp)), epoch_us(max(timestamp)) from read_parquet(?)", [path]
    )
    assert found.fetchone() == ("TIMESTAMP WITH TIME ZONE", round(NOW.timestamp() * 1e6))
    connection.close()


@pytest.mark.slow
def test_a_hundred_thousand_cases_save_and_load_in_seconds(tmp_path, capsys):
    rng = np.random.default_rng(0)
    cases = [
        report(
            f"case {i}",
            results={
                "output": attribute(bool(mark), expected=f"line {i}\n" * 5, actual={"code": 0, "lines": [i, str(i)]}),
                "exit": attribute(bool(mark) or None, weight=0.5, expected=0, actual=0),
            },
            case={"command": f"run --n {i}", "n": i},
        )
        for i, mark in enumerate(rng.random(100_000) < 0.7)
    ]
    results = of_cases(cases)
    start = time.process_time()
    results.save(tmp_path)
    saved = time.process_time()
    found = CorrectnessResults.from_dir(tmp_path)
    loaded = time.process_time()
    assert found == results
    to_save, to_load, size = saved - start, loaded - saved, sum(p.stat().st_size for p in tmp_path.iterdir())
    with capsys.disabled():
        sys.stdout.write(f"\n100,000 cases: save {to_save:.1f} s, load {to_load:.1f} s, {size / 1e6:.1f} MB\n")
    assert to_save < 10
    assert to_load < 15


# a writer that is killed


def version(i):
    """Two evaluations that differ in everything; weights whose sums depend on the order of adding."""
    marks = np.random.default_rng(i).random((400 + 300 * i, 3)) < 0.5
    results = evaluation(name=f"version {i}", version=i, timestamp=NOW + timedelta(days=i))
    cases = [
        report(
            f"{i}/{j}",
            results={str(k): attribute(bool(m), weight=0.1 + k / 3, actual=f"{i} {j} {k}") for k, m in enumerate(row)},
        )
        for j, row in enumerate(marks)
    ]
    results.add_group_report("g", "Core", i + 1, cases, weight=i + 1)
    results.add_group_report(f"only {i}", "Error", 1, [report("x", f"only {i}", "Error")])
    return results


def without_reports(i):
    return evaluation(version=i, group_outcomes={str(i): GroupReport(results={"x": i / 3})})


@pytest.mark.parametrize("made", [version, without_reports])
def test_a_writer_killed_between_the_two_files_leaves_the_new_evaluation(made, tmp_path):
    """reports.parquet goes first, so that is the only mixture there can be."""
    old, new = made(0), made(1)
    old.save(tmp_path / "old")
    new.save(tmp_path / "new")
    shutil.copy(tmp_path / "new" / REPORTS, tmp_path / "old" / REPORTS)
    assert CorrectnessResults.from_dir(tmp_path / "old") == new


def writer_script():
    """A program that saves the two versions in turn for ever; it imports no more than it needs, to start quickly."""
    head = """
import sys
from datetime import UTC, datetime, timedelta
import numpy as np
from kofn.runs import AttributeResult, CorrectnessResults, VerifierReport
NOW = datetime(2024, 3, 1, 8, 30, 0, 123456, tzinfo=UTC)
"""
    tail = """
both = [version(0), version(1)]
both[0].save(sys.argv[1])
print("ready", flush=True)
while True:
    for one in (both[1], both[0]):
        one.save(sys.argv[1])
"""
    return head + "".join(inspect.getsource(f) for f in (attribute, report, evaluation, version)) + tail


@pytest.mark.kills
def test_a_writer_killed_at_any_moment_leaves_one_evaluation_or_the_other(tmp_path):
    both, rng = [version(0), version(1)], random.Random(0)
    command = [sys.executable, "-c", writer_script(), str(tmp_path)]
    for _ in range(8):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.15))
            os.kill(writer.pid, signal.SIGKILL)
        assert writer.returncode == -signal.SIGKILL
        assert CorrectnessResults.from_dir(tmp_path) in both


def test_what_a_killed_writer_left_behind_is_not_looked_at(sample, tmp_path):
    sample.save(tmp_path)
    for name in (EVALUATION, REPORTS):
        (tmp_path / f".{name}.123.tmp").write_bytes((tmp_path / name).read_bytes()[:50])
    assert CorrectnessResults.from_dir(tmp_path) == sample


# files of others


def test_reports_written_anew_by_another_program_are_read_where_their_number_fits(sample, tmp_path):
    sample.save(tmp_path)
    frame = pl.read_parquet(tmp_path / REPORTS)
    frame.write_parquet(tmp_path / REPORTS)
    assert CorrectnessResults.from_dir(tmp_path) == sample
    frame.head(1).write_parquet(tmp_path / REPORTS)
    with pytest.raises(InputError, match=r"reports\.parquet: 1 case reports, and 3 belong to evaluation\.json"):
        CorrectnessResults.from_dir(tmp_path)


def test_reports_with_fewer_rows_are_told_apart_also_where_their_metadata_was_kept(sample, tmp_path):
    sample.save(tmp_path)
    table = pq.read_table(tmp_path / REPORTS)
    pq.write_table(table, tmp_path / REPORTS)
    assert CorrectnessResults.from_dir(tmp_path) == sample
    pq.write_table(table.slice(1), tmp_path / REPORTS)
    with pytest.raises(InputError, match=r"reports\.parquet: 2 case reports, and 3 belong to evaluation\.json"):
        CorrectnessResults.from_dir(tmp_path)


@pytest.mark.long(quick=2)
@pytest.mark.parametrize("carried", ["", "{", "[]", "{}", '"x"', '{"n_reports": "3"}'])
def test_metadata_of_others_is_named(carried, sample, tmp_path):
    sample.save(tmp_path)
    sample.to_polars().write_parquet(tmp_path / REPORTS, metadata={"kofn.evaluation": carried})
    with pytest.raises(InputError, match=r"reports\.parquet: its metadata is not"):
        CorrectnessResults.from_dir(tmp_path)


def changed(frame, row, **values):
    """The frame with other values in one row."""
    rows = frame.rows(named=True)
    rows[row] |= values
    return pl.DataFrame(rows, schema=frame.schema)


A = {"attribute": "a", "expected": None, "actual": None, "diff": "", "is_correct": True, "weight": 1.0}


@pytest.mark.long(quick=5)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"id": None}, "row 2: id is null"),
        ({"id": "x"}, "row 2: its id is there before in its group"),
        ({"type": "Kern"}, "row 2: type is none of Core, Functionality, Regression, Error"),
        ({"timestamp": None}, "row 2: timestamp is null"),
        ({"duration": float("nan")}, "row 2: duration is not a number of 0 or more"),
        ({"duration": -1.0}, "row 2: duration is not a number of 0 or more"),
        ({"results": None}, "row 2: results is null"),
        ({"results": [None]}, "row 2: an attribute of results has no name"),
        ({"results": [{**A, "attribute": None}]}, "row 2: an attribute of results has no name"),
        ({"results": [A, A]}, "row 2: an attribute of results is there twice"),
        ({"results": [{**A, "weight": None}]}, "row 2: a weight is not a number above 0"),
        ({"results": [{**A, "weight": float("inf")}]}, "row 2: a weight is not a number above 0"),
        ({"results": [{**A, "diff": None}]}, "row 2: a diff is null"),
        ({"case": None}, "row 2: case is null"),
        ({"case": [{"attribute": None, "value": "1"}]}, "row 2: an attribute of case has no name"),
        ({"case": [{"attribute": "a", "value": "1"}] * 2}, "row 2: an attribute of case is there twice"),
        ({"case": [{"attribute": "a", "value": "{"}]}, "'{' is not JSON"),
        ({"results": [{**A, "expected": "NaN"}]}, "'NaN' is not JSON"),
        ({"results": [{**A, "actual": ""}]}, "'' is not JSON"),
        ({"results": [{**A, "actual": "[" * 100_000}]}, "is not JSON"),
    ],
)
def test_values_no_report_can_have_are_named_with_their_file(values, said, sample, tmp_path):
    sample.save(tmp_path)
    frame = pl.read_parquet(tmp_path / REPORTS)
    changed(frame, 1, **values).write_parquet(tmp_path / REPORTS)
    with pytest.raises(InputError) as refused:
        CorrectnessResults.from_dir(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / REPORTS}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
