"""The folder that is looked at: addresses to run directories and back. Nothing outside it is ever opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from kofn.report.evaluation import EVALUATION, REPORTS
from kofn.report.files import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIVE, STORE = "progress.json", "store.sqlite"
RUN_FILES = (MANIFEST, EVALUATION, REPORTS, LIVE, STORE)
DEEPEST = 12  # folders below the one that was given
PREFIX, MARK = "/run/", "/-/"  # the address of a run, and what parts it from the page of it


class Absent(Exception):
    """There is nothing at this address; the words say what."""


class Found(NamedTuple):
    """A directory that looks like a run: its place below the folder, and when its files last changed."""

    name: str
    path: Path
    stamp: tuple[tuple[str, int, int], ...]


class Folder:
    """A folder of runs, or a run itself."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def run(self, name: str) -> Path:
        """The run directory of a name, such as "models/first"; "" is the folder itself."""
        parts = [part for part in name.split("/") if part]
        if any(part in (".", "..") or "\0" in part for part in parts):
            raise Absent("no such run here")
        path = self.root.joinpath(*parts)
        try:
            real = path.resolve()
            if not (self._inside(real) and path.is_dir() and any((path / one).is_file() for one in RUN_FILES)):
                raise Absent("no such run here: it may have been moved or deleted meanwhile")
            if any(e.is_symlink() and not self._inside((path / e.name).resolve()) for e in _listed(path)):
                raise Absent("a file of this run is a link that leads out of the folder: it is not opened")
        except OSError as problem:
            raise Absent(f"cannot be read: {problem.strerror}") from None
        return path

    def _inside(self, real: Path) -> bool:
        return real == self.root or self.root in real.parents

    def runs(self) -> Iterator[Found]:
        """Every directory at or below the folder that holds a file of a run, in order of name.

        Links are not followed: they may lead out of the folder, or round in a circle. Nothing is looked for in a run.
        """
        waiting = [(self.root, "", 0)]
        while waiting:
            path, name, depth = waiting.pop()
            entries = _listed(path)
            stamp = tuple(_stamp(e) for e in entries if e.name in RUN_FILES and _is(e, "file"))
            if stamp:
                yield Found(name, path, stamp)
            if depth < DEEPEST and all(one == LIVE for one, _, _ in stamp):  # a verification tells it above its runs
                below = [e for e in entries if not e.name.startswith(".") and _is(e, "dir")]
                waiting += [(path / e.name, f"{name}/{e.name}" if name else e.name, depth + 1) for e in below]


def _listed(path: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, last name first; one that may not be looked into, or is gone, holds nothing."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda e: e.name, reverse=True)
    except OSError:
        return []


def _is(entry: os.DirEntry[str], what: str) -> bool:
    try:
        return entry.is_file(follow_symlinks=False) if what == "file" else entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _stamp(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        told = entry.stat(follow_symlinks=False)
        return entry.name, told.st_mtime_ns, told.st_size
    except OSError:
        return entry.name, 0, 0


def address(name: str, page: str = "") -> str:
    """Where a run is shown, or one of its pages. File names may hold any bytes.

    >>> address("models/a b"), address("", "case")
    ('/run/models/a%20b', '/run//-/case')
    """
    return PREFIX + quote(os.fsencode(name)) + (f"{MARK}{page}" if page else "")


def name_of(raw_path: bytes) -> tuple[str, str]:
    """(the run's name, the page of it) of an address, as the server got it.

    >>> name_of(b"/run/models/a%20b/-/case"), name_of(b"/run/first")
    (('models/a b', 'case'), ('first', ''))
    """
    rest = raw_path.removeprefix(PREFIX.encode())
    name, _, page = rest.partition(MARK.encode()) if MARK.encode() in rest else (rest, b"", b"")
    return os.fsdecode(unquote_to_bytes(name)).strip("/"), unquote_to_bytes(page).decode("utf-8", "replace")
