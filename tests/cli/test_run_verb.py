"""`kofn run` as a command: what it prints, what it refuses, and what is left when it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.loopback import running, serving
from tests.waiting import LONGEST, wait_until

import kofn

KOFN = [sys.executable, "-m", "kofn"]


def make(*args, cwd, **more):
    env = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return subprocess.run([*KOFN, *args], cwd=cwd, capture_output=True, text=True, check=False, env=env, **more)


@pytest.fixture
def sums(tmp_path):
    """A task file with twenty cases, for any model."""
    records = [{"id": f"q{i}", "question": f"{i} + {i}", "answer": str(2 * i)} for i in range(20)]
    (tmp_path / "sums.jsonl").write_text("\n".join(json.dumps(r) for r in records))
    stage = "{name: answer, prompt: '{question} =', chat: true}"
    (tmp_path / "sums.yaml").write_text(f"name: sums\ndataset: sums.jsonl\nextract: number\nstages:\n  - {stage}\n")
    return tmp_path / "sums.yaml"


def test_a_run_of_a_server_prints_a_table_and_where_the_report_is(sums, tmp_path):
    with serving() as server:
        done = make("run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "3", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "20 cases x 3 candidates, metric numeric" in done.stdout
    assert "fast (seed 0)" in done.stdout
    assert done.stderr.splitlines() == ["run written to out; open out/report.html"]
    assert kofn.load_run(tmp_path / "out").result.n_candidates == 60


@pytest.mark.commands
def test_the_directory_nobody_named_is_found_again(sums, tmp_path):
    with serving() as server:
        command = ("run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "2")
        make(*command, cwd=tmp_path)
        before = len(server.requests)
        again = make(*command, "--json", cwd=tmp_path)
        assert len(server.requests) == before == 20
    assert json.loads(again.stdout)["generation"]["reused"] == 40
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.commands
def test_a_dry_run_prints_prompts_as_they_are_sent_and_sends_nothing(sums, tmp_path):
    with serving() as server:
        done = make("run", "sums.yaml", "-m", f"openai:m@{server.url}", "--dry-run", cwd=tmp_path)
        assert server.requests == []
        make("run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "1", "--limit", "1", cwd=tmp_path)
        assert server.requests[0]["prompt"] == [{"role": "user", "content": "0 + 0 ="}]
    assert "[user]\n0 + 0 =\n" in done.stdout
    assert done.stdout.count("--- case") == 2


@pytest.mark.commands
def test_an_estimate_asks_nobody_where_nobody_is(sums, tmp_path):
    with serving() as server:
        done = make("run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "2", "--estimate", cwd=tmp_path)
        assert done.returncode == 0
        assert "estimate from" in done.stderr
        assert "40 candidates" in done.stderr
        assert sum(r["n"] for r in server.requests) == 40  # what was probed was not asked again


@pytest.mark.commands(quick=2)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nothing.yaml"], "nothing.yaml"),
        (["starte"], "did you mean starter"),
        (["sums.yaml", "-m", "opena:m"], "did you mean openai"),
        (["sums.yaml", "-m", "openai:gpt"], "OPENAI_API_KEY"),
        (["sums.yaml", "-a", "any_pas", "-m", "fake:builtins:str"], "did you mean any_pass"),
        (["sums.yaml", "--extract", "numbr", "-m", "fake:builtins:str"], "did you mean number"),
        (["sums.yaml", "--ids", "q99", "-m", "fake:builtins:str"], "q99"),
        (["sums.yaml", "--max-repeats", "9", "-m", "fake:builtins:str"], "--adaptive"),
        (["sums.yaml", "--data", "not-there", "-m", "fake:builtins:str"], "not-there"),
        (["sums.yaml", "--all-adapters"], "--model-path"),
        (["sums.yaml", "--model", "smollm2", "--model-path", "x"], "both"),
        (["sums.yaml", "--verdict", "majorty", "-m", "fake:builtins:str"], "did you mean majority"),
        (["sums.yaml", "--policy", "all", "-m", "fake:builtins:str"], "policy"),
        (["sums.yaml", "--metric", "numric", "-m", "fake:builtins:str"], "did you mean numeric"),
        (["sums.yaml", "-a", "pass@9", "-m", "fake:builtins:str"], "--repeats 9"),
        (["sums.yaml", "--by", "kind", "-m", "fake:builtins:str"], "kind"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_before_anything_is_asked(sums, tmp_path, args, said):
    done = make("run", *args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.commands
def test_a_server_that_is_down_is_one_line_and_exit_code_3(sums, tmp_path):
    done = make("run", "sums.yaml", "-m", "openai:x@http://127.0.0.1:9/v1", "--out", "out", cwd=tmp_path)
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert "cannot connect to 127.0.0.1:9 (Connection refused)" in line
    assert done.stdout == ""


@pytest.mark.commands
def test_of_an_edited_task_every_changed_setting_is_named(sums, tmp_path):
    command = ("run", "sums.yaml", "-m", "fake:builtins:str", "--out", "out")
    make(*command, cwd=tmp_path)
    task = tmp_path / "sums.yaml"
    task.write_text(task.read_text().replace("{question}", "Q: {question}"))
    done = make(*command, "--temperature", "0.9", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "answer.prompt was" in line
    assert "answer.temperature was" in line
    assert "asked" not in line


@pytest.mark.commands
def test_a_budget_ends_with_exit_code_3_and_a_run_that_says_so(sums, tmp_path):
    with serving() as server:
        base = ("run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "2", "--out", "out")
        cut = make(*base, "--token-budget", "60", "--concurrency", "1", cwd=tmp_path)
        assert cut.returncode == 3
        assert "stopped" in cut.stderr
        done = make(*base, cwd=tmp_path)
        assert done.returncode == 0
        assert sum(r["n"] for r in server.requests) == 40


def test_a_refused_key_is_one_line(sums, tmp_path):
    with serving(faults={"*": "401"}) as server:
        done = make("run", "sums.yaml", "-m", f"openai:m@{server.url}", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "401" in done.stderr


@pytest.mark.kills
def test_an_interrupt_keeps_every_reply_and_the_same_command_goes_on(sums, tmp_path):
    with running(tmp_path / "log.jsonl", delay=0.2) as server:
        command = ["run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "1", "--out", "out", "--concurrency", "2"]
        process = subprocess.Popen(
            [*KOFN, *command], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        wait_until(lambda: server.count >= 6, "requests")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LONGEST)
        assert process.returncode == 130, said
        assert "Traceback" not in said
        done = make(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        counts = {}
        for r in server.requests:
            counts[json.dumps(r["prompt"])] = counts.get(json.dumps(r["prompt"]), 0) + 1
        assert len(counts) == 20
        assert sum(counts.values()) <= 20 + 2  # only what was under way was asked again


@pytest.mark.kills
def test_a_second_process_is_refused_with_the_first_ones_pid(sums, tmp_path):
    with running(tmp_path / "log.jsonl", delay=0.5) as server:
        command = ["run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "1", "--out", "out", "--concurrency", "1"]
        process = subprocess.Popen(
            [*KOFN, *command], cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: server.count, "the first request")
            second = make(*command, cwd=tmp_path)
        finally:
            process.kill()
            process.wait()
    assert second.returncode == 2
    assert str(process.pid) in second.stderr


@pytest.mark.commands
def test_progress_is_shown_on_a_terminal_alone(sums, tmp_path):
    import pty

    with running(tmp_path / "log.jsonl", delay=0.1) as server:
        command = [*KOFN, "run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", "2", "--out", "out"]
        main, child = pty.openpty()
        env = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
        process = subprocess.Popen(
            [*command, "--concurrency", "4"], cwd=tmp_path, stderr=child, stdout=subprocess.DEVNULL, env=env
        )
        os.close(child)
        screen = _all_of(main)
        assert process.wait(timeout=LONGEST) == 0
    assert "/40" in screen
    assert "ETA" in screen
    assert "mean" in screen


def _all_of(terminal):
    parts = []
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode(errors="replace")


@pytest.mark.model
def test_every_adapter_of_a_training_run_gets_a_directory_of_its_own(sums, tmp_path):
    pytest.importorskip("torch", reason="the extra hf is not installed")
    from tests.tiny import save_run

    folder = Path(save_run(tmp_path / "trained"))
    done = make(
        *("run", "sums.yaml", "--model-path", str(folder), "--all-adapters", "--limit", "2", "-r", "1"),
        *("--max-tokens", "4", "--out", "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["adapter_1000", "adapter_500"]


@pytest.mark.parametrize("form", [["--json"], ["--output-format", "csv"], ["-o", "prompts.json"]])
def test_prompts_have_no_other_form(form, tmp_path):
    said = "kofn: --dry-run prints prompts: leave out --output-format, --json and -o"
    for words in (["run", "starter"], ["judge", "rows.jsonl", "--rubric", "correctness", "-m", "smollm2"]):
        (tmp_path / "rows.jsonl").write_text('{"input": "1 + 1?", "output": "2"}\n')
        done = make(*words, "--dry-run", *form, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(said)
        assert not (tmp_path / "prompts.json").exists()
