"""The engine of a Ray cluster. A task is one item; what is lost with a worker or a node is submitted again from here.

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
from typing import TYPE_CHECKING, Any, Self

from kofn import __version__
from kofn.engine.base import load_message
from kofn.engine.ledger import Ledger
from kofn.engine.process import own_path
from kofn.engine.remote import BROKEN, LOST, STORED, Order, run
from kofn.engine.store import Store, digest
from kofn.engine.worker import DONE, UNUSABLE, one_line
from kofn.errors import InputError, MissingExtra, WorldError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.engine.base import Function, OnDone

_IN_FLIGHT = 4  # tasks a core that Ray knows of: enough to keep it busy, and a million items are not a million tasks
_RECOUNT = 5.0  # seconds between two looks at how large the cluster is
_CANCEL = 15.0  # seconds to wait for what was cancelled
_CONNECT = 5.0  # seconds to wait for a cluster's port


class Ray:
    """Workers on the nodes of a Ray cluster.

    `address` is HOST:PORT, "auto" for the cluster this machine is part of, or "local" for a new one; without it, Ray
    joins one that it finds or starts one on this machine. `workers` bounds how many items run at a time. `shared_path`
    is a URL of storage that all nodes reach: what is shared, and results above a megabyte, go through it.
    """

    remote = True

    def __init__(
        self,
        address: str | None = None,
        retries: int = 2,
        shared_path: str | None = None,
        workers: int | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers: expected 1 or more, not {workers}")
        self._store = None if shared_path is None else Store(shared_path)
        self._ray = _import_ray()
        self._leave = _connect(self._ray, address, workers)
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(run)
        self._most = workers
        self._busy = False
        self.retries = retries

    @property
    def workers(self) -> int:
        """The cores of the cluster at this moment, or fewer if so asked."""
        n = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return n if self._most is None else min(n, self._most)

    def map(
        self, function: Function, items: Sequence[Any], *, shared: Any = None, on_done: OnDone | None = None
    ) -> list[Any]:
        """See `Engine.map`. An item whose worker or node is lost is tried `retries` times more."""
        if self._busy:
            raise RuntimeError("an engine runs one map at a time")
        ledger = Ledger(items, self.retries, on_done)
        running = _Map(self, ledger, self._order(load_message(function, shared)))
        self._busy = True
        try:
            running.run()
        finally:
            self._busy = False
            running.clear()
        return ledger.results

    def _order(self, message: bytes) -> Order:
        folder = f"results-{uuid.uuid4().hex}"
        path = [str(Path(entry).absolute()) for entry in own_path()]
        if self._store is None:
            return Order(__version__, digest(message), [self._ray.put(message)], None, folder, path)
        try:
            return Order(__version__, self._store.keep(message), [], self._store.url, folder, path)
        except Exception as error:  # every kind of store has its own
            raise WorldError(f"shared path {self._store.url}: {one_line(error)}") from error

    def close(self) -> None:
        """Leave the cluster; end it if this engine started it."""
        if self._leave is not None:
            self._leave()
            self._leave = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class _Map:
    """One map: keeps a bounded number of tasks in flight and takes what they return."""

    def __init__(self, engine: Ray, ledger: Ledger, order: Order) -> None:
        self._engine = engine
        self._ray = engine._ray
        self._ledger = ledger
        self._order = order
        self._flying: dict[Any, int] = {}  # reference -> number of the item
        self._limit = 0
        self._counted = float("-inf")

    def run(self) -> None:
        """Until every item is settled."""
        while self._ledger.left:
            self._submit()
            for reference in self._landed():
                self._take(reference)

    def _submit(self) -> None:
        limit = self._room()
        while len(self._flying) < limit and (found := self._ledger.next()) is not None:
            index, item = found
            self._flying[self._engine._task.remote(self._order, item)] = index

    def _room(self) -> int:
        """How many tasks may be in flight. Nodes come and go, so this is looked up again now and then."""
        if time.monotonic() - self._counted > _RECOUNT:
            self._counted = time.monotonic()
            self._limit = self._engine._most or _IN_FLIGHT * self._engine.workers
        return self._limit

    def _landed(self) -> list[Any]:
        """All tasks that are over; waits for the first."""
        if not self._flying:
            return []
        flying = list(self._flying)
        self._ray.wait(flying, num_returns=1)
        landed: list[Any] = self._ray.wait(flying, num_returns=len(flying), timeout=0)[0]
        return landed

    def _take(self, reference: Any) -> None:
        index = self._flying.pop(reference)
        try:
            kind, body = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # raised by `run`, not by the function
            raise WorldError(f"a Ray node cannot run kofn; is it installed there? {one_line(error.cause)}") from error
        except self._ray.exceptions.RayError as error:  # the Ray worker, its node or what it returned is gone
            self._ledger.lose(index, type(error).__name__)
            return
        self._heed(index, kind, body)

    def _heed(self, index: int, kind: int, body: bytes) -> None:
        if kind == LOST:
            self._ledger.lose(index, body.decode())
        elif kind == BROKEN:
            raise WorldError(f"a Ray node fails: {body.decode()}")
        elif kind == UNUSABLE:
            raise InputError(f"a worker cannot load the function and what is shared: {body.decode()}")
        elif kind == STORED:
            self._ledger.take(index, DONE, self._fetched(body.decode()))
        else:
            self._ledger.take(index, kind, body)

    def _fetched(self, name: str) -> bytes:
        store = self._engine._store
        assert store is not None
        try:
            body = store.read(name)
            store.remove(name)
        except Exception as error:
            raise WorldError(f"shared path {store.url}: {one_line(error)}") from error
        return body

    def clear(self) -> None:
        """Kill what still runs, and remove results that nobody took."""
        left, end = list(self._flying), time.monotonic() + _CANCEL
        while left and time.monotonic() < end:  # Ray forgets to cancel a task that is about to begin: ask again
            for reference in left:
                with suppress(Exception):  # it may be over, or its node gone
                    self._ray.cancel(reference)  # by force, what a worker has started would live on
            with suppress(Exception):
                left = self._ray.wait(left, num_returns=len(left), timeout=0.5)[1]
        self._flying.clear()
        if self._engine._store is not None:
            with suppress(Exception):  # left-over files are no reason to fail
                self._engine._store.remove(self._order.folder)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return import_module("ray")
    except ImportError as error:
        raise MissingExtra("ray", "ray", "--engine ray") from error


def _connect(ray: Any, address: str | None, workers: int | None) -> Callable[[], None] | None:
    """Join or start a cluster; how to leave it, or None if this process was part of it already."""
    if ray.is_initialized():
        _check_same(ray, address)
        return None
    where = _where(address)
    if where is not None:
        _check_reachable(where)
    loud = _hush()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to users of Ray
            ray.init(
                address=address,
                num_cpus=workers if where is None else None,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        loud()
        raise WorldError(_why(error, where)) from error

    def leave() -> None:
        ray.shutdown()
        loud()

    return leave


def _why(error: Exception, where: str | None) -> str:
    """Why a cluster cannot be joined or started, in one line."""
    if where is None:
        return f"Ray does not start: {one_line(error)}"
    if "AuthenticationError" in f"{error!r} {error.__cause__!r}":
        return f"the Ray cluster at {where} wants its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
    return f"the Ray cluster at {where} cannot be joined: {one_line(error)}"


def _hush() -> Callable[[], None]:
    """Standard output is for results: Ray prints there when it loses a node, and has no option against it. The undo."""
    module: Any = import_module("ray._private.worker")
    name = "print_to_stdstream"
    before = getattr(module, name, None)
    setattr(module, name, lambda *_, **__: None)
    return lambda: setattr(module, name, before)


def _check_same(ray: Any, address: str | None) -> None:
    here = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", here):
        raise InputError(f"this process is part of the Ray cluster at {here} already, and not of {address}")


def _where(address: str | None) -> str | None:
    """HOST:PORT of the cluster that Ray would join; None if it would start one."""
    if address not in (None, "auto"):
        return None if address == "local" else address
    try:
        found: str | None = import_module("ray._private.services").canonicalize_bootstrap_address(address)
    except ConnectionError as error:
        raise WorldError("no Ray cluster runs on this machine; start one with `ray start --head`") from error
    except Exception:  # not a public function: without it, only the check below is lost
        return os.environ.get("RAY_ADDRESS") or None
    return found


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
