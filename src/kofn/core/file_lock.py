"""Locks open files and folders between processes; a lock ends with its process, however that ends."""

from __future__ import annotations

import time


def lock_file(file: int, *, timeout: float | None = 0.0) -> None:
    """Lock an open file or folder until it is closed; BlockingIOError where another holds it for `timeout` seconds.

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
