"""What takes time to make: made once by a thread of its own, and the last few kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kofn.report.evaluation import EVALUATION, REPORTS
from kofn.report.files import MANIFEST
from kofn.web import shell

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from starlette.responses import Response

    Stamp = tuple[tuple[int, int], ...]

PATIENCE = 2.0  # seconds until a page says that it takes longer

V = TypeVar("V")


class Later(Generic[V]):
    """Values by key. `room` is the largest sum of their sizes that is kept, beyond the newest one."""

    def __init__(self, *, most: int, room: int, size: Callable[[V], int]) -> None:
        self._most, self._room, self._size = most, room, size
        self._kept: OrderedDict[Hashable, V] = OrderedDict()
        self._going: dict[Hashable, _Going[V]] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], V], seconds: float = PATIENCE) -> V | None:
        """The value; None where it takes longer, and is to be asked for again. What `make` raises is raised here.

        >>> kept = Later[int](most=1, room=10, size=int)
        >>> kept.get("a", lambda: 1), kept.get("a", lambda: 2), kept.get("b", lambda: 3), kept.get("a", lambda: 4)
        (1, 1, 3, 4)
        """
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            going = self._going.get(key)
            if going is None:
                going = self._going[key] = _Going(partial(self._make, key, make))
                going.start()
        return going.result(seconds)

    def _make(self, key: Hashable, make: Callable[[], V]) -> V:
        try:
            with self._turn:  # each takes memory, so one at a time
                made = make()
            with self._lock:
                self._keep(key, made)
            return made
        finally:
            with self._lock:
                self._going.pop(key, None)

    def _keep(self, key: Hashable, made: V) -> None:
        self._kept[key] = made
        while len(self._kept) > 1 and (
            len(self._kept) > self._most or sum(map(self._size, self._kept.values())) > self._room
        ):
            self._kept.popitem(last=False)


class _Going(threading.Thread, Generic[V]):
    """One that is being made."""

    def __init__(self, make: Callable[[], V]) -> None:
        super().__init__(name="kofn-later", daemon=True)
        self._make = make
        self._made: V | None = None
        self._problem: Exception | None = None

    def run(self) -> None:
        try:
            self._made = self._make()
        except Exception as problem:  # told to whoever waits
            self._problem = problem

    def result(self, seconds: float) -> V | None:
        """What was made; None where it takes longer."""
        self.join(seconds)
        if self._problem is not None:
            raise self._problem
        return self._made


def stamp_of(run: Path) -> Stamp:
    """When the files of a run were written; (0, 0) of one that is not there."""
    found = []
    for name in (MANIFEST, EVALUATION, REPORTS):
        try:
            told = (run / name).stat()
            found.append((told.st_mtime_ns, told.st_size))
        except FileNotFoundError:
            found.append((0, 0))
    return tuple(found)


def waiting(what: str, why: str) -> Response:
    """A page that asks again by itself."""
    found = shell.problem(202, what, why)
    found.headers["refresh"] = "1"
    return found
