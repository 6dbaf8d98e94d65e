"""Where work folders are while programs run."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.checkpoint.folder import remove

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "kofn-verify-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for work folders, gone at the end; those of processes that were killed go too."""
    _sweep(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        with _ending_in_order():
            yield folder
    finally:
        remove(Path(folder))


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let a request to end (SIGTERM, SIGHUP) end this process as any exception would: what it made is taken away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _sweep(folder: Path) -> None:
    """Remove what killed processes of this user left: real folders of its own, for anybody can put a link there."""
    for left in folder.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            found = left.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and pid.isdigit() and not _exists(int(pid)):
                remove(left)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
