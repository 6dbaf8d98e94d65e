"""The engine of a Ray cluster: one task per item, and what is lost with a worker or a node is submitted again.

Ray's own retries are off: it would not say how often an item was tried, and would retry one that kills its node for
ever where memory is short.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kofn._version import __version__
from kofn.errors import InputError, WorldError, import_extra
from kofn.parallel.base import ParallelEngine
from kofn.parallel.local import module_path
from kofn.parallel.ray_worker import BROKEN, LOST, STORED, MapOrder, SharedFolder, digest, run
from kofn.parallel.worker import DONE, UNUSABLE, format_error

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
        running = _RayMap(self, queue, self._map_order(message))
        try:
            running.run()
        finally:
            running.clear()

    def _map_order(self, message: bytes) -> MapOrder:
        folder = f"results-{uuid.uuid4().hex}"
        path = [str(Path(entry).absolute()) for entry in module_path()]
        if self._store is None:
            return MapOrder(__version__, digest(message), [self._ray.put(message)], None, folder, path)
        try:
            return MapOrder(__version__, self._store.keep(message), [], self._store.url, folder, path)
        except Exception as error:  # every kind of store has its own
            raise WorldError(f"shared path {self._store.url}: {format_error(error)}") from error

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
        """Run until every item has a result."""
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
            raise WorldError(
                f"a Ray node cannot run kofn; is it installed there? {format_error(error.cause)}"
            ) from error
        except self._ray.exceptions.RayError as error:  # the Ray worker, its node or what it returned is gone
            self._queue.record_loss(index, type(error).__name__)
            return
        self._handle(index, kind, body)

    def _handle(self, index: int, kind: int, body: bytes) -> None:
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
        except Exception as error:
            raise WorldError(f"shared path {store.url}: {format_error(error)}") from error
        return body

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
            ray.init(
                address=address,
                num_cpus=workers if cluster is None else None,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        restore()
        raise WorldError(_connection_error(error, cluster)) from error

    def leave() -> None:
        ray.shutdown()
        restore()

    return leave


def _connection_error(error: Exception, cluster: str | None) -> str:
    """Why a cluster cannot be joined or started, in one line."""
    if cluster is None:
        return f"Ray does not start: {format_error(error)}"
    if "AuthenticationError" in f"{error!r} {error.__cause__!r}":
        return f"the Ray cluster at {cluster} wants its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
    return f"the Ray cluster at {cluster} cannot be joined: {format_error(error)}"


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
