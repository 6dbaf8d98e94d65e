"""The engine of a Ray cluster, on several nodes of one core each that run on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.parallel import work
from tests.parallel.work import until

from kofn.errors import InputError, WorldError
from kofn.parallel import engine
from kofn.parallel.base import FailedItem
from kofn.parallel.local import LocalEngine
from kofn.parallel.ray import SharedFolder, digest

pytest.importorskip("ray", reason="ray is not installed")

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def cluster():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def ray_engine(cluster):
    with engine("ray", ray_address=cluster.address) as made:
        yield made


@pytest.mark.cluster
def test_results_are_those_of_the_local_engine(ray_engine):
    items = ["fine", "raise", "fine", "exit", "_exit", "fine", "kill", "lambda", lambda: 0, work.OnlyThere()] * 3
    reported = {}
    results = ray_engine.map(work.what, items, on_done=reported.__setitem__)
    with LocalEngine(workers=2) as local:
        assert results == local.map(work.what, items)
    assert results[6] == FailedItem(reason="the worker died 3 times (signal 9)", attempts=3, lost=True)
    assert reported == dict(enumerate(results))


def test_many_quick_items_are_in_order_and_few_are_in_flight(ray_engine, monkeypatch):
    from kofn.parallel.ray import _RayMap

    in_flight = []
    finished = _RayMap._finished
    monkeypatch.setattr(_RayMap, "_finished", lambda self: in_flight.append(len(self._in_flight)) or finished(self))
    assert ray_engine.workers == 2
    assert ray_engine.remote
    assert ray_engine.map(work.square, range(400), shared=1) == [i * i + 1 for i in range(400)]
    assert max(in_flight) == 4 * ray_engine.workers
    assert ray_engine.map(work.square, []) == []
    assert ray_engine.map(work.sized, [300_000] * 5, shared=b"x") == [b"x" * 300_000] * 5  # not inline in a reply


@pytest.mark.cluster
def test_items_run_in_small_processes_that_get_what_is_shared_once(ray_engine, tmp_path):
    assert ray_engine.map(work.with_counted, range(60), shared=work.Counted(str(tmp_path))) == list(range(60))
    readers = Counter(p.name.partition("-")[0] for p in tmp_path.iterdir())
    assert set(readers.values()) == {1}
    assert not {"ray", "numpy"} & set(ray_engine.map(work.modules, [0])[0])
    assert max(ray_engine.map(work.peak_memory, range(4))) < 25_000_000


@pytest.mark.cluster
def test_an_item_that_kills_its_worker_once_succeeds(ray_engine, tmp_path):
    assert ray_engine.map(work.die_once, range(6), shared=str(tmp_path)) == list(range(6))
    assert (tmp_path / "seen-3").exists()


@pytest.mark.cluster
def test_large_values_go_through_the_shared_path_and_leave_only_what_is_shared(ray_engine, cluster, tmp_path):
    shared = b"ab" * 400_000
    with engine("ray", ray_address=cluster.address, shared_path=f"file://{tmp_path}/x") as made:
        results = made.map(work.sized, [5, 1_500_000, 0, 1_500_000], shared=shared)
        assert made.map(work.sized, [1], shared=shared) == [b"a"]
    assert results == [b"a" * n for n in (5, 1_500_000, 0, 1_500_000)]
    (kept,) = (tmp_path / "x").iterdir()
    assert kept.name == digest(kept.read_bytes())
    assert ray_engine.map(work.square, [7]) == [49]  # closing the other one has not ended the cluster


@pytest.mark.cluster
def test_a_node_that_cannot_read_what_is_shared_is_named(cluster, ray_engine):
    said = f"{socket.gethostname()} cannot read what is shared: FileNotFoundError"
    made = engine("ray", ray_address=cluster.address, shared_path="memory://here-only")
    with made, pytest.raises(WorldError, match=said):
        made.map(work.square, [1], shared="nowhere else")


@pytest.mark.cluster
def test_what_a_node_cannot_load_is_an_error(ray_engine, monkeypatch):
    module = type(os)("only_here")
    exec("def function(shared, item): return item", module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(InputError, match=f"{socket.gethostname()}: .*No module named 'only_here'"):
        ray_engine.map(module.function, [1])
    with pytest.raises(InputError, match="found by no name"):
        ray_engine.map(lambda _, item: item, [1])


def not_there(order: object, item: bytes) -> None:
    raise ModuleNotFoundError("No module named 'kofn'")


@pytest.mark.cluster
def test_a_node_without_kofn_or_with_another_version_is_an_error(ray_engine, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("kofn.parallel.ray.__version__", "0.0.9")
        with pytest.raises(WorldError, match=rf"{socket.gethostname()} has kofn .* and not 0\.0\.9"):
            ray_engine.map(work.square, [1], shared=9)
    monkeypatch.setattr(ray_engine, "_task", ray_engine._ray.remote(not_there))
    with pytest.raises(WorldError, match=r"is it installed there.* No module named 'kofn'"):
        ray_engine.map(work.square, [1])


@pytest.mark.cluster
def test_when_the_caller_s_function_raises_everything_is_killed(ray_engine, tmp_path):
    def on_done(index: int, result: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ray_engine.map(work.first_returns, range(6), shared=str(tmp_path), on_done=on_done)
    assert work.reported_pids(tmp_path)
    assert until(lambda: not any(map(work.alive, work.reported_pids(tmp_path))))
    assert ray_engine.map(work.square, [3]) == [9]


@pytest.mark.cluster
def test_a_node_killed_in_mid_job_loses_nothing_and_counts_nothing_twice(ray_engine, cluster, capfd):
    node = cluster.add_node(**NODE)
    until(lambda: ray_engine.workers == 3)
    reported: Counter[int] = Counter()

    def on_done(index: int, result: object) -> None:
        reported.update([index])
        if len(reported) == 15:
            cluster.remove_node(node, allow_graceful=False)

    results = ray_engine.map(work.slow_square, range(45), shared=0.1, on_done=on_done)
    assert results == [i * i for i in range(45)]
    assert reported == Counter(range(45))
    time.sleep(0.5)
    assert capfd.readouterr().out == ""  # standard output is for results, and Ray has much to say


@pytest.mark.cluster
def test_another_address_than_the_one_in_use_is_refused(ray_engine):
    with pytest.raises(InputError, match=r"is part of the Ray cluster at .* already, and not of 192\.0\.2\.1"):
        engine("ray", ray_address="192.0.2.1:6379")


class NotConnected:
    """Ray in a process that has not joined a cluster."""

    def is_initialized(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("address", "problem", "said"),
    [
        ("127.0.0.1:9", WorldError, "no Ray cluster answers at 127.0.0.1:9: Connection refused; start one with"),
        ("nohost.invalid:6379", WorldError, "no Ray cluster answers at nohost.invalid:6379: "),
        ("nowhere", InputError, "Ray address 'nowhere': expected HOST:PORT, auto or local"),
    ],
)
def test_a_cluster_that_is_not_there_is_said_at_once(monkeypatch, address, problem, said):
    monkeypatch.setattr("kofn.parallel.ray._import_ray", NotConnected)
    with pytest.raises(problem, match=said) as raised:
        engine("ray", ray_address=address)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_cluster_that_the_engine_started_ends_with_it(tmp_path):
    body = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import psutil
from kofn.parallel import engine
from tests.parallel import work
with engine("ray", workers=1, ray_address="local") as made:
    print(made.workers, made.map(work.square, range(4)))
psutil.wait_procs(psutil.Process().children(recursive=True), timeout=20)
print(psutil.Process().children(recursive=True))
"""
    (tmp_path / "program.py").write_text(body)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 [0, 1, 4, 9]", "[]"]
    assert done.stderr == ""


def test_a_shared_path_of_no_known_kind_is_refused():
    with pytest.raises(InputError, match="shared path nosuch://x: Protocol not known"):
        engine("ray", shared_path="nosuch://x")


def test_a_store_keeps_a_value_once_and_finds_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    store = SharedFolder(str(tmp_path / "deep" / "er"))
    name = store.keep(b"value")
    assert store.fetch(name) == b"value"
    (tmp_path / "deep" / "er" / name).write_bytes(b"val")
    with pytest.raises(OSError, match="is damaged"):
        store.fetch(name)
    store.keep(b"value")
    assert store.fetch(name) == b"value"
    far = SharedFolder("memory://far")
    assert far.fetch(far.keep(b"value")) == b"value"
    far.remove(name)
    assert far.fetch(name) == b"value"  # from this machine
    far.remove(name)
