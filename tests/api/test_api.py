"""The Python API: one function per verb, which takes what people have and returns what they can use."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner

import kofn
from kofn.cli import kofn as program
from kofn.errors import InputError, UnknownName

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = [
    {
        "id": f"q{i}",
        "input": "2 + 2",
        "reference": "4",
        "kind": "x" if i % 2 else "y",
        "outputs": ["5", "4", "It is 4."],
    }
    for i in range(12)
]
OTHER = [{**row, "outputs": ["4", "4", "5"]} for row in ROWS]
LONG = [{"id": row["id"], "reference": "4", "output": text} for row in ROWS for text in row["outputs"]]
VERBS = ("run", "score", "compare", "curve", "check", "plan", "judge", "calibrate", "trend", "verify")


def answer(prompt):
    return "It is 4. Verdict: pass"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run of the rows, as a directory."""
    folder = tmp_path_factory.mktemp("api")
    kofn.score(ROWS, out=folder / "run", by="kind")
    return folder / "run"


def results(stored):
    """One result of every function."""
    return {
        "run": kofn.run("starter", model=answer, limit=2, repeats=2),
        "score": kofn.score(ROWS),
        "compare": kofn.compare({"a": ROWS, "b": OTHER}),
        "curve": kofn.curve(ROWS),
        "check": kofn.check(ROWS, require="any_pass >= 0.5"),
        "plan": kofn.plan(ROWS, width=0.1),
        "judge": kofn.judge(ROWS, rubric="correctness", model=answer),
        "calibrate": kofn.calibrate(EXAMPLES / "labels.csv", apply=EXAMPLES / "judged.jsonl"),
        "trend": kofn.trend(stored),
        "load_run": kofn.load_run(stored),
    }


def test_every_result_prints_as_a_table_and_becomes_plain_data_and_frames(stored):
    for name, found in results(stored).items():
        assert str(found) == repr(found)
        assert len(str(found).splitlines()) > 1, name
        assert "\x1b" not in str(found)
        data = found.to_dict()
        assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data)), name
        frame, other = found.to_polars(), found.to_pandas()
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(other, pd.DataFrame)
        assert frame.columns == list(other.columns)
        assert len(frame) == len(other) == len(found.rows()) > 0, name
        assert found._repr_html_().startswith('<div class="kofn">'), name
        assert "|---" in found.to_markdown(), name


@pytest.mark.parametrize(
    ("function", "args", "verb"),
    [
        (lambda _: kofn.score(EXAMPLES / "arithmetic.jsonl", by="kind"), ["--by", "kind"], "score"),
        (lambda run: kofn.curve(run, extend=6), ["--extend", "6"], "curve"),
        (lambda run: kofn.check(run, require=["any_pass >= 0.5"]), ["--require", "any_pass >= 0.5"], "check"),
        (lambda run: kofn.plan(run, width=0.05), ["--width", "0.05"], "plan"),
        (lambda run: kofn.trend(run), [], "trend"),
        (lambda run: kofn.compare(run, selectors=["first", "vote"]), ["--selectors", "first", "vote"], "compare"),
        (lambda run: kofn.load_run(run), [], "report"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_result_prints_what_its_verb_shows(function, args, verb, stored):
    source = str(EXAMPLES / "arithmetic.jsonl") if verb == "score" else str(stored)
    shown = CliRunner().invoke(program, [verb, source, *args]).stdout
    assert shown.rstrip("\n") == str(function(stored)).rstrip("\n")


@pytest.mark.parametrize("verb", ["score", "curve", "plan", "check", "compare"])
def test_paths_rows_frames_and_loaded_runs_give_the_same_numbers(verb, stored, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in LONG))
    sources = [path, str(path), LONG, pl.DataFrame(LONG), pl.DataFrame(LONG).lazy(), pd.DataFrame(LONG)]
    sources += [kofn.score(LONG)] if verb not in ("score", "check") else []
    function, options = {
        "score": (kofn.score, {}),
        "curve": (kofn.curve, {}),
        "plan": (kofn.plan, {"width": 0.1}),
        "check": (kofn.check, {"require": "any_pass >= 0.5"}),
        "compare": (lambda data, **more: kofn.compare({"a": data, "b": OTHER}, **more), {}),
    }[verb]
    first, *others = [function(source, **options).rows() for source in sources]
    assert all(rows == first for rows in others)
    run = kofn.load_run(stored)
    assert function(run, **options).rows() == function(stored, **options).rows()


def test_an_unknown_option_is_one_line_with_the_nearest():
    for name in VERBS:
        function = getattr(kofn, name)
        with pytest.raises(UnknownName, match="unknown option 'alpah'") as caught:
            function("nothing", alpah=1)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnknownName, match="did you mean threshold"):
        kofn.score(ROWS, treshold=1)


def test_options_that_do_not_go_together_are_named_as_keywords():
    with pytest.raises(InputError, match=r"^sequential says how max_latency is counted: give max_latency too$"):
        kofn.curve(ROWS, sequential=True)


def test_values_out_of_range_and_unknown_choices_are_refused():
    with pytest.raises(InputError, match="top_k is 0: expected a whole number from 1"):
        kofn.score(ROWS, top_k=0)
    with pytest.raises(UnknownName, match="unknown measure 'anny': did you mean any"):
        kofn.curve(ROWS, measure="anny")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: kofn.score(ROWS, threshold="high"), "threshold is 'high': expected a number"),
        (lambda: kofn.score(ROWS, where="kind=x"), "where is 'kind=x': expected a mapping"),
        (lambda: kofn.score(3), "expected a path, rows or a frame, not int"),
        (lambda: kofn.calibrate(3), "expected a path, rows or a frame, not int"),
        (
            lambda: kofn.judge({"id": 1}, rubric="correctness", model=answer),
            "expected a path, rows or a frame, not dict",
        ),
        (lambda: kofn.trend(), "nothing to follow: give run directories, or one that holds some"),
    ],
    ids=["threshold", "where", "score", "calibrate", "judge", "trend"],
)
def test_what_cannot_be_meant_is_one_line(call, said):
    with pytest.raises(InputError, match=f"^{said}$"):
        call()


def test_a_run_that_is_graded_again_says_which_verdicts_change(stored, tmp_path):
    again = kofn.score(stored, extract="last_line", metric="exact_match", out=tmp_path / "again")
    assert again.parent["name"] == "run"
    assert again.parent["changes"][0]["n"] == 36
    assert "graded again from run" in str(again)
    assert kofn.load_run(tmp_path / "again").manifest["parent"]["name"] == "run"


def test_a_run_made_of_rows_has_the_options_it_was_made_with(tmp_path):
    shape = {"task": "sums", "group": "kind", "group_weight": {"x": 2}, "verdict": "mean >= 0.5"}
    kofn.score(ROWS, out=tmp_path / "run", tag="night", **shape)
    run = kofn.load_run(tmp_path / "run")
    assert run.task == "sums"
    assert run.manifest["tags"] == ["night"]
    assert {name: group.weight for name, group in run.evaluation.group_outcomes.items()} == {"x": 2.0, "y": 1.0}
    with pytest.raises(InputError, match="group shapes the run directory: give out DIR too"):
        kofn.score(ROWS, group="kind")


def test_judging_rows_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = kofn.judge(ROWS[:2], rubric="correctness", model=answer)
    assert found.result.get("mean", metric="correctness").point == 1.0
    assert list(tmp_path.iterdir()) == []
    kept = kofn.judge(ROWS[:2], rubric="correctness", model=answer, out="judged")
    assert kofn.load_run("judged").result.judges == kept.result.judges


def test_a_result_of_score_is_judged_with_its_grades(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scored = kofn.score(ROWS[:2])
    found = kofn.judge(scored, rubric="correctness", model=answer)
    assert found.path is None
    assert found.result.get("mean", metric="correctness").point == 1.0
    assert found.result.get("mean", metric="numeric") == scored.get("mean")
    assert list(tmp_path.iterdir()) == []
    assert kofn.judge(scored, rubric="correctness", model=answer, out="judged").path == Path("judged")


def test_rows_that_are_compared_by_a_judge_have_names_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"rubric": "preference", "model": lambda _: "Verdict: A"}
    found = kofn.judge(ROWS, against=OTHER, **options)
    assert (found.name_a, found.name_b) == ("rows 1", "rows 2")
    assert list(tmp_path.iterdir()) == []
    assert kofn.judge(kofn.score(ROWS), against=OTHER, **options).to_dict()["wins"] == found.to_dict()["wins"]


def test_a_judge_that_cannot_read_rows_names_them_and_no_file():
    with pytest.raises(InputError, match=r"^rows: rubric correctness asks for \{input\}"):
        kofn.judge(pd.DataFrame(LONG), rubric="correctness", model=answer)


def test_labels_of_rows_and_frames_are_those_of_a_file(tmp_path):
    labels = [{"id": f"q{i}", "human": i % 3 > 0, "judge": i % 4 > 0} for i in range(60)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    found = kofn.calibrate(tmp_path / "labels.jsonl").to_dict()
    assert kofn.calibrate(labels).to_dict() == found
    assert kofn.calibrate(pl.DataFrame(labels)).to_dict() == found
    assert kofn.calibrate(pd.DataFrame(labels)).to_dict() == found


def test_pandas_is_asked_for_in_one_line_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InputError, match=r"^to_pandas\(\) needs pandas: pip install pandas$"):
        kofn.score(ROWS).to_pandas()


def test_kofn_judge_is_the_function_and_the_package():
    import kofn.judge.client as client

    assert client.__name__ == "kofn.judge.client"
    assert kofn.judge.client is client
    assert kofn.judge.__wrapped__.__name__ == "judge"


# where a loop is running


def test_every_function_can_be_awaited_and_gives_the_same():
    async def both():
        return await asyncio.gather(kofn.ascore(ROWS), kofn.acompare({"a": ROWS, "b": OTHER}))

    score, compared = asyncio.run(both())
    assert score.rows() == kofn.score(ROWS).rows()
    assert compared.rows() == kofn.compare({"a": ROWS, "b": OTHER}).rows()
    assert all(asyncio.iscoroutinefunction(getattr(kofn, f"a{name}")) for name in VERBS)


def test_the_loop_goes_on_while_a_run_is_made_and_the_plain_functions_work_inside_one():
    ticks, seen = [], []

    async def ticking():
        running = asyncio.ensure_future(kofn.arun("starter", model=patient, limit=2, repeats=2))
        while not running.done():
            await asyncio.sleep(0.01)
            ticks.append(1)
        return running.result(), kofn.run("starter", model=answer, limit=1)

    async def patient(prompt):
        before = len(ticks)
        for _ in range(1000):  # bounded: where the loop stands still there is no tick to wait for
            if len(ticks) - before > 3:
                break
            await asyncio.sleep(0.01)
        seen.append(len(ticks) - before)
        return "4"

    run, inside = asyncio.run(ticking())
    assert len(seen) == 4
    assert min(seen) > 3
    assert run.result.n_candidates == 4
    assert inside.result.n_cases == 1


def test_cancelling_a_run_stops_its_calls_and_keeps_what_was_answered(tmp_path):
    calls, waits = [], [True]

    async def stuck(prompt):
        calls.append(prompt)
        if len(calls) > 1 and waits:
            await asyncio.sleep(60)
        return "4"

    async def cancelled():
        running = asyncio.ensure_future(
            kofn.arun("starter", model=stuck, limit=2, repeats=2, concurrency=1, out=tmp_path / "run")
        )
        while len(calls) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    waits.clear()
    n = len(calls)
    done = kofn.run("starter", model=stuck, limit=2, repeats=2, out=tmp_path / "run")
    assert done.result.n_candidates == 4
    assert len(calls) - n == 3  # the first was answered before


def test_lists_that_pandas_reads_from_parquet_are_rows(tmp_path):
    """They are arrays of numpy there, of mappings too."""
    rows = [{"id": f"q{i}", "outputs": [{"text": "1", "pass": 1}, {"text": str(i), "pass": 0}]} for i in range(3)]
    pl.DataFrame(rows).write_parquet(tmp_path / "rows.parquet")
    found, plain = kofn.score(pd.read_parquet(tmp_path / "rows.parquet")), kofn.score(rows)
    assert found.to_dict()["estimates"] == plain.to_dict()["estimates"]


@pytest.mark.parametrize("given", [[{"task_id": "a"}], pl.DataFrame({"task_id": ["a"]})])
def test_programs_are_given_by_their_paths(given):
    with pytest.raises(InputError, match=r"^expected paths of a problem and of submissions, not (list|DataFrame)$"):
        kofn.verify(given)


def test_several_files_to_judge_are_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^expected one run or file, not 2$"):
        kofn.judge([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], rubric="correctness", model="fake:nowhere")
