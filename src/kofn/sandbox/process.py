"""A program under way: started within its limits, watched for what it uses, and ended with everything it started.

What processes use is read from /proc. Elsewhere than on Linux nothing is read, and all that is used is 0.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.format import MB, format_size

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    Monitor = Callable[[Sequence[int]], str | None]  # what the processes of a program use too much of, if anything


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


_CHUNK = 1 << 16
_CHILD_PID = re.compile(rb'"child-pid": (\d+)\D')
_FIRST_CHECK, _CHECK_INTERVAL = 0.05, 0.1  # seconds until usage is checked, and between two checks
_LINUX = sys.platform == "linux"
_SEALS = 0b1111  # against another seal, shrinking, growing and writing
_GRACE = 2.0  # seconds for what was killed to go


class Launch(NamedTuple):
    """How a program is started.

    `info_pipe`: it is a sandbox, and this the pipe to which it writes the id of its first process. `pass_fds` are
    further files that it is given.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None = None
    info_pipe: tuple[int, int] | None = None
    pass_fds: tuple[int, ...] = ()


class RunningProgram:
    """A process under way, with its output so far.

    `monitor` is given its processes now and then, and says what they use too much of, if anything.
    """

    _process: subprocess.Popen[bytes] | None = None  # none of one that was forked

    def __init__(self, launch: Launch, *, limits: ProgramLimits, monitor: Monitor, stdin: bytes) -> None:
        info_pipe = launch.info_pipe
        self._prepare(limits, monitor, info_pipe=None if info_pipe is None else info_pipe[0])

        def start(files: tuple[int, int, int]) -> int:
            self._process = subprocess.Popen(  # noqa: S603 - running what it is given is what this is for
                launch.command,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env=dict(launch.env),
                cwd=launch.cwd,
                pass_fds=launch.pass_fds if info_pipe is None else (info_pipe[1], *launch.pass_fds),
                start_new_session=True,
            )
            return self._process.pid

        try:
            self._launch(start, stdin)
        finally:
            if info_pipe is not None:
                os.close(info_pipe[1])
                os.set_blocking(info_pipe[0], False)

    def _prepare(
        self, limits: ProgramLimits, monitor: Monitor, *, info_pipe: int | None = None, first_pid: int | None = None
    ) -> None:
        self._limits, self._monitor = limits, monitor
        self._info, self._first_pid = info_pipe, first_pid
        # in a sandbox, which the kernel ends with its first process; otherwise every process has to be found
        self._sandboxed = info_pipe is not None or first_pid is not None
        self._info_text = b""
        self._info_lock = threading.Lock()
        self._began = time.monotonic()
        self._stop_reason: str | None = None
        self._stopped_at = 0.0
        self._timed_out = False
        self._shared = shared_memory()
        self._peaks = (0, 0.0)  # most memory, and CPU time, of all processes whenever they were looked at
        self.result: ProcessResult | None = None

    def _launch(self, launch: Callable[[tuple[int, int, int]], int], stdin: bytes) -> None:
        """Start the process with files for what it reads and writes, of which the other ends are kept."""
        out, err = os.pipe(), os.pipe()
        try:
            with _stdin_file(stdin) as file:
                self.pid = launch((file, out[1], err[1]))
        except BaseException:
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            os.close(out[1])
            os.close(err[1])
        self._out, self._err = out[0], err[0]
        self._open = {self._out, self._err}
        self._parts: dict[int, list[bytes]] = {fd: [] for fd in self._open}
        self._sizes = dict.fromkeys(self._open, 0)
        for fd in self._open:
            os.set_blocking(fd, False)

    def wait(self, seconds: float | None = None) -> ProcessResult:
        """Watch until it has ended; after `seconds` it is stopped."""
        deadline = None if seconds is None else self._began + seconds
        next_check = self._began + _FIRST_CHECK
        exit_fd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None  # readable once it has ended
        try:
            poller = select.poll()
            for fd in self._open if exit_fd is None else {*self._open, exit_fd}:
                poller.register(fd, select.POLLIN)
            exited = False
            while not exited:
                now = time.monotonic()
                if deadline is not None and now >= deadline and self._stop_reason is None:
                    self._timed_out = True
                    self.stop(f"took longer than {seconds:g} s")
                if now >= next_check:
                    self._check_usage(now)
                    next_check = time.monotonic() + _CHECK_INTERVAL
                until = next_check if deadline is None or self._stop_reason else min(next_check, deadline)
                # at least a millisecond: 0 would spin, and a negative time waits for ever
                for fd, _ in poller.poll(max(1.0, (until - now) * 1000)):
                    if fd == exit_fd:
                        exited = True
                    elif not self._read_output(fd):
                        poller.unregister(fd)
                exited = exited or (exit_fd is None and not self.alive)
            return self._finish()
        finally:
            if exit_fd is not None:
                os.close(exit_fd)

    def _read_output(self, fd: int) -> bool:
        """Read what is there; False where there will be no more."""
        try:
            part = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        if not part:
            self._open.discard(fd)
            return False
        room = self._limits.output - self._sizes[fd]
        self._sizes[fd] += len(part)
        if room > 0:
            self._parts[fd].append(part[:room])
        if len(part) > room and self._stop_reason is None:
            name = "standard output" if fd == self._out else "standard error"
            self.stop(f"wrote more than {format_size(self._limits.output)} to {name}")
        return True

    def _check_usage(self, now: float) -> None:
        """Stop it where it uses too much; end what was stopped and is still there."""
        if self._stop_reason is None:
            pids = self._pids()
            reason = self._monitor(pids) or self._excess(pids)
            if reason is not None:
                self.stop(reason)
        elif now > self._stopped_at + _GRACE:
            _kill_group(self.pid)

    def _excess(self, pids: Sequence[int]) -> str | None:
        """Memory and processes of the whole tree; a single process the kernel holds back by itself."""
        memory = sum(map(resident, pids))
        self._peaks = (max(self._peaks[0], memory), max(self._peaks[1], sum(map(cpu_seconds, pids))))
        if len(pids) > self._limits.processes + 8:  # the sandbox's own, and what is counted while it goes
            return f"started more than {self._limits.processes} processes"
        most = self._limits.memory
        # memory that processes share stays when none of them has it in its tables: more of it in the whole system since
        # this one began, and as much of it mapped here
        grown = shared_memory() - self._shared > most and sum(map(mapped_shared, pids)) > most
        # `resident` counts shared pages once per process, so it is only the cheap first look
        if grown or (memory > most and sum(map(proportional_share, pids)) > most):
            return f"used more than {format_size(most)} of memory"
        return None

    def _pids(self) -> list[int]:
        """Everything that runs because of it."""
        return list(descendants(self.pid))

    def stop(self, reason: str) -> None:
        """Kill it and everything it started. The first reason is kept."""
        if self._stop_reason is None:
            self._stop_reason, self._stopped_at = reason, time.monotonic()
        if self._sandboxed and self.first_process() is not None:  # before there is one, bubblewrap itself is killed
            self._kill_sandbox()
            return
        for pid in descendants(self.pid):
            _kill(pid)
        _kill_group(self.pid)

    def _kill_sandbox(self) -> None:
        """Kill the first process of the sandbox: the kernel ends all others with it."""
        _kill(self.first_process() or 0)

    def first_process(self) -> int | None:
        """The first process of the sandbox, by its id out here; None before there is one."""
        with self._info_lock:  # a server's watcher may ask while whoever wants to reach it does
            if self._first_pid is None and self._info is not None:
                with contextlib.suppress(BlockingIOError):
                    self._info_text += os.read(self._info, 4096)  # the JSON of --info-fd comes in pieces
                match = _CHILD_PID.search(self._info_text)
                self._first_pid = None if match is None else int(match[1])
            return self._first_pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended; also where nobody has waited for it yet."""
        if self.result is not None:
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def text_so_far(self) -> bytes:
        """What it wrote until now, output before errors."""
        return b"".join([*self._parts[self._out], *self._parts[self._err]])

    def _finish(self) -> ProcessResult:
        """Take the status, what it used, and the last output."""
        seconds = time.monotonic() - self._began
        _, status, used = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if self._sandboxed:
            used = self._sandbox_usage() or used
        else:
            _kill_group(self.pid)
            _end_orphans()
        if self._process is not None:
            self._process.returncode = code  # it was waited for here
        end = time.monotonic() + _GRACE
        while self._open and time.monotonic() < end:
            ready, _, _ = select.select(list(self._open), [], [], 0.05)
            for fd in ready:
                self._read_output(fd)
        os.close(self._out)
        os.close(self._err)
        self.result = ProcessResult(
            output=b"".join(self._parts[self._out]),
            stderr=b"".join(self._parts[self._err]),
            status=128 - code if code < 0 else code,
            stopped=self._stop_reason,
            timed_out=self._timed_out,
            seconds=seconds,
            # of what was killed the kernel tells nothing: then what was seen has to do
            cpu_seconds=max(used.ru_utime + used.ru_stime, self._peaks[1]),
            peak_memory=max(used.ru_maxrss * (1024 if _LINUX else 1), self._peaks[0]),
        )
        return self.result

    def _sandbox_usage(self) -> resource.struct_rusage | None:
        """What everything in the sandbox used.

        Its first process is no longer waited for, so it is a child of this one (`adopt_orphans`), and its end is the
        end of all others.
        """
        first = self.first_process()
        if self._info is not None:
            os.close(self._info)
            self._info = None
        if first is None:
            return None
        try:
            if os.waitid(os.P_PID, first, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                _kill(first)  # bubblewrap has gone, so nothing inside has any business left
            return os.wait4(first, 0)[2]
        except ChildProcessError:  # bubblewrap has waited for it, and its number may be somebody else's by now
            return None


def adopt_orphans() -> None:
    """Make this process the parent of whatever its children leave behind (Linux), so that it can be found and ended."""
    if _LINUX:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _end_orphans() -> None:
    """Kill what runs below this process though everything it started itself has ended.

    Looked for until nothing is found: what starts a process while it is being ended leaves one that was not there.
    """
    end = time.monotonic() + _GRACE
    while _LINUX and (orphans := [pid for pid in descendants(os.getpid()) if pid != os.getpid()]):
        for pid in orphans:
            _kill(pid)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if time.monotonic() > end:
            return


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


@contextlib.contextmanager
def _stdin_file(data: bytes) -> Iterator[int]:
    """Standard input as a file that cannot be written to; a program that reads none of it does not hold anything up."""
    if not data:
        fd = os.open(os.devnull, os.O_RDONLY)
    elif hasattr(os, "memfd_create"):
        with open(os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, _SEALS)  # nobody can use it as memory of its own
            fd = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
    else:
        import tempfile

        with tempfile.NamedTemporaryFile() as named:
            named.write(data)
            named.flush()
            fd = os.open(named.name, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
