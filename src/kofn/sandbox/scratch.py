"""The scratch folder that holds all work folders while programs run, and its removal however the run ends."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.sandbox.work_folder import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "kofn-verify-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for work folders, gone at the end; those of processes that were killed go too."""
    _remove_leftovers(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        with _signals_as_exceptions():
            yield folder
    finally:
        remove_tree(Path(folder))


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
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


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes of this user left: real folders of its own, for anybody can put a link there."""
    # the pid in the name tells whose folder it is: a process that lives still uses its own
    for left in folder.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            found = left.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and pid.isdigit() and not _exists(int(pid)):
                remove_tree(left)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
