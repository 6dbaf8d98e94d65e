"""The task that runs on a Ray node: it passes items on to one small worker process that it keeps.

A Ray worker process is large and has threads, so it passes bytes on: nothing is unpickled and no module of the user is
imported in it. Large values go through a folder that every node of the cluster reaches, instead of through Ray.
"""

from __future__ import annotations

import os
import platform
import stat
import tempfile
import uuid
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from kofn._version import __version__
from kofn.core.escape import redact_address
from kofn.errors import InputError
from kofn.parallel.local import WorkerProcess, module_path
from kofn.parallel.worker import DONE, ITEM, LOAD, READY, format_error


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
            _write_atomically(cached, data)
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


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file that others see whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)


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


def _message(order: MapOrder) -> bytes:
    if order.store is not None:
        return SharedFolder(order.store).fetch(order.key)
    import ray

    message: bytes = ray.get(order.reference[0])
    return message


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
