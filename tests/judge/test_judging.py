"""Runs and files judged: what is asked, what is kept, what is never paid twice, and what a failure leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.loopback import serving

import kofn
from kofn.cli import kofn as command
from kofn.errors import InputError
from kofn.generate.limits import Limits
from kofn.judge import JudgeSettings, judge, load_rubric, prefer
from kofn.scoring.configuration import GradingConfig

if TYPE_CHECKING:
    from pathlib import Path

DIGIT = {
    "name": "digit",
    "prompt": "How good is it?\n{output}",
    "scale": "0-9",
    "threshold": 5,
    "parse": r"The answer is (\d)\.",  # what the loopback server says
}


def write(path: Path, rows) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def file(tmp_path):
    """Four cases of three outputs; one case has an output twice, one a failed call."""
    rows = [{"id": f"q{i}", "input": f"say {i}", "reference": str(i), "outputs": [f"{i}", f"no {i}{j}", f"x{i}{j}"]}
            for j, i in enumerate(range(4))]  # fmt: skip
    rows[1]["outputs"] = ["same", "same", "other"]
    rows[2]["outputs"] = ["fine", {"text": None, "error": "timeout"}, "good"]
    return write(tmp_path / "out.jsonl", rows)


def settings(*models, **more):
    return JudgeSettings(models=models, limits=Limits(retries=3), **more)


def scored(run, metric):
    return next(one for one in run.result.scored if one.metric == metric)


def length_judge(prompt):
    """5 for an even number of characters in the user's message, else 2; says why."""
    return f"It has {len(prompt)} characters.\nScore: {5 if len(prompt) % 2 == 0 else 2}"


def test_a_file_becomes_a_run_with_one_metric_more_and_nothing_is_lost(file, tmp_path):
    run = judge(file, "helpfulness", settings(length_judge), out=tmp_path / "run")
    found = kofn.load_run(tmp_path / "run")
    assert [one.metric for one in found.result.scored] == [one.metric for one in run.result.scored]
    assert found.result.scored[0].metric != "helpfulness"
    values = scored(found, "helpfulness").sets.values
    assert np.isnan(values).sum() == 1  # the failed call: nobody can judge what is not there
    assert set(values[~np.isnan(values)]) <= {1.0, 0.25}
    record = found.result.judges["helpfulness"]
    assert record["n_verdicts"] == 10  # eleven outputs, two of them the same
    assert record["n_not_graded"] == 1
    notes = pl.read_parquet(tmp_path / "run" / "candidates.parquet")["note"].to_list()
    assert notes[0].startswith("helpfulness: It has")
    verdicts = pl.read_parquet(tmp_path / "run" / "verdicts.parquet")
    assert verdicts.height == 11
    assert (tmp_path / "run" / "report.html").read_text().count("Judges")


def test_judging_a_run_asks_for_no_output_and_leaves_its_verdict_as_it_was(file, tmp_path):
    runner = CliRunner()
    made = runner.invoke(command, ["score", str(file), "--out", str(tmp_path / "run"), "--verdict", "any_pass"])
    assert made.exit_code == 0, made.output
    before = kofn.load_run(tmp_path / "run")
    judge(tmp_path / "run", "helpfulness", settings(length_judge))
    after = kofn.load_run(tmp_path / "run")
    assert after.evaluation == before.evaluation
    assert after.reports.equals(before.reports)
    assert after.manifest["created"] == before.manifest["created"]
    assert {e.metric for e in after.result.estimates} == {*(e.metric for e in before.result.estimates), "helpfulness"}
    first = before.result.scored[0]
    again = scored(after, first.metric)
    np.testing.assert_array_equal(again.sets.values, first.sets.values)


def test_a_run_whose_sets_stopped_early_keeps_its_estimates(tmp_path):
    rows = [{"id": f"q{i}", "question": f"{i} + 1", "answer": str(i + 1)} for i in range(12)]
    task = {"name": "sums", "dataset": rows, "stages": [{"name": "answer", "prompt": "{question} ="}]}

    def sometimes(prompt, *, repeat):
        return str(int(prompt.split()[0]) + 1 + (repeat % 3 == 1))

    made = kofn.run(task, model=sometimes, adaptive=True, max_repeats=8, out=tmp_path / "run")
    assert len(set(made.result.scored[0].sets.sizes.tolist())) >= 1
    before = kofn.load_run(tmp_path / "run").result.estimates
    rubric = {"name": "ok", "prompt": "{output}"}
    after = judge(tmp_path / "run", rubric, settings(lambda: "Verdict: pass"))
    kept = [e for e in after.result.estimates if e.metric != "ok"]
    assert [(e.aggregator, e.point, e.low) for e in kept] == [(e.aggregator, e.point, e.low) for e in before]
    assert any("stopped when they agreed" in w for w in map(str, after.result.warnings))


def test_asking_again_pays_for_nothing_and_a_new_rubric_only_for_itself(file, tmp_path):
    with serving() as server:
        model = f"openai:m@{server.url}"
        first = judge(file, DIGIT, settings(model), out=tmp_path / "run")
        sent = len(server.requests)
        assert sent == 10
        again = judge(file, DIGIT, settings(model), out=tmp_path / "run")
        assert len(server.requests) == sent
        assert again.result.judges["digit"]["fingerprint"] == first.result.judges["digit"]["fingerprint"]
        judge(tmp_path / "run", {**DIGIT, "name": "second", "prompt": "Again: {output}"}, settings(model))
        assert len(server.requests) == 2 * sent
    found = kofn.load_run(tmp_path / "run")
    assert {"digit", "second"} <= set(found.result.judges)
    assert set(pl.read_parquet(tmp_path / "run" / "verdicts.parquet")["metric"]) == {"digit", "second"}


@pytest.mark.long(quick=1)
@pytest.mark.parametrize("fault", ["429", "500", "cut", "malformed", "drop", "html"])
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_failure_on_the_wire_is_tried_again_and_changes_no_verdict(file, tmp_path, fault, wire, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-key")
    url = {"openai": lambda s: s.url, "anthropic": lambda s: s.root}[wire]
    values = []
    for name, faults in (("good", {}), ("bad", {"*": [fault, fault]})):
        with serving(faults=faults) as server:
            run = judge(file, DIGIT, settings(f"{wire}:m@{url(server)}"), out=tmp_path / name)
            values.append(scored(run, "digit").sets.values)
            path = server.requests[0]["path"]
    assert path == {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[wire]
    np.testing.assert_array_equal(*values)
    assert not any(b"secret-key" in p.read_bytes() for p in (tmp_path / "bad").rglob("*") if p.is_file())


def test_calls_that_never_succeed_are_not_graded_and_can_be_asked_again(file, tmp_path):
    with serving(faults={"*": "500"}) as server:
        spec = settings(f"openai:m@{server.url}")
        spec = JudgeSettings(models=spec.models, limits=Limits(retries=0))
        run = judge(file, DIGIT, spec, out=tmp_path / "run")
        assert np.isnan(scored(run, "digit").sets.values).all()
        assert run.result.judges["digit"]["n_failed"] == 10
        assert any("calls failed" in w for w in map(str, run.result.warnings))
        server.faults.clear()
        again = judge(tmp_path / "run", DIGIT, JudgeSettings(models=spec.models, retry_errors=True))
    assert np.isnan(scored(again, "digit").sets.values).sum() == 1


def test_a_reply_without_a_verdict_gets_one_repair_and_is_then_not_graded(file, tmp_path):
    sent = []

    def stubborn(*, request):
        messages = request.prompt
        sent.append(messages)
        if "say 0" in messages[1].content:
            return "Score: 4" if len(messages) > 2 else "I like it."
        return "Hard to say." if "say 1" in messages[1].content else "Score: 1"

    run = judge(file, "helpfulness", settings(stubborn), out=tmp_path / "run")
    values = scored(run, "helpfulness").sets.values
    assert values[:3].tolist() == [0.75] * 3
    assert np.isnan(values[3:6]).all()  # never 0
    record = run.result.judges["helpfulness"]
    assert (record["n_repaired"], record["n_not_graded"]) == (3, 4)
    assert max(sum(p[1] == q[1] for q in sent) for p in sent) == 2  # one repair, not two
    mean = run.result.get("mean", metric="helpfulness")
    assert mean.n == 3
    assert mean.n_missing == 1


def test_repeats_give_the_mean_and_the_share_of_the_judge(file, tmp_path):
    with serving() as server:
        spec = settings(f"openai:m@{server.url}", repeats=4, temperature=0.7)
        run = judge(file, DIGIT, spec, out=tmp_path / "run")
    frame = pl.read_parquet(tmp_path / "run" / "verdicts.parquet")
    by_hand = frame.group_by("case_id", "index", maintain_order=True).agg(pl.col("score").mean())["score"].to_numpy()
    values = scored(run, "digit").sets.values
    np.testing.assert_allclose(values[~np.isnan(values)], by_hand)
    shares = run.result.judges["digit"]["variance"]["shares"]
    assert shares.keys() == {"case", "candidate", "judge"}
    assert sum(shares.values()) == pytest.approx(1)


def test_of_several_verdicts_pass_or_fail_more_than_half_decide(file, tmp_path):
    def often(*, repeat):
        return "Verdict: fail" if repeat == 0 else "Verdict: pass"

    rubric = {"name": "ok", "prompt": "{output}", "temperature": 0.7}
    run = judge(file, rubric, settings(often, repeats=3), out=tmp_path / "run")
    sets = scored(run, "ok").sets
    assert sets.values[0] == pytest.approx(2 / 3)
    assert set(sets.passes.tolist()) == {1, -1}


def test_a_panel_has_its_members_its_score_and_their_rates(file, tmp_path):
    def strict(prompt):
        return "Verdict: pass" if "fine" in prompt else "Verdict: fail"

    def kind(prompt):
        return "Verdict: fail" if "other" in prompt else "Verdict: pass"

    def third(prompt):
        return kind(prompt)

    rubric = {"name": "ok", "prompt": "{output}"}
    run = judge(file, rubric, settings(strict, kind, third, panel="vote"), out=tmp_path / "run")
    names = [one.metric for one in run.result.scored]
    assert names[1] == "ok"
    assert len(names) == 5
    values = scored(run, "ok").sets.values
    assert values[5] == 0  # "other": nobody passes it
    assert values[6] == 1  # "fine": all three
    assert values[0] == pytest.approx(2 / 3)
    panel = run.result.judges["ok"]["panel"]
    assert set(panel["judges"]) == {n for n in names if n.startswith("ok.")}
    with pytest.raises(InputError, match="is there twice"):
        judge(file, rubric, settings(kind, kind), out=tmp_path / "other")


def test_the_same_judge_that_picks_and_grades_is_told_everywhere_and_refused_by_strict(file, tmp_path):
    runner = CliRunner()
    (tmp_path / "fakes_for_judging.py").write_text("def one(prompt):\n    return f'Score: {1 + len(prompt) % 5}'\n")
    import sys

    sys.path.insert(0, str(tmp_path))
    try:
        args = ["judge", str(file), "--rubric", "helpfulness", "-m", "fake:fakes_for_judging:one", "-a", "selected"]
        done = runner.invoke(command, [*args, "--out", str(tmp_path / "run"), "--strict"])
    finally:
        sys.path.remove(str(tmp_path))
    assert done.exit_code == 1
    assert "double-dipping" in done.stdout
    assert "double-dipping" in (tmp_path / "run" / "report.html").read_text()
    record = json.loads(runner.invoke(command, ["report", str(tmp_path / "run"), "--json"]).stdout)
    assert any("double-dipping" in w for w in record["warnings"])
    assert next(line for line in record["checklist"] if "apart" in line["item"])["answer"] == "no"
    assert runner.invoke(command, ["report", str(tmp_path / "run"), "--strict"]).exit_code == 1
    assert runner.invoke(command, ["report", str(tmp_path / "run")]).exit_code == 0


def test_the_same_model_with_another_prompt_is_flagged_and_another_model_is_not(file, tmp_path):
    def other(prompt):
        return "Verdict: pass"

    judge(file, "helpfulness", settings(length_judge), out=tmp_path / "run")
    rubric = {"name": "short", "prompt": "Is it short?\n{output}", "scale": "1-5", "threshold": 3}
    options = GradingConfig(aggregate=("selected(by='helpfulness')",))
    same = judge(tmp_path / "run", rubric, settings(length_judge), options=options)
    flagged = [w for w in map(str, same.result.double_dipping) if "under short" in w]
    assert flagged
    assert "with another prompt" in flagged[0]
    plain = {**rubric, "scale": "pass/fail", "threshold": None}
    with pytest.raises(InputError, match=r"short is there already, by .*: give --name"):
        judge(tmp_path / "run", plain, settings(other), options=options)
    apart = judge(tmp_path / "run", plain, settings(other, replace=True), options=options)
    assert not [w for w in map(str, apart.result.double_dipping) if "under short" in w]


def test_a_rubric_that_asks_for_what_is_not_there_is_refused_before_anything_is_asked(file, tmp_path):
    def never(prompt):
        raise AssertionError

    with pytest.raises(InputError, match=r"asks for \{source\} and its cases have none: there is input, reference"):
        judge(file, "faithfulness", settings(never), out=tmp_path / "run")
    for bad in ("any_pas", "selected(by='nobody')", "pass@50"):
        with pytest.raises(InputError, match=r"any_pas|nobody|largest set has 3"):
            judge(file, "helpfulness", settings(never), out=tmp_path / "run", options=GradingConfig(aggregate=(bad,)))
    with pytest.raises(InputError, match="already there"):
        judge(file, "helpfulness", settings(never), out=file.parent)
    with pytest.raises(InputError, match="judged in place"):
        judge(tmp_path, "helpfulness", settings(never), out=tmp_path / "x")


def test_a_part_of_a_run_is_not_written_over_the_whole(file, tmp_path):
    from kofn.scoring.splits import Split

    judge(file, "helpfulness", settings(length_judge), out=tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").glob("*.parquet")}
    for options in (GradingConfig(split=Split(part="test")), GradingConfig(top_k=1)):
        with pytest.raises(InputError, match="judged as a whole"):
            judge(tmp_path / "run", DIGIT, settings(length_judge), options=options)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").glob("*.parquet")} == before


def test_a_field_of_the_case_fills_a_gap(tmp_path):
    rows = [{"id": "a", "source": "The sky is green.", "outputs": ["It is green.", "It is blue."]}]
    seen = []

    def judge_of(prompt):
        seen.append(prompt)
        return "Verdict: fail" if "blue" in prompt else "Verdict: pass"

    run = judge(write(tmp_path / "f.jsonl", rows), "faithfulness", settings(judge_of), out=tmp_path / "run")
    assert all("The sky is green." in text for text in seen)
    assert run.result.get("mean", metric="faithfulness").point == 0.5
    graded_by = kofn.load_run(tmp_path / "run").reports["results"][0][0]["attribute"]
    assert graded_by == "faithfulness"  # nothing else does


def test_a_tournament_shows_every_pair_both_ways_and_averages_the_place_away(file, tmp_path):
    def first(prompt):
        return "Verdict: A"

    run = judge(file, "preference", settings(first), out=tmp_path / "run")
    record = run.result.judges["preference"]
    assert record["position"]["first_shown"]["point"] == 1.0
    assert record["position"]["consistent"]["point"] == 0.0
    scores = run.result.scored[0].sets.selectors["preference"]
    assert set(scores[~np.isnan(scores)]) == {0.5}
    assert record["position"]["n"] == 9  # of four cases: too few for an interval that tells, and so for a warning
    assert not any(one.metric == "preference" for one in run.result.scored)  # a rank is no grade


def test_a_tournament_ranks_by_the_text_where_the_judge_does(file, tmp_path):
    def longer(prompt):
        parts = prompt.split("----")
        a, b = parts[2], parts[6]
        return "Verdict: A" if (len(a), a) > (len(b), b) else "Verdict: B"

    run = judge(
        file, "preference", settings(longer), out=tmp_path / "run", options=GradingConfig(aggregate=("selected",))
    )
    scores = run.result.scored[0].sets.selectors["preference"]
    assert scores[:3].tolist() == [0.0, 1.0, 0.5]  # "0", "no 00", "x00"
    assert scores[3:6].tolist() == [0.25, 0.25, 1.0]  # equal texts tie
    assert run.result.judges["preference"]["position"]["consistent"]["point"] == 1.0


def test_one_system_against_another_has_a_rate_over_cases_and_its_p(tmp_path):
    cases = [f"q{i}" for i in range(12)]
    a = write(tmp_path / "a.jsonl", [{"id": c, "input": c, "outputs": ["good", "good"]} for c in [*cases, "only a"]])
    b = write(tmp_path / "b.jsonl", [{"id": c, "input": c, "outputs": ["bad", "good"]} for c in cases])

    def taste(prompt):
        return "Verdict: A" if prompt.index("good") < prompt.index("bad") else "Verdict: B"

    found = prefer(a, b, "preference", settings(taste), out=tmp_path / "kept")
    assert found.rate.point == 0.75  # one pair won, one of equal texts
    assert found.only_a == ("only a",)
    html = found._repr_html_()
    assert "a is preferred to b in 0.750" in html
    assert "one half is a tie" in html
    assert found.p == pytest.approx(2 / 2**12)
    other = prefer(b, a, "preference", settings(taste), out=tmp_path / "kept")
    assert other.rate.point == 0.25
    with pytest.raises(InputError, match="one output at a time"):
        prefer(a, b, "helpfulness", settings(taste), out=tmp_path / "kept")


def test_a_budget_stops_the_judging_and_the_same_command_goes_on(file, tmp_path):
    with serving() as server:
        model = f"openai:m@{server.url}"
        few = JudgeSettings(models=(model,), limits=Limits(token_budget=40, concurrency=1))
        run = judge(file, DIGIT, few, out=tmp_path / "run")
        assert run.result.judges["digit"]["stopped"]
        sent = len(server.requests)
        assert sent < 10
        whole = judge(file, DIGIT, settings(model), out=tmp_path / "run")
        assert len(server.requests) == 10
    assert whole.result.judges["digit"]["stopped"] is None
    assert np.isnan(scored(whole, "digit").sets.values).sum() == 1


def test_model_output_is_escaped_wherever_a_verdict_is_shown(file, tmp_path):
    def hostile(prompt):
        return "<script>alert(1)</script>\x1b[31m\nScore: 5"

    judge(file, "helpfulness", settings(hostile), out=tmp_path / "run")
    assert "<script>alert(1)" not in (tmp_path / "run" / "report.html").read_text()
    html = CliRunner().invoke(command, ["report", str(tmp_path / "run"), "--detailed"]).stdout
    assert "\x1b" not in html


@pytest.mark.model
def test_the_embedded_model_judges_for_real_on_loopback(embedded_server, tmp_path):
    rows = [
        {
            "id": "capital",
            "input": "What is the capital of France?",
            "reference": "Paris",
            "outputs": ["Paris.", "Rome."],
        },
        {"id": "sum", "input": "What is 2 + 2?", "reference": "4", "outputs": ["4", "It is 5."]},
    ]
    file = write(tmp_path / "f.jsonl", rows)
    spec = settings(f"openai:smollm2@{embedded_server}/v1", repeats=2, temperature=0.7, max_tokens=80)
    run = judge(file, "helpfulness", spec, out=tmp_path / "run")
    record = run.result.judges["helpfulness"]
    assert record["n_verdicts"] == 8
    assert record["n_failed"] == 0
    assert record["tokens_out"] > 0
    verdicts = pl.read_parquet(tmp_path / "run" / "verdicts.parquet")
    assert verdicts["text"].null_count() == 0  # whatever a very small model says is kept
    graded = scored(run, "helpfulness").sets.values
    assert ((graded >= 0) & (graded <= 1) | np.isnan(graded)).all()
    rubric = load_rubric("helpfulness")
    again = judge(tmp_path / "run", rubric, spec)
    np.testing.assert_array_equal(scored(again, "helpfulness").sets.values, graded)
