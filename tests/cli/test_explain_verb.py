"""`kofn explain CODE`, and `kofn check --fail-on CODE`, which takes the same codes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.runs import older_runs

from kofn.cli import kofn
from kofn.core.warnings import warning_kinds
from kofn.errors import UnknownName


def run(*arguments, **options):
    return CliRunner().invoke(kofn, list(map(str, arguments)), **options)


def test_every_code_is_listed():
    listed = run("explain").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(warning_kinds())


def test_a_code_is_explained():
    shown = " ".join(run("explain", "few-cases").stdout.split())
    assert shown.startswith("few-cases warning: ")
    assert warning_kinds()["few-cases"].explanation in shown
    (entry,) = json.loads(run("explain", "few-cases", "--json").stdout)["warnings"]
    assert entry == {
        "code": "few-cases",
        "severity": "warning",
        "explanation": warning_kinds()["few-cases"].explanation,
    }


@pytest.mark.parametrize("command", [("explain", "few-case"), ("check", "RUN", "--fail-on", "few-case")])
def test_an_unknown_code_is_one_line_with_the_nearest(command, stored):
    found = run(*(stored if one == "RUN" else one for one in command))
    assert isinstance(found.exception, UnknownName)
    near = "few-cases or few-labels or different-cases"
    assert str(found.exception) == f"unknown warning 'few-case': did you mean {near}?"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("warned")
    rows = [{"id": str(i), "outputs": ["1", "1"], "reference": "1"} for i in range(4)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("score", folder / "rows.jsonl", "--out", folder / "run").exit_code == 0
    return folder / "run"


def test_a_run_is_checked_for_a_warning(stored):
    codes = [one["code"] for one in json.loads((stored / "run.json").read_text())["result"]["coded_warnings"]]
    assert "few-cases" in codes
    failed = run("check", stored, "--fail-on", "few-cases", "--fail-on", "no-answer-found")
    assert failed.exit_code == 1
    assert "✗ no warning few-cases: only 4 cases: intervals over so few are rough" in failed.stdout
    assert "✓ no warning no-answer-found: there is none" in failed.stdout
    assert run("check", stored, "--fail-on", "no-answer-found").exit_code == 0


def test_a_run_older_than_the_codes_is_checked_by_its_sentences(tmp_path):
    old = older_runs.unpack(2, tmp_path) / "scored"
    assert "coded_warnings" not in json.loads((old / "run.json").read_text())["result"]
    found = run("check", old, *(f"--fail-on={code}" for code in ("few-cases", "tied-votes", "double-dipping")))
    assert [line[:1] for line in found.stdout.splitlines()[1:] if "no warning" in line] == ["✗", "✗", "✓"]
