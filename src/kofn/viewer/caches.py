"""Caches: of the runs that were opened last, and of what is computed in the background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kofn.errors import InputError
from kofn.runs.files import CANDIDATES, CASES
from kofn.runs.record import load_run
from kofn.viewer.run_folder import NotFound, run_stamp
from kofn.viewer.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kofn.viewer.run_folder import RunFolder, Stamp

PATIENCE = 2.0  # seconds that a request waits before its page says that it takes longer

V = TypeVar("V")


class BackgroundCache(Generic[V]):
    """Values by key. `max_size` bounds the sum of their sizes; the newest value is kept whatever its size."""

    def __init__(self, *, max_values: int, max_size: int, size: Callable[[V], int]) -> None:
        self._max_values, self._max_size, self._size = max_values, max_size, size
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._running: dict[Hashable, Computation[V]] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], V], seconds: float = PATIENCE) -> V | None:
        """The value; None where it takes longer and is to be requested again. Errors of `compute` are raised here.

        >>> cache = BackgroundCache[int](max_values=1, max_size=10, size=int)
        >>> cache.get("a", lambda: 1), cache.get("a", lambda: 2), cache.get("b", lambda: 3), cache.get("a", lambda: 4)
        (1, 1, 3, 4)
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            if key not in self._running:
                self._running[key] = Computation(partial(self._compute, key, compute))
            computation = self._running[key]
        return computation.result(seconds)

    def _compute(self, key: Hashable, compute: Callable[[], V]) -> V:
        try:
            with self._turn:  # each takes memory, so one at a time
                value = compute()
            with self._lock:
                self._values[key] = value
                drop_oldest(self._values, self._max_values, self._max_size, self._size)
            return value
        finally:
            with self._lock:
                self._running.pop(key, None)


def drop_oldest(
    values: OrderedDict[Any, V], most: int, max_size: float = inf, size: Callable[[V], int] = lambda _: 0
) -> None:
    """Drop the values that were used longest ago, where there are too many or they are too large; never the newest."""
    while len(values) > 1 and (len(values) > most or sum(map(size, values.values())) > max_size):
        values.popitem(last=False)


class Computation(threading.Thread, Generic[V]):
    """One value on its way; a daemon, so that it does not keep the process alive."""

    def __init__(self, compute: Callable[[], V]) -> None:
        super().__init__(name="kofn-background", daemon=True)
        self._compute = compute
        self._value: V | None = None
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._compute()
        except Exception as error:  # raised again for every request that waits
            self._error = error
        finally:
            del self._compute  # and with it the run that it is of

    def result(self, seconds: float) -> V | None:
        """The value; None where it takes longer than this."""
        self.join(seconds)
        if self._error is not None:
            raise self._error
        return self._value


MAX_RUNS = 12
MAX_BYTES = 300_000_000  # of columns in all of them; one larger run alone may take more


class RunCache:
    """The runs of a folder by name. Several threads may request one at once: one of them reads it."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._views: OrderedDict[str, tuple[Stamp, RunView]] = OrderedDict()
        self._run_locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> RunView:
        """A run as it is on disk now. One that cannot be read is an InputError, one that is not there `NotFound`."""
        path = self.folder.run(name)
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise InputError("the run's name is no Unicode text, so its files cannot be opened: rename it") from None
        stamp = run_stamp(path, CANDIDATES, CASES)
        if not any(size for _, size in stamp[:2]):  # run.json is gone while a run is written again
            raise NotFound("this run is not finished: there is nothing to show but how far it is")
        with self._lock:
            run_lock = self._run_locks.setdefault(name, threading.Lock())
        with run_lock:  # of several threads the first reads it
            known = self._views.get(name)
            if known is None or known[0] != stamp:
                known = stamp, RunView(name, load_run(path, texts=False))
            with self._lock:
                self._views[name] = known
                self._views.move_to_end(name)
                drop_oldest(self._views, MAX_RUNS, MAX_BYTES, lambda kept: kept[1].bytes)
            return known[1]
