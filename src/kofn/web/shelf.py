"""Runs that are being looked at: read once, without their texts, and kept until files change or room is needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from kofn.errors import InputError
from kofn.report.evaluation import EVALUATION, REPORTS
from kofn.report.files import CANDIDATES, CASES, MANIFEST
from kofn.report.run import load_run
from kofn.web.browsed import Browsed
from kofn.web.folder import Absent

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.web.folder import Folder

MOST = 12  # runs
ROOM = 300_000_000  # bytes of columns in all of them; one larger run alone may take more


class Shelf:
    """The runs of a folder by name. Several threads may ask for one at once: one of them reads it."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._kept: OrderedDict[str, tuple[object, Browsed]] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Browsed:
        """A run as it is on disk now. What cannot be read is an InputError, what is not there is `Absent`."""
        path = self.folder.run(name)
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise InputError("the run's name is no Unicode text, so its files cannot be opened: rename it") from None
        stamp = _stamp(path)
        with self._lock:
            found = self._kept.get(name)
            if found is not None and found[0] == stamp:
                self._kept.move_to_end(name)
                return found[1]
            own = self._locks.setdefault(name, threading.Lock())
        with own:
            with self._lock:
                found = self._kept.get(name)
            if found is not None and found[0] == stamp:
                return found[1]
            made = Browsed(name, load_run(path, texts=False))
            self._keep(name, stamp, made)
            return made

    def _keep(self, name: str, stamp: object, made: Browsed) -> None:
        with self._lock:
            self._kept[name] = (stamp, made)
            self._kept.move_to_end(name)
            while len(self._kept) > 1 and (
                len(self._kept) > MOST or sum(b.bytes for _, b in self._kept.values()) > ROOM
            ):
                self._kept.popitem(last=False)


def _stamp(path: Path) -> tuple[tuple[int, int], ...]:
    """When the files of a run were written; one that is being written again lacks the first."""
    found = []
    for name in (MANIFEST, EVALUATION, REPORTS, CANDIDATES, CASES):
        try:
            told = (path / name).stat()
            found.append((told.st_mtime_ns, told.st_size))
        except OSError:
            found.append((0, 0))
    if not any(size for _, size in found[:2]):
        raise Absent("this run is not finished: there is nothing to show but how far it is")
    return tuple(found)
