"""Functions with tests: HumanEval's form, and the metric `runs_tests`."""

from __future__ import annotations

import gzip
import json
import os

import polars as pl
import pytest
from click.testing import CliRunner
from tests.programs import PROBE, need_sandbox
from tests.shared import DATA, LOGS, shared_path

import kofn
from kofn.cli import kofn as command
from kofn.errors import InputError, KofnError
from kofn.parallel import engine
from kofn.problems.case import WorkContext
from kofn.problems.execution import _TEST_DRIVER, Program, run_program
from kofn.problems.functions import build_program, extract_code
from kofn.runs import load_run
from kofn.sandbox.drivers import find_sandbox
from kofn.sandbox.fork_server import ForkServer, fork_server_for
from kofn.sandbox.process import MB, ProgramLimits
from kofn.sandbox.workspace import Tree, Workspace

TASK = {
    "task_id": "t/0",
    "prompt": "import math\n\ndef double(x):\n    '''Twice x.'''\n",
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
}


@pytest.fixture(autouse=True)
def _sandbox():
    need_sandbox()


def cli(*words, code=0):
    done = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
    if isinstance(done.exception, KofnError) and done.exception.exit_code == code:
        return str(done.exception)
    if done.exception is not None:
        raise done.exception
    return done.output


def files(tmp_path, *completions, tasks=(TASK,)):
    problems, samples = tmp_path / "tasks.jsonl", tmp_path / "samples.jsonl"
    problems.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    samples.write_text("".join(json.dumps({"task_id": "t/0", "completion": c}) + "\n" for c in completions))
    return problems, samples


def passes(tmp_path, *completions, **more):
    out = tmp_path / "out"
    cli("verify", *files(tmp_path, *completions, **more), "--out", out)
    result = load_run(out).result
    assert result is not None
    return [bool(p) for p in result.scored[0].sets.passes]


@pytest.mark.programs
def test_the_published_example_gives_the_published_number(tmp_path):
    logs = shared_path(LOGS)
    out = tmp_path / "out"
    cli("verify", logs / "human_eval_problem.jsonl", logs / "human_eval_samples.jsonl", "--out", out, "-a", "pass@1")
    result = load_run(out).result
    assert result is not None
    assert result.get("pass@1").point == pytest.approx(0.5)
    assert [bool(p) for p in result.scored[0].sets.passes] == [False, False, False, True, True, True]


@pytest.mark.programs
def test_all_canonical_solutions_of_humaneval_pass(tmp_path):
    path = shared_path(DATA / "tasks" / "HumanEval.jsonl.gz")
    with gzip.open(path, "rt") as file:
        tasks = [json.loads(line) for line in file]
    samples = tmp_path / "canonical.jsonl"
    samples.write_text(
        "".join(json.dumps({"task_id": t["task_id"], "completion": t["canonical_solution"]}) + "\n" for t in tasks)
    )
    out = tmp_path / "out"
    cli("verify", path, samples, "--out", out, "--timeout", 30)
    result = load_run(out).result
    assert result is not None
    assert result.n_cases == 164
    assert result.get("pass@1").point == 1.0


@pytest.mark.programs(quick=2)
@pytest.mark.parametrize(
    "completion",
    [
        "    return x + x",
        "    return x * 2\n\nif __name__ == '__main__':\n    raise SystemExit(input())",
        "    print('noise'); return 2 * x",
        "    return math.prod([2, x])",
    ],
)
def test_right_programs_pass(tmp_path, completion):
    assert passes(tmp_path, completion) == [True]


@pytest.mark.programs(quick=3)
@pytest.mark.parametrize(
    "completion",
    [
        "    return x",
        "    import os; os._exit(0)",
        "    raise SystemExit(0)",
        "    exit()",
        "    print('passed'); quit(0)",
        "    return input()",
        "    syntax error",
        "    pass\nimport sys\nsys.stdout.write('\\nok')\nsys.exit(0)",
        "    while True: pass",
        "    return x\ndef check(candidate): raise SystemExit",
        "    import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "    return open('/etc/shadow').read()",
    ],
)
def test_programs_that_do_not_finish_their_tests_do_not_pass(tmp_path, completion):
    assert passes(tmp_path, completion) == [False]


def test_equal_samples_are_run_once_and_each_keeps_its_row(tmp_path, monkeypatch):
    ran = []
    real = kofn.problems.functions.run_programs

    def counted(programs, *, on_outcome, **more):
        return real(programs, on_outcome=lambda one: (ran.append(one.key), on_outcome(one))[1], **more)

    monkeypatch.setattr("kofn.problems.functions.run_programs", counted)
    assert passes(tmp_path, "    return 2 * x", "    return x", "    return 2 * x") == [True, False, True]
    assert len(ran) == 2
    assert passes(tmp_path, "    return 2 * x", "    return x", "    return 3 * x") == [True, False, False]
    assert len(ran) == 3


def test_a_task_without_samples_is_missing_and_not_zero(tmp_path):
    other = {**TASK, "task_id": "t/1"}
    out = tmp_path / "out"
    cli("verify", *files(tmp_path, "    return 2 * x", tasks=(TASK, other)), "--out", out, "-a", "pass@1")
    result = load_run(out).result
    assert result is not None
    estimate = result.get("pass@1")
    assert (estimate.point, estimate.n, estimate.n_missing) == (1.0, 1, 1)


@pytest.mark.programs
def test_why_samples_fail_is_told(tmp_path):
    completions = ["    return x", "    while True: pass", "    return y"]
    said = cli("verify", *files(tmp_path, *completions), "--out", tmp_path / "out", "--timeout", 1)
    assert "AssertionError (1)" in said
    assert "took longer than 1 s (1)" in said
    assert "NameError (1)" in said


@pytest.mark.parametrize(
    ("tasks", "samples", "message"),
    [
        ('{"task_id": 1}', "", "tasks.jsonl: line 1: task_id: expected text"),
        ("[1]", "", "tasks.jsonl: line 1: expected an object, found list"),
        ("{", "", "tasks.jsonl: line 1: not JSON"),
        ("", "", "tasks.jsonl: there is no task in it"),
        (json.dumps({**TASK, "entry_point": "os.system('x')"}), "", "entry_point: \"os.system('x')\" is not the name"),
        (json.dumps(TASK) * 1 + "\n" + json.dumps(TASK), "", "tasks.jsonl: line 2: task 't/0' is there twice"),
        (json.dumps(TASK), '{"task_id": "t/1", "completion": ""}', "samples.jsonl: line 1: unknown task 't/1'"),
        (json.dumps(TASK), '{"task_id": "t/0"}', "samples.jsonl: line 1: completion: expected text"),
        (json.dumps(TASK), "", "there is no sample"),
    ],
)
def test_bad_files_are_one_line_that_names_the_place(tmp_path, tasks, samples, message):
    (tmp_path / "tasks.jsonl").write_text(tasks)
    (tmp_path / "samples.jsonl").write_text(samples)
    said = cli("verify", tmp_path / "tasks.jsonl", tmp_path / "samples.jsonl", "--out", tmp_path / "out", code=2)
    assert message in said


WHOLE = "Sure!\n```python\ndef double(x):\n    return 2 * x\n```\nThis doubles x."


@pytest.mark.programs(quick=2)
@pytest.mark.parametrize(
    ("output", "right"),
    [
        (WHOLE, 1.0),
        ("```\n    return math.floor(2 * x)\n```", 1.0),
        ("def double(x):\n    return helper(x)\n\ndef helper(x):\n    return 2 * x", 1.0),
        ("return 2 * x", 1.0),
        ("    return 2 * x", 1.0),
        ("I cannot do that.", 0.0),
        ("```python\ndef other(x):\n    return 2 * x\n```", 0.0),
    ],
)
def test_outputs_of_models_become_programs(output, right):
    assert kofn.metric("runs_tests")(output, {k: TASK[k] for k in ("prompt", "entry_point", "test")}) == right


def test_plain_python_is_a_reference_too():
    rows = [{"id": "a", "reference": "assert f(2) == 4", "outputs": ["def f(x): return 2 * x", "def f(x): return x"]}]
    result = kofn.score(rows, extract="text", metric="runs_tests", aggregate=["mean", "pass@1", "any_pass"])
    assert result.get("mean").point == 0.5
    assert result.scored[0].metric == "runs_tests"


def test_an_output_that_is_missing_is_not_graded_and_several_references_are_tried():
    metric = kofn.metric("runs_tests(timeout=5)")
    assert metric.many([None, "x = 1", "x = 2"], ["assert x", "assert x == 1", ["assert x == 1", "assert x == 2"]]) == [
        0.0,
        1.0,
        1.0,
    ]
    assert metric("x = 1", None) is None


def test_a_reference_without_tests_is_refused():
    with pytest.raises(InputError, match="the reference has no `test`"):
        build_program("x", {"entry_point": "f"})


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("x = 1", "x = 1"),
        ("a\n```py\nx = 1\n```\nb\n```python\ny = 2\n```", "x = 1\n\ny = 2"),
        ("```python\nx = 1", "x = 1"),
    ],
)
def test_code_is_taken_out_of_its_blocks(output, code):
    assert extract_code(output) == code


def test_programs_give_the_same_on_an_engine_that_is_given():
    rows = [{"id": "a", "reference": "assert x > 1", "outputs": [f"x = {i}" for i in range(4)]}]
    with engine("local", workers=2) as used:
        found = kofn.score(rows, extract="text", metric="runs_tests", aggregate="mean", engine=used)
    assert found.get("mean").point == 0.5


def test_a_run_of_humaneval_is_graded(tmp_path):
    """The whole walk with outputs that are given: task, prompts, replies, programs, report."""
    data = tmp_path / "HumanEval.jsonl"
    data.write_text(json.dumps(TASK) + "\n")
    answers = {True: WHOLE, False: "```python\ndef double(x):\n    return x\n```"}
    run = kofn.run(
        "humaneval", model=lambda _, seed: answers[seed % 2 == 0], data=data, repeats=4, out=tmp_path / "run"
    )
    assert run.result is not None
    assert run.result.scored[0].metric == "runs_tests"
    assert run.result.get("mean").point in (0.25, 0.5, 0.75)
    assert find_sandbox().isolated


@pytest.mark.programs
@pytest.mark.parametrize("form", [dict, json.dumps])
def test_tests_reach_the_programs_as_they_are_whatever_they_look_like(form):
    test = "def check(f):\n    assert f(1) == '\\\\frac{1}{2}'\n"
    task = {"prompt": "def tex(x):\n", "entry_point": "tex", "test": test}
    right = "    return '\\\\frac{1}{2}'"
    rows = [{"id": "q", "reference": form(task), "outputs": [right, "    return x", "0", "while True: pass"]}]
    result = kofn.score(rows, metric="runs_tests", aggregate=["pass@1", "any_pass"])
    assert result.get("pass@1").point == 0.25
    assert "votes" not in result.diagnostics


def test_without_tests_it_is_said_what_they_are_to_be():
    with pytest.raises(InputError, match="has none: give the tests as `reference`"):
        kofn.score([{"id": "q", "outputs": ["x = 1"]}], metric="runs_tests")


def test_why_a_sample_failed_stands_beside_it(tmp_path):
    assert passes(tmp_path, "    return 2 * x", "    return x", "    return '\ud800'") == [True, False, False]
    notes = pl.read_parquet(tmp_path / "out" / "candidates.parquet")["note"].to_list()
    assert notes[0] is None
    assert notes[1].startswith("AssertionError")
    assert notes[2].startswith("UnicodeDecodeError")


class Ways:
    """The two ways to run a program: in a fork of a warm interpreter, and in one that is started for it."""

    def __init__(self):
        self.box = Workspace(find_sandbox())
        self.warm = ForkServer(self.box)
        self.limits = ProgramLimits(seconds=5, memory=300 * MB)

    def run(self, program):
        stdin = f"word\n{program}".encode()
        driver = ["python", "-I", "-S", "-c", _TEST_DRIVER, *self.box.sandbox.packages]
        self.box.folder.reset(Tree())
        forked = self.warm.run(stdin, self.limits)
        self.box.folder.reset(Tree())
        return forked, self.box.run(driver, limits=self.limits, stdin=stdin)

    def close(self):
        self.warm.close()
        self.box.close()


@pytest.fixture(scope="module")
def ways():
    need_sandbox()
    if os.geteuid() != 0:
        pytest.skip("an interpreter is kept warm for root alone")
    made = Ways()
    yield made
    made.close()


def test_a_fork_of_a_warm_interpreter_sees_and_may_what_a_program_that_was_started_does(ways):
    forked, started = ways.run(PROBE)
    assert forked.stderr == started.stderr == b""
    assert forked.output.decode().splitlines() == started.output.decode().splitlines()
    assert b"'CapEff': '0000000000000000'" in forked.output
    assert b"'NoNewPrivs': '1'" in forked.output


DATACLASS = "from dataclasses import dataclass\n\n\n@dataclass\nclass A:\n    x: int = 1\n\n\nassert A().x == 1\n"
DEEP = "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\n\n\nf({})\n"


@pytest.mark.programs(quick=6)
@pytest.mark.parametrize(
    ("program", "passes"),
    [
        (DATACLASS, True),
        (f"from __future__ import annotations\n{DATACLASS}", True),
        ("def f(x: undefined): ...", False),
        (DEEP.format(990), True),
        (DEEP.format(996), True),
        (DEEP.format(1000), False),
        ("import threading, time\nthreading.Thread(target=lambda: time.sleep(0.1)).start()", True),
        ("import subprocess\nassert subprocess.run(['true']).returncode == 0", True),
        ("import asyncio\nassert asyncio.run(asyncio.sleep(0, 7)) == 7", True),
        ("import multiprocessing\nassert multiprocessing.get_context('fork').Pool(2).map(abs, [-1]) == [1]", True),
        ("import atexit\natexit.register(lambda: 1 / 0)", True),
        ("import sys\nsys.stdout.close()", True),
        ("input()", False),
        ("import sys\nsys.exit(0)", False),
        ("import os\nos._exit(0)", False),
        ("import os\nos.write(2, b'kofn: no')\nos._exit(125)", False),
        ("import os\nos.chmod('/proc/self/exe', 0o777)", False),
        ("import __main__\nassert not hasattr(__main__, 'word') and not hasattr(__main__, '_word')", True),
        ("assert 1 == 2", False),
        ("x = '\\u00e9'\nprint(x)\nimport random\nrandom.random()", True),
    ],
)
def test_both_ways_to_run_a_program_come_to_the_same(ways, program, passes):
    assert [b"\nword" in ended.output for ended in ways.run(program)] == [passes, passes]


@pytest.mark.skipif(os.geteuid() != 0, reason="an interpreter is kept warm for root alone")
def test_a_warm_interpreter_keeps_programs_apart_and_leaves_nothing_behind():
    box = Workspace(find_sandbox())
    made = ForkServer(box)
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass  # what trying the sandbox left
    hostile = "import os, signal, typing\ntyping.List = 7\nopen('/tmp/left', 'w').write('x')\n"
    hostile += "if os.fork() == 0:\n    import time; time.sleep(60)\nos.kill(-1, signal.SIGKILL)"
    curious = "import os, typing\nprint(typing.List, os.listdir('/tmp'), os.listdir('/work'))"
    try:
        for program, limit in ((hostile, 2.0), ("while True: pass", 0.5), (hostile, 2.0)):
            box.folder.reset(Tree())
            made.run(f"word\n{program}".encode(), ProgramLimits(seconds=limit))
        box.folder.reset(Tree())
        ended = made.run(f"word\n{curious}".encode(), ProgramLimits(seconds=5))
        assert ended.output == b"\nwordtyping.List [] []\n"
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)  # the interpreter runs, and no other child is left to wait for
    finally:
        made.close()
        box.close()


def test_without_a_warm_interpreter_programs_are_started(tmp_path, monkeypatch):
    box = Workspace(find_sandbox())
    (tmp_path / "ends.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr("kofn.sandbox.fork_server._PROGRAM", str(tmp_path / "ends.py"))
    try:
        assert fork_server_for(box) is None
        monkeypatch.setattr("kofn.problems.execution.workspace_for", lambda *_: box)
        ran = run_program(WorkContext(sandbox=box.sandbox, limits=ProgramLimits()), Program(text="assert 1 + 1 == 2"))
        assert ran.passed
    finally:
        box.close()
