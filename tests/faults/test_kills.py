"""kill -9 at random moments of run, judge, verify, score and report, and then the same command again.

No reply is lost, none is paid for twice, and the result is that of a command nobody disturbed.
"""

from __future__ import annotations

import random
import shutil

import pytest
from tests.faults.world import (
    ANSWER,
    REPEATS,
    VERDICT,
    copied,
    essence,
    marks,
    outputs_in,
    problem_in,
    replies,
    requested,
    task_in,
)
from tests.loopback import running
from tests.programs import need_sandbox

from kofn.problems.case_store import NAME as FINISHED

KILLS = {"run": 70, "judge": 60, "verify": 40, "score": 35, "report": 25}
FEW = 3  # of each in the normal tests


def moments(seconds: float, seed: int):
    """Moments to kill at: all over the life of a command, and now and then beyond its end."""
    chance = random.Random(seed)
    while True:
        yield chance.uniform(0.0, 1.1 * seconds)


def asks(forked, folder, server, store, words, whole, kills, tally, verb, prepare=None):
    """Kill a command that asks a server until it was killed so often; it ends well in between, and is checked."""
    store, directory = folder / store, folder / "out"
    when, done, halfway, written = moments(forked.took, 7), 0, 0, 0
    while done < kills:
        shutil.rmtree(directory, ignore_errors=True)
        if prepare is not None:
            prepare(directory)
        kept, began = [], len(server.requests)
        for attempt in range(60):
            code = forked.killed(next(when) if attempt < 50 else 240.0, *words, cwd=folder)
            if code == 0:
                break
            assert code == -9
            kept.append((replies(store), len(server.requests)))
            done += 1
        assert code == 0
        final, requests = replies(store), server.requests
        for rows, seen in kept:
            assert all(final.get(key) == row for key, row in rows.items()), "a reply was lost"
            assert not marks(rows) & set(requested(requests[seen:])), "a reply was paid for twice"
            halfway += 0 < len(rows) < len(final)
            written += len(rows) == len(final)
        assert marks(final) <= set(requested(requests[began:]))
        assert essence(directory) == whole
        assert not [one.name for one in directory.iterdir() if one.name.startswith(".")], "something was left behind"
    if kills > FEW:  # they were not all killed before they began, nor all after the last reply
        assert halfway > done / 20
        assert written > done / 20
    tally["kill -9, then the same command", f"kofn {verb}"] += done
    tally["of these, while replies came", f"kofn {verb}"] += halfway
    tally["of these, while the result was made and written", f"kofn {verb}"] += written
    tally["replies lost", f"kofn {verb}"] += 0
    tally["replies paid for twice", f"kofn {verb}"] += 0


def killed_runs(folder, forked, tally, kills):
    task_in(folder)
    with running(folder / "log", delay=0.2, said=ANSWER) as server:
        words = ["run", "sums.yaml", "-m", f"openai:m@{server.url}", "-r", REPEATS, "--concurrency", 2, "--out"]
        forked(*words, "warm/out", cwd=folder)
        forked.took = forked.seconds(*words, "whole/out", cwd=folder)
        asks(forked, folder, server, "out", [*words, "out"], essence(folder / "whole" / "out"), kills, tally, "run")


def killed_judges(folder, forked, tally, kills):
    outputs_in(folder, 6)
    assert forked("score", "outputs.jsonl", "--out", "scored", cwd=folder).code == 0
    with running(folder / "log", delay=0.1, said=VERDICT) as server:
        words = ["--rubric", "correctness", "-m", f"openai:m@{server.url}", "--concurrency", 2]
        for name in ("warm/out", "whole/out"):
            shutil.copytree(folder / "scored", folder / name)
            forked.took = forked.seconds("judge", name, *words, cwd=folder)
        whole = essence(folder / "whole" / "out")
        assert whole["judges"]["correctness"][0] > 0

        def prepare(directory):
            shutil.copytree(folder / "scored", directory)

        asks(forked, folder, server, "out/judging", ["judge", "out", *words], whole, kills, tally, "judge", prepare)


def finished(directory):
    return dict(copied(directory, FINISHED, "SELECT key, done FROM cases"))


def killed_verifications(folder, forked, tally, kills):
    need_sandbox()
    problem, submission = problem_in(folder)
    words = ["verify", problem, submission, "--workers", 2, "--out"]
    forked(*words, "warm/out", cwd=folder)
    when, done = moments(forked.seconds(*words, "whole/out", cwd=folder), 8), 0
    whole = essence(folder / "whole" / "out" / "submission" / "one")
    while done < kills:
        shutil.rmtree(folder / "out", ignore_errors=True)
        kept, code = [], -9
        while code != 0:
            code = forked.killed(next(when) if len(kept) < 50 else 240.0, *words, "out", cwd=folder)
            assert code in (0, -9)
            kept += [finished(folder / "out")] if code else []
        done += len(kept)
        final = finished(folder / "out")
        for rows in kept:
            assert all(final[key] == row for key, row in rows.items()), "a finished case was lost or run again"
        assert essence(folder / "out" / "submission" / "one") == whole
    tally["kill -9, then the same command", "kofn verify"] += done
    tally["finished cases lost or run again", "kofn verify"] += 0


def killed_scorings(folder, forked, tally, kills):
    outputs_in(folder)
    words = ["score", "outputs.jsonl", "--out"]
    forked(*words, "warm/out", cwd=folder)
    when, done = moments(forked.seconds(*words, "whole/out", cwd=folder), 9), 0
    whole = essence(folder / "whole" / "out")
    while done < kills:
        shutil.rmtree(folder / "out", ignore_errors=True)
        while not (folder / "out" / "run.json").exists() and not (folder / "out" / ".ready").exists():
            code = forked.killed(next(when), *words, "out", cwd=folder)
            assert code in (0, -9)
            done += code == -9
        again = forked(*words, "out", cwd=folder)
        assert again.code == 2  # it is whole, and a whole run is not written over
        assert "already holds a run" in again.line
        assert essence(folder / "out") == whole
        assert not [one.name for one in (folder / "out").iterdir() if one.name.startswith(".")]
    tally["kill -9, then the same command", "kofn score --out"] += done


def killed_reports(folder, forked, tally, kills):
    outputs_in(folder)
    assert forked("score", "outputs.jsonl", "--out", "out", cwd=folder).code == 0
    words = ["report", "out", "--html"]
    forked(*words, cwd=folder)
    when, done = moments(forked.seconds(*words, cwd=folder), 10), 0
    whole, page = essence(folder / "out"), (folder / "out" / "report.html").read_bytes()
    while done < kills:
        code = forked.killed(next(when), *words, cwd=folder)
        assert code in (0, -9)
        done += code == -9
        assert (folder / "out" / "report.html").read_bytes() == page
        assert essence(folder / "out") == whole
    assert forked(*words, cwd=folder).code == 0
    assert not [one.name for one in (folder / "out").iterdir() if one.name.startswith(".")]
    tally["kill -9, then the same command", "kofn report --html"] += done


CAMPAIGNS = {
    "run": killed_runs,
    "judge": killed_judges,
    "verify": killed_verifications,
    "score": killed_scorings,
    "report": killed_reports,
}


@pytest.mark.faults
@pytest.mark.parametrize("verb", CAMPAIGNS)
def test_whatever_moment_it_is_killed_at_the_same_command_ends_as_if_it_had_not_been(verb, tmp_path, forked, tally):
    CAMPAIGNS[verb](tmp_path, forked, tally, KILLS[verb])


@pytest.mark.kills(quick=1)
@pytest.mark.parametrize("verb", sorted(CAMPAIGNS, key=["report", "score", "verify", "judge", "run"].index))
def test_a_few_kills_of_every_verb_lose_nothing(verb, tmp_path, forked, tally):
    CAMPAIGNS[verb](tmp_path, forked, tally, FEW)
