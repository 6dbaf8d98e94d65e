"""promptfoo exports: repeats by test, a set for each provider and prompt, verdicts that are verdicts."""

from __future__ import annotations

import json

import pytest
from tests.shared import LOGS, needs_shared

import kofn
from kofn.importers import read
from kofn.importers.base import ReadOptions

EXPORT = LOGS / "promptfoo_export.json"


def result(test=0, provider="openai:gpt-5", output="an echo", success=True, score=1.0, **more):
    """A result as `EvalResult.toEvaluateResult` gives it."""
    variables = {"riddle": f"riddle {more.pop('riddle', 0)}"}
    return {
        "id": f"r{test}",
        "testIdx": test,
        "promptIdx": 0,
        "promptId": "cd59d97e",
        "prompt": {"raw": f"Solve: {variables['riddle']}", "label": "Solve: {{riddle}}"},
        "provider": {"id": provider, "label": ""},
        "vars": variables,
        "testCase": {"vars": variables, "assert": [{"type": "contains", "value": "echo"}], "metadata": {"level": 2}},
        "response": {"output": output, "tokenUsage": {"prompt": 7, "completion": 3, "total": 10}, "cached": False},
        "success": success,
        "score": score,
        "namedScores": {"tone": score / 2},
        "gradingResult": {"pass": success, "score": score, "reason": "ok", "componentResults": [{"pass": success}]},
        "failureReason": 0 if success else 1,
        "error": None if success else "Expected output to contain 'echo'",
        "latencyMs": 1500,
        "cost": 0.01,
        **more,
    }


def write(path, results, shape="v3"):
    summary = {"version": 3, "timestamp": "2026-01-01T00:00:00Z", "prompts": [], "results": results, "stats": {}}
    document = {
        "v3": {"evalId": "eval-x", "results": summary, "config": {}},
        "v4": {
            "version": 4,
            "createdAt": "2026-01-01",
            "results": summary,
            "config": {},
            "author": None,
            "prompts": [],
        },
        "summary": summary,
        "v2": {"version": 2, "timestamp": "t", "results": results, "stats": {}, "table": {"head": {}, "body": []}},
    }
    if shape == "jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in results))
    else:
        path.write_text(json.dumps(document[shape], indent=2))
    return path


@needs_shared(EXPORT)
def test_the_real_export_has_two_tests_of_two_providers():
    table = read([EXPORT], ReadOptions(everything=True))
    raw = json.loads(EXPORT.read_text())["results"]["results"]
    assert (table.n_cases, table.n_candidates) == (4, 4) == (4, len(raw))
    assert table.cases["case_id"].sort().to_list() == [
        f"test {n} | openai:{model}" for n in (1, 2) for model in ("gpt-5", "gpt-5-mini")
    ]
    assert table.cases["cluster"].n_unique() == 2
    assert list(table.labels) == ["pass", "score"]
    assert table.candidates["label.pass"].to_list() == [0.0] * 4
    assert sorted(table.candidates["label.score"]) == sorted(one["score"] for one in raw)
    assert "error" not in table.candidates.columns  # a failed assertion is no error
    assert table.candidates["cost"].sum() == pytest.approx(sum(one["cost"] for one in raw))
    assert table.candidates["seconds"].sum() == pytest.approx(sum(one["latencyMs"] for one in raw) / 1000)
    assert table.candidates["tokens"].sum() == sum(one["response"]["tokenUsage"]["completion"] for one in raw)


@pytest.mark.parametrize("shape", ["v3", "v4", "summary", "v2", "jsonl"])
def test_repeats_of_a_test_are_one_set_though_each_has_a_test_index(shape, tmp_path):
    rows = [result(test=2 * r + t, riddle=t, success=(r + t) % 2 == 0, score=0.5) for r in range(3) for t in range(2)]
    rows.reverse()  # they finish in any order
    table = read([write(tmp_path / "e.json", rows, shape)])
    assert table.cases["case_id"].to_list() == ["test 2", "test 1"]
    assert table.offsets.tolist() == [0, 3, 6]
    assert table.candidates["label.pass"].to_list() == [0, 1, 0, 1, 0, 1]  # of each test in the order it was run
    assert table.candidates["label.tone"].to_list() == [0.25] * 6
    assert table.tags["level"].to_list() == [2, 2]
    assert table.origin["model"] == "openai:gpt-5"
    assert table.notes == ()
    score = kofn.score(tmp_path / "e.json", aggregate=["mean", "pass@2"], by="level")
    assert score.get("mean", metric="pass").point == 0.5
    assert score.get("mean", metric="tone").point == 0.25


def test_older_results_without_test_indices_are_grouped_by_their_variables(tmp_path):
    rows = [
        {k: v for k, v in result(riddle=r % 2).items() if k not in ("testIdx", "testCase", "promptId")}
        for r in range(4)
    ]
    assert read([write(tmp_path / "e.json", rows, "v2")]).offsets.tolist() == [0, 2, 4]


def test_providers_and_prompts_are_systems_of_their_own_and_can_be_asked_for(tmp_path):
    long = {"raw": "x", "label": "Think step by step about this. " * 20}
    rows = [result(provider="a"), result(provider="b"), result(provider="a", prompt=long, promptId="ffee00112233")]
    path = write(tmp_path / "e.json", rows)
    ids = read([path]).cases["case_id"].to_list()
    assert ids == [
        "test 1 | a | Solve: {{riddle}}",
        "test 1 | b | Solve: {{riddle}}",
        "test 1 | a | Think step by step about this. Think ste... ffee0011",
    ]
    one = read([path], ReadOptions(where={"provider": "b"}))
    assert one.cases["case_id"].to_list() == ["test 1"]


def test_tests_are_called_by_their_description_where_it_is_theirs_alone(tmp_path):
    def described(text, **more):
        one = result(**more)
        one["testCase"]["description"] = text
        return one

    rows = [described("echo", riddle=0), described("same", riddle=1), described("same", riddle=2), result(riddle=3)]
    for test, row in enumerate(rows):
        row["testIdx"] = test
    assert read([write(tmp_path / "e.json", rows)]).cases["case_id"].to_list() == ["echo", "test 2", "test 3", "test 4"]


def test_a_call_that_failed_a_grader_that_failed_and_a_test_that_asserts_nothing_are_not_graded(tmp_path):
    error = "API call error: 429"
    failed = result(0, success=False, failureReason=2, error=error, response={"error": error}, gradingResult=None)
    parts = [{"pass": False, "score": 0, "reason": "no JSON", "metadata": {"graderError": True}}]
    ungraded = result(1, success=False, gradingResult={"pass": False, "score": 0, "componentResults": parts})
    empty = result(2, gradingResult=None)
    empty["testCase"]["assert"] = []
    stripped = result(3)
    stripped["response"] |= {"output": "[output stripped]", "cached": True}
    table = read([write(tmp_path / "e.json", [failed, ungraded, result(4), stripped])])
    assert table.candidates["error"].to_list() == [error, None, None, None]
    assert table.candidates["label.pass"].to_list() == [None, None, 1.0, 1.0]
    assert table.candidates["text"].to_list() == [None, "an echo", None, "an echo"]
    assert tuple(map(str, table.notes)) == (
        "1 output failed: not graded",
        "1 output without a verdict, for the grader failed: not graded",
        "1 output stripped from the export (PROMPTFOO_STRIP_RESPONSE_OUTPUT)",
        "1 output from promptfoo's cache: time and cost are not those of a call",
    )
    notes = read([write(tmp_path / "e.json", [empty, result(3, riddle=1)])]).notes
    assert tuple(map(str, notes)) == (
        "1 output without an assertion, which promptfoo counts as passed: not graded here",
    )


def test_a_result_that_was_written_twice_counts_once(tmp_path):
    table = read([write(tmp_path / "e.json", [result(0), result(0), result(1)])])
    assert table.n_candidates == 2
    assert tuple(map(str, table.notes)) == (
        "1 row is there twice, word for word (case test 1): a resumed log? it counts once",
    )


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda rows: rows[1].pop("provider"), r"e\.json: result 2: no 'provider': expected it in every result"),
        (lambda rows: rows.insert(0, "x"), r"e\.json: result 1: expected an object, found str"),
        (lambda rows: rows.clear(), r"e\.json: no results in this promptfoo export"),
        (lambda rows: rows[0].update(score="high"), r"e\.json: result 1: label\.score: expected a finite number"),
    ],
)
def test_damaged_exports_are_refused_in_one_line(spoil, line, tmp_path):
    rows = [result(0), result(1)]
    spoil(rows)
    with pytest.raises(kofn.InputError, match=line) as problem:
        read([write(tmp_path / "e.json", rows)])
    assert "\n" not in str(problem.value)


def test_an_export_that_was_cut_off_is_said_to_be(tmp_path):
    path = write(tmp_path / "e.json", [result(0), result(1)])
    path.write_text(path.read_text()[:-300])
    with pytest.raises(kofn.InputError, match="the JSON ends too early"):
        read([path])
