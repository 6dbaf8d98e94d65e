"""Locks a run directory so that only one process writes it at a time."""

from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kofn.core.file_lock import lock_file
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


STORE = "store.sqlite"  # replies of a run that was generated here; its lock file stays beside it
LOCK = "store.lock"


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """The lock of a directory, from before it is read until it is written; afterwards nothing is left of it."""
    there = directory.is_dir()
    lock = acquire_lock(directory)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            # beside a store the lock file stays; without one nothing is left behind
            if not (directory / STORE).exists():
                (directory / LOCK).unlink()
            if not there:
                directory.rmdir()  # unless something was written
        os.close(lock)


def acquire_lock(directory: Path) -> int:
    """The lock of a directory, which is made where it is not there: an open file with our process id in it.

    However we end, the lock ends too.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _open_lock(directory)
    except OSError as problem:
        raise WorldError(f"{directory}: cannot be written: {problem.strerror}") from None


def _open_lock(directory: Path) -> int:
    file = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(file)
        if not _is_current(file, directory / LOCK):  # who had it removed it: the next one has a file of its own
            os.close(file)
            return _open_lock(directory)
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        # who holds the lock writes its id right after: it may not be there yet
        first = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise InputError(
            f"{directory}: process {first or '(just started)'} is using it: wait until it ends, or give another --out"
        ) from None
    except BaseException:
        os.close(file)
        raise
    return file


def _is_current(file: int, path: Path) -> bool:
    """Whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
