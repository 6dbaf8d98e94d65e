"""The local engine: results as of a plain loop, whatever becomes of the workers, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parallel import work
from tests.parallel.work import until
from tests.waiting import LONGEST

from kofn.errors import InputError, MissingExtra, UnknownName, WorldError
from kofn.parallel import engine
from kofn.parallel.base import FailedItem
from kofn.parallel.local import LocalEngine, available_cores

ROOT = Path(__file__).parents[2]
VALUES = st.one_of(
    st.none(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.lists(st.integers())
)


@pytest.fixture(scope="module")
def local():
    with LocalEngine(workers=2) as made:
        yield made


def crew(made: LocalEngine) -> list[int]:
    return [worker.process.pid for worker in made._processes]


@given(shared=VALUES, items=st.lists(VALUES, max_size=30))
def test_a_map_is_what_a_loop_gives(local, shared, items):
    assert local.map(work.add, items, shared=shared) == [work.add(shared, item) for item in items]


def test_many_items_come_back_in_order_and_each_is_told_once(local):
    reported = []
    results = local.map(work.square, range(3000), shared=1, on_done=lambda i, r: reported.append((i, r)))
    assert results == [i * i + 1 for i in range(3000)]
    assert sorted(reported) == list(enumerate(results))


def test_results_are_told_in_the_caller_s_thread(local):
    threads = set()
    local.map(work.square, range(5), on_done=lambda *_: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


def test_workers_share_the_work_and_stay_for_the_next_map():
    with LocalEngine(workers=2) as made:
        first = set(made.map(work.who, range(200)))
        assert first == set(crew(made))
        assert set(made.map(work.who, range(200))) <= first


def test_no_more_workers_start_than_there_are_items():
    with LocalEngine(workers=8) as made:
        assert made.map(work.square, [3]) == [9]
        assert len(crew(made)) == 1
        assert made.map(work.square, []) == []


def test_what_is_shared_is_sent_once_to_each_worker(tmp_path):
    with LocalEngine(workers=2) as made:
        assert made.map(work.with_counted, range(300), shared=work.Counted(str(tmp_path))) == list(range(300))
        assert 1 <= len(list(tmp_path.iterdir())) <= 2
    readers = Counter(p.name.partition("-")[0] for p in tmp_path.iterdir())
    assert set(readers.values()) == {1}


def test_large_messages_both_ways_at_once_do_not_block(local):
    """Each side has more to write than a socket holds."""
    items = [bytes([i]) * 3_000_000 for i in range(8)]
    assert local.map(work.add, items, shared=b"s" * 2_000_000) == [(b"s" * 2_000_000, item) for item in items]


def test_a_function_that_raises_fails_its_item_alone_and_is_not_tried_again(local):
    fine, raised, left, mute, long = local.map(work.what, ["fine", "raise", "exit", "mute", "long"])
    assert fine == "fine"
    assert raised == FailedItem(reason="ValueError: first line second line", attempts=1, lost=False)
    assert left == FailedItem(reason="SystemExit: 4", attempts=1, lost=False)
    assert mute == FailedItem(reason="Mute: its message cannot be read", attempts=1, lost=False)
    assert len(long.reason) <= 520


@pytest.mark.kills(quick=2)
@pytest.mark.parametrize(
    ("deed", "how"),
    [("_exit", "exit code 3"), ("kill", "signal 9"), ("segfault", "signal 11"), ("orphan", "exit code 7")],
)
def test_an_item_that_kills_its_worker_is_given_up_and_the_others_are_right(deed, how):
    items = ["fine"] * 20 + [deed] + ["fine"] * 20
    reported: Counter[int] = Counter()
    with LocalEngine(workers=2) as made:
        results = made.map(work.what, items, on_done=lambda i, _: reported.update([i]))
    assert results[20] == FailedItem(reason=f"the worker died 3 times ({how})", attempts=3, lost=True)
    assert results[:20] + results[21:] == ["fine"] * 40
    assert reported == Counter(range(41))


def test_without_retries_an_item_is_given_up_at_once():
    with LocalEngine(workers=1, retries=0) as made:
        lost, fine = made.map(work.what, ["kill", "fine"])
    assert lost == FailedItem(reason="the worker died once (signal 9)", attempts=1, lost=True)
    assert fine == "fine"


def test_many_deadly_items_do_not_harm_those_that_wait_behind_them():
    items = ["fine", "kill"] * 15
    with LocalEngine(workers=2, retries=1) as made:
        results = made.map(work.what, items)
    assert results[::2] == ["fine"] * 15
    assert {r.attempts for r in results[1::2]} == {2}


def test_an_item_that_kills_its_worker_once_succeeds(tmp_path):
    with LocalEngine(workers=2) as made:
        assert made.map(work.die_once, range(10), shared=str(tmp_path)) == list(range(10))
    assert (tmp_path / "seen-3").exists()


def test_workers_killed_between_maps_are_replaced():
    with LocalEngine(workers=2) as made:
        made.map(work.slow_square, range(4), shared=0.01)
        for pid in crew(made):
            os.kill(pid, signal.SIGKILL)
        assert made.map(work.square, range(50)) == [i * i for i in range(50)]


def test_an_engine_works_from_a_thread_after_the_one_that_started_it_is_gone():
    """A worker dies with the thread that started it."""
    with LocalEngine(workers=1) as made:
        thread = threading.Thread(target=lambda: made.map(work.square, [1]))
        thread.start()
        thread.join()
        assert made.map(work.square, range(20)) == [i * i for i in range(20)]


def test_a_slow_item_does_not_hold_back_another(tmp_path):
    """Items that take long are not queued behind each other while a worker is idle."""
    with LocalEngine(workers=2) as made:
        made.map(work.slow_for, [0.1, 0.1])  # both workers have started
        order: list[int] = []

        def on_done(index: int, _: object) -> None:
            order.append(index)
            if len(order) == 4:
                (tmp_path / "go on").touch()

        made.map(work.until_there, [0, str(tmp_path / "go on"), 0, 0, 0], on_done=on_done)
    assert order[-1] == 1


def test_what_cannot_be_pickled_is_said(local):
    item, result, unread, fine = local.map(work.what, [lambda: 0, "lambda", work.OnlyThere(), "fine"])
    assert item.reason.startswith("the item cannot be pickled: ")
    assert (item.attempts, item.lost) == (0, False)
    assert result.reason.startswith("the result cannot be pickled: ")
    assert unread.reason == "the item cannot be unpickled in a worker: RuntimeError: not here"
    assert fine == "fine"
    (late,) = local.map(work.give_unreadable, [0])
    assert late.reason == "the result cannot be unpickled: RuntimeError: not here"
    with pytest.raises(InputError, match="what is shared cannot be pickled: "):
        local.map(work.add, [1], shared=lambda: 0)
    with pytest.raises(InputError, match=r"cannot load tests\.parallel\.work:add and what is shared: RuntimeError"):
        local.map(work.add, [1], shared=work.OnlyThere())


def test_a_function_without_a_name_in_a_module_is_refused(local):
    def inner(shared: object, item: object) -> object:
        return item

    for function in (inner, lambda _, item: item, Counter().update):
        with pytest.raises(InputError, match="found by no name in a worker"):
            local.map(function, [1])


def test_a_function_that_only_this_process_can_import_is_refused(local, monkeypatch):
    module = type(os)("only_here")
    exec("def function(shared, item): return item", module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(InputError, match=r"cannot load only_here:function .*No module named 'only_here'"):
        local.map(module.function, [1])
    assert local.map(work.square, [2]) == [4]


def test_workers_that_cannot_start_are_an_error_and_not_a_hang(monkeypatch, capfd):
    monkeypatch.setattr("kofn.parallel.local._BOOT", "raise SystemExit(5)")
    with LocalEngine(workers=2) as made, pytest.raises(WorldError, match=r"end before they can work \(exit code 5\)"):
        made.map(work.square, range(10))


def test_a_map_within_a_map_is_refused(local):
    with pytest.raises(RuntimeError, match="one map at a time"):
        local.map(work.square, range(3), on_done=lambda *_: local.map(work.square, [1]))


def test_nothing_is_left_when_the_caller_s_function_raises(tmp_path):
    made = LocalEngine(workers=2)
    with pytest.raises(KeyError):
        made.map(work.what, ["raise"] * 9, on_done=lambda *_: {}["no such"])
    assert crew(made) == []
    assert made.map(work.square, [5]) == [25]
    made.close()


def script(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """A program of its own that maps; it runs in its own group, as from a shell."""
    path = tmp_path / "program.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom kofn.parallel.local import LocalEngine\n{body}"
    )
    return subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


SLEEPING = "from tests.parallel import work\nLocalEngine(workers=2).map(work.sleep_and_tell, range(4), shared={!r})"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a busy worker ends when its item does")
def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    with script(tmp_path, SLEEPING.format(str(tmp_path))) as program:
        assert until(lambda: len(work.reported_pids(tmp_path)) == 4)
        workers = {pid for pid in work.reported_pids(tmp_path) if "kofn.parallel" in work.command(pid)}
        assert len(workers) == 2
        program.kill()
    assert until(lambda: not any(map(work.alive, workers)))
    for pid in work.reported_pids(tmp_path) - workers:  # programs of ours, which nobody told to die with their worker
        os.kill(pid, signal.SIGKILL)


def test_an_interrupt_leaves_neither_workers_nor_what_they_started(tmp_path):
    with script(tmp_path, SLEEPING.format(str(tmp_path))) as program:
        assert until(lambda: len(work.reported_pids(tmp_path)) == 4)
        program.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in program.communicate(timeout=LONGEST)[1]
    assert until(lambda: not any(map(work.alive, work.reported_pids(tmp_path))))


def test_a_function_of_the_program_itself_is_refused_with_advice(tmp_path):
    with script(tmp_path, "def mine(shared, item): return item\nLocalEngine(1).map(mine, [1])") as program:
        assert (
            "mine is defined in the program itself, which a worker cannot import: put it in a module"
            in (program.communicate(timeout=LONGEST)[1])
        )


def test_modules_beside_the_program_are_found_in_workers(tmp_path):
    (tmp_path / "beside.py").write_text("def double(shared, item): return 2 * item")
    body = "import beside\nwith LocalEngine(1) as made: print(made.map(beside.double, [1, 2]))"
    with script(tmp_path, body) as program:
        assert program.communicate(timeout=LONGEST)[0] == "[2, 4]\n"


def test_a_worker_does_not_heed_sigint_and_programs_that_it_starts_do(local):
    assert local.map(work.interrupt_and_go_on, [0]) == [-signal.SIGINT]


def test_a_worker_has_no_standard_input_and_prints_to_standard_error(capfd):
    with LocalEngine(workers=1) as made:
        assert made.map(work.speak, ["hello"]) == [""]
    assert capfd.readouterr() == ("", "said hello\n")


def test_a_worker_imports_little():
    program = "import json, sys\nimport kofn.parallel.worker\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"numpy", "polars", "pydantic", "click", "asyncio", "multiprocessing", "dataclasses", "socket"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_stays_small():
    with LocalEngine(workers=1) as made:
        (peak,) = made.map(work.peak_memory, [0])
    assert peak < 20_000_000


def test_engines_are_made_by_name(monkeypatch):
    with engine("local") as made:
        assert made.workers == available_cores()
        assert not made.remote
    with pytest.raises(UnknownName, match="did you mean local"):
        engine("locl")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"--engine ray needs ray: pip install 'kofn\[ray\]'"):
        engine("ray")
    with pytest.raises(InputError, match="workers: expected 1 or more, not 0"):
        engine("local", workers=0)
