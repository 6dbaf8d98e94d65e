"""A program in a sandbox: what it may use, how its process ended, and what processes use at a moment, from /proc.

Elsewhere than on Linux nothing is read, and all that is used is 0.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kofn.core.format import MB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCRATCH_SIZE = 128 * MB  # bytes of each scratch folder of a sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What one execution may use.

    seconds     on the clock; a process also gets no more seconds of CPU than this, and one
    memory      bytes of one process, and of all of them together
    file_size   bytes of one file
    disk        bytes of all files in the work folder
    files       files and folders in the work folder
    processes   at the same time, threads included
    output      bytes of standard output, and as many of standard error
    """

    seconds: float = 10.0
    memory: int = 1024 * MB
    file_size: int = 64 * MB
    disk: int = 256 * MB
    files: int = 10_000
    processes: int = 64
    output: int = 8 * MB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How one process came to its end.

    `status` is its exit status, 128 + n where signal n ended it; None where it never ran. `stopped` says why the
    harness stopped it, None where it ended by itself. `peak_memory` is that of its largest process, in bytes, and is
    never seen smaller than the process that started it.
    """

    output: bytes = b""
    stderr: bytes = b""
    status: int | None = None
    stopped: str | None = None
    timed_out: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def descendants(pid: int) -> Iterator[int]:
    """The process and all it started, directly or not."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += _children(one)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names are all that is needed
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, shared ones in full, and of the tables that say where."""
    return _status(pid, (b"VmRSS:", b"VmPTE:"))


def _status(pid: int, names: tuple[bytes, ...]) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(names))
    return 0


def shared_memory() -> int:
    """Bytes of memory that processes of the whole system share."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo", "rb") as file:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Shmem:"))
    return 0


def mapped_shared(pid: int) -> int:
    """Bytes of address space that a process has for memory that it may share, whether or not it is used."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
        lines = [line.split() for line in file if line.endswith(b"/dev/zero (deleted)\n")]
        return sum(int(end, 16) - int(start, 16) for start, _, end in (words[0].partition(b"-") for words in lines))
    return 0


def unlinked_bytes(pids: Sequence[int], device: int) -> int:
    """Bytes on a disk of files that processes hold open, or have mapped, and that have no name any more."""
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names are all that is needed
                with contextlib.suppress(OSError):
                    one = os.stat(f"/proc/{pid}/fd/{number}")  # noqa: PTH116 - a path as text, many of them
                    if one.st_nlink == 0 and one.st_dev == device and stat.S_ISREG(one.st_mode):
                        found[one.st_ino] = one.st_blocks * 512
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.endswith(b" (deleted)\n"):
                    span, _, _, where, inode = line.split()[:5]
                    start, _, end = span.partition(b"-")
                    if where == b"%02x:%02x" % (os.major(device), os.minor(device)):
                        found.setdefault(int(inode), int(end, 16) - int(start, 16))
    return sum(found.values())


def most_inodes(pid: int, folders: Sequence[str], size_of_each: int) -> int:
    """The most files in one of these folders, each a file system of its own of this size, as a process sees them."""
    most = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            found = os.statvfs(f"/proc/{pid}/root{folder}")
            if found.f_blocks * found.f_frsize == size_of_each:  # not another one, before the sandbox is made
                most = max(most, found.f_files - found.f_ffree)
    return most


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return sum(map(int, file.read().rpartition(b")")[2].split()[11:15])) / _TICKS
    return 0.0


def proportional_share(pid: int) -> int:
    """Bytes of memory that a process holds, what it shares counted in part; slower to ask."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
        shares = next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        return shares + _status(pid, (b"VmPTE:",))
    return resident(pid)
