"""What a function of the API returns, as plain data, is what the verb of its name prints with --json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import kofn
from kofn import api
from kofn.cli import VERBS
from kofn.cli import kofn as program

EXAMPLES = Path(__file__).parents[2] / "examples"
LEDGER = EXAMPLES / "problems" / "ledger"
NO_RESULT = {
    "new",
    "view",
    "export",
    "list",
    "explain",
    "describe",
    "doctor",
    "completion",
}  # no function of the API is their like
CLOCKS = {"timestamp", "duration", "started", "finished", "version", "seconds", "wall_seconds", "digest"}
TASK = {
    "task_id": "t/0",
    "prompt": "def one():\n",
    "entry_point": "one",
    "test": "def check(f):\n    assert f() == 1\n",
}


def answer(prompt):
    """A model that answers, and gives a verdict on one output or on two."""
    return "Verdict: A" if "Answer B:" in prompt else "It is 4. Verdict: pass"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with outputs, two stored runs of them, labels, and functions to verify."""
    monkeypatch.chdir(tmp_path)
    for name, outputs in (("a", ["5", "4", "It is 4."]), ("b", ["4", "4", "5"])):
        rows = [{"id": f"q{i}", "input": "2 + 2", "reference": "4", "outputs": outputs} for i in range(6)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        kofn.score(f"{name}.jsonl", out=f"runs/{name}", task="sums")
    Path("tasks.jsonl").write_text(json.dumps(TASK))
    Path("samples.jsonl").write_text(json.dumps({"task_id": "t/0", "completion": "    return 1\n"}))
    return tmp_path


MODEL = f"fake:{__name__}:answer"
# verb -> what the command line is given, and the call that is the same; runs are made twice, in two places
CALLS = {
    "score": (["a.jsonl", "-a", "mean"], lambda _: kofn.score("a.jsonl", aggregate="mean")),
    "score again": (
        ["runs/a", "--extract", "last_line", "--metric", "exact_match"],
        lambda _: kofn.score("runs/a", extract="last_line", metric="exact_match"),
    ),
    "run": (
        ["starter", "-m", MODEL, "--limit", "2", "-r", "2", "--out", "OUT/run"],
        lambda out: kofn.run("starter", model=MODEL, limit=2, repeats=2, out=out / "run"),
    ),
    "report": (["runs/a"], lambda _: kofn.load_run("runs/a")),
    "compare": (["runs/a", "runs/b"], lambda _: kofn.compare("runs/a", "runs/b")),
    "compare extractors": (
        ["a.jsonl", "--extractors", "number", "last_line"],
        lambda _: kofn.compare("a.jsonl", extractors=["number", "last_line"]),
    ),
    "compare selectors": (
        ["runs/a", "--selectors", "first", "vote"],
        lambda _: kofn.compare("runs/a", selectors=["first", "vote"]),
    ),
    "extract-audit": (["a.jsonl"], lambda _: api.audit("a.jsonl")),
    "curve": (["runs/a", "--extend", "5"], lambda _: kofn.curve("runs/a", extend=5)),
    "check": (["runs/a", "--require", "any_pass >= 0.5"], lambda _: kofn.check("runs/a", require="any_pass >= 0.5")),
    "plan": (["runs/a", "--width", "0.1"], lambda _: kofn.plan("runs/a", width=0.1)),
    "trend": (["runs"], lambda _: kofn.trend("runs")),
    "judge": (
        ["a.jsonl", "--rubric", "correctness", "-m", MODEL, "--out", "OUT/judged"],
        lambda out: kofn.judge("a.jsonl", rubric="correctness", model=MODEL, out=out / "judged"),
    ),
    "judge by name": (
        ["b.jsonl", "--rubric", "correctness", "-m", MODEL, "--name", "right", "--out", "OUT/judged"],
        lambda out: kofn.judge("b.jsonl", rubric="correctness", model=MODEL, name="right", out=out / "judged"),
    ),
    "judge pairs": (
        ["a.jsonl", "--rubric", "preference", "-m", MODEL, "--against", "b.jsonl", "--out", "OUT/pairs"],
        lambda out: kofn.judge("a.jsonl", rubric="preference", model=MODEL, against="b.jsonl", out=out / "pairs"),
    ),
    "calibrate": (
        [EXAMPLES / "labels.csv", "--apply", EXAMPLES / "judged.jsonl"],
        lambda _: kofn.calibrate(EXAMPLES / "labels.csv", apply=EXAMPLES / "judged.jsonl"),
    ),
    "verify": (
        [LEDGER, LEDGER / "submissions" / "right", "--checkpoint", "1", "--unsafe", "--out", "OUT/programs"],
        lambda out: kofn.verify(
            LEDGER, LEDGER / "submissions" / "right", checkpoint="1", unsafe=True, out=out / "programs"
        ),
    ),
    "verify samples": (
        ["tasks.jsonl", "samples.jsonl", "--unsafe", "--out", "OUT/samples"],
        lambda out: kofn.verify("tasks.jsonl", "samples.jsonl", unsafe=True, out=out / "samples"),
    ),
}


def test_every_verb_that_has_a_result_is_compared():
    assert {name.partition(" ")[0] for name in CALLS} == set(VERBS) - NO_RESULT


@pytest.mark.parametrize("name", CALLS)
def test_a_function_returns_what_its_verb_prints(name, here):
    args, function = CALLS[name]
    args = [str(arg).replace("OUT", "one") for arg in args]
    done = CliRunner().invoke(program, [name.partition(" ")[0], *args, "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    returned = json.loads(json.dumps(function(Path("two")).to_dict()).replace('"two/', '"one/'))
    assert list(returned) == list(printed)
    assert lasting(returned) == lasting(printed)


def lasting(data):
    """Plain data without what differs from one time to the next: clocks, and what is made of them."""
    if isinstance(data, dict):
        return {key: lasting(value) for key, value in data.items() if key not in CLOCKS}
    return [lasting(value) for value in data] if isinstance(data, list) else data
