"""Stores and run directories that were changed by hand: noticed, told in one line, and never other numbers."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest
from tests.faults.world import (
    ANSWER,
    CASES,
    REPEATS,
    essence,
    outputs_in,
    problem_in,
    replies,
    requested,
    task_in,
    timeless,
)
from tests.loopback import running
from tests.programs import need_sandbox

from kofn.problems.case_store import NAME as FINISHED
from kofn.runs.files import STORE

FLIPS = {"store": 120, "verify": 30, "files": 24}
FILES = ("run.json", "evaluation.json", "candidates.parquet", "cases.parquet", "reports.parquet")


def flip(path, chance):
    """One to four bits of a file changed."""
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 4])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path, chance):
    """The end of a file gone."""
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def garbage(path, chance):
    """A file of something else, or a page of it."""
    data = bytearray(path.read_bytes())
    at = 0 if chance.random() < 0.3 else chance.randrange(len(data)) // 4096 * 4096
    data[at : at + 4096] = chance.randbytes(min(4096, len(data) - at))
    path.write_bytes(data)


def made(tmp_path, forked, server):
    """A whole run, its command and what it says."""
    task_in(tmp_path)
    words = ["run", "sums.yaml", "-r", REPEATS, "-m", f"openai:m@{server.url}", "--out"]
    assert forked(*words, "whole/out", cwd=tmp_path).code == 0
    return words, essence(tmp_path / "whole" / "out")


def refused_or_right(ended, look, whole, tally, what, of):
    """A line and exit code 2 or 3, or a result that is the right one."""
    assert ended.code in (0, 2, 3), ended.err
    if ended.code:
        assert "Traceback" not in ended.err
        assert ended.line
    else:
        assert look() == whole
    tally[f"{what}: {'refused in one line' if ended.code else 'harmless, or asked and run again'}", of] += 1
    return bool(ended.code)


def damaged_stores(tmp_path, forked, tally, times):
    chance = random.Random(11)
    with running(tmp_path / "log", said=ANSWER) as server:
        words, whole = made(tmp_path, forked, server)
        out, found = tmp_path / "out", 0
        for turn in range(times):
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(tmp_path / "whole" / "out", out)
            change = (flip, flip, flip, cut, garbage)[turn % 5]
            change(out / STORE, chance)
            ended = forked(*words, "out", cwd=tmp_path)
            refused = refused_or_right(
                ended, lambda: essence(out), whole, tally, f"store, {change.__name__}", "kofn run"
            )
            found += refused
            if refused and "--retry-errors" in ended.line:
                seen = len(server.requests)
                ended = forked(*words, "out", "--retry-errors", cwd=tmp_path)
                assert ended.code == 0, ended.err
                assert essence(out) == whole
                assert len(requested(server.requests[seen:])) <= 4  # the damaged ones, and no others
                tally["damaged replies dropped and asked again by --retry-errors", "kofn run"] += 1
        assert found > times / 3
        wal(tmp_path, forked, server, words, whole, tally)


def wal(tmp_path, forked, server, words, whole, tally):
    """The log of a killed process deleted, or that of another run."""
    out, other = tmp_path / "out", tmp_path / "other"
    for change in ("deleted", "of another run", "garbage"):
        for directory, seed in ((out, 0), (other, 3)):
            shutil.rmtree(directory, ignore_errors=True)
            for seconds in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 2.0, 3.0):
                forked.killed(seconds, *words, directory.name, "--seed", seed, cwd=tmp_path)
                if (directory / f"{STORE}-wal").exists() and replies(directory):
                    break
        path = out / f"{STORE}-wal"
        if change == "deleted":
            path.unlink(missing_ok=True)
        elif change == "garbage":
            path.write_bytes(os.urandom(20_000))
        elif (other / path.name).exists():
            shutil.copy(other / path.name, path)
        (out / f"{STORE}-shm").unlink(missing_ok=True)
        ended = forked(*words, "out", cwd=tmp_path)
        refused_or_right(ended, lambda: essence(out), whole, tally, f"WAL, {change}", "kofn run")


def damaged_cases(tmp_path, forked, tally, times):
    need_sandbox()
    chance = random.Random(12)
    problem_in(tmp_path, 6)
    words = ["verify", "problem", "submission", "--workers", 2, "--out"]
    assert forked(*words, "whole", cwd=tmp_path).code == 0
    whole, out = essence(tmp_path / "whole" / "submission" / "one"), tmp_path / "out"
    for turn in range(times):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", out)
        change = (flip, flip, flip, cut, garbage)[turn % 5]
        change(out / FINISHED, chance)
        ended = forked(*words, "out", cwd=tmp_path)
        refused_or_right(
            ended, lambda: essence(out / "submission" / "one"), whole, tally, f"store, {change.__name__}", "kofn verify"
        )


def damaged_files(tmp_path, forked, tally, times):
    chance = random.Random(13)
    outputs_in(tmp_path)
    assert forked("score", "outputs.jsonl", "--out", "whole", cwd=tmp_path).code == 0
    out, words = tmp_path / "out", ["report", "out", "--json"]
    shutil.copytree(tmp_path / "whole", out)
    whole = json.loads(forked(*words, cwd=tmp_path).out)
    for name in FILES:
        data, found = (out / name).read_bytes(), 0
        for turn in range(times):
            change = (flip, flip, flip, flip, cut, garbage)[turn % 6]
            change(out / name, chance)
            ended = forked(*words, cwd=tmp_path)
            same = refused_or_right(
                ended, lambda e=ended: json.loads(e.out), whole, tally, f"{name}, changed", "kofn report"
            )
            found += same
            (out / name).write_bytes(data)
        assert found > times / 2
    assert timeless(json.loads(forked(*words, cwd=tmp_path).out)) == timeless(whole)


DAMAGES = {"store": damaged_stores, "verify": damaged_cases, "files": damaged_files}


@pytest.mark.faults
@pytest.mark.parametrize("what", DAMAGES)
def test_what_was_changed_by_hand_is_refused_in_one_line_or_changes_nothing(what, tmp_path, forked, tally):
    DAMAGES[what](tmp_path, forked, tally, FLIPS[what])


@pytest.mark.kills
def test_one_bit_of_a_stored_reply_is_noticed_and_that_reply_asked_again(tmp_path, forked, tally):
    with running(tmp_path / "log", said=ANSWER) as server:
        words, whole = made(tmp_path, forked, server)
        out = tmp_path / "whole" / "out"
        path = out / STORE
        data = path.read_bytes()
        at = data.index(b"The answer is") + 5
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        ended = forked(*words, "whole/out", cwd=tmp_path)
        assert ended.code == 2
        assert "1 of its replies is damaged: --retry-errors" in ended.line
        assert forked(*words, "whole/out", "--retry-errors", cwd=tmp_path).code == 0
        assert essence(out) == whole
        assert len(requested(server.requests)) == CASES * REPEATS + 1
