"""Where one worker runs programs, and the scratch folder that holds all work folders, removed however the run ends."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.errors import WorldError
from kofn.sandbox.base import WorkerDirectories
from kofn.sandbox.process import adopt_orphans
from kofn.sandbox.program import SCRATCH_SIZE, most_inodes, unlinked_bytes
from kofn.sandbox.work_folder import WorkFolder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.sandbox.base import Sandbox
    from kofn.sandbox.process import RunningProgram
    from kofn.sandbox.program import ProcessResult, ProgramLimits

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


_INTERVAL = 0.5  # seconds between two checks of how full the folders are


class Workspace:
    """Where one worker runs programs, one at a time: a sandbox and its directories."""

    def __init__(self, sandbox: Sandbox, root: Path | None = None) -> None:
        self.sandbox = sandbox
        self.root = Path(tempfile.mkdtemp(prefix="kofn-", dir=root))
        self.directories = WorkerDirectories.create(self.root)
        self.folder = WorkFolder(self.directories.work, sandbox.program_user(self.directories))
        adopt_orphans()

    def run(
        self, argv: Sequence[str], *, limits: ProgramLimits, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProcessResult:
        """Run a program to its end."""
        result = self.start(argv, limits=limits, env=env or {}, stdin=stdin).wait(limits.seconds)
        problem = self.sandbox.failure(result)
        if problem is not None:
            raise WorldError(f"the sandbox does not work any more: {problem}")
        return result

    def start(
        self, argv: Sequence[str], *, limits: ProgramLimits, env: Mapping[str, str], stdin: bytes = b""
    ) -> RunningProgram:
        """Start a program; the caller waits for it."""
        return self.sandbox.start(
            argv, directories=self.directories, limits=limits, env=env, stdin=stdin, monitor=self.monitor(limits)
        )

    def monitor(self, limits: ProgramLimits) -> UsageMonitor:
        """Watches what programs leave in the work folder and in the scratch folders."""
        return UsageMonitor(self.folder, limits, self.sandbox.scratch_folders)

    def close(self) -> None:
        """Remove everything; whoever made the folder around it may have done so already."""
        remove_tree(self.root)


class UsageMonitor:
    """Whether the work folder, or a scratch folder in memory, is too full; checked now and then."""

    def __init__(self, folder: WorkFolder, limits: ProgramLimits, scratch_folders: Sequence[str]) -> None:
        self._folder, self._limits, self._scratch_folders = folder, limits, scratch_folders
        self._next = 0.0

    def __call__(self, pids: Sequence[int]) -> str | None:
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + _INTERVAL
        device = os.lstat(self._folder.path).st_dev
        # a file that was deleted while it is open takes room on the disk and is found by no listing
        reason = self._folder.excess(self._limits, unlinked_bytes(pids, device))
        if reason is None:
            most = max(most_inodes(pid, self._scratch_folders, SCRATCH_SIZE) for pid in pids)
            return f"made more than {self._limits.files:,} files" if most > self._limits.files else None
        return reason
