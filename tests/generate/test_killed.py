"""Killed at any moment, a run goes on: no stored reply is lost, none is asked for again, and the result is the same."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from tests.generate.worker import Recipe, items, open_store, work
from tests.loopback import running
from tests.waiting import wait_until

from kofn.errors import InputError
from kofn.generate.candidate_table import candidate_rows
from kofn.generate.store import ReplyRow
from kofn.runs.files import STORE
from kofn.tasks.stages import of_repeat

CASES, REPEATS = 25, 3
RECIPE = Recipe()


@pytest.fixture(scope="module")
def processes():
    """Processes that have everything loaded and start in a moment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.generate.worker", "aiohttp"])
    return context


def stored(directory):
    """What is in the store, read from a copy: whoever opens the files themselves mends what the kill left."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (STORE, f"{STORE}-wal"):
            if (directory / name).exists():
                shutil.copy(directory / name, folder)
        connection = sqlite3.connect(Path(folder) / STORE)
        try:
            if not connection.execute("SELECT name FROM sqlite_master").fetchall():
                return {}  # killed before the tables were there
            return {row[0]: ReplyRow._make(row[:-1]) for row in connection.execute("SELECT * FROM replies")}
        finally:
            connection.close()


def questions(rows):
    """What was sent for these replies: prompt and seed."""
    thoughts = {(r.case_id, r.repeat): r.text for r in rows.values() if r.stage == "think"}
    by_id = {item.case.id: item for item in items(CASES)}
    sent = set()
    for r in rows.values():
        stage = [s.name for s in RECIPE.stages].index(r.stage)
        outputs = {"think": thoughts[r.case_id, r.repeat]} if stage else {}
        prompt = RECIPE.prompt(by_id[r.case_id], stage, r.repeat, outputs, chat=False)
        seed = of_repeat(RECIPE.stages[stage].sampling, 1, r.case_id, r.stage, r.repeat).seed
        sent.add((prompt, seed))
    return sent


def in_log(requests):
    """Every prompt and seed that was asked for."""
    return {(request["prompt"][0]["content"], request["seed"] + j) for request in requests for j in range(request["n"])}


def columns(directory):
    with open_store(directory) as store:
        frame = candidate_rows(store, RECIPE.stages, [i.case.id for i in items(CASES)], REPEATS)
    return frame.drop("seconds", "tokens_in")  # what was asked for apart had a prompt each


def wait_a_while(process, server, chance):
    """Until the server was asked for some more, now and then for nothing at all, and a moment beyond."""
    goal = server.count + chance.randrange(-5, 25)
    wait_until(lambda: process.join(0.002) or process.exitcode is not None or server.count >= goal)
    process.join(chance.uniform(0.0, 0.02))


def killed_until_done(directory, server, processes, chance):
    """Start and kill until the run ends by itself; after each kill, what was stored and how much had been asked."""
    seen = []
    while True:
        process = processes.Process(target=work, args=(str(directory), server.url, CASES, REPEATS))
        process.start()
        wait_a_while(process, server, chance)
        if process.exitcode is None:
            process.kill()
        process.join()
        if process.exitcode == 0:
            return seen
        assert process.exitcode == -9
        seen.append((stored(directory), len(server.requests)))


def check(directory, seen, requests):
    """What was stored when it was killed is there, as it was, and was not asked for after that."""
    final = stored(directory)
    assert len(final) == 2 * CASES * REPEATS
    for rows, sent in seen:
        assert all(final[key] == row for key, row in rows.items())
        assert not questions(rows) & in_log(requests[sent:])


def campaign(tmp_path, processes, kills):
    """Runs that are killed again and again, so often in all."""
    chance, every = random.Random(4), []
    with running(tmp_path / "log", delay=0.01) as server:
        work(str(tmp_path / "whole"), server.url, CASES, REPEATS)
        whole = columns(tmp_path / "whole")
        while len(every) < kills:
            directory = tmp_path / f"run{len(every)}"
            seen = killed_until_done(directory, server, processes, chance)
            check(directory, seen, server.requests)
            assert columns(directory).equals(whole)
            every += seen
    halfway = sum(0 < len(rows) < 2 * CASES * REPEATS for rows, _ in every)
    assert halfway > kills / 4  # they were not all killed before they began


@pytest.mark.kills
def test_a_run_killed_a_few_times_loses_nothing_and_asks_for_nothing_twice(tmp_path, processes):
    campaign(tmp_path, processes, 4)


@pytest.mark.kills
def test_a_run_killed_forty_times_loses_nothing_and_asks_for_nothing_twice(tmp_path, processes):
    campaign(tmp_path, processes, 40)


@pytest.mark.slow
def test_a_run_killed_three_hundred_times_loses_nothing_and_asks_for_nothing_twice(tmp_path, processes):
    campaign(tmp_path, processes, 300)


@pytest.mark.kills
def test_two_processes_on_one_directory_are_one_and_a_refusal(tmp_path, processes):
    with running(tmp_path / "log", delay=0.05) as server:
        first = processes.Process(target=work, args=(str(tmp_path / "run"), server.url, CASES, REPEATS))
        first.start()
        wait_until(lambda: server.count, "the first request")
        with pytest.raises(InputError, match=f"process {first.pid} is using it"):
            work(str(tmp_path / "run"), server.url, CASES, REPEATS)
        first.join()
        assert first.exitcode == 0
        requests = server.requests
        assert sum(request["n"] for request in requests) == len(in_log(requests)) == 2 * CASES * REPEATS
