"""The engine of a Ray cluster: one task per item, and what is lost with a worker or a node is submitted again.

Ray's own retries are off: it would not say how often an item was tried, and would retry one that kills its node for
ever where memory is short. A task passes its item on to one small worker process that the Ray worker keeps: that one is
large and has threads, so nothing is unpickled and no module of the user is imported in it. Large values go through a
folder that every node of the cluster reaches, instead of through Ray.
"""

from __future__ import annotations

import os
import platform
import socket
import stat
import tempfile
import time
import uuid
import warnings
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kofn._version import __version__
from kofn.core.escape import redact_address
from kofn.errors import InputError, WorldError, import_extra
from kofn.parallel.base import ParallelEngine
from kofn.parallel.local import WorkerProcess, module_path
from kofn.parallel.worker import DONE, ITEM, LOAD, READY, UNUSABLE, format_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.parallel.base import ItemQueue


_IN_FLIGHT = 4  # tasks a core that Ray knows of: enough to keep it busy, and a million items are not a million tasks
_RECOUNT = 5.0  # seconds between two looks at how large the cluster is
_CANCEL = 15.0  # seconds to wait for what was cancelled
_CONNECT = 5.0  # seconds to wait for a cluster's port


class RayEngine(ParallelEngine):
    """Workers on the nodes of a Ray cluster.

    `address` is HOST:PORT, "auto" for the cluster this machine is part of, or "local" for a new one; without it, Ray
    joins one that it finds or starts one on this machine. `workers` bounds how many items run at a time. `shared_path`
    is a URL of storage that all nodes reach: what is shared, and results above a megabyte, go through it.
    """

    remote: ClassVar[bool] = True

    def __init__(
        self, address: str | None = None, retries: int = 2, shared_path: str | None = None, workers: int | None = None
    ) -> None:
        super().__init__(workers, retries)
        self._store = None if shared_path is None else SharedFolder(shared_path)
        self._ray = _import_ray()
        self._leave = _connect(self._ray, address, workers)
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(run)

    @property
    def workers(self) -> int:
        """The cores of the cluster at this moment, or fewer where `workers` says so."""
        n = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return min(n, self._max_workers or n)

    def _run(self, queue: ItemQueue, message: bytes) -> None:
        folder = f"results-{uuid.uuid4().hex}"
        path = [str(Path(entry).absolute()) for entry in module_path()]
        if self._store is None:
            order = MapOrder(__version__, digest(message), [self._ray.put(message)], None, folder, path)
        else:
            try:
                order = MapOrder(__version__, self._store.keep(message), [], self._store.url, folder, path)
            except Exception as error:  # every kind of store has its own
                raise WorldError(f"shared path {self._store.url}: {format_error(error)}") from error
        running = _RayMap(self, queue, order)
        try:
            running.run()
        finally:
            running.clear()

    def close(self) -> None:
        """Leave the cluster; end it if this engine started it."""
        if self._leave is not None:
            self._leave()
            self._leave = None


class _RayMap:
    """One map: keeps a bounded number of tasks in flight and takes what they return."""

    def __init__(self, engine: RayEngine, queue: ItemQueue, map_order: MapOrder) -> None:
        self._engine = engine
        self._ray = engine._ray
        self._queue = queue
        self._map_order = map_order
        self._in_flight: dict[Any, int] = {}  # reference -> number of the item
        self._limit = 0
        self._counted = float("-inf")

    def run(self) -> None:
        while self._queue.left:
            self._submit()
            for reference in self._finished():
                self._take(reference)

    def _submit(self) -> None:
        """Fill up what may be in flight. Nodes come and go, so how much that is is looked up again now and then."""
        if time.monotonic() - self._counted > _RECOUNT:
            self._counted = time.monotonic()
            self._limit = self._engine._max_workers or _IN_FLIGHT * self._engine.workers
        while len(self._in_flight) < self._limit and (found := self._queue.next()) is not None:
            index, item = found
            self._in_flight[self._engine._task.remote(self._map_order, item)] = index

    def _finished(self) -> list[Any]:
        """All tasks that are over; waits for the first."""
        if not self._in_flight:
            return []
        in_flight = list(self._in_flight)
        self._ray.wait(in_flight, num_returns=1)
        finished: list[Any] = self._ray.wait(in_flight, num_returns=len(in_flight), timeout=0)[0]
        return finished

    def _take(self, reference: Any) -> None:
        index = self._in_flight.pop(reference)
        try:
            kind, body = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # raised by `run`, not by the function
            reason = format_error(error.cause)
            raise WorldError(f"a Ray node cannot run kofn; is it installed there? {reason}") from error
        except self._ray.exceptions.RayError as error:  # the Ray worker, its node or what it returned is gone
            self._queue.record_loss(index, type(error).__name__)
            return
        if kind == LOST:
            self._queue.record_loss(index, body.decode())
        elif kind == BROKEN:
            raise WorldError(f"a Ray node fails: {body.decode()}")
        elif kind == UNUSABLE:
            raise InputError(f"a worker cannot load the function and what is shared: {body.decode()}")
        elif kind == STORED:
            self._queue.record_answer(index, DONE, self._read_stored(body.decode()))
        else:
            self._queue.record_answer(index, kind, body)

    def _read_stored(self, name: str) -> bytes:
        store = self._engine._store
        assert store is not None
        try:
            body = store.read(name)
            store.remove(name)
            return body
        except Exception as error:
            raise WorldError(f"shared path {store.url}: {format_error(error)}") from error

    def clear(self) -> None:
        """Kill what still runs, and remove results that nobody took."""
        left, end = list(self._in_flight), time.monotonic() + _CANCEL
        while left and time.monotonic() < end:  # Ray forgets to cancel a task that is about to begin: ask again
            for reference in left:
                with suppress(Exception):  # it may be over, or its node gone
                    self._ray.cancel(reference)  # by force, what a worker has started would live on
            with suppress(Exception):
                left = self._ray.wait(left, num_returns=len(left), timeout=0.5)[1]
        self._in_flight.clear()
        if self._engine._store is not None:
            with suppress(Exception):  # left-over files are no reason to fail
                self._engine._store.remove(self._map_order.folder)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return import_extra("ray", "ray", "--engine ray")


def _connect(ray: Any, address: str | None, workers: int | None) -> Callable[[], None] | None:
    """Join or start a cluster; how to leave it, or None if this process was part of it already."""
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise InputError(f"this process is part of the Ray cluster at {here} already, and not of {address}")
        return None
    cluster = _cluster_address(address)
    if cluster is not None:
        _check_reachable(cluster)
    restore = _silence_ray()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to users of Ray
            cores = workers if cluster is None else None
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
            ray.init(address=address, num_cpus=cores, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        restore()
        if cluster is None:
            reason = f"Ray does not start: {format_error(error)}"
        elif "AuthenticationError" in f"{error!r} {error.__cause__!r}":
            reason = f"the Ray cluster at {cluster} wants its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
        else:
            reason = f"the Ray cluster at {cluster} cannot be joined: {format_error(error)}"
        raise WorldError(reason) from error

    def leave() -> None:
        ray.shutdown()
        restore()

    return leave


def _silence_ray() -> Callable[[], None]:
    """Keep Ray from printing to standard output, which is for results; returns how to undo it.

    It prints there when it loses a node, and has no option against that.
    """
    module: Any = import_module("ray._private.worker")
    name = "print_to_stdstream"
    before = getattr(module, name, None)
    setattr(module, name, lambda *_, **__: None)
    return lambda: setattr(module, name, before)


def _cluster_address(address: str | None) -> str | None:
    """HOST:PORT of the cluster that Ray would join; None if it would start one."""
    if address not in (None, "auto"):
        return None if address == "local" else address
    try:
        item: str | None = import_module("ray._private.services").canonicalize_bootstrap_address(address)
    except ConnectionError as error:
        raise WorldError("no Ray cluster runs on this machine; start one with `ray start --head`") from error
    except Exception:  # not a public function: without it, only the check below is lost
        return os.environ.get("RAY_ADDRESS") or None
    return item


def _check_reachable(address: str) -> None:
    """Ray itself waits minutes for a cluster that is not there, and logs all the while."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"Ray address {address!r}: expected HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
    except OSError as error:
        why = error.strerror or str(error)
        fix = "start one with `ray start --head`, or give the address local"
        raise WorldError(f"no Ray cluster answers at {address}: {why}; {fix}") from error


def digest(data: bytes) -> str:
    """The name of a value that is kept under its content."""
    return blake2b(data, digest_size=16).hexdigest()


class SharedFolder:
    """Named values in a folder such as file:///mnt/x or s3://bucket/x; the URL is what fsspec understands."""

    def __init__(self, url: str) -> None:
        try:
            self._files, self._root = import_module("fsspec.core").url_to_fs(url)
        except ImportError as error:  # fsspec itself, or what it needs for this kind of URL
            raise InputError(f"shared path {redact_address(url)}: {error}; install what is missing") from None
        except ValueError as error:
            text = str(error).replace(url, redact_address(url))
            raise InputError(f"shared path {redact_address(url)}: {text}") from None
        self.url: str = self._files.unstrip_protocol(self._root)  # a relative path means nothing elsewhere

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(self._path(name))
        return data

    def remove(self, name: str) -> None:
        """Remove a value or a folder; one that is not there is removed already."""
        if self._files.exists(self._path(name)):
            self._files.rm(self._path(name), recursive=True)

    def keep(self, data: bytes) -> str:
        """Write a value under its digest, unless it is there. One that was cut off in writing is written again."""
        name = digest(data)
        path = self._path(name)
        if not self._files.exists(path) or self._files.size(path) != len(data):
            self.write(name, data)
        return name

    def fetch(self, name: str) -> bytes:
        """A value by its digest, from this machine if another process has fetched it before."""
        if self.url.startswith("file:"):
            return _verify_digest(self.read(name), name)
        cached = Path(tempfile.gettempdir()) / f"kofn-{os.getuid()}" / name
        if _is_private(cached.parent) and cached.is_file() and digest(data := cached.read_bytes()) == name:
            return data
        data = _verify_digest(self.read(name), name)
        if _is_private(cached.parent):
            with tempfile.NamedTemporaryFile(dir=cached.parent, delete=False) as file:
                file.write(data)
            Path(file.name).replace(cached)  # others see it whole or not at all
        return data


def _verify_digest(data: bytes, name: str) -> bytes:
    if digest(data) != name:
        raise OSError(f"{name} is damaged: it is not what was written under this name")
    return data


def _is_private(folder: Path) -> bool:
    """Make a folder in the shared /tmp that only we can enter; False where somebody else has made it before us."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


LOST, STORED, BROKEN = 16, 17, 18  # beside a worker's own answers: it died; the result's name; the node is at fault
_LARGE = 1_000_000  # bytes of a result from which it is stored


class MapOrder(NamedTuple):
    """What is the same for all items of a map."""

    version: str  # of the caller's kofn
    key: str  # of the load message: its digest
    reference: list[Any]  # to the load message in Ray's object store; empty if it is in the store
    store: str | None  # URL
    folder: str  # of large results, in the store
    path: list[str]  # where the caller finds modules


class _Helper:
    """The worker process of this Ray worker, if there is one, and what it has loaded."""

    worker: WorkerProcess | None = None
    loaded: str | None = None


def run(order: MapOrder, item: bytes) -> tuple[int, bytes]:
    """The answer to an item: a kind and its bytes. Ray cancels by a KeyboardInterrupt; then nothing is left running."""
    try:
        return _run(order, item)
    except BaseException:
        if _Helper.worker is not None:
            _Helper.worker.kill()
            _discard_worker()
        raise


def _run(order: MapOrder, item: bytes) -> tuple[int, bytes]:
    if (problem := _load(order)) is not None:
        return problem
    assert _Helper.worker is not None
    answer = _Helper.worker.request(ITEM, item)
    if answer is None:
        return LOST, _discard_worker().encode()
    if answer.kind != DONE or order.store is None or len(answer.body) <= _LARGE:
        return answer.kind, answer.body
    name = f"{order.folder}/{uuid.uuid4().hex}"
    try:
        SharedFolder(order.store).write(name, answer.body)
    except Exception as error:
        return BROKEN, f"{platform.node()} cannot write a result: {format_error(error)}".encode()
    return STORED, name.encode()


def _load(order: MapOrder) -> tuple[int, bytes] | None:
    """Make sure that a live worker has loaded the order; the answer where it cannot."""
    if _Helper.worker is not None and _Helper.worker.exited():  # while it was idle: no item is to blame
        _discard_worker()
    if _Helper.loaded == order.key:
        return None
    if order.version != __version__:
        return BROKEN, f"{platform.node()} has kofn {__version__} and not {order.version}".encode()
    try:
        if order.store is not None:
            message = SharedFolder(order.store).fetch(order.key)
        else:
            import ray

            message = ray.get(order.reference[0])
    except Exception as error:  # every kind of store has its own
        return BROKEN, f"{platform.node()} cannot read what is shared: {format_error(error)}".encode()
    if _Helper.worker is None:
        here = module_path()  # first, then where the caller looks, as far as there are such places on this node
        more = [entry for entry in order.path if entry not in here and Path(entry).exists()]
        _Helper.worker = WorkerProcess(here + more)
    answer = _Helper.worker.request(LOAD, message)
    if answer is None:
        return BROKEN, f"{platform.node()}: worker processes end before they can work ({_discard_worker()})".encode()
    if answer.kind != READY:
        return answer.kind, f"{platform.node()}: {answer.body.decode()}".encode()
    _Helper.loaded = order.key
    return None


def _discard_worker() -> str:
    """Forget the worker, which has died; returns how it ended."""
    assert _Helper.worker is not None
    how = _Helper.worker.reap()
    _Helper.worker = _Helper.loaded = None
    return how
