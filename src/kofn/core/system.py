"""What the operating system gives: locks on files, processes and cores, and the folders of a user."""

from __future__ import annotations

import os
import time
from pathlib import Path


def lock_file(file: int, *, timeout: float | None = 0.0) -> None:
    """Lock an open file or folder until it is closed; BlockingIOError where another holds it for `timeout` seconds.

    The lock ends with its process, however that ends.
    `timeout=None` waits until it is free.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one, other = os.open(folder, os.O_RDONLY), os.open(folder, os.O_RDONLY)
    ...     lock_file(one)
    ...     try:
    ...         lock_file(other)
    ...     except BlockingIOError:
    ...         print("held")
    ...     os.close(one)
    ...     lock_file(other)
    ...     os.close(other)
    held
    """
    try:
        import fcntl
    except ImportError:  # Windows has none: processes there are not kept apart
        return
    if timeout is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    end = time.monotonic() + timeout
    while True:
        try:
            # flock, not the file's existence: the system releases it however the process ends
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.01)
        else:
            return


def cache_folder() -> Path:
    """Where downloads and shared replies are kept: $XDG_CACHE_HOME/kofn, else the system's folder for caches.

    Where that is not ~/.cache (macOS, Windows), ~/.cache/kofn is still used if it is there: earlier versions made it.
    """
    from platformdirs import user_cache_path

    earlier = _earlier_cache()
    if not os.environ.get("XDG_CACHE_HOME") and earlier.is_dir():
        return earlier
    try:
        return user_cache_path("kofn", appauthor=False)
    except RuntimeError:  # a user without a home, as in some containers: a folder that cannot be made keeps nothing
        return Path("/nonexistent/kofn")


def data_folders() -> list[Path]:
    """Where data sets are looked for, in order: $KOFN_DATA, ./data, and the cache."""
    named = os.environ.get("KOFN_DATA")
    places = [*([Path(named)] if named else []), Path("data"), cache_folder() / "data", _earlier_cache() / "data"]
    return list(dict.fromkeys(places))


def _earlier_cache() -> Path:
    return Path(os.path.expanduser("~/.cache/kofn"))  # noqa: PTH111 - that of pathlib raises where there is no home


def process_exists(pid: int) -> bool:
    """Whether a process with this id exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
