"""`kofn new problem`: what it writes loads, lints clean, and is passed by the submission that comes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kofn.cli import kofn
from kofn.errors import InputError, UnknownName
from kofn.problems import load_problem, run_checkpoint
from kofn.problems.load import ADAPTERS, new_problem
from kofn.problems.problem import lint
from kofn.sandbox.drivers import find_sandbox
from kofn.scoring.configuration import PassPolicy


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_new_problem_loads_is_named_as_its_folder_and_lints_clean(adapter, tmp_path):
    made = new_problem(tmp_path / "deep" / "my-first", adapter=adapter)
    problem = load_problem(tmp_path / "deep" / "my-first")
    assert (problem.name, problem.adapter) == ("my-first", adapter)
    assert lint(problem) == []
    assert all(path.is_file() for path in made)
    assert not [path for path in made if path.suffix == ".txt" or "__NAME__" in path.read_text()]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_example_passes_every_policy(adapter, tmp_path):
    try:
        find_sandbox()
    except InputError as problem:
        pytest.skip(str(problem))
    new_problem(tmp_path / "mine", adapter=adapter)
    results = run_checkpoint(tmp_path / "mine", tmp_path / "mine" / "submissions" / "example", workers=1)
    failing = {f"{r.group}/{r.id}": r.results for r in results.reports if not r.did_pass()}
    assert failing == {}
    for policy in PassPolicy:
        assert results.decide(policy).passed, results.decide(policy).reason


@pytest.mark.parametrize("holds", ["a file", "nothing"])
def test_a_folder_that_is_there_is_refused_and_left_alone(holds, tmp_path):
    if holds == "a file":
        (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        new_problem(tmp_path)
    assert [p.read_text() for p in tmp_path.iterdir()] == (["mine"] if holds == "a file" else [])


def test_a_name_that_a_problem_cannot_have_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="'my problem' cannot name a problem"):
        new_problem(tmp_path / "my problem")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_adapter_is_refused(tmp_path):
    with pytest.raises(UnknownName, match="unknown adapter 'http'"):
        new_problem(tmp_path / "x", adapter="http")


def test_the_verb_says_what_it_made_and_what_to_try_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(kofn, ["new", "problem", "sums", "--adapter", "api"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "sums/config.yaml" in lines
    assert "sums/submissions/example/server.py" in lines
    assert lines[-2:] == ["  kofn verify sums sums/submissions/example", "  kofn verify --lint sums"]
    assert load_problem(Path("sums")).adapter == "api"


def test_the_verb_refuses_a_folder_that_is_there(tmp_path):
    done = CliRunner().invoke(kofn, ["new", "problem", str(tmp_path)])
    assert isinstance(done.exception, InputError)
