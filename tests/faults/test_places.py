"""Disks that are full or read-only, and two processes on one directory: one line, nothing damaged, and it goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time

import pytest
from tests.faults.world import ANSWER, VERDICT, essence, marks, outputs_in, problem_in, replies, requested, task_in
from tests.loopback import running
from tests.programs import need_sandbox
from tests.waiting import wait_until

VERBS = ("run", "judge", "verify", "score", "report")
SMALL = 64 << 20  # bytes of the disk
ROOM = (0, 8, 24, 60, 120, 200, 300)  # kilobytes that are left on it


@contextlib.contextmanager
def small_disk(folder):
    """A disk of its own."""
    disk = folder / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", disk]).returncode:
        pytest.skip("only root mounts a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk, kilobytes):
    """Leave so much room."""
    (disk / "filler").unlink(missing_ok=True)
    free = os.statvfs(disk)
    with (disk / "filler").open("wb") as file:
        file.write(b"x" * max(0, free.f_bavail * free.f_frsize - (kilobytes << 10)))


class Work:
    """One verb on a disk: what must be there before it, the command, and its result."""

    def __init__(self, verb, folder, disk, server, forked) -> None:
        self.verb, self.folder, self.disk, self.server, self.forked = verb, folder, disk, server, forked
        model = ["-m", f"openai:m@{server.url}", "--concurrency", 2]
        self.words = {
            "run": ["run", "sums.yaml", *model, "-r", 3, "--out"],
            "judge": ["judge", *model, "--rubric", "correctness"],
            "verify": ["verify", "problem", "submission", "--workers", 2, "--out"],
            "score": ["score", "outputs.jsonl", "--out"],
            "report": ["report", "--html"],
        }[verb]
        self.store = {"run": "", "judge": "judging"}.get(verb)
        task_in(folder)
        outputs_in(folder, 10)
        problem_in(folder)

    def prepare(self, out) -> None:
        shutil.rmtree(out, ignore_errors=True)
        if self.verb in ("judge", "report"):
            if not (self.folder / "scored").exists():
                assert self.forked("score", "outputs.jsonl", "--out", "scored", cwd=self.folder).code == 0
            shutil.copytree(self.folder / "scored", out)

    def go(self, out):
        return self.forked(*self.words, out, cwd=self.folder)

    def essence(self, out):
        return essence(out / "submission" / "one" if self.verb == "verify" else out)

    def replies(self, out):
        return (
            {}
            if self.store is None
            else replies(out / self.store)
            if (out / self.store / "store.sqlite").exists()
            else {}
        )


@contextlib.contextmanager
def working(verb, tmp_path, forked):
    if verb == "verify":
        need_sandbox()
    with small_disk(tmp_path) as disk, running(tmp_path / "log", said=VERDICT if verb == "judge" else ANSWER) as server:
        yield Work(verb, tmp_path, disk, server, forked)


def full(verb, tmp_path, forked, tally, rooms):
    with working(verb, tmp_path, forked) as work:
        whole, out = tmp_path / "whole" / "out", work.disk / "out"
        work.prepare(whole)
        assert work.go(whole).code == 0
        failed = 0
        for room in rooms:
            work.prepare(out)
            before = work.essence(out) if verb in ("judge", "report") else None
            fill(work.disk, room)
            ended = work.go(out)
            kept, seen = work.replies(out), len(work.server.requests)
            if ended.code != 0:
                failed += 1
                assert ended.code == 3, (room, ended.err)
                assert any(said in ended.line for said in ("No space", "full", "disk I/O")), ended.err
                assert before is None or work.essence(out) == before
            (work.disk / "filler").unlink()
            again = work.go(out)
            if not (verb == "score" and ended.code == 0):
                assert again.code == 0, (room, ended.err, again.err)
            assert work.essence(out) == work.essence(whole), room
            assert not marks(kept) & set(requested(work.server.requests[seen:]))
            assert all(work.replies(out)[key] == row for key, row in kept.items())
        assert failed
        tally["a full disk, then room, then the same command", f"kofn {verb}"] += failed


def read_only(verb, tmp_path, forked, tally):
    with working(verb, tmp_path, forked) as work:
        out = work.disk / "out"
        work.prepare(out)
        before = work.essence(out) if verb in ("judge", "report") else None
        subprocess.run(["mount", "-o", "remount,ro", work.disk], check=True)
        ended = work.go(out)
        assert ended.code == 3, ended.err
        assert "Read-only" in ended.line or "readonly" in ended.line, ended.err
        if before is not None:
            assert work.essence(out) == before
            assert forked("report", out, cwd=tmp_path).code == 0  # to read needs no writing
        assert not work.server.requests  # nothing is paid for that could not be kept
        subprocess.run(["mount", "-o", "remount,rw", work.disk], check=True)
        assert work.go(out).code == 0
        tally["a read-only directory", f"kofn {verb}"] += 1


@pytest.mark.faults
@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(verb, tmp_path, forked, tally):
    full(verb, tmp_path, forked, tally, ROOM)


@pytest.mark.faults
@pytest.mark.parametrize("verb", VERBS)
def test_a_read_only_directory_is_one_line_and_nothing_is_asked(verb, tmp_path, forked, tally):
    read_only(verb, tmp_path, forked, tally)


@pytest.mark.kills
def test_a_judge_on_a_full_disk_leaves_the_run_as_it_was(tmp_path, forked, tally):
    full("judge", tmp_path, forked, tally, [120])


# two processes


def together(verb, tmp_path, forked, tally):
    """A second command while the first one works, or both at the same moment."""
    if verb == "verify":
        need_sandbox()
    said = VERDICT if verb == "judge" else ANSWER
    with running(tmp_path / "log", delay=0.5, said=said) as server:
        work = Work(verb, tmp_path, tmp_path, server, forked)
        (tmp_path / "submission" / "main.py").write_text(
            "import sys, time\ntime.sleep(0.7)\nprint('hello', *sys.argv[1:])\n"
        )
        out = tmp_path / "out"
        work.prepare(out)
        first = subprocess.Popen(
            [sys.executable, "-m", "kofn", *map(str, work.words), str(out)],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(
            lambda: (
                server.count or any(out.glob("cases.sqlite")) or verb in ("score", "report") or first.poll() is not None
            ),
            "the first command at work",
        )
        if verb not in ("score", "report"):
            assert first.poll() is None, first.communicate()
        time.sleep(0.3)
        second = work.go(out)
        _, err = first.communicate(timeout=240)
        codes = {first.returncode, second.code}
        if verb in ("run", "judge", "verify"):
            assert (first.returncode, second.code) == (0, 2), (err, second.err)
            assert f"process {first.pid} is using it: wait until it ends" in second.line
        else:
            assert codes <= ({0} if verb == "report" else {0, 2}), (err, second.err)
        asked_for = requested(server.requests)
        assert len(asked_for) == len(set(asked_for))
        assert work.essence(out)
        tally["two commands on one directory at once", f"kofn {verb}"] += 1


@pytest.mark.faults
@pytest.mark.parametrize("verb", VERBS)
def test_of_two_commands_on_one_directory_one_is_refused_or_waits(verb, tmp_path, forked, tally):
    together(verb, tmp_path, forked, tally)


@pytest.mark.faults
def test_twenty_pairs_of_scorings_at_once_never_mix(tmp_path, forked, tally):
    """Started in the same moment: one writes, the other is told so; the directory holds one of the two results."""
    for name, seed in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        outputs_in(tmp_path / name, 20, seed)
        assert forked("score", f"{name}/outputs.jsonl", "--task", "t", "--out", f"{name}/out", cwd=tmp_path).code == 0
    wholes = [essence(tmp_path / name / "out") for name in "ab"]
    for _ in range(20):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        started = [
            forked.start("score", f"{name}/outputs.jsonl", "--task", "t", "--out", "out", cwd=tmp_path) for name in "ab"
        ]
        for process in started:
            process.join(240)
        assert sorted(p.exitcode for p in started) == [0, 2]
        assert essence(tmp_path / "out") in wholes
    tally["two commands started in the same moment", "kofn score --out"] += 20
