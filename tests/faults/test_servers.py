"""A server that fails in every way we know, in a mix drawn from a seed; and a clock that runs backwards.

The run ends, what failed is a row that can be asked for again, and the result is then that of a server that is well.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest
from tests.faults.commands import KOFN, environment, kofn
from tests.faults.world import ANSWER, CASES, REPEATS, copied, essence, marks, outputs_in, replies, requested, task_in
from tests.loopback import running
from tests.waiting import wait_until

from kofn.runs.files import STORE

MIX = {
    **dict.fromkeys(("429-ms", "429:0", "500", "502", "503:0", "504", "drop", "cut", "malformed", "html"), 0.04),
    **dict.fromkeys(("no-choices", "error-200", "empty", "slow", "drip", "typeless", "wrong-usage"), 0.04),
    **dict.fromkeys(("absurd-usage", "no-usage", "one-choice"), 0.03),
    **dict.fromkeys(("hang", "huge", "429-date"), 0.01),
}
UNUSED = ("tokens", "tokens_in", "detail", "cost")  # what a server that counts wrong changes


def without_counts(found):
    """What does not depend on how a server counts tokens."""
    rows = [{k: v for k, v in row.items() if k not in UNUSED} for row in found["candidates"]]
    kept = {**found, "candidates": rows}
    kept["result"] = {k: v for k, v in found["result"].items() if k not in ("diagnostics", "understood")}
    return kept


def mixed(tmp_path, forked, tally, faults, cases, retries):
    task_in(tmp_path, cases)
    words = ["run", "sums.yaml", "-r", REPEATS, "--concurrency", 8, "--timeout", 3]
    with running(tmp_path / "well.log", said=ANSWER) as server:
        done = forked(*words, "-m", f"openai:m@{server.url}", "--out", "well/out", cwd=tmp_path)
        assert done.code == 0, done.err
    with running(tmp_path / "ill.log", faults={"*": faults}, said=ANSWER) as server:
        words += ["-m", f"openai:m@{server.url}", "--retries", retries, "--out", "out"]
        done, starts = forked(*words, cwd=tmp_path), 1
        assert done.code == 0, done.err
        first = essence(tmp_path / "out")
        failed = [row for row in first["candidates"] if row.get("error")]
        assert first["result"]["n_missing"] == len(failed)
        while any(row.get("error") for row in essence(tmp_path / "out")["candidates"]):
            done, starts = forked(*words, "--retry-errors", cwd=tmp_path), starts + 1
            assert done.code == 0, done.err
            assert starts < 40
        requests = server.requests
    assert without_counts(essence(tmp_path / "out")) == without_counts(essence(tmp_path / "well" / "out"))
    given = [mark for one in requests if one["answered"] for mark in came(one)]
    stored = marks(replies(tmp_path / "out"))
    assert stored <= set(given)
    assert len(stored) == cases * REPEATS
    assert len(given) == len(set(given)), "a reply that was given whole was asked for again"
    for fault in sorted({one["fault"] for one in requests} - {"ok"}):
        tally["a server's fault", fault] += sum(one["fault"] == fault for one in requests)
    tally["candidates that failed and were made whole by --retry-errors", "kofn run"] += len(failed)
    tally["whole replies paid for twice", "kofn run"] += 0
    return failed


def came(request):
    """The replies that a request was given."""
    return requested([request])[: 1 if request["fault"] == "one-choice" else None]


@pytest.mark.faults
def test_a_run_of_a_server_that_fails_in_every_way_is_made_whole(tmp_path, forked, tally):
    failed = mixed(tmp_path, forked, tally, MIX, 240, 1)
    assert failed  # else --retry-errors had nothing to do


@pytest.mark.kills
def test_a_server_with_a_mix_of_faults_gives_the_run_of_one_that_is_well(tmp_path, forked, tally):
    mixed(tmp_path, forked, tally, {name: share for name, share in MIX.items() if share > 0.02}, 20, 6)


@pytest.mark.faults
def test_a_redirect_ends_a_run_in_one_line_and_takes_the_key_nowhere(tmp_path, tally):
    """What is wrong is the address; what was answered before is kept."""
    task_in(tmp_path)
    with running(tmp_path / "log", faults={"*": ["ok", "ok", "302"]}, said=ANSWER) as server:
        words = ["run", "sums.yaml", "-r", REPEATS, "--concurrency", 1, "-m", f"openai:m@{server.url}", "--out", "out"]
        done = kofn(*words, cwd=tmp_path)
        assert done.code == 2
        assert "302" in done.line
        assert len(marks(replies(tmp_path / "out"))) == 2 * REPEATS
        assert kofn(*words, cwd=tmp_path).code == 0
        given = [mark for one in server.requests if one["answered"] for mark in requested([one])]
    assert len(given) == len(set(given)) == CASES * REPEATS
    tally["a server's fault", "302"] += 1


# signals


def interrupted(tmp_path, tally, name, code):
    task_in(tmp_path)
    with running(tmp_path / "log", delay=0.3, said=ANSWER) as server:
        words = ["run", "sums.yaml", "-r", REPEATS, "--concurrency", 2, "-m", f"openai:m@{server.url}", "--out", "out"]
        process = subprocess.Popen(
            [*KOFN, *map(str, words)], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment(),
        )  # fmt: skip
        wait_until(lambda: server.count >= 4 or process.poll() is not None, "requests")
        assert process.poll() is None, process.communicate()
        process.send_signal(name)
        _, err = process.communicate(timeout=240)
        assert process.returncode == code, err
        assert list(filter(None, err.splitlines())) == [
            "what was answered is kept in out: the same command goes on",
            "kofn: stopped",
        ]
        kept, seen = marks(replies(tmp_path / "out")), len(server.requests)
        assert kept
        done = kofn(*words, cwd=tmp_path)
        assert done.code == 0, done.err
        assert not kept & set(requested(server.requests[seen:]))
    tally["a signal in mid-run, then the same command", f"kofn run, {name.name}"] += 1


@pytest.mark.faults
@pytest.mark.parametrize(("name", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_was_answered(name, code, tmp_path, tally):
    interrupted(tmp_path, tally, name, code)


@pytest.mark.kills
def test_a_request_to_end_keeps_what_was_answered(tmp_path, tally):
    interrupted(tmp_path, tally, signal.SIGTERM, 143)


# a clock that runs backwards

BACKWARDS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
static int (*real)(clockid_t, struct timespec *);
static struct timespec first;
int clock_gettime(clockid_t id, struct timespec *at) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (done || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return done;
    if (!first.tv_sec) first = *at;
    at->tv_sec = first.tv_sec - 1000 * (at->tv_sec - first.tv_sec) - 3600;
    return 0;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000; return 0;
}
time_t time(time_t *at) {
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture(scope="session")
def backwards(tmp_path_factory):
    """A library that makes the time of day run backwards a thousand times as fast as it runs."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a clock that runs backwards")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(BACKWARDS)
    made = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "clock.so"), str(folder / "clock.c"), "-ldl"]
    subprocess.run(made, check=True, capture_output=True)
    look = [sys.executable, "-c", "import time; a = time.time(); time.sleep(1.1); print(time.time() < a - 500)"]
    seen = subprocess.run(look, env=environment(LD_PRELOAD=str(folder / "clock.so")), capture_output=True, text=True)
    assert seen.stdout.strip() == "True", seen
    return str(folder / "clock.so")


def durations(value, name=""):
    """Every number that is a time that something took."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from durations(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from durations(inner, name)
    elif isinstance(value, int | float) and name in ("seconds", "duration", "rate", "eta"):
        yield value


@pytest.mark.faults
def test_a_clock_that_runs_backwards_changes_no_number(tmp_path, backwards, tally):
    task_in(tmp_path)
    outputs_in(tmp_path, 6)
    faults = {"*": ["429:1", "ok", "429-date", "500", "ok", "hang"]}
    with running(tmp_path / "log", delay=0.1, faults=faults, said=ANSWER) as server:
        words = ["run", "sums.yaml", "-r", REPEATS, "--concurrency", 2, "-m", f"openai:m@{server.url}", "--timeout", 2]
        words += ["--requests-per-second", 8, "--tokens-per-minute", 6000, "--max-time", 120]
        part = kofn(*words, "--limit", 6, "--out", "out", cwd=tmp_path, LD_PRELOAD=backwards)
        assert part.code == 0, part.err
        for _ in range(2):  # the rest, and then nothing
            done = kofn(*words, "--out", "out", cwd=tmp_path, LD_PRELOAD=backwards)
            assert done.code == 0, done.err
        found = requested(server.requests)
        given = [m for one in server.requests if one["answered"] for m in requested([one])]
        assert len(given) == len(set(given)) == CASES * REPEATS
        assert len(found) < 2 * len(given)
        right = kofn(*words, "--out", "right/out", cwd=tmp_path)
        assert right.code == 0, right.err
    assert essence(tmp_path / "out") == essence(tmp_path / "right" / "out")
    created = [row[0] for row in copied(tmp_path / "out", STORE, "SELECT created FROM replies ORDER BY rowid")]
    assert created != sorted(created)  # the clock did run backwards
    for name in ("run.json", "evaluation.json", "progress.json"):
        assert all(took >= 0 for took in durations(json.loads((tmp_path / "out" / name).read_text())))
    assert all(row[0] is None or row[0] >= 0 for row in copied(tmp_path / "out", STORE, "SELECT seconds FROM replies"))
    for command in (["score", "outputs.jsonl", "--out", "scored"], ["report", "scored", "--html"], ["report", "out"]):
        assert kofn(*command, cwd=tmp_path, LD_PRELOAD=backwards).code == 0
    tally["a clock that runs backwards", "kofn run, score, report"] += 1
