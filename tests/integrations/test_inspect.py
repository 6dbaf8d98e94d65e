"""The real Inspect, on its mock model: kofn reads what it writes and reports what it reports, and the other way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from tests.peers import needs_peer, run_peer

import kofn
from kofn.exporters.inspect_log import write
from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.runs.load import load_graded

SCRIPT = Path(__file__).with_name("inspect_run.py.txt")  # not .py: only the peers can import it
RULES = {  # Inspect's reducer -> ours
    "mean": "mean",
    "kofn/mean": "mean",
    "pass_at_2": "pass@2",
    "kofn/pass_at_2": "pass@2",
    "kofn/pass_at_4": "pass@4",
    "kofn/pass_hat_3": "pass^3",
    "kofn/at_least_2": "at_least(m=2)",
    "kofn/median": "median",
    "kofn/majority": "majority",
    "kofn/majority_ties_shared": "majority(ties='shared')",
}

pytestmark = [pytest.mark.peers, needs_peer("inspect_ai")]


@pytest.fixture(scope="module", params=["eval", pytest.param("json", marks=pytest.mark.slow)])
def made(request, tmp_path_factory):
    """A log of 7 samples x 4 epochs, one of which failed, and what Inspect says of it."""
    folder = tmp_path_factory.mktemp("inspect")
    (log,) = run(folder, request.param)
    return log


def run(folder, *arguments):
    """What the script prints of the logs it makes in a folder."""
    script = folder / "inspect_run.py"
    script.write_text(SCRIPT.read_text())
    return json.loads(run_peer(script, folder, *arguments, cwd=folder).splitlines()[-1])


def test_a_log_of_the_real_tool_is_read_whole(made):
    table = read([made["location"]], ReadOptions(everything=True))
    assert (table.n_cases, table.n_candidates) == (7, 28)
    assert table.cases["case_id"].to_list() == [str(i) for i in range(1, 8)]
    assert list(table.labels) == ["match", "includes", "parts.length", "parts.polite", "some"]
    missing = {name: table.candidates[f"label.{name}"].null_count() for name in table.labels}
    assert missing == {"match": 1, "includes": 1, "parts.length": 1, "parts.polite": 1, "some": 14}
    assert table.candidates["error"].drop_nulls().to_list() == ["ValueError('boom')"]
    assert table.candidates["text"].null_count() == table.candidates["reasoning"].null_count() == 1
    assert table.candidates.select("tokens", "tokens_in", "cost").drop_nulls().unique().rows() == [(3.0, 15.0, 0.01)]
    assert table.candidates["seconds"].null_count() == 0
    assert table.cases["input"][0] == "2+2? (1)"
    assert table.tags["level"].to_list() == [1, 0, 1, 0, 1, 0, 1]
    assert table.origin["model"] == "mockllm/model"
    assert tuple(map(str, table.notes)) == ("1 of 28 samples failed (ValueError('boom')): not graded",)


def test_kofns_numbers_are_those_that_inspect_reports(made):
    result = kofn.score(made["location"], aggregate=list(dict.fromkeys(RULES.values())))
    checked = set()
    for scorer, name, reducer, value, n, missing in made["scores"]:
        metric = scorer if scorer == name else f"{scorer}.{name}"
        if "majority" in reducer and scorer != "match":
            continue  # kofn votes on the answers of one scorer, Inspect's reducer on those of each
        estimate = result.get(RULES[reducer], metric=metric)
        assert estimate.point == (None if value is None else pytest.approx(value, abs=1e-12)), (metric, reducer)
        assert (estimate.n, estimate.n_missing) == (n, missing), (metric, reducer)
        checked.add((metric, reducer))
    assert len(checked) == 5 * 8 + 2
    assert result.get("pass@4", metric="match").n_missing == 1  # undefined: one of its four samples failed
    assert result.get("majority", metric="match").point not in (0.0, 1.0)


def test_chunked_samples_of_the_real_tool_read_the_same(made):
    path = Path(made["location"])
    chunked = path.parent / "chunked" / path.name
    if path.suffix != ".eval":
        pytest.skip("only .eval logs are chunked")
    whole, again = (read([one], ReadOptions(everything=True)) for one in (path, chunked))
    assert_frame_equal(again.candidates, whole.candidates)
    assert_frame_equal(again.cases, whole.cases)
    assert_frame_equal(again.tags, whole.tags)


def test_a_log_that_is_written_back_is_read_by_both(made, tmp_path):
    found = load_graded(made["location"])
    assert write(found, tmp_path / "back.json") == []
    back = load_graded(tmp_path / "back.json")
    assert_frame_equal(back.table.candidates, found.table.candidates, check_column_order=False)
    assert_frame_equal(back.table.cases, found.table.cases)
    assert_frame_equal(back.table.tags, found.table.tags)
    assert back.table.labels == found.table.labels
    assert {(e.metric, e.aggregator): e.point for e in back.result.estimates} == {
        (e.metric, e.aggregator): e.point for e in found.result.estimates
    }
    code = f"""
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log({str(tmp_path / "back.json")!r})
assert (log.status, log.version, log.eval.model, log.eval.config.epochs) == ("success", 2, "mockllm/model", 4)
assert len(log.samples) == 28 == len(read_eval_log_sample_summaries({str(tmp_path / "back.json")!r}))
one = log.samples[0]
assert (one.id, one.epoch, one.target, one.error, one.metadata) == ("1", 1, "4", None, {{"level": 1}}), one
assert one.output.completion and one.output.message.content[0].reasoning == "hm"
assert sum(s.error is not None for s in log.samples) == 1
print(log.results.scores[0].reducer, log.results.scores[0].metrics["mean"].value)
"""
    reducer, value = run_peer("-c", code).split()
    assert reducer == "mean"
    assert float(value) == found.result.get("mean", metric="match").point


def test_a_run_that_was_tried_again_counts_each_sample_once(tmp_path):
    first, again = run(tmp_path, "eval", "retry")
    assert (first["status"], again["status"]) == ("error", "success")
    alone = kofn.score(again["location"], aggregate="mean")
    assert (alone.n_cases, alone.n_candidates) == (7, 28)
    both = kofn.score([first["location"], again["location"]], aggregate="mean")
    assert (both.n_cases, both.n_candidates) == (7, 28)
    assert both.get("mean", metric="match").point == alone.get("mean", metric="match").point


def test_inspect_finds_the_reducers_by_name_through_the_entry_point(tmp_path):
    """As it does where kofn is installed: no import of ours."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    points = "".join(f"{k} = {v}\n" for k, v in project["entry-points"]["inspect_ai"].items())
    info = tmp_path / "kofn_reducers-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kofn-reducers\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[inspect_ai]\n{points}")
    code = f"""
import sys
sys.path.append({str(tmp_path)!r})
from inspect_ai import Epochs
from inspect_ai.scorer import Score
assert "kofn.integrations.inspect_ai" not in sys.modules
rule, = Epochs(3, "kofn/pass_at_2").reducer
print(rule([Score(value=v) for v in ("C", "I", "I")]).value)
"""
    assert float(run_peer("-c", code)) == pytest.approx(2 / 3)


def test_reducers_of_single_sets():
    """Votes by value, undefined as unscored, dicts and lists by part, and what a reducer cannot know is refused."""
    code = """
import json, math, logging
from inspect_ai.scorer import Score
from kofn.integrations.inspect_ai import reducer
from kofn.errors import InputError, UnknownName
def r(spec, *pairs): return reducer(spec)([Score(value=v, answer=a) for v, a in pairs])
nan = float("nan")
out = {
    "vote": r("majority", ("C", "42"), ("I", "43"), ("C", "42.0"), ("I", "7")).value,
    "ungraded": r("mean", ("C", None), (nan, None), ("I", None)).value,
    "undefined": math.isnan(r("pass@3", ("C", None), ("I", None)).value),
    "nothing": math.isnan(r("mean", (nan, None), (nan, None)).value),
    "dict": r("any_pass", ({"a": 1, "b": 0}, None), ({"a": 0, "b": None}, None)).value,
    "list": r("mean", ([1, 0], None), ([0, 0], None), (nan, None)).value,
    "answer": r("mean", ("C", "4"), ("I", "4")).answer,
    "none": r("mean", ("C", "4"), ("I", "5")).answer,
    "function": r(lambda s: len(s) / 10, ("C", None), ("I", None)).value,
}
for spec in ("selected", "distinct(n=2)", "majoritty", "pass_at"):
    try: r(spec, ("C", None))
    except InputError as problem: out[spec] = str(problem)
print(json.dumps(out))
"""
    out = json.loads(run_peer("-c", code))
    refused = {k: out.pop(k) for k in ("selected", "distinct(n=2)", "majoritty", "pass_at")}
    assert out == {
        "vote": 1.0,
        "ungraded": 0.5,
        "undefined": True,
        "nothing": True,
        "dict": {"a": 1.0, "b": 0.0},
        "list": [0.5, 0.0],
        "answer": "4",
        "none": None,
        "function": 0.2,
    }
    assert refused["selected"].startswith("reducer selected: it needs selectors of each candidate")
    assert refused["distinct(n=2)"].startswith("reducer distinct(n=2): it needs texts")
    assert "did you mean majority" in refused["majoritty"]
    assert refused["pass_at"].startswith("aggregator pass_at: missing a required argument")
