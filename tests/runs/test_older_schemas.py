"""Run directories of earlier schemas open everywhere, with the numbers they had."""

from __future__ import annotations

import json

import pytest
from tests.runs import older_runs

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
