"""Runs whose pages were opened: read once, without their texts, and kept until files change or memory is needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from kofn.errors import InputError
from kofn.runs.evaluation_files import EVALUATION, REPORTS
from kofn.runs.files import CANDIDATES, CASES, MANIFEST
from kofn.runs.record import load_run
from kofn.viewer.run_folder import NotFound
from kofn.viewer.run_view import RunView

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.viewer.run_folder import RunFolder

MAX_RUNS = 12
MAX_BYTES = 300_000_000  # of columns in all of them; one larger run alone may take more


class RunCache:
    """The runs of a folder by name. Several threads may request one at once: one of them reads it."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._views: OrderedDict[str, tuple[object, RunView]] = OrderedDict()
        self._run_locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> RunView:
        """A run as it is on disk now. One that cannot be read is an InputError, one that is not there `NotFound`."""
        path = self.folder.run(name)
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise InputError("the run's name is no Unicode text, so its files cannot be opened: rename it") from None
        stamp = _stamp(path)
        with self._lock:
            known = self._views.get(name)
            if known is not None and known[0] == stamp:
                self._views.move_to_end(name)
                return known[1]
            run_lock = self._run_locks.setdefault(name, threading.Lock())
        with run_lock:
            with self._lock:
                known = self._views.get(name)
            if known is not None and known[0] == stamp:  # another thread has read it meanwhile
                return known[1]
            view = RunView(name, load_run(path, texts=False))
            self._store(name, stamp, view)
            return view

    def _store(self, name: str, stamp: object, view: RunView) -> None:
        with self._lock:
            self._views[name] = (stamp, view)
            self._views.move_to_end(name)
            while len(self._views) > 1 and (
                len(self._views) > MAX_RUNS or sum(v.bytes for _, v in self._views.values()) > MAX_BYTES
            ):
                self._views.popitem(last=False)


def _stamp(path: Path) -> tuple[tuple[int, int], ...]:
    """When the files of a run were written; while it is written again there is no manifest."""
    stamps = []
    for name in (MANIFEST, EVALUATION, REPORTS, CANDIDATES, CASES):
        try:
            stat = (path / name).stat()
            stamps.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            stamps.append((0, 0))
    if not any(size for _, size in stamps[:2]):
        raise NotFound("this run is not finished: there is nothing to show but how far it is")
    return tuple(stamps)
