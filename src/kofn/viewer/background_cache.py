"""A cache of values that take time: each is computed once, in a thread of its own, and the last few are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

PATIENCE = 2.0  # seconds that a request waits before its page says that it takes longer

V = TypeVar("V")


class BackgroundCache(Generic[V]):
    """Values by key. `max_size` bounds the sum of their sizes; the newest value is kept whatever its size."""

    def __init__(self, *, max_values: int, max_size: int, size: Callable[[V], int]) -> None:
        self._max_values, self._max_size, self._size = max_values, max_size, size
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._running: dict[Hashable, _Computation[V]] = {}
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
            computation = self._running.get(key)
            if computation is None:
                computation = self._running[key] = _Computation(partial(self._compute, key, compute))
                computation.start()
        return computation.result(seconds)

    def _compute(self, key: Hashable, compute: Callable[[], V]) -> V:
        try:
            with self._turn:  # each takes memory, so one at a time
                value = compute()
            with self._lock:
                self._store(key, value)
            return value
        finally:
            with self._lock:
                self._running.pop(key, None)

    def _store(self, key: Hashable, value: V) -> None:
        self._values[key] = value
        while len(self._values) > 1 and (
            len(self._values) > self._max_values or sum(map(self._size, self._values.values())) > self._max_size
        ):
            self._values.popitem(last=False)


class _Computation(threading.Thread, Generic[V]):
    """One value on its way; a daemon, so that it does not keep the process alive."""

    def __init__(self, compute: Callable[[], V]) -> None:
        super().__init__(name="kofn-background", daemon=True)
        self._compute = compute
        self._value: V | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._value = self._compute()
        except Exception as error:  # raised again for every request that waits
            self._error = error

    def result(self, seconds: float) -> V | None:
        """The value; None where it takes longer than this."""
        self.join(seconds)
        if self._error is not None:
            raise self._error
        return self._value
