"""The problems in examples/: what their submissions score. The numbers are worked out by hand from the files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kofn.errors import InputError
from kofn.problems import load_problem, run_checkpoint
from kofn.problems.problem import lint
from kofn.runs import CorrectnessResults
from kofn.sandbox.drivers import find_sandbox
from kofn.scoring.configuration import PassPolicy

PROBLEMS = Path(__file__).parents[2] / "examples" / "problems"
CHECKPOINTS = [("ledger", "totals"), ("ledger", "budgets"), ("notes", "basics"), ("notes", "search")]

PARTIAL: dict[tuple[str, str], dict[str, Any]] = {
    ("ledger", "totals"): {
        "passes": {"Core": 4, "Functionality": 5, "Error": 1},
        "totals": {"Core": 4, "Functionality": 7, "Error": 4},
        # export: (1.5 / 1.8 + 1) / 2
        "groups": {"balance": 1, "accounts": 0.75, "export": 0.916667, "journal": 1, "errors": 0.5},
        "score": 0.893939,  # (2 x 1 + 0.75 + 0.916667 + 1 + 0.5 x 0.5) / 5.5
        "failing": {
            "accounts/each-once": (["output"], 0.5),
            "export/entries": (["status_code"], 0.833333),
            "errors/not-a-number": (["stderr"], 0.5),
            "errors/unknown-account": (["files/ledger.csv", "status_code", "stderr"], 0),
            "errors/unknown-command": (["output"], 0.5),
        },
    },
    ("ledger", "budgets"): {
        "passes": {"Core": 1, "Functionality": 1, "Error": 0, "Regression": 8},
        "totals": {"Core": 2, "Functionality": 2, "Error": 2, "Regression": 10},
        "groups": {
            "budget": 0.875,
            "months": 0.6,
            "errors": 0.25,
            "still-balance": 1,
            "still-accounts": 0.75,
            "still-export": 0.833333,
            "still-journal": 1,
        },
        "score": 0.830392,  # (2 x 0.875 + 0.6 + 0.5 x 0.25 + 2 x 1 + 0.75 + 0.833333 + 1) / 8.5
        "failing": {
            "budget/strict": (["status_code"], 0.75),
            "months/two-months": (["output"], 0.2),
            "errors/limits-are-not-json": (["stderr"], 0.5),
            "errors/no-limits": (["status_code"], 0),
            "still-accounts/each-once": (["output"], 0.5),
            "still-export/entries": (["status_code"], 0.833333),
        },
    },
    ("notes", "basics"): {
        "passes": {"Core": 3, "Functionality": 5, "Error": 2},
        "totals": {"Core": 4, "Functionality": 7, "Error": 4},
        # create: (1.5 / 1.8 + 3) / 4
        "groups": {"create": 0.958333, "delete": 0.8125, "fresh": 1, "errors": 0.625},
        "score": 0.898148,  # (2 x 0.958333 + 0.8125 + 1 + 0.5 x 0.625) / 4.5
        "failing": {
            "create/first": (["headers/location"], 0.833333),
            "delete/delete": (["status_code"], 0.75),
            "delete/number-is-not-used-again": (["headers/location"], 0.5),
            "errors/no-title": (["response"], 0.5),
            "errors/wrong-method": (["headers/allow", "status_code"], 0),
        },
    },
    ("notes", "search"): {
        "passes": {"Core": 4, "Functionality": 3, "Error": 0, "Regression": 7},
        "totals": {"Core": 6, "Functionality": 5, "Error": 2, "Regression": 10},
        # basics-create, without the case that was left out: (1.5 / 1.8 + 2) / 3
        "groups": {
            "search": 0.833333,
            "paging": 0.6,
            "errors": 0,
            "basics-create": 0.944444,
            "basics-delete": 0.8125,
            "basics-fresh": 1,
        },
        "score": 0.795741,  # (2 x 0.833333 + 0.6 + 0 + 2 x 0.944444 + 0.8125 + 1) / 7.5
        "failing": {
            "search/any-case": (["response"], 0.5),
            "search/word-and-tag": (["response"], 0.5),
            "paging/middle": (["response"], 0),
            "paging/usual-page": (["response"], 0),
            "errors/nothing-to-search": (["response", "status_code"], 0),
            "errors/limit-is-not-a-number": (["status_code"], 0),
            "basics-create/first": (["headers/location"], 0.833333),
            "basics-delete/delete": (["status_code"], 0.75),
            "basics-delete/number-is-not-used-again": (["headers/location"], 0.5),
        },
    },
}
CORE_OF_WRONG = {
    ("ledger", "totals"): "0 of 4",
    ("ledger", "budgets"): "0 of 2",
    ("notes", "basics"): "0 of 4",
    ("notes", "search"): "1 of 6",  # it finds nothing, and once there is nothing to find
}


@pytest.fixture(scope="module", autouse=True)
def _sandbox():
    try:
        find_sandbox()
    except InputError as problem:
        pytest.skip(str(problem))


@cache
def results_of(problem: str, submission: str, checkpoint: str) -> CorrectnessResults:
    """What a submission of an example scores, run once."""
    return run_checkpoint(PROBLEMS / problem, PROBLEMS / problem / "submissions" / submission, checkpoint, workers=2)


def failing(results: CorrectnessResults) -> dict[str, tuple[list[str], Any]]:
    return {
        f"{report.group}/{report.id}": (
            sorted(name for name, one in report.results.items() if one.is_correct is not True),
            pytest.approx(report.calculate_score(), abs=1e-6),
        )
        for report in results.reports
        if not report.did_pass()
    }


@pytest.mark.programs(quick=1)
@pytest.mark.parametrize(("problem", "checkpoint"), CHECKPOINTS)
def test_the_right_submission_passes_every_policy(problem, checkpoint):
    results = results_of(problem, "right", checkpoint)
    assert failing(results) == {}
    assert results.n_unverified == 0
    assert results.score() == 1.0
    for policy in PassPolicy:
        assert results.decide(policy).passed, results.decide(policy).reason


@pytest.mark.programs
@pytest.mark.parametrize(("problem", "checkpoint"), CHECKPOINTS)
def test_the_partial_submission_scores_exactly_what_its_mistakes_cost(problem, checkpoint):
    results, expected = results_of(problem, "partial", checkpoint), PARTIAL[problem, checkpoint]
    assert failing(results) == expected["failing"]
    assert {kind.value: n for kind, n in results.pass_counts.items()} == expected["passes"]
    assert {kind.value: n for kind, n in results.total_counts.items()} == expected["totals"]
    scores = {name: results.group_score(name) for name in results.group_outcomes}
    assert scores == pytest.approx(expected["groups"], abs=1e-6)
    assert results.score() == pytest.approx(expected["score"], abs=1e-6)
    assert results.infrastructure_failure is None


@pytest.mark.programs(quick=1)
@pytest.mark.parametrize(("problem", "checkpoint"), CHECKPOINTS)
def test_the_wrong_submission_fails_core_cases_and_the_reason_says_so(problem, checkpoint):
    decision = results_of(problem, "wrong", checkpoint).decide()
    assert not decision.passed
    assert decision.reason == f"core-cases: {CORE_OF_WRONG[problem, checkpoint]} core cases pass"


@pytest.mark.programs
def test_the_partial_ledger_passes_core_cases_at_the_first_checkpoint_only():
    assert results_of("ledger", "partial", "totals").decide().passed
    assert not results_of("ledger", "partial", "budgets").decide().passed


@pytest.mark.programs
@pytest.mark.parametrize(
    ("problem", "checkpoint", "origins"),
    [
        (
            "ledger",
            "budgets",
            {f"still-{group}": ("totals", group) for group in ("balance", "accounts", "export", "journal")},
        ),
        ("notes", "search", {f"basics-{group}": ("basics", group) for group in ("create", "delete", "fresh")}),
    ],
)
def test_imported_cases_say_where_they_are_from_and_others_say_nothing(problem, checkpoint, origins):
    reports = results_of(problem, "right", checkpoint).reports
    imported = [r for r in reports if r.type == "Regression"]
    assert {r.group: (r.original_checkpoint, r.original_group) for r in imported} == origins
    others = [r for r in reports if r.type != "Regression"]
    assert {(r.original_checkpoint, r.original_group) for r in others} == {(None, None)}


@pytest.mark.programs
def test_what_a_regression_excludes_is_not_there():
    ledger, notes = results_of("ledger", "right", "budgets"), results_of("notes", "right", "search")
    assert [r.id for r in ledger.reports if r.group == "still-export"] == ["entries"]
    assert "list" not in [r.id for r in notes.reports if r.group == "basics-create"]


def test_strings_stay_strings_on_disk_too(tmp_path):
    results = results_of("ledger", "right", "totals")
    results.save(tmp_path)
    read = CorrectnessResults.from_dir(tmp_path)
    assert read == results
    reports = {f"{r.group}/{r.id}": r for r in read.reports}
    assert reports["balance/total"].results["output"].actual == "1499.50\n"
    assert reports["journal/second-entry"].case["args"] == ["add", "journal.csv", "2024-05-02", "food", "-12.30"]
    assert reports["balance/total"].results["status_code"].actual == 0


def test_a_failing_attribute_says_how_it_differs():
    reports = {f"{r.group}/{r.id}": r for r in results_of("ledger", "partial", "totals").reports}
    assert "expected 0, found 3" in reports["export/entries"].results["status_code"].diff
    assert "food" in reports["accounts/each-once"].results["output"].diff


@pytest.mark.parametrize("problem", ["ledger", "notes"])
def test_an_example_has_nothing_to_complain_of(problem):
    assert lint(load_problem(PROBLEMS / problem)) == []
