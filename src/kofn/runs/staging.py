"""Locks a run directory, and replaces its files all at once: a writer that is killed leaves the old ones.

New files are written into a hidden folder of the run. Renaming that folder decides: from then on they are the run, and
whoever opens the directory next moves those into place that a killed writer did not.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from kofn.core.system import lock_file
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


STORE = "store.sqlite"  # replies of a run that was generated here; its lock file stays beside it
LOCK = "store.lock"
LAST = "run.json"  # moved last: a directory with it is whole
_NEXT, _READY = ".next.", ".ready"
_LEFT = re.compile(r"\.next\.\d+|\..+\.\d+\.tmp|store\.lock")
_TRIES = 100  # renames against other writers that finish at the same moment
_NUMBER = re.compile(r"\(os error (\d+)\)")


@contextmanager
def as_os_error() -> Iterator[None]:
    """What the disk said to polars, as Python says it.

    >>> from polars.exceptions import ComputeError
    >>> with as_os_error():
    ...     raise ComputeError("underlying IO error: No space left on device (os error 28)")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device
    """
    try:
        yield
    except Exception as problem:
        # polars gives the number of the error only in its text
        found = _NUMBER.search(str(problem)) if type(problem).__module__.startswith("polars") else None
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from None


@contextmanager
def staging_folder(directory: Path) -> Iterator[Path]:
    """An empty folder for new files; left well, they take the place of those in the directory, all or none of them."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        recover(directory)
        _remove_abandoned_folders(directory)
        folder = directory / f"{_NEXT}{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        mark = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network folders cannot; then nobody sweeps there either
                lock_file(mark)
            with as_os_error():
                yield folder
            for path in folder.iterdir():
                _sync(path)
            # every file is on the disk: from here on nothing can be lost
            _commit(directory, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(mark)
        recover(directory)
        _sync(directory)
    except OSError as problem:
        raise WorldError(
            f"{directory}: cannot write the run: {problem.strerror or problem}: what was there is kept; "
            "make room, or give another --out, and run the same command again"
        ) from None


def recover(directory: Path) -> None:
    """Move into place what a writer had decided on and not moved before it was killed. Doing it twice is harmless."""
    ready = directory / _READY
    if not ready.is_dir():
        return
    try:
        # False sorts before True: run.json comes last
        for path in sorted(ready.iterdir(), key=lambda path: path.name == LAST):
            with suppress(FileNotFoundError):
                path.replace(directory / path.name)
        with suppress(FileNotFoundError):
            ready.rmdir()
    except OSError as problem:
        raise WorldError(
            f"{directory}: its writer was killed before the end, and the rest cannot be done: {problem.strerror}"
        ) from None


def is_left_over(name: str) -> bool:
    """Whether a killed writer left this, and nobody needs it.

    >>> [name for name in (".next.17", ".run.json.17.tmp", "store.lock", "run.json", ".ready") if is_left_over(name)]
    ['.next.17', '.run.json.17.tmp', 'store.lock']
    """
    return _LEFT.fullmatch(name) is not None


def _commit(directory: Path, folder: Path) -> None:
    """From here on the new files are the run. Another writer that decided just now is let through first."""
    for _ in range(_TRIES):
        try:
            folder.rename(directory / _READY)
        except OSError:
            if not (directory / _READY).is_dir():
                raise
            recover(directory)
        else:
            _sync(directory)
            return
    raise WorldError(f"{directory}: another process writes it all the time: wait until that ends")


def _remove_abandoned_folders(directory: Path) -> None:
    """Remove the folders of killed writers: nobody holds the lock of theirs."""
    for folder in directory.glob(f"{_NEXT}*"):
        with suppress(OSError):
            mark = os.open(folder, os.O_RDONLY)
            try:
                lock_file(mark)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(mark)
    remove_abandoned_files(directory)


def remove_abandoned_files(directory: Path, name: str = "*") -> None:
    """Remove the unfinished files of processes that are gone, of this name or of any."""
    for path in directory.glob(f".{name}.*.tmp"):
        with suppress(OSError, ValueError, OverflowError):
            try:
                # signal 0 asks whether the process is there; a name without a number is not ours
                os.kill(int(path.suffixes[-2][1:]), 0)
            except ProcessLookupError:
                path.unlink()


def _sync(path: Path) -> None:
    """To the disk; a folder that cannot be is left to the system."""
    file = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """The lock of a directory, from before it is read until it is written; afterwards nothing is left of it."""
    there = directory.is_dir()
    lock = acquire_lock(directory)
    try:
        yield
    finally:
        with suppress(OSError):
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
