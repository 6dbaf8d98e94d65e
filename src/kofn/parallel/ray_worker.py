"""The task that runs on a Ray node: it passes items on to one small worker process that it keeps.

A Ray worker process is large and has threads, so it passes bytes on: nothing is unpickled and no module of the user is
imported in it.
"""

from __future__ import annotations

import platform
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from kofn._version import __version__
from kofn.parallel.shared_folder import SharedFolder
from kofn.parallel.worker import DONE, ITEM, LOAD, READY, format_error
from kofn.parallel.worker_process import WorkerProcess, module_path

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
    if answer.kind == DONE and order.store is not None and len(answer.body) > _LARGE:
        return _store_result(order.store, order.folder, answer.body)
    return answer.kind, answer.body


def _load(order: MapOrder) -> tuple[int, bytes] | None:
    """Make sure that a live worker has loaded the order; the answer where it cannot."""
    if _Helper.worker is not None and _Helper.worker.exited():  # while it was idle: no item is to blame
        _discard_worker()
    if _Helper.loaded == order.key:
        return None
    if order.version != __version__:
        return BROKEN, f"{platform.node()} has kofn {__version__} and not {order.version}".encode()
    try:
        message = _message(order)
    except Exception as error:  # every kind of store has its own
        return BROKEN, f"{platform.node()} cannot read what is shared: {format_error(error)}".encode()
    if _Helper.worker is None:
        _Helper.worker = WorkerProcess(_module_path(order.path))
    answer = _Helper.worker.request(LOAD, message)
    if answer is None:
        return BROKEN, f"{platform.node()}: worker processes end before they can work ({_discard_worker()})".encode()
    if answer.kind != READY:
        return answer.kind, f"{platform.node()}: {answer.body.decode()}".encode()
    _Helper.loaded = order.key
    return None


def _message(order: MapOrder) -> bytes:
    if order.store is not None:
        return SharedFolder(order.store).fetch(order.key)
    import ray

    message: bytes = ray.get(order.reference[0])
    return message


def _module_path(callers: list[str]) -> list[str]:
    """Where this node looks for modules, then where the caller does, as far as there are such places here."""
    here = module_path()
    return here + [entry for entry in callers if entry not in here and Path(entry).exists()]


def _discard_worker() -> str:
    """Forget the worker, which has died; returns how it ended."""
    assert _Helper.worker is not None
    how = _Helper.worker.reap()
    _Helper.worker = _Helper.loaded = None
    return how


def _store_result(store: str, folder: str, result: bytes) -> tuple[int, bytes]:
    name = f"{folder}/{uuid.uuid4().hex}"
    try:
        SharedFolder(store).write(name, result)
    except Exception as error:
        return BROKEN, f"{platform.node()} cannot write a result: {format_error(error)}".encode()
    return STORED, name.encode()
