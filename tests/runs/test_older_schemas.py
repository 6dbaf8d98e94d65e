"""Run directories of earlier schemas open everywhere, with the numbers they had."""

from __future__ import annotations

import json

import pytest
from tests.runs import older_runs

from kofn.cli import VERBS
from kofn.runs.files import SCHEMA_VERSION

KNOWN = json.loads((older_runs.FIXTURES / "older_runs.json").read_text(encoding="utf-8"))


@pytest.fixture
def root(tmp_path):
    return older_runs.unpack(2, tmp_path)


LOOKS = [(run, look) for run, all_of_it in older_runs.LOOKS.items() for look in all_of_it]


@pytest.mark.long(quick=12)
@pytest.mark.parametrize(("run", "look"), LOOKS, ids=[f"{run}-{look.__name__}" for run, look in LOOKS])
def test_every_verb_finds_in_a_run_of_schema_2_what_was_found_when_it_was_made(run, look, root):
    assert older_runs.facts(look, root / run) == KNOWN[f"{run} {look.__name__}"]


def test_a_trend_follows_runs_of_schema_2(root):
    assert older_runs.facts(older_runs.trend, root) == KNOWN["trend"]


# what a run of schema 1 has in common with the run that the last code of schema 2 made of the same file
SHARED = (older_runs.compare, older_runs.compare_graders, older_runs.curve, older_runs.plan, older_runs.extract_audit)


@pytest.fixture
def first(tmp_path):
    return older_runs.unpack(1, tmp_path)


@pytest.mark.parametrize("look", SHARED, ids=lambda look: look.__name__)
def test_every_verb_finds_in_a_run_of_schema_1_what_it_finds_in_the_same_run_of_schema_2(look, first):
    assert older_runs.facts(look, first / "scored") == KNOWN[f"scored {look.__name__}"]


@pytest.mark.parametrize("run", ["scored", "baseline", "texts"])
def test_a_run_of_schema_1_keeps_its_numbers_and_opens_everywhere(run, first):
    stored = json.loads((first / run / "run.json").read_text())["result"]
    found = older_runs.report(first / run)
    assert found["estimates"] == older_runs.rows_of(stored["estimates"], older_runs.ESTIMATE)
    assert sum(found["total_counts"].values()) == stored["n_cases"]
    assert found["problem_name"] == {"scored": "answers"}.get(run, run)
    assert older_runs.facts(older_runs.pages, first / run) == KNOWN[f"{run} pages"]
    assert older_runs.texts(first / run)["rows"] == stored["n_candidates"]
    assert older_runs.check(first / run)["n"] >= 1
    assert all(older_runs.exports(first / run).values())


def test_a_trend_follows_runs_of_schemas_1_and_2(first, tmp_path):
    older_runs.unpack(2, first)
    found = older_runs.trend(first)
    assert {"scored", "baseline", "texts"} <= {name for runs in found.values() for name, _ in runs}


@pytest.mark.parametrize("run", ["scored", "texts"])
def test_judging_a_run_of_schema_1_in_place_writes_it_in_the_present_schema(run, first):
    before = older_runs.report(first / run)
    texts = older_runs.texts(first / run)
    after = older_runs.judged(first / run)
    # judging names the selector that a run of one selector left open
    kept = [[name.replace("(by='reward')", ""), *e] for m, name, *e in after["estimates"] if m != "long_enough"]
    assert kept == [e[1:] for e in before["estimates"]]
    assert after["groups"] == before["groups"]
    assert set(older_runs.texts(first / run)["columns"]) >= set(texts["columns"])
    manifest = json.loads((first / run / "run.json").read_text())
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert {path.name for path in (first / run).iterdir()} >= {"evaluation.json", "reports.parquet", "results.jsonl"}


def test_judging_a_run_of_schema_2_in_place_writes_all_of_it_in_the_present_schema(root):
    before = json.loads((root / "texts" / "results.jsonl").read_text())
    older_runs.judged(root / "texts")
    for name in ("run.json", "evaluation.json"):
        assert json.loads((root / "texts" / name).read_text())["schema_version"] == SCHEMA_VERSION
    assert json.loads((root / "texts" / "results.jsonl").read_text()) == before


# verb -> what is asked of a stored run; MODEL and OUT stand for a model and a place beside the runs
RUN_VERBS = {
    "score": ["RUN", "--extract", "number_simple", "--out", "OUT"],
    "judge": ["RUN", "--rubric", "helpfulness", "-m", "MODEL"],
    "report": ["RUN", "--detailed"],
    "export": ["RUN", "--to", "OUT.jsonl"],
    "check": ["RUN", "--require", "any_pass >= 0.01", "--baseline", "BASELINE", "--allow-missing"],
    "calibrate": ["RUN", "--sample", "3", "-o", "OUT.csv"],
    "compare": ["BASELINE", "RUN"],
    "extract-audit": ["RUN"],
    "curve": ["RUN"],
    "plan": ["RUN", "--difference", "0.2", "--against", "BASELINE"],
    "trend": ["RUN", "BASELINE"],
}
OTHER_VERBS = {"run", "verify", "new", "list", "describe", "explain", "doctor", "completion"}  # take no run
VIEWER = "view"  # in the tests of pages above


def test_no_verb_that_takes_a_run_is_left_out():
    assert {*RUN_VERBS, *OTHER_VERBS, VIEWER} == set(VERBS)


def answer(prompt):
    return "Verdict: pass" if "Verdict: pass" in prompt else "Verdict: 4"


@pytest.mark.long(quick=6)
@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize("verb", RUN_VERBS)
def test_every_verb_opens_a_run_of_every_schema(verb, schema, tmp_path):
    runs = older_runs.unpack(schema, tmp_path)
    stand_for = {"RUN": runs / "scored", "BASELINE": runs / "baseline", "MODEL": f"fake:{__name__}:answer"}
    args = [str(stand_for.get(arg, arg)).replace("OUT", str(tmp_path / "out")) for arg in RUN_VERBS[verb]]
    older_runs.call(verb, *args, exits=(0, 1) if verb == "check" else (0,))
    if verb in ("score", "export", "calibrate"):
        assert [path for path in tmp_path.iterdir() if path.name.startswith("out")]


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize("form", ["csv", "markdown", "html"])
def test_a_report_of_every_schema_has_every_form(form, schema, tmp_path):
    run = older_runs.unpack(schema, tmp_path) / "scored"
    assert len(older_runs.call("report", run, "--output-format", form, "-o", "-").splitlines()) > 5


@pytest.mark.parametrize("schema", [1, 2])
def test_selectors_are_compared_on_a_run_of_every_schema(schema, tmp_path):
    found = older_runs.as_json(
        "compare", older_runs.unpack(schema, tmp_path) / "scored", "--selectors", "first", "vote"
    )
    assert found["kind"] == "selectors"


def test_reading_a_run_of_an_earlier_schema_changes_nothing_on_disk(root, first):
    def bytes_of(folder):
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    for folder in (root / "scored", first / "scored"):
        before = bytes_of(folder)
        older_runs.report(folder)
        older_runs.pages(folder)
        assert bytes_of(folder) == before
