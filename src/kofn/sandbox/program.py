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
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):  # noqa: PTH208 - names are all that is needed
                waiting += map(int, _read(f"/proc/{one}/task/{thread}/children").split())


def _read(path: str) -> bytes:
    """A file of /proc; empty where there is none, or none any more."""
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - many of them
        return file.read()
    return b""


def _amount(path: str, *names: bytes) -> int:
    """The bytes in the lines of these names. A line ends in a newline alone: a program chooses what it is called."""
    lines = _read(path).split(b"\n")
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, shared ones in full, and of the tables that say where."""
    return _amount(f"/proc/{pid}/status", b"VmRSS:", b"VmPTE:")


def shared_memory() -> int:
    """Bytes of memory that processes of the whole system share."""
    return _amount("/proc/meminfo", b"Shmem:")


def proportional_share(pid: int) -> int:
    """Bytes of memory that a process holds, what it shares counted in part; slower to ask."""
    share = _amount(f"/proc/{pid}/smaps_rollup", b"Pss:")
    return share + _amount(f"/proc/{pid}/status", b"VmPTE:") if share else resident(pid)


def _deleted_mappings(pid: int) -> Iterator[tuple[int, list[bytes]]]:
    """What a process has mapped of files that have no name any more: how many bytes, and the fields of the line."""
    for line in _read(f"/proc/{pid}/maps").split(b"\n"):
        if line.endswith(b" (deleted)"):
            fields = line.split()
            start, _, end = fields[0].partition(b"-")
            yield int(end, 16) - int(start, 16), fields


def mapped_shared(pid: int) -> int:
    """Bytes of address space that a process has for memory that it may share, whether or not it is used."""
    return sum(size for size, fields in _deleted_mappings(pid) if fields[-2].endswith(b"/dev/zero"))


def unlinked_bytes(pids: Sequence[int], device: int) -> int:
    """Bytes on a disk of files that processes hold open, or have mapped, and that have no name any more."""
    found: dict[int, int] = {}
    on_disk = b"%02x:%02x" % (os.major(device), os.minor(device))
    for pid in pids:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names are all that is needed
                with contextlib.suppress(OSError):
                    one = os.stat(f"/proc/{pid}/fd/{number}")  # noqa: PTH116 - a path as text, many of them
                    if one.st_nlink == 0 and one.st_dev == device and stat.S_ISREG(one.st_mode):
                        found[one.st_ino] = one.st_blocks * 512
        for size, fields in _deleted_mappings(pid):
            if fields[3] == on_disk:
                found.setdefault(int(fields[4]), size)
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
    return sum(map(int, _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[11:15])) / _TICKS
