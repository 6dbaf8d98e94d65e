"""The store: nothing that was said to be done is ever lost, and a file that cannot be trusted is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generate.worker import FINGERPRINT, open_store

from kofn.errors import InputError, WorldError
from kofn.generate.store import Cache, ReplyRow, Store
from kofn.runs.files import STORE, lock_directory

ROOT = Path(__file__).parents[2]


def row(n, **columns):
    base = ReplyRow(
        n.to_bytes(16, "big"), f"c{n}", "answer", 0, "t", None, "stop", -1.5, 7, 3, 0.1, 0.2, None, 1, None, 9.0
    )
    return base._replace(**columns)


def add(store, rows):
    """Hand rows over and wait until they are on the disk."""
    store.put(rows)
    store.flush()


async def commit(store, *rows):
    """The same in a loop, where others hand over rows meanwhile."""
    done = asyncio.get_running_loop().create_future()
    store.put(rows, done)
    await done


def plain(directory):
    """The rows as another program sees them."""
    connection = sqlite3.connect(directory / STORE)
    try:
        return [ReplyRow._make(r[:-1]) for r in connection.execute("SELECT * FROM replies ORDER BY rowid")]
    finally:
        connection.close()


def another(directory, code):
    """A process that opens the store, says so, and does something."""
    script = f"from tests.generate.worker import open_store\nstore = open_store({str(directory)!r})\n"
    script += "print('open', flush=True)\n"
    script += code
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_what_is_added_is_found_by_key_and_survives_closing(tmp_path):
    rows = [row(i) for i in range(1200)]
    with open_store(tmp_path) as store:
        add(store, rows)
        assert store.get([r.key for r in rows]) == {r.key: r for r in rows}
    with open_store(tmp_path) as store:
        assert store.get([rows[7].key, b"?" * 16]) == {rows[7].key: rows[7]}
        assert store.count() == 1200


@given(st.lists(st.tuples(st.text(), st.none() | st.text(), st.none() | st.floats(allow_nan=False)), max_size=4))
def test_any_text_and_number_comes_back_as_it_was(tmp_path_factory, contents):
    rows = [row(i, text=text, reasoning=why, logprob=number) for i, (text, why, number) in enumerate(contents)]
    with open_store(tmp_path_factory.mktemp("s")) as store:
        add(store, rows)
        assert sorted(store.get([r.key for r in rows]).values()) == sorted(rows)


def test_a_stored_reply_is_never_replaced(tmp_path):
    with open_store(tmp_path) as store:
        add(store, [row(1, text="first")])
        add(store, [row(1, text="second")])
        assert store.get([row(1).key])[row(1).key].text == "first"


def test_a_commit_returns_when_another_program_can_read_the_rows(tmp_path):
    async def go(store):
        for i in range(5):
            await commit(store, row(2 * i), row(2 * i + 1))
            assert len(plain(tmp_path)) == 2 * (i + 1)

    with open_store(tmp_path) as store:
        asyncio.run(go(store))


def test_rows_that_come_while_a_commit_runs_are_one_commit(tmp_path):
    commits = []

    async def go(store):
        store._connection.set_trace_callback(lambda statement: statement == "COMMIT" and commits.append(statement))
        await asyncio.gather(*(commit(store, row(i)) for i in range(2000)))

    with open_store(tmp_path) as store:
        asyncio.run(go(store))
        assert store.count() == 2000
    assert len(commits) <= 6  # 512 rows each


def test_rows_handed_over_without_waiting_are_there_after_closing_even_when_the_loop_is_gone(tmp_path):
    async def go(store):
        store.put([row(1)])
        await asyncio.sleep(0)
        store.put([row(2)])

    with open_store(tmp_path) as store:
        asyncio.run(go(store))
        asyncio.run(go(store))
    assert len(plain(tmp_path)) == 2


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path):
    with another(tmp_path, "input()") as first:
        first.stdout.readline()
        try:
            with pytest.raises(InputError, match=f"process {first.pid} is using it.*another --out") as caught:
                open_store(tmp_path)
            assert str(tmp_path) in str(caught.value)
        finally:
            first.kill()
    open_store(tmp_path).close()  # the lock of a killed process is free


def test_the_same_process_cannot_open_it_twice_either(tmp_path):
    with open_store(tmp_path), pytest.raises(InputError, match=f"process {os.getpid()}"):
        open_store(tmp_path)
    open_store(tmp_path).close()


def test_closing_twice_is_closing_once(tmp_path):
    store = open_store(tmp_path)
    store.close()
    store.close()


def test_another_fingerprint_is_refused_by_every_field_that_differs(tmp_path):
    fingerprint = {"model": {"name": "a"}, "prompt": "x" * 200 + "old"}
    Store.open(tmp_path, fingerprint=fingerprint).close()
    Store.open(tmp_path, fingerprint=dict(reversed(fingerprint.items()))).close()  # the order of fields does not matter
    with pytest.raises(InputError, match=r"model\.name was 'a' and is 'b'\. Give another --out"):
        Store.open(tmp_path, fingerprint={**fingerprint, "model": {"name": "b"}})
    with pytest.raises(InputError, match=r"prompt was '\.\.\.x+old' and is '\.\.\.x+new'"):
        Store.open(tmp_path, fingerprint={**fingerprint, "prompt": "x" * 200 + "new"})
    with pytest.raises(InputError, match="seed was unset and is 3"):
        Store.open(tmp_path, fingerprint={**fingerprint, "seed": 3})
    with pytest.raises(InputError, match=r"model\.name was 'a' and is 'b'; seed was unset and is 3"):
        Store.open(tmp_path, fingerprint={**fingerprint, "model": {"name": "b"}, "seed": 3})


def test_what_a_task_sends_is_named_by_its_fields_and_not_by_digests(tmp_path):
    began = {"asked": "77f1", "sent": {"fewshot": {"count": 2, "source": "dev"}, "shape": None}}
    Store.open(tmp_path, fingerprint=began).close()
    with pytest.raises(InputError, match=r"began: fewshot\.count was 2 and is 4\. Give"):
        Store.open(
            tmp_path, fingerprint={"asked": "a0c2", "sent": {"fewshot": {"count": 4, "source": "dev"}, "shape": None}}
        )
    with pytest.raises(InputError, match="began: what the task asks has changed"):
        Store.open(tmp_path, fingerprint={**began, "asked": "a0c2"})


def test_a_store_that_knows_only_the_digest_of_its_task_still_resumes(tmp_path):
    Store.open(tmp_path, fingerprint={"asked": "77f1"}).close()
    Store.open(tmp_path, fingerprint={"asked": "77f1", "sent": {"shape": None}}).close()
    with pytest.raises(InputError, match="what the task asks has changed"):
        Store.open(tmp_path, fingerprint={"asked": "a0c2", "sent": {"shape": None}})


def test_a_file_that_is_no_store_is_refused_in_one_line(tmp_path):
    (tmp_path / STORE).write_text("this is no database, and it is long enough to have a header" * 100)
    refused(tmp_path, "damaged or no store")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("PRAGMA user_version = 7", "version 7 and this kofn reads version 2"),
        ("ALTER TABLE replies DROP COLUMN logprob", "columns of a store"),
        ("DROP TABLE replies", "columns of a store"),
    ],
)
def test_a_store_of_another_form_is_refused_in_one_line(tmp_path, change, said):
    open_store(tmp_path).close()
    with sqlite3.connect(tmp_path / STORE) as connection:
        connection.execute(change)
    connection.close()
    refused(tmp_path, said)


def test_a_store_with_a_broken_page_is_refused_in_one_line(tmp_path):
    with open_store(tmp_path) as store:
        add(store, [row(i, text="x" * 500) for i in range(300)])
    with (tmp_path / STORE).open("r+b") as file:
        file.seek(4096 * 6)
        file.write(os.urandom(4096 * 4))
    refused(tmp_path, "damaged")


def spoiled(directory, change="UPDATE replies SET text = 'another' WHERE case_id = 'c1'"):
    """A store of three rows, one of them changed behind its back."""
    with open_store(directory) as store:
        add(store, [row(1), row(2), row(3)])
    with sqlite3.connect(directory / STORE) as connection:
        connection.execute(change)
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE replies SET text = 'u' WHERE case_id = 'c1'",
        "UPDATE replies SET text = CAST(X'ff' AS TEXT) WHERE case_id = 'c1'",
        "UPDATE replies SET cost = 0.2 WHERE case_id = 'c1'",
        "UPDATE replies SET cost = 'much' WHERE case_id = 'c1'",
        "UPDATE replies SET repeat = 1 WHERE case_id = 'c1'",
        "UPDATE replies SET error = 'none', text = NULL WHERE case_id = 'c1'",
    ],
)
def test_a_reply_that_was_changed_is_refused_in_one_line_until_it_is_asked_again(tmp_path, change):
    spoiled(tmp_path, change)
    said = r"1 of its replies is damaged: --retry-errors drops such replies and asks again"
    with open_store(tmp_path) as store:
        with pytest.raises(InputError, match=said):
            store.get([row(1).key])
        with pytest.raises(InputError, match=said):
            list(store.pieces(["answer"]))
        assert store.get([row(2).key]) == {row(2).key: row(2)}
        assert store.forget_errors() == 1
        add(store, [row(1)])
        assert len(store.get(row(i).key for i in (1, 2, 3))) == 3


def test_a_damaged_reply_of_a_cache_is_none(tmp_path):
    spoiled(tmp_path)
    with Cache.open(tmp_path / STORE) as cache:
        assert set(cache.get(row(i).key for i in (1, 2, 3))) == {row(2).key, row(3).key}


def test_a_key_that_its_index_lacks_is_refused(tmp_path):
    """Else the reply would not be found, and paid for again."""
    spoiled(tmp_path, "PRAGMA user_version = 2")
    data = (tmp_path / STORE).read_bytes()
    at = data.rfind(row(2).key) if data.find(row(2).key) < data.rfind(row(2).key) else -1
    assert at > 0  # once in the table, once in its index
    for place in (data.find(row(2).key), at):
        (tmp_path / STORE).write_bytes(data[: place + 3] + b"!" + data[place + 4 :])
        refused(tmp_path, "damaged")


def test_a_store_without_seals_is_read_and_goes_on_with_them(tmp_path):
    with open_store(tmp_path) as store:
        add(store, [row(1)])
    with sqlite3.connect(tmp_path / STORE) as connection:
        connection.execute("ALTER TABLE replies DROP COLUMN seal")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with open_store(tmp_path) as store:
        add(store, [row(2)])
        assert store.get(row(i).key for i in (1, 2)) == {row(i).key: row(i) for i in (1, 2)}
    with sqlite3.connect(tmp_path / STORE) as connection:
        seals = [seal for (seal,) in connection.execute("SELECT seal FROM replies ORDER BY rowid")]
    connection.close()
    assert seals[0] is None
    assert seals[1] is not None


def test_a_directory_is_held_by_one_and_the_lock_is_gone_with_it(tmp_path):
    with lock_directory(tmp_path / "run"):
        with pytest.raises(InputError, match=f"process {os.getpid()} is using it"), lock_directory(tmp_path / "run"):
            pass
        with pytest.raises(InputError, match="is using it"):
            open_store(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []  # nor the directory, where nothing was written
    with lock_directory(tmp_path / "run"):
        pass


def refused(directory, said):
    with pytest.raises(InputError, match=said) as caught:
        open_store(directory)
    assert "\n" not in str(caught.value)
    assert STORE in str(caught.value)


def test_a_process_killed_before_the_tables_were_made_leaves_a_new_store(tmp_path):
    connection = sqlite3.connect(tmp_path / STORE)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with open_store(tmp_path) as store:
        add(store, [row(1)])
    assert len(plain(tmp_path)) == 1


def test_a_full_disk_fails_who_waits_and_keeps_what_was_stored(tmp_path):
    async def go(store):
        await commit(store, row(1))
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        results = await asyncio.gather(
            *(commit(store, row(i, text="x" * 5000)) for i in range(2, 60)), return_exceptions=True
        )
        assert all(isinstance(r, WorldError) for r in results)
        assert "what was stored is kept" in str(results[0])
        with pytest.raises(WorldError, match="full"):
            await commit(store, row(99))

    store = open_store(tmp_path)
    asyncio.run(go(store))
    with pytest.raises(WorldError):
        store.close()
    assert plain(tmp_path) == [row(1)]
    open_store(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_the_worlds_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError, match="cannot be written"):
        open_store(tmp_path / "file" / "run")


def test_errors_are_forgotten_and_outputs_are_not(tmp_path):
    with open_store(tmp_path) as store:
        add(store, [row(1), row(2, text=None, error="status 500"), row(3, text=None, error="timeout")])
        assert store.forget_errors() == 2
        assert store.forget_errors() == 0
        assert list(store.get(row(i).key for i in range(4))) == [row(1).key]


def test_pieces_are_in_the_order_they_came_and_of_the_stages_asked_for(tmp_path):
    with open_store(tmp_path) as store:
        add(store, [row(9 - i, stage="think" if i % 2 else "answer") for i in range(9)])
        pieces = list(store.pieces(["answer"], 2))
    assert [len(piece) for piece in pieces] == [2, 2, 1]
    assert [r[2] for piece in pieces for r in piece] == ["c9", "c7", "c5", "c3", "c1"]


def test_a_process_killed_while_it_commits_loses_only_what_it_never_said_was_done(tmp_path):
    code = """
import asyncio
from tests.generate.test_store import commit, row
async def go():
    for i in range(10**6):
        await commit(store, row(3 * i), row(3 * i + 1), row(3 * i + 2))
        print(i, flush=True)
asyncio.run(go())
"""
    with another(tmp_path, code) as process:
        lines = "".join(process.stdout.readline() for _ in range(4))
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read()
    said = max(int(line) for line in lines.split("\n")[:-1] if line.isdigit())
    with open_store(tmp_path) as store:
        keys = [row(i).key for i in range(3 * said + 3)]
        assert len(store.get(keys)) == len(keys)
        assert store.count() % 3 == 0  # and a commit is whole or not there


def test_a_cache_is_shared_by_processes(tmp_path):
    path = tmp_path / "cache" / "replies.sqlite"
    script = (
        "import sys\nfrom pathlib import Path\nfrom kofn.generate.store import Cache\n"
        "from tests.generate.test_store import add, row\nn = int(sys.argv[2])\n"
        "with Cache.open(Path(sys.argv[1])) as cache:\n    for i in range(n, n + 100): add(cache, [row(i)])\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    processes = [subprocess.Popen([*command, str(n)], cwd=ROOT) for n in (0, 1000)]
    assert [p.wait() for p in processes] == [0, 0]
    with Cache.open(path) as cache:
        assert len(cache.get(row(i).key for i in range(2000))) == 200


def test_the_fingerprint_of_these_tests_is_kept(tmp_path):
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / STORE)
    assert connection.execute("SELECT value FROM meta").fetchall() == [('{"task":"test"}',)]
    connection.close()
    assert FINGERPRINT == {"task": "test"}
