"""Run directories: what was written is read, and what is missing, damaged or foreign is named in one line."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kofn
from kofn.errors import InputError
from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.render.run_directory import write_run
from kofn.runs import AttributeResult, CorrectnessResults, VerifierReport, load_run
from kofn.runs.case_reports import check_reports, reports_frame
from kofn.scoring.configuration import GradingConfig, ReportConfig
from kofn.scoring.evaluate import evaluate

ROOT = Path(__file__).parents[2]
FILES = ("run.json", "evaluation.json", "reports.parquet", "cases.parquet", "candidates.parquet")
PARQUET = FILES[2:]
JSON = FILES[:2]


def text_of(data):
    return json.dumps(data, sort_keys=True, default=str)


def assert_same_result(found, expected):
    """A result read again is the one that was written, but for what JSON cannot tell apart."""
    assert found.estimates == expected.estimates
    assert [e.recipe for e in found.estimates] == [e.recipe for e in expected.estimates]
    assert str(found) == str(expected)
    assert found._repr_html_() == expected._repr_html_()
    assert found.warnings == expected.warnings
    assert text_of(found.to_dict()) == text_of(expected.to_dict())
    assert list(found.case_values) == list(expected.case_values)
    for key, values in expected.case_values.items():
        np.testing.assert_array_equal(found.case_values[key], values)
    assert [(s.metric, s.source, s.beside_labels) for s in found.scored] == [
        (s.metric, s.source, s.beside_labels) for s in expected.scored
    ]
    for one, other in zip(found.scored, expected.scored, strict=True):
        assert_same_sets(one.sets, other.sets)
    assert_same_table(found.table, expected.table)


def assert_same_sets(found, expected):
    assert found.case_ids.to_list() == expected.case_ids.to_list()
    assert found.higher_is_better == expected.higher_is_better
    for name in ("offsets", "values", "passes", "costs", "seconds", "candidate_weights"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if other is not None:
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    for name in ("answers", "texts", "facets", "required", "ideal"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        assert other is None or one.to_list() == other.to_list()
    assert list(found.selectors) == list(expected.selectors)
    for name, scores in expected.selectors.items():
        np.testing.assert_array_equal(found.selectors[name], scores)


def assert_same_table(found, expected):
    assert found.cases.equals(expected.cases)
    assert found.tags.equals(expected.tags)
    assert found.tags.schema == expected.tags.schema
    assert (dict(found.fields), found.form, found.sources) == (dict(expected.fields), expected.form, expected.sources)


def written(result, directory, plan=None, options=None):
    return write_run(result, directory, sources=[], options=options or {}, report=plan)


def there_and_back(data, directory, plan=None, **options):
    """Score, write, read; the run read must be the run written."""
    result = kofn.score(data, everything=True, **options)
    run = written(result, directory, plan)
    found = load_run(directory)
    assert_same_result(found.result, run.result)
    assert found.evaluation == run.evaluation
    assert found.reports.equals(run.reports)
    assert found.name == directory.name
    check_reports(found.reports)
    full = found.full()
    assert reports_frame(full).equals(run.reports)
    assert CorrectnessResults.from_dir(directory) == full
    return found


# what was written is read


@pytest.mark.long(quick=2)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("qwen_math100x8", {"by": "source"}),
        ("cruxeval_output_800x10", {}),
        ("tau_airline_gpt4o_50x4", {}),
        ("nemo_math_50x3", {}),
        ("pandalm_pairs_3humans_2judges", {}),
        ("tot_writing_gpt4_io_100x10", {}),
    ],
)
def test_a_run_of_real_data_reads_back_as_it_was(name, options, sets_folder, tmp_path):
    path = sets_folder / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    tags = read([path], ReadOptions(everything=True)).tags.columns
    there_and_back(path, tmp_path / "run", **{k: v for k, v in options.items() if v in tags})


SETS = [{"id": f"q{i}", "reference": "4", "outputs": ["It is 4.", f"It is {i}.", "4"]} for i in range(6)]
RANKED = [{"text": "4", "reward": 0.5, "score": 2, "cost": 0.1, "seconds": 3}, {"text": "5", "reward": 0.9, "score": 1}]
COVERED = [{"text": "t", "facets": ["x"]}, {"text": "u", "facets": ["y", "z"]}]

REFERENCES = [
    {"id": "a", "reference": ["4", "four"], "outputs": ["4"]},
    {"id": "b", "reference": ["5"], "outputs": ["5", "6"]},
]
CHOICES = [
    {"id": "a", "reference": "B", "choices": ["x", "y"], "outputs": ["A", "(B)"]},
    {"id": "b", "reference": "A", "choices": ["v", "w"], "outputs": ["A"]},
]
LABELLED = [{"text": "4", "pass": True, "score": 0.3}, {"text": "5", "pass": False, "score": 0.9}]
FRAME = {
    "id": ["a", "a", "b"],
    "output": ["1", "2", "3"],
    "reference": ["1", "1", "3"],
    "day": pl.Series([1, 1, 2]).cast(pl.Date),
    "part": pl.Series(["x", "x", None]).cast(pl.Categorical),
}
MIXED = [1, "a", True, None, 2.5, ""]
NAMES = ("é", "日本", "a\nb", "=1", "\x00", " ", '"', "\\")

ODD = {
    "a case without candidates": ([*SETS, {"id": "e", "outputs": []}], {}),
    "grades that are missing": ([{"id": "a", "scores": [1, None, 0.5]}, {"id": "b", "scores": [None, None]}], {}),
    "labels that are missing": ([{"id": "a", "passes": [True, None]}, {"id": "b", "passes": [None]}], {}),
    "several metrics": (SETS, {"metric": ["numeric", "exact_match", "token_f1"]}),
    "a metric where lower is better": (
        [{"id": i, "reference": "4", "outputs": ["4", o]} for i, o in (("a", "what?"), ("b", "5"))],
        {"metric": "unparsed"},
    ),
    "labels and scores": ([{"id": "a", "outputs": LABELLED}], {}),
    "nothing graded": ([{"id": "a", "outputs": ["x", "y"]}, {"id": "b", "outputs": ["z"]}], {}),
    "nothing to vote on": ([{"id": "a", "outputs": ["x", "y"]}], {"aggregate": ["distinct(n=1)"]}),
    "no answer anywhere": ([{"id": "a", "reference": "4", "outputs": ["none", "no"]}], {}),
    "outputs that failed": (
        [{"id": "a", "reference": "4", "outputs": [{"text": None, "error": "timeout"}, {"text": "4"}]}],
        {},
    ),
    "tags named like columns": (
        [
            {**s, "case_id": "z", "mean": i, "numeric.mean": "x", "tag.mean": 2.5, "first": True, "score.numeric": "s"}
            for i, s in enumerate(SETS)
        ],
        {},
    ),
    "tags of every type": (
        [{**s, "t": "a", "i": i, "f": i / 3, "b": i % 2 == 0, "mixed": MIXED[i]} for i, s in enumerate(SETS)],
        {"by": ["b", "mixed"]},
    ),
    "ids in any script": ([{"id": name, "reference": "4", "outputs": ["4", "é"]} for name in NAMES], {}),
    "several references": (REFERENCES, {}),
    "options to choose from": (CHOICES, {}),
    "selectors": (
        [{"id": "a", "reference": "4", "outputs": RANKED}, {"id": "b", "reference": "5", "outputs": RANKED}],
        {"aggregate": ["selected(by='reward')", "weighted_vote(by='score')", "mean"], "metric": "numeric"},
    ),
    "facets and what is required": ([{"id": i, "required": ["x", "y"], "outputs": COVERED} for i in "ab"], {}),
    "ideal scores": (
        [{"id": "a", "scores": [1, 2, 3], "ideal": [3, 3]}],
        {"aggregate": ["ndcg(k=2)", "mean"], "threshold": 2},
    ),
    "weights and clusters": (
        [{**s, "weight": 1 + i, "cluster": f"c{i // 2}", "kind": f"k{i % 2}"} for i, s in enumerate(SETS)],
        {"by": "kind"},
    ),
    "the first candidates only": (SETS, {"top_k": 2}),
    "one case of one candidate": ([{"id": "a", "reference": "4", "output": "4"}], {}),
    "rows in any order": (
        [{"id": i, "repeat": r, "output": "1", "reference": "1"} for i, r in (("a", 1), ("b", 0), ("a", 0))],
        {},
    ),
    "a frame": (pl.DataFrame(FRAME), {"by": "day"}),
}


@pytest.mark.long(quick=8)
@pytest.mark.parametrize("what", ODD)
def test_a_run_of_odd_input_reads_back_as_it_was(what, tmp_path):
    data, options = ODD[what]
    there_and_back(data, tmp_path / "run", **options)


def test_options_of_a_run_evaluate_further_numbers_the_same_way(tmp_path):
    given_options = {"by": ["kind"], "interval": "bca", "level": 0.9, "seed": 3, "top_k": 2}
    rows = [{**s, "kind": f"k{i % 2}"} for i, s in enumerate(SETS)]
    result = kofn.score(rows, everything=True, **given_options)
    written(result, tmp_path / "run", options=given_options)
    found = load_run(tmp_path / "run")
    assert found.options == GradingConfig(by=("kind",), interval="bca", level=0.9, seed=3, top_k=2)
    assert found.result.estimates == result.estimates
    assert found.result.estimates[0].recipe["seed"] == 3


def test_a_stored_table_can_be_evaluated_again(tmp_path):
    """Another aggregator on a run that was stored, from the labels that were stored."""
    written(kofn.score(SETS, everything=True, aggregate=["mean"]), tmp_path / "run")
    found = load_run(tmp_path / "run").result
    expected = kofn.score(SETS, aggregate=["pass@2", "majority"])
    for rule in ("pass@2", "majority"):
        np.testing.assert_array_equal(
            kofn.aggregator(rule)(found.scored[0].sets), expected.case_values["numeric", rule]
        )


def test_an_evaluation_of_programs_is_a_run_without_manifest_and_candidates(tmp_path):
    results = CorrectnessResults(problem_name="p", name="c")
    report = VerifierReport(id="x", group="g", type="Core", results={"a": AttributeResult(is_correct=True)})
    results.add_group_report("g", "Core", 1.0, [report])
    results.save(tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert (run.name, run.task, run.manifest, run.result) == ("run", "p", {}, None)
    assert run.full() == results
    assert run.options == GradingConfig()
    assert run.evaluation.reports == []


def test_a_directory_may_be_named_by_a_string_and_by_a_link(tmp_path, arithmetic):
    link = tmp_path / "link"
    link.symlink_to(arithmetic)
    assert load_run(str(link)).name == arithmetic.name


# what is missing, damaged or foreign


@pytest.fixture(scope="session")
def arithmetic(tmp_path_factory):
    """A run as the command writes it."""
    out = tmp_path_factory.mktemp("runs") / "arithmetic"
    command = [sys.executable, "-m", "kofn", "score", "examples/arithmetic.jsonl", "--by", "kind", "--group", "kind"]
    subprocess.run([*command, "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
    return out


@pytest.fixture
def run_directory(arithmetic, tmp_path):
    """A copy to spoil."""
    return Path(shutil.copytree(arithmetic, tmp_path / "run"))


def refusal(directory):
    """The message: an input error of one line."""
    with pytest.raises(InputError) as refused:
        load_run(directory)
    message = str(refused.value)
    assert "\n" not in message
    assert refused.value.exit_code == 2
    return message


def test_the_run_that_is_spoiled_here_is_sound(run_directory):
    run = load_run(run_directory)
    assert run.result.n_cases == 60
    assert list(run.evaluation.group_outcomes) == run.reports["group"].unique(maintain_order=True).to_list()


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_is_named(name, run_directory):
    (run_directory / name).unlink()
    assert refusal(run_directory).startswith(f"{run_directory / name}: missing: ")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_named(name, share, run_directory):
    path = run_directory / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert refusal(run_directory).startswith(f"{path}: ")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content", [b"hello\nworld\n", b"\x00" * 100, b"PAR1", b"PAR1" * 10, b"\xff\xfe", b"{", b"nul"]
)
def test_a_file_of_something_else_is_named(name, content, run_directory):
    (run_directory / name).write_bytes(content)
    assert refusal(run_directory).startswith(f"{run_directory / name}: ")


@pytest.mark.parametrize("name", FILES)
def test_a_directory_in_the_place_of_a_file_is_named(name, run_directory):
    (run_directory / name).unlink()
    (run_directory / name).mkdir()
    assert refusal(run_directory).startswith(f"{run_directory / name}: ")


@pytest.mark.parametrize("name", PARQUET)
def test_a_parquet_file_of_other_columns_is_named(name, run_directory):
    pl.DataFrame({"x": [1, 2]}).write_parquet(run_directory / name)
    message = refusal(run_directory)
    assert message.startswith(f"{run_directory / name}: column ")
    assert "is missing" in message


def columns_of(name):
    """The columns of a file that somebody relies on."""
    expected = {
        "reports.parquet": ["problem", "version", "id", "group", "type", "timestamp", "duration", "results", "case"],
        "cases.parquet": ["case_id", "reference", "input", "numeric.first", "numeric.pass@5"],
        "candidates.parquet": ["case_id", "index", "text", "answer", "cost", "score.numeric", "passed.numeric"],
    }
    return expected[name]


@pytest.mark.long(quick=6)
@pytest.mark.parametrize(("name", "column"), [(name, column) for name in PARQUET for column in columns_of(name)])
def test_a_column_of_another_type_is_named(name, column, run_directory):
    frame = pl.read_parquet(run_directory / name)
    frame.with_columns(pl.lit(b"x").alias(column)).write_parquet(run_directory / name)
    message = refusal(run_directory)
    assert message.startswith(f"{run_directory / name}: column '{column}' is Binary, expected ")


OPTIONAL = ("text", "answer", "cost")  # a run may be without


@pytest.mark.long(quick=5)
@pytest.mark.parametrize(("name", "column"), [(n, c) for n in PARQUET for c in columns_of(n) if c not in OPTIONAL])
def test_a_column_that_is_missing_is_named(name, column, run_directory):
    frame = pl.read_parquet(run_directory / name)
    frame.drop(column).write_parquet(run_directory / name)
    assert refusal(run_directory).startswith(f"{run_directory / name}: column '{column}' is missing")


@pytest.mark.long(quick=4)
@pytest.mark.parametrize("name", PARQUET)
@pytest.mark.parametrize("change", ["fewer", "more", "none", "reversed"])
def test_rows_that_do_not_fit_the_other_files_are_named(name, change, run_directory):
    frame = pl.read_parquet(run_directory / name)
    changes = {"fewer": frame.head(-1), "more": pl.concat([frame, frame.tail(1)]), "none": frame.clear()}
    changes.get(change, frame.reverse()).write_parquet(run_directory / name)
    assert name in refusal(run_directory)


@pytest.mark.long(quick=2)
@pytest.mark.parametrize(("name", "column"), [("cases.parquet", "case_id"), ("candidates.parquet", "case_id")])
@pytest.mark.parametrize("value", [None, "q999", ""])
def test_ids_that_fit_nothing_are_named(name, column, value, run_directory):
    frame = pl.read_parquet(run_directory / name)
    ids = [value, *frame[column].to_list()[1:]]
    frame.with_columns(pl.Series(column, ids, dtype=pl.String)).write_parquet(run_directory / name)
    assert name in refusal(run_directory)


def test_files_of_two_runs_are_told_apart(run_directory, tmp_path):
    written(kofn.score(SETS, everything=True), tmp_path / "other")
    for name in ("evaluation.json", "reports.parquet"):
        shutil.copy(tmp_path / "other" / name, run_directory / name)
    assert "its cases are not those of cases.parquet" in refusal(run_directory)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("content", ["[]", "3", "null", '"x"', "true"])
def test_json_that_is_no_object_is_named(name, content, run_directory):
    (run_directory / name).write_text(content)
    assert refusal(run_directory).startswith(f"{run_directory / name}: expected a JSON object, found ")


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    ("version", "said"),
    [
        (0, "schema_version is 0: not a file that kofn wrote"),
        (-1, "schema_version is -1: not a file that kofn wrote"),
        (4, "schema version 4, expected 3 at most: a newer kofn wrote it: upgrade"),
        ("x", "schema_version is 'x': not a file that kofn wrote"),
        ("2", "schema_version is '2': not a file that kofn wrote"),
        (True, "schema_version is True: not a file that kofn wrote"),
        ([2], "schema_version is [2]: not a file that kofn wrote"),
        (None, "no schema_version: not a file that kofn wrote"),
    ],
)
def test_another_schema_version_is_named_with_what_to_do(name, version, said, run_directory):
    body = json.loads((run_directory / name).read_text())
    (run_directory / name).write_text(json.dumps({**body, "schema_version": version}))
    assert refusal(run_directory) == f"{run_directory / name}: {said}"
    del body["schema_version"]
    (run_directory / name).write_text(json.dumps(body))
    assert refusal(run_directory) == f"{run_directory / name}: no schema_version: not a file that kofn wrote"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run.json", "schema_version is 1, and its entries are of a later schema: the file was changed"),
        ("evaluation.json", "schema_version is 1: not a file that kofn wrote"),
    ],
)
def test_a_file_that_says_schema_1_and_is_none_is_refused(name, said, run_directory):
    body = json.loads((run_directory / name).read_text())
    body.pop("digest")
    (run_directory / name).write_text(json.dumps({**body, "schema_version": 1}))
    assert refusal(run_directory) == f"{run_directory / name}: {said}"


OTHER = {
    dict: [None, 3, "x", []],
    list: [None, 3, "x", {}],
    str: [[], {}, True],
    int: ["x", [], 0.5],
    float: ["x", [], {}],
    type(None): [[], {}, [3]],
}
NEEDED = ("kind", "created", "sources", "options", "versions", "layout", "result")
OF_EVALUATION = (
    "problem_name", "problem_version", "name", "version", "timestamp", "duration", "group_outcomes", "pass_counts",
    "total_counts", "policy", "verdict", "infrastructure_failure",
)  # fmt: skip
FIELDS = [
    *(("run.json", field) for field in NEEDED),
    *(("evaluation.json", field) for field in OF_EVALUATION),
]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_of_another_json_type_is_named(name, field, run_directory):
    body = json.loads((run_directory / name).read_text())
    for value in OTHER[type(body[field])]:
        (run_directory / name).write_text(json.dumps({**body, field: value}))
        message = refusal(run_directory)
        assert message.startswith(f"{run_directory / name}: ")
        assert field in message


@pytest.mark.parametrize("field", NEEDED)
def test_a_field_of_the_manifest_that_is_missing_is_named(field, run_directory):
    body = json.loads((run_directory / "run.json").read_text())
    del body[field]
    (run_directory / "run.json").write_text(json.dumps(body))
    message = refusal(run_directory)
    assert message.startswith(f"{run_directory / 'run.json'}: {field}")


def at(body, path):
    for key in path:
        body = body[key]
    return body


INSIDE = [
    ("layout", "tags", "kind"),
    ("layout", "values", 0, "column"),
    ("layout", "values", 0, "metric"),
    ("layout", "metrics", 0, "higher_is_better"),
    ("layout", "case_columns"),
    ("options", "seed"),
    ("options", "by"),
    ("options", "level"),
    ("sources", 0, "path"),
    ("result", "n_cases"),
    ("result", "n_candidates"),
    ("result", "n_missing"),
    ("result", "warnings"),
    ("result", "estimates", 0, "point"),
    ("result", "estimates", 0, "aggregator"),
    ("result", "estimates", 0, "n"),
    ("result", "understood", "fields"),
    ("result", "understood", "sources"),
    ("result", "understood", "metrics"),
    ("result", "understood", "set_size"),
    ("result", "understood", "selectors"),
    ("result", "diagnostics", "sizes"),
    ("result", "diagnostics", "sizes", "min"),
    ("result", "diagnostics", "votes", "ties"),
    ("result", "diagnostics", "diversity", "n_sets_sampled"),
    ("result", "diagnostics", "cost", "total"),
    ("result", "extraction", "n_failed"),
    ("result", "extraction", "reason"),
    ("result", "extraction", "audit", "agreement"),
    ("result", "extraction", "audit", "failure_rate"),
]


@pytest.mark.parametrize("path", INSIDE, ids=lambda p: ".".join(map(str, p)))
def test_a_field_inside_the_manifest_of_another_type_is_named(path, run_directory):
    body = json.loads((run_directory / "run.json").read_text())
    for value in ({"x": [1]}, [{"x": 1}]):
        at(body, path[:-1])[path[-1]] = value
        (run_directory / "run.json").write_text(json.dumps(body))
        assert refusal(run_directory).startswith(f"{run_directory / 'run.json'}: ")


NUMBERS = [
    ("result", "n_missing"),
    ("result", "estimates", 0, "point"),
    ("result", "diagnostics", "votes", "ties"),
    ("result", "diagnostics", "cost", "total"),
    ("options", "level"),
]


@pytest.mark.parametrize("path", NUMBERS, ids=lambda p: ".".join(map(str, p)))
def test_a_number_written_as_text_is_named(path, run_directory):
    body = json.loads((run_directory / "run.json").read_text())
    at(body, path[:-1])[path[-1]] = str(at(body, path))
    (run_directory / "run.json").write_text(json.dumps(body))
    assert refusal(run_directory).startswith(f"{run_directory / 'run.json'}: {'.'.join(map(str, path))}: ")


def test_more_passing_cases_than_there_are_is_named(run_directory):
    body = json.loads((run_directory / "evaluation.json").read_text())
    body["pass_counts"] = {"Core": 1000}
    (run_directory / "evaluation.json").write_text(json.dumps(body))
    assert refusal(run_directory) == f"{run_directory / 'evaluation.json'}: Core: 1000 cases pass of 60"


def test_a_run_whose_writer_was_killed_before_the_end_is_refused(run_directory):
    """run.json is written last: without it candidates are there that nobody vouches for."""
    (run_directory / "run.json").unlink()
    assert refusal(run_directory).startswith(f"{run_directory / 'run.json'}: missing: ")
    for name in ("candidates.parquet", "cases.parquet"):
        (run_directory / name).unlink()
    assert load_run(run_directory).result is None


def test_what_is_no_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file").startswith(f"{tmp_path / 'file'}: is a file: expected a run directory")
    assert refusal(tmp_path / "no").startswith(f"{tmp_path / 'no'}: no such directory: expected a run directory")
    assert refusal(tmp_path / ("x" * 5000)).startswith(f"{tmp_path}/xxx")
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty").startswith(f"{tmp_path / 'empty' / 'run.json'}: missing: not a run directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["", *FILES])
def test_what_may_not_be_read_is_named(name, run_directory):
    path = run_directory / name
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        assert refusal(run_directory).startswith(f"{path}")
    finally:
        path.chmod(mode)


def test_the_command_says_it_in_one_line_and_exits_2(run_directory):
    (run_directory / "run.json").write_text("{")
    done = subprocess.run([sys.executable, "-m", "kofn", "report", str(run_directory)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"kofn: {run_directory / 'run.json'}: not JSON: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


# whatever happens to a file, it loads or it is refused


def loads_or_is_refused(directory):
    """Nothing but an input error of one line escapes, and what loads can be shown."""
    try:
        run = load_run(directory)
        full = run.full()
    except InputError as problem:
        refused = str(problem)
    else:
        assert str(run.result)
        assert run.options
        assert full.decide().reason
        assert full.score() is None or 0 <= full.score() <= 1
        return True
    assert "\n" not in refused
    return False


@pytest.mark.parametrize("name", JSON)
def test_flipped_bytes_are_harmless_or_refused(name, run_directory):
    path, rng = run_directory / name, random.Random(name)
    data = path.read_bytes()
    for _ in range(150):
        spoiled = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            spoiled[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(spoiled)
        loads_or_is_refused(run_directory)
    path.write_bytes(data)
    assert loads_or_is_refused(run_directory)


def places(body, path=()):
    """Every place in a JSON value."""
    yield path
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


scalars = st.sampled_from(
    [None, True, False, 0, 1, -1, 2, 60, 10**30, 0.5, -1.5, 1e308, "", "x", "numeric", "Core", "é\n"]
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["", "x"]), inner),
    max_leaves=3,
)


@pytest.mark.long
@pytest.mark.parametrize("name", JSON)
@settings(max_examples=150)
@given(data=st.data())
def test_replaced_fields_are_harmless_or_refused(name, data, arithmetic, tmp_path_factory):
    directory = tmp_path_factory.getbasetemp() / f"replaced-{name}"
    if not directory.exists():
        shutil.copytree(arithmetic, directory)
    body = json.loads((arithmetic / name).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([p for p in places(body) if p]))
        if data.draw(st.booleans()):
            at(body, path[:-1])[path[-1]] = data.draw(values)
        else:
            del at(body, path[:-1])[path[-1]]
    (directory / name).write_text(json.dumps(body))
    loads_or_is_refused(directory)


def test_a_file_with_a_hole_in_it_is_named(run_directory):
    """Its end says where columns are that are not there: polars itself gives up on such a file."""
    path = run_directory / "candidates.parquet"
    data = path.read_bytes()
    (footer,) = struct.unpack("<I", data[-8:-4])
    path.write_bytes(data[:4] + data[-8 - footer :])
    assert refusal(run_directory).startswith(f"{path}: damaged")


def test_a_result_evaluated_from_a_file_is_the_one_in_its_run(arithmetic):
    table = read([ROOT / "examples" / "arithmetic.jsonl"], ReadOptions(keep=("kind",), everything=True))
    expected = evaluate(table, GradingConfig(by=("kind",)))
    found = load_run(arithmetic).result
    assert [e.point for e in found.estimates] == [e.point for e in expected.estimates]
    assert found.estimates == expected.estimates


def test_a_plan_is_kept_in_the_evaluation(tmp_path):
    rows = [{**s, "kind": f"k{i % 2}"} for i, s in enumerate(SETS)]
    plan = ReportConfig(
        task="sums", task_version=3, name="mine", version=7, group="kind", types={"k0": "Error"}, weights={"k1": 2.5}
    )
    run = there_and_back(rows, tmp_path / "run", plan=plan)
    assert (run.task, run.evaluation.problem_version, run.evaluation.name, run.evaluation.version) == (
        "sums", 3, "mine", 7,
    )  # fmt: skip
    assert {n: (g.type.value, g.weight) for n, g in run.evaluation.group_outcomes.items()} == {
        "k0": ("Error", 1.0),
        "k1": ("Core", 2.5),
    }
