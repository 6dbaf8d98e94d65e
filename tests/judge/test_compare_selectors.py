"""Picks of a judge compared with others on a judged run: apart from the evaluator, or double-dipping."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kofn.cli.analysis_verbs import compare_command as command
from kofn.judge import JudgeSettings, judge

TOO_FEW = 2  # what --strict exits with: the run has fewer than ten cases


def by_length(prompt):
    return f"Score: {1 + len(prompt) % 5}"


def by_sum(prompt):
    return f"Score: {1 + sum(map(ord, prompt)) % 5}"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run with a metric against references and three judges' metrics, two of them of one model."""
    folder = tmp_path_factory.mktemp("judged")
    rows = [
        {
            "id": f"q{i}",
            "input": f"say {i}",
            "reference": str(i),
            "outputs": [f"{i + j % 2} {'so ' * (i * j % 7)}" for j in range(4)],
        }
        for i in range(12)
    ]
    path = folder / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge(path, "helpfulness", JudgeSettings(models=(by_length,), name="taste"), out=folder / "run")
    judge(folder / "run", "correctness", JudgeSettings(models=(by_length,), name="again"))
    judge(folder / "run", "correctness", JudgeSettings(models=(by_sum,), name="other"))
    return folder / "run"


def compare_json(*args):
    done = CliRunner().invoke(command, [*map(str, args), "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_a_judge_picks_and_references_grade(judged):
    code, found = compare_json(judged, "--selectors", "first", "taste", "--evaluator", "numeric", "--strict")
    assert code == 0
    assert [s["selector"]["by"] for s in found["selectors"]] == ["first", "taste"]
    assert not any("double-dipping" in w for w in found["warnings"])
    assert any("not corrected for its errors" in w for w in found["warnings"])


@pytest.mark.parametrize(
    ("evaluator", "fault"), [("taste", "graded by it"), ("again", "the same model"), ("other", None)]
)
def test_the_judge_that_picks_may_not_grade_nor_may_its_model(judged, evaluator, fault):
    code, found = compare_json(judged, "--selectors", "first", "taste", "--evaluator", evaluator, "--strict")
    said = [w for w in found["warnings"] if "double-dipping" in w]
    assert code == (1 if fault else TOO_FEW)
    assert [fault in w for w in said] == ([True] if fault else [])


def test_a_selector_file_that_names_the_evaluators_model_is_double_dipping(judged, tmp_path):
    import kofn

    (model,) = kofn.load_run(judged).result.judges["other"]["models"]
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({"by": "taste", "model": model}))
    assert compare_json(judged, "--selectors", "first", path, "--evaluator", "other", "--strict")[0] == 1
    assert compare_json(judged, "--selectors", "first", path, "--evaluator", "numeric", "--strict")[0] == 0
