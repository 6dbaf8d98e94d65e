"""Verification from end to end: adapters, repeats, resumption, run directories, author's code, bad input."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from tests.programs import need_sandbox, problem_in, submission_in
from tests.waiting import wait_until

from kofn.cli import kofn as command
from kofn.errors import InputError, KofnError
from kofn.problems import load_problem
from kofn.problems.case import CaseOutcome
from kofn.problems.case_store import CaseStore
from kofn.problems.execution import Program
from kofn.problems.verification import VerifyOptions, run_checkpoint, verify
from kofn.runs import PassPolicy, load_run
from kofn.sandbox.drivers import find_sandbox
from kofn.sandbox.process import ProcessResult

ECHO = """
name: echo
entry: python main.py
checkpoints:
  one:
    groups:
      basic:
        type: Core
        cases:
          - {id: a, args: [a], expected: {output: a}}
          - {id: b, args: [b], expected: {output: b, status_code: 0}}
          - {id: c, args: [c], stdin: "in", env: {WORD: w}, expected: {output: "c in w"}}
"""
ECHO_CODE = """
import os, sys
print(sys.argv[1], *filter(None, [sys.stdin.read(), os.environ.get("WORD")]))
"""

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _sandbox():
    need_sandbox()


@pytest.fixture
def echo(tmp_path):
    return problem_in(tmp_path, ECHO), submission_in(tmp_path, ECHO_CODE)


def cli(*words, code=0):
    done = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
    if done.exception is not None:
        if isinstance(done.exception, KofnError) and code == done.exception.exit_code:
            return str(done.exception)
        raise done.exception
    return done.output


def plain(results):
    """Results without times."""
    body = results.model_dump(mode="json")
    for part in (body, *body["reports"], *body["group_outcomes"].values()):
        part.pop("timestamp", None)
        part.pop("duration", None)
    for report in body["reports"]:
        report["case"].pop("peak_memory_mb", None)
    return body


def test_arguments_input_and_environment_reach_a_program(echo):
    results = run_checkpoint(*echo)
    assert [r.did_pass() for r in results.reports] == [True, True, True]
    assert all(results.decide(policy).passed for policy in PassPolicy)
    assert results.problem_name == "echo"
    assert results.name == "one"


def test_arguments_are_never_a_shell_line(tmp_path):
    word = "$(touch x); `id` && *.py | cat > y 'q\" \\"
    config = json.dumps(
        {
            "name": "words",
            "entry": ["python", "main.py"],
            "checkpoints": {
                "one": {
                    "groups": {
                        "g": {"cases": [{"id": "a", "args": [word, "", "-"], "expected": {"output": [word, "", "-"]}}]}
                    }
                }
            },
        }
    )
    code = "import json, os, sys; print(json.dumps(sys.argv[1:])); assert sorted(os.listdir()) == ['main.py']"
    results = run_checkpoint(problem_in(tmp_path, config), submission_in(tmp_path, code))
    assert results.reports[0].did_pass(), results.reports[0].results


def test_a_submission_of_one_file_takes_the_name_in_the_entry(echo, tmp_path):
    single = tmp_path / "attempt_7.py"
    single.write_text(ECHO_CODE)
    assert run_checkpoint(echo[0], single).score() == 1.0


def test_the_same_submission_under_two_paths_is_run_once(echo, tmp_path):
    other = submission_in(tmp_path, ECHO_CODE, "other")
    found = verify(
        load_problem(echo[0]), [echo[1], other], load_problem(echo[0]).checkpoints, options=VerifyOptions(workers=1)
    )
    assert found.n_executions == 3
    assert [one.results.score() for one in found.submission_results] == [1.0, 1.0]


def test_what_is_finished_is_not_run_again_and_what_changed_is(echo, tmp_path):
    problem, submission = echo
    out = tmp_path / "out"
    first = verify(
        load_problem(problem),
        [submission],
        load_problem(problem).checkpoints,
        out=out,
        options=VerifyOptions(workers=1),
    )
    again = verify(
        load_problem(problem),
        [submission],
        load_problem(problem).checkpoints,
        out=out,
        options=VerifyOptions(workers=1),
    )
    assert (first.n_executions, again.n_executions, again.n_reused) == (3, 0, 3)
    assert plain(first.submission_results[0].results) == plain(again.submission_results[0].results)
    (problem / "config.yaml").write_text(
        ECHO.replace("args: [b], expected: {output: b,", "args: [b], expected: {output: x,")
    )
    changed = verify(
        load_problem(problem),
        [submission],
        load_problem(problem).checkpoints,
        out=out,
        options=VerifyOptions(workers=1),
    )
    assert changed.n_executions == 1
    assert [r.did_pass() for r in changed.submission_results[0].results.reports] == [True, False, True]
    (submission / "main.py").write_text(ECHO_CODE + "\n")
    assert verify(load_problem(problem), [submission], load_problem(problem).checkpoints, out=out).n_executions == 3


@pytest.mark.programs
def test_what_was_run_elsewhere_is_run_again_here(echo, tmp_path):
    problem, submission = load_problem(echo[0]), echo[1]
    found = find_sandbox()
    boxes = [
        found,
        replace(found, release="another"),
        replace(found, readable=(*found.readable, "/opt")),
        find_sandbox(unsafe=True),
    ]
    out = tmp_path / "out"
    runs = [
        verify(problem, [submission], problem.checkpoints, sandbox=b, out=out, options=VerifyOptions(workers=1))
        for b in boxes
    ]
    assert [run.n_executions for run in runs] == [3, 3, 3, 3]
    keys = {Program(text="x = 1").key(box) for box in boxes}
    assert len(keys) == 4
    assert Program(text="x = 1").key(found) == Program(text="x = 1").key(find_sandbox())


def test_one_checkpoint_is_not_all_of_them(echo):
    with pytest.raises(InputError, match="run_checkpoint runs one checkpoint"):
        run_checkpoint(echo[0], echo[1], "all")


@pytest.mark.kills
def test_a_killed_harness_loses_no_finished_case(tmp_path):
    cases = [{"id": f"c{i}", "args": [str(i)], "expected": {"output": str(i * i)}} for i in range(60)]
    config = json.dumps(
        {
            "name": "squares",
            "entry": "python main.py",
            "checkpoints": {"one": {"groups": {"g": {"type": "Core", "cases": cases}}}},
        }
    )
    problem = problem_in(tmp_path, config)
    code = "import sys, time; time.sleep(0.02); n = int(sys.argv[1]); print(n * n if n % 7 else 'wrong')"
    submission = submission_in(tmp_path, code)
    whole = run_checkpoint(problem, submission)
    out, draws = tmp_path / "out", random.Random(5)
    script = Path(__file__).with_name("worker_killed.py")
    command = [sys.executable, str(script), str(problem), str(submission), str(out)]
    counts = []
    for _ in range(6):
        running = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        )
        _wait_for_more(out, counts[-1] if counts else 0, running)
        time.sleep(draws.random() * 0.3)
        running.send_signal(signal.SIGKILL)
        running.wait()
        counts.append(_finished(out))
    assert counts == sorted(counts)
    assert counts[0] > 0
    after = verify(load_problem(problem), [submission], load_problem(problem).checkpoints, out=out)
    assert after.n_executions == 60 - counts[-1]
    assert plain(after.submission_results[0].results) == plain(whole)
    assert not _left("squares-left")


def _finished(out):
    if not (out / "cases.sqlite").exists():
        return 0
    with sqlite3.connect(out / "cases.sqlite") as file:
        return int(file.execute("SELECT count(*) FROM cases").fetchone()[0])


def _wait_for_more(out, before, running):
    def more_or_ended():
        with contextlib.suppress(sqlite3.Error):
            return _finished(out) > before or running.poll() is not None

    wait_until(more_or_ended, "another finished case")


def _left(mark):
    return [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in p.read_bytes()]


def test_programs_end_with_a_harness_that_is_killed(tmp_path):
    mark = f"kofn-orphan-{os.getpid()}"
    code = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(999)', '{mark}'])"
    problem, submission = problem_in(tmp_path), submission_in(tmp_path, code)
    script = Path(__file__).with_name("worker_killed.py")
    command = [sys.executable, str(script), str(problem), str(submission), str(tmp_path / "out")]
    running = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    )
    wait_until(lambda: _running(mark), "the program starts")
    running.kill()
    running.wait()
    wait_until(lambda: not _running(mark), "the program ends")


def _running(mark):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(path)
    return found


def test_cases_that_are_not_isolated_share_what_they_leave(tmp_path):
    config = """
name: counter
entry: python main.py
checkpoints:
  one:
    groups:
      together:
        isolated: false
        cases: [{id: first, expected: {output: 1}}, {id: second, expected: {output: 2}}]
      alone:
        cases: [{id: first, expected: {output: 1}}, {id: second, expected: {output: 1}}]
"""
    code = """
        from pathlib import Path
        n = int(Path("n").read_text()) + 1 if Path("n").exists() else 1
        Path("n").write_text(str(n))
        print(n)
        """
    problem, submission = problem_in(tmp_path, config), submission_in(tmp_path, code)
    assert run_checkpoint(problem, submission).score() == 1.0
    only = run_checkpoint(problem, submission, groups=["together"], cases=["second"])
    assert [r.id for r in only.reports] == ["first", "second"]  # what came before has a part in it


@pytest.mark.programs
def test_flaky_cases_are_named(tmp_path, echo):
    code = "import random, sys; print(sys.argv[1] if random.random() < 0.5 or sys.argv[1] == 'c' else 'no')"
    submission = submission_in(tmp_path, code, "flaky")
    found = verify(
        load_problem(echo[0]), [submission], load_problem(echo[0]).checkpoints, options=VerifyOptions(repeat=12)
    )
    (one,) = found.submission_results
    assert one.flaky() == ["basic/a", "basic/b"]
    report = one.results.reports[0]
    assert report.case["flaky"] is True
    assert 0 < report.case["times_passed"] < 12
    assert not report.did_pass()


def test_the_command_writes_a_run_a_submission_and_one_for_the_set(echo, tmp_path):
    wrong = submission_in(tmp_path, "print('no')", "wrong")
    out = tmp_path / "runs"
    said = cli("verify", echo[0], echo[1], wrong, "--out", out)
    assert "✓  sub" in said
    assert "✗  wrong" in said
    assert "pass@2" in said
    run = load_run(out / "sub" / "one")
    assert run.manifest["kind"] == "verify"
    assert run.manifest["verify"]["sandbox"] == "bubblewrap"
    assert (out / "sub" / "one" / "report.html").stat().st_size > 10_000
    executions = pl.read_parquet(out / "wrong" / "one" / "executions.parquet")
    assert executions["output"].to_list() == ["no\n"] * 3
    assert executions["passed"].to_list() == [False] * 3
    whole = load_run(out / "set")
    assert whole.result is not None
    assert whole.result.get("pass@1", metric="pass").point == 0.5
    assert whole.result.get("any_pass", metric="pass").point == 1.0
    assert "votes" not in whole.result.diagnostics
    texts = pl.read_parquet(out / "set" / "candidates.parquet")["text"].to_list()
    assert texts[1] == "wrong: core-cases: 0 of 3 core cases pass\n\n--- main.py\nprint('no')"
    assert cli("check", out / "sub" / "one").startswith("1 of 1 requirement passed: core-cases: 3 of 3")
    assert "NOT PASSED" in cli("report", out / "wrong" / "one")


def test_json_holds_the_same(echo, tmp_path):
    output = json.loads(cli("verify", echo[0], echo[1], "--out", tmp_path / "runs", "--json"))
    assert output["submissions"][0]["evaluation"]["score"] == 1.0
    assert output["set"] is None


def test_long_values_are_cut_and_kept_whole_in_a_file(tmp_path):
    config = ECHO.partition("          - {id: b")[0].replace("expected: {output: a}", "expected: {output: short}")
    problem = problem_in(tmp_path, config)
    submission = submission_in(tmp_path, "print('x' * 50_000)")
    out = tmp_path / "runs"
    cli("verify", problem, submission, "--out", out)
    result = load_run(out / "sub" / "one").full().reports[0].results["output"]
    assert len(result.actual) < 10_100
    assert "more characters" in result.actual
    name = result.diff.partition("whole actual: ")[2].rstrip(")")
    assert (out / name).read_text() == "x" * 50_000 + "\n"


def test_the_authors_code_generates_and_checks(tmp_path):
    config = "name: own\nentry: python main.py\ncheckpoints: {one: {groups: {g: {type: Core}}}}"
    problem = problem_in(
        tmp_path,
        config,
        loader_dot_py="def cases(checkpoint, group):\n    return [{'id': f'n{i}', 'args': [i]} for i in range(4)]\n",
        verifier_dot_py="""
            import helper

            def verify(case, actual):
                return {"square": (helper.square(case["args"][0]) == actual["output"].strip(), "not the square"),
                        "quick": {"correct": actual["seconds"] < 60, "weight": 0.5}, "later": None}
            """,
        helper_dot_py="def square(text):\n    return str(int(text) ** 2)\n",
    )
    results = run_checkpoint(
        problem, submission_in(tmp_path, "import sys; n = int(sys.argv[1]); print(n * n if n < 3 else 0)")
    )
    assert [r.did_pass() for r in results.reports] == [True, True, True, False]
    assert results.reports[3].results["square"].diff == "not the square"
    assert results.reports[3].calculate_score() == pytest.approx(0.5 / 1.5)
    assert results.reports[0].results["later"].is_correct is None


def test_an_authors_matcher_is_used_by_its_path(tmp_path):
    config = ECHO.partition("          - {id: b")[0].replace(
        "expected: {output: a}", "expected: {output: A}, verify: {output: {match: 'own:folded', extra: 1}}"
    )
    problem = problem_in(
        tmp_path,
        config,
        own_dot_py="def folded(expected, actual, extra):\n    return expected.lower() == actual.decode().strip()\n",
    )
    assert run_checkpoint(problem, submission_in(tmp_path, ECHO_CODE)).score() == 1.0


@pytest.mark.parametrize("where", ["verifier", "matcher"])
def test_a_failure_of_the_authors_code_is_the_harness_failing(tmp_path, where):
    config = ECHO.partition("          - {id: b")[0]
    files = {"verifier_dot_py": "def verify(case, actual):\n    return 1 / 0\n"}
    if where == "matcher":
        config = config.replace("expected: {output: a}", "expected: {output: a}, verify: {output: {match: 'own:bad'}}")
        files = {"own_dot_py": "def bad(expected, actual):\n    return 1 / 0\n"}
    results = run_checkpoint(problem_in(tmp_path, config, **files), submission_in(tmp_path, ECHO_CODE))
    assert "ZeroDivisionError" in str(results.infrastructure_failure)
    assert not any(results.decide(policy).passed for policy in PassPolicy)
    out = tmp_path / "out"
    said = cli(
        "verify", problem_in(tmp_path, config, **files), submission_in(tmp_path, ECHO_CODE), "--out", out, code=3
    )
    assert "the harness failed" in said


SERVER = """
name: api
entry: python main.py {port}
adapter: {kind: api, ready_timeout: 60}
checkpoints:
  one:
    groups:
      g:
        type: Core
        cases:
          - {id: one, request: {path: /x}, expected: {status_code: 200, response: {n: 1}, headers: {X-Kind: test}}}
          - {id: two, request: {method: POST, path: /y, query: {a: "b c"}, json: {k: 1}}, expected: {response: {n: 2}}}
          - {id: three, request: {path: /slow}, timeout: 0.5, expected: {status_code: 200}}
          - {id: four, request: {path: /die}, expected: {status_code: 200}}
          - {id: five, request: {path: /x}, expected: {response: {n: 1}}}
"""
SERVER_CODE = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
n = 0
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        global n
        n += 1
        if self.path == "/slow":
            time.sleep(5)
        if self.path == "/die":
            print("about to die", file=sys.stderr, flush=True)
            os._exit(3)
        body = json.dumps({"n": n}).encode()
        self.send_response(200)
        self.send_header("X-Kind", "test")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        assert self.path == "/y?a=b+c", self.path
        assert json.loads(self.rfile.read(int(self.headers["Content-Length"]))) == {"k": 1}
        self.do_GET()
assert os.environ["PORT"] == sys.argv[1]
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.programs(quick=1)
@pytest.mark.parametrize("unsafe", [False, True])
def test_a_server_is_asked_in_order_and_started_again_when_it_dies(tmp_path, unsafe):
    problem, submission = problem_in(tmp_path, SERVER), submission_in(tmp_path, SERVER_CODE)
    results = run_checkpoint(problem, submission, unsafe=unsafe)
    one, two, three, four, five = results.reports
    assert one.did_pass(), one.results
    assert two.did_pass(), two.results
    assert three.results["status_code"].diff == "stopped: no answer within 0.5 s"
    assert three.case["timed_out"] is True
    assert "no proper answer" in four.results["status_code"].diff
    assert "about to die" in four.case["server_log_ends"]
    assert five.did_pass(), five.results


def test_an_isolated_api_group_has_a_server_a_case(tmp_path):
    config = SERVER.replace("        type: Core\n", "        type: Core\n        isolated: true\n")
    results = run_checkpoint(problem_in(tmp_path, config), submission_in(tmp_path, SERVER_CODE), cases=["one", "two"])
    assert [r.did_pass() for r in results.reports] == [True, False]
    assert "expected 2, found 1" in results.reports[1].results["response"].diff


@pytest.mark.programs(quick=1)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; print('bye', file=sys.stderr); sys.exit(4)", "the server ended"),
        ("import time; time.sleep(60)", "the server was not ready after 1 s"),
        ("kept = []\nwhile True: kept.append(bytearray(10 << 20))", "the server ended"),
    ],
)
def test_a_server_that_does_not_come_up_fails_every_case_with_the_reason(tmp_path, code, reason):
    config = SERVER.replace("ready_timeout: 60", "ready_timeout: 1") if "sleep" in code else SERVER
    results = run_checkpoint(problem_in(tmp_path, config), submission_in(tmp_path, code))
    assert results.infrastructure_failure is None
    assert not any(r.did_pass() for r in results.reports)
    assert all(reason in r.results[next(iter(r.results))].diff for r in results.reports)


@pytest.mark.programs
def test_an_answer_that_drips_or_never_ends_is_given_up(tmp_path):
    code = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = server.accept()
    data = connection.recv(1000)
    try:
        if b"/x" in data:
            for letter in "HTTP/1.1 200 OK" + "x" * 1000:
                connection.sendall(letter.encode())
                time.sleep(0.1)
        else:
            connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
            while True:
                connection.sendall(b"x" * 100000)
    except OSError:
        pass
"""
    config = SERVER.replace("{path: /x}, expected", "{path: /x}, timeout: 1, expected").replace(
        "adapter:", "limits: {output_mb: 1}\nadapter:"
    )
    results = run_checkpoint(problem_in(tmp_path, config), submission_in(tmp_path, code), cases=["one", "two"])
    assert results.reports[0].results["status_code"].diff == "stopped: no answer within 1 s"
    assert "longer than 1 MB" in results.reports[1].results["response"].diff


def test_a_submission_that_is_not_there_is_named(echo, tmp_path):
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        run_checkpoint(echo[0], tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--checkpoint", "tow"], "unknown checkpoint 'tow'"),
        (["--group", "bsic"], "unknown group 'bsic': did you mean basic?"),
        (["--case", "z"], "unknown case 'z'"),
        (["--policy", "most"], "unknown policy 'most'"),
        (["--engine", "rai"], "unknown engine 'rai': did you mean ray?"),
        (["--python", "/no/python"], "/no/python: no such Python interpreter"),
        (["--show", "/no/such/path"], "/no/such/path: not there"),
    ],
)
def test_a_wrong_word_is_one_line_that_names_it(echo, tmp_path, words, message):
    assert message in cli("verify", *echo, "--out", tmp_path / "out", *words, code=2)


def test_without_bubblewrap_nothing_is_run_unless_somebody_says_so(echo, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, *_, **__: None if name == "bwrap" else f"/usr/bin/{name}")
    with pytest.raises(InputError, match=r"bubblewrap is not here: apt install bubblewrap .*--unsafe"):
        find_sandbox()
    assert not find_sandbox(unsafe=True).isolated


def test_unsafe_is_said_where_it_is_used(echo, tmp_path):
    out = tmp_path / "out"
    assert "without a sandbox (--unsafe)" in cli("verify", *echo, "--out", out, "--unsafe")
    assert load_run(out / "sub" / "one").manifest["verify"]["sandbox"] == "none (--unsafe)"


def test_a_worker_that_runs_programs_stays_small():
    code = "import kofn.problems.execution, kofn.problems.api_adapter, sys\n"
    code += "print([m for m in ('numpy', 'polars', 'pydantic', 'click', 'yaml', 'kofn.runs') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_part_of_the_cases_never_takes_the_place_of_all(echo, tmp_path):
    out = tmp_path / "out"
    cli("verify", *echo, "--out", out)
    said = cli("verify", *echo, "--case", "b", "--out", out)
    assert "1 submission, only case b: 0 executions" in said
    whole, part = load_run(out / "sub" / "one"), load_run(out / "sub" / "one.part")
    assert (whole.reports.height, part.reports.height) == (3, 1)
    assert part.manifest["verify"]["part"] == "only case b"
    assert "sub (only case b)" in cli("report", out / "sub" / "one.part")


def test_submissions_of_one_name_keep_apart_over_several_commands(echo, tmp_path):
    other = submission_in(tmp_path / "other", "print('no')", "sub")
    out = tmp_path / "out"
    cli("verify", *echo, "--out", out)
    assert "✗  other-sub" in cli("verify", echo[0], other, "--out", out)
    assert "✓  sub  " in cli("verify", *echo, "--out", out)
    assert {p.name for p in out.iterdir() if p.is_dir()} == {"sub", "other-sub", "outputs"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [("python -m app", "a single file, and `python -m app` names none"), ("pyton main.py", "no program 'pyton'")],
)
def test_an_entry_that_cannot_work_is_refused_before_anything_runs(echo, tmp_path, entry, message):
    (echo[0] / "config.yaml").write_text(ECHO.replace("entry: python main.py", f"entry: {entry}"))
    assert message in cli("verify", echo[0], echo[1] / "main.py", "--out", tmp_path / "out", code=2)


def test_a_single_file_is_what_the_entry_runs(echo, tmp_path):
    (echo[0] / "config.yaml").write_text(ECHO.replace("entry: python main.py", "entry: ./program"))
    single = tmp_path / "single"
    single.write_text(f"#!{find_sandbox().python}\n{ECHO_CODE}")
    single.chmod(0o755)
    assert run_checkpoint(echo[0], single).score() == 1.0


def test_a_folder_without_the_file_that_is_run_is_remarked(echo, tmp_path):
    (echo[1] / "main.py").rename(echo[1] / "other.py")
    assert "! sub: there is no main.py in" in cli("verify", *echo, "--out", tmp_path / "out")


@pytest.mark.parametrize("words", [["--lint"], ["SUB"]])
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("verifier.py", "def verify(case, actual:\n", "verifier.py: SyntaxError"),
        ("verifier.py", "def check(case, actual): ...\n", "no function `verify(case, actual)`"),
        ("own.py", "def right(expected, actual): return True\n", "own has no function 'wrong'"),
        ("other.py", "", "cannot import own"),
    ],
)
def test_code_of_the_authors_that_cannot_be_used_is_refused_before_anything_runs(
    echo, tmp_path, words, name, text, message
):
    config = ECHO.replace("expected: {output: a}", "expected: {output: a}, verify: {output: {match: 'own:wrong'}}")
    (echo[0] / "config.yaml").write_text(ECHO if name == "verifier.py" else config)
    (echo[0] / name).write_text(text)
    given = [echo[1] if word == "SUB" else word for word in words]
    assert message in cli(
        "verify", echo[0], *given, *([] if "--lint" in words else ["--out", tmp_path / "out"]), code=2
    )
    assert not (tmp_path / "out" / "sub").exists()


@pytest.mark.parametrize(
    ("submissions", "aggregator", "message"),
    [
        (1, "pass@1", "--aggregate is over a set"),
        (2, "pass@3", "pass@3 is undefined"),
        (2, "maj", "unknown aggregator"),
    ],
)
def test_what_cannot_be_computed_over_the_set_is_refused_before_anything_runs(
    echo, tmp_path, submissions, aggregator, message
):
    paths = [echo[1], submission_in(tmp_path, ECHO_CODE, "second")][:submissions]
    assert message in cli("verify", echo[0], *paths, "-a", aggregator, "--out", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_a_group_without_cases_is_refused(echo):
    (echo[0] / "config.yaml").write_text(ECHO + "      empty: {type: Error}\n")
    with pytest.raises(InputError, match=r"config.yaml: line \d+: group 'empty': no cases: .*empty is not there"):
        load_problem(echo[0])


def test_a_case_on_which_the_harness_failed_is_not_passed(echo):
    (echo[0] / "verifier.py").write_text("def verify(case, actual):\n    return 1 / 0 if case['id'] == 'b' else {}\n")
    results = run_checkpoint(*echo)
    assert [r.did_pass() for r in results.reports] == [True, False, True]
    assert results.n_unverified == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("args: [a]", "args: a", "args: expected a list of words, such as [balance, --json]"),
        ("args: [a]", "args: [2024-05-01]", "args.0: expected text, and YAML reads this as the date 2024-05-01"),
        ("args: [a]", "args: [yes]", "args.0: expected text, and YAML reads this as true: put it in quotes"),
        ("expected: {output: a}", "expected: 200", "expected: expected a mapping"),
        ("name: echo\n", "", "name: missing: expected a value"),
        ("type: Core", "typ: Core", "unknown key 'typ': did you mean type?"),
        ("id: b", "id: a", "case 'a' is there twice in group"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_line(echo, old, new, message):
    text = ECHO.replace(old, new)
    assert text != ECHO
    (echo[0] / "config.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_problem(echo[0])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert re.search(r"config\.yaml: (line \d+: |name: missing)", str(caught.value))


@pytest.mark.parametrize(("damage", "message"), [("page", "damaged"), ("row", "damaged")])
def test_a_damaged_store_is_one_line(echo, tmp_path, damage, message):
    out = tmp_path / "out"
    cli("verify", *echo, "--out", out)
    if damage == "row":
        with sqlite3.connect(out / "cases.sqlite") as file:
            file.execute("UPDATE cases SET done = '{'")
        file.close()
    else:
        (out / "cases.sqlite").write_bytes(b"not a database at all" * 1000)
    said = cli("verify", *echo, "--out", out, code=2)
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_a_folder_of_runs_is_told_from_a_run(echo, tmp_path):
    out = tmp_path / "out"
    cli("verify", *echo, "--out", out)
    assert f"there are runs in it: {out / 'sub' / 'one'}" in cli("report", out, code=2)


def test_one_changed_digit_of_a_stored_case_is_refused(tmp_path):
    out, path = tmp_path / "out", tmp_path / "out" / "cases.sqlite"
    with CaseStore(out) as store:
        store.put([CaseOutcome(key="k", process=ProcessResult(status=0, seconds=1.5))])
    path.write_bytes(path.read_bytes().replace(b'"seconds":1.5', b'"seconds":2.5'))
    with CaseStore(out) as store, pytest.raises(InputError, match="a case was changed since it was stored"):
        store.get(["k"])


def test_stored_cases_have_the_names_of_earlier_releases(tmp_path):
    with CaseStore(tmp_path) as store:
        store.put([CaseOutcome(key="k", process=ProcessResult(status=0))])
    with sqlite3.connect(tmp_path / "cases.sqlite") as connection:
        (text,) = connection.execute("SELECT done FROM cases").fetchone()
    assert list(json.loads(text)) == ["key", "checked", "ended", "broken", "log"]


def test_a_store_of_cases_without_seals_is_read_and_goes_on_with_them(tmp_path):
    with CaseStore(tmp_path) as store:
        store.put([CaseOutcome(key="old", process=ProcessResult(status=0))])
    with sqlite3.connect(tmp_path / "cases.sqlite") as connection:
        connection.execute("ALTER TABLE cases DROP COLUMN seal")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with CaseStore(tmp_path) as store:
        store.put([CaseOutcome(key="new", process=ProcessResult(status=0))])
        assert sorted(store.get(["old", "new"])) == ["new", "old"]
