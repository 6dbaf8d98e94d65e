"""Start a program, watch it, and end it with everything it started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from kofn.checkpoint.usage import cpu_seconds, descendants, mapped_shared, resident, share, shared_memory, size
from kofn.checkpoint.work import Ended

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.checkpoint.work import Limits

_CHUNK = 1 << 16
_FIRST = re.compile(rb'"child-pid": (\d+)\D')
_FIRST_LOOK, _LOOK = 0.05, 0.1  # seconds until what a program uses is looked at, and between two looks
_LINUX = sys.platform == "linux"
_SEALED = 0b1111  # against another seal, shrinking, growing and writing
_GRACE = 2.0  # seconds for what was killed to go


class Running:
    """A process under way, with its output so far.

    `look` is given its processes now and then, and says what they use too much of, if anything.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        limits: Limits,
        look: Callable[[Sequence[int]], str | None] = lambda _: None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        info: tuple[int, int] | None = None,
        passed: tuple[int, ...] = (),
    ) -> None:
        """`info`: the process is a sandbox, and this the pipe to which it writes the id of its first process.

        `passed` are further files that it is given.
        """
        self._prepare(limits, look, info=None if info is None else info[0])

        def launch(files: tuple[int, int, int]) -> int:
            self._process = subprocess.Popen(  # noqa: S603 - running what it is given is what this is for
                command,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env=None if env is None else dict(env),
                cwd=folder,
                pass_fds=passed if info is None else (info[1], *passed),
                start_new_session=True,
            )
            return self._process.pid

        try:
            self._launch(launch, stdin)
        finally:
            if info is not None:
                os.close(info[1])
                os.set_blocking(info[0], False)

    def _prepare(
        self,
        limits: Limits,
        look: Callable[[Sequence[int]], str | None],
        *,
        info: int | None = None,
        first: int | None = None,
    ) -> None:
        self._limits, self._look = limits, look
        self._info, self._first = info, first
        self._alone = info is not None or first is not None  # in a sandbox: it ends with the first process there
        self._told = b""
        self._asking = threading.Lock()
        self._began = time.monotonic()
        self._stopped: str | None = None
        self._stopped_at = 0.0
        self._timed_out = False
        self._shared = shared_memory()
        self._seen = (0, 0.0)  # most memory, and CPU time, of all processes whenever they were looked at
        self.ended: Ended | None = None

    def _launch(self, launch: Callable[[tuple[int, int, int]], int], stdin: bytes) -> None:
        """Start the process with files for what it reads and writes, of which the other ends are kept."""
        out, err = os.pipe(), os.pipe()
        try:
            with _as_file(stdin) as file:
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

    def wait(self, seconds: float | None = None) -> Ended:
        """Watch until it has ended; after `seconds` it is stopped."""
        deadline = None if seconds is None else self._began + seconds
        next_look = self._began + _FIRST_LOOK
        with _Exit(self.pid) as exit_of:
            watched = select.poll()
            for fd in self._open:
                watched.register(fd, select.POLLIN)
            exit_of.register(watched)
            while not exit_of.happened:
                now = time.monotonic()
                if deadline is not None and now >= deadline and self._stopped is None:
                    self._timed_out = True
                    self.stop(f"took longer than {seconds:g} s")
                if now >= next_look:
                    self._inspect(now)
                    next_look = time.monotonic() + _LOOK
                until = next_look if deadline is None or self._stopped else min(next_look, deadline)
                self._read(watched.poll(max(1.0, (until - now) * 1000)), watched, exit_of)
            return self._finish()

    def _read(self, events: list[tuple[int, int]], watched: select.poll, exit_of: _Exit) -> None:
        for fd, _ in events:
            if fd in self._open:
                if not self._take(fd):
                    watched.unregister(fd)
            else:
                exit_of.happened = True
        exit_of.ask()

    def _take(self, fd: int) -> bool:
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
        if len(part) > room and self._stopped is None:
            name = "standard output" if fd == self._out else "standard error"
            self.stop(f"wrote more than {size(self._limits.output)} to {name}")
        return True

    def _inspect(self, now: float) -> None:
        """Stop it where it uses too much; end what was stopped and is still there."""
        if self._stopped is None:
            pids = self._pids()
            reason = self._look(pids) or self._overuse(pids)
            if reason is not None:
                self.stop(reason)
        elif now > self._stopped_at + _GRACE:
            _kill_group(self.pid)

    def _overuse(self, pids: Sequence[int]) -> str | None:
        """Memory and processes of the whole tree; a single process the kernel holds back by itself."""
        held = sum(map(resident, pids))
        self._seen = (max(self._seen[0], held), max(self._seen[1], sum(map(cpu_seconds, pids))))
        if len(pids) > self._limits.processes + 8:  # the sandbox's own, and what is counted while it goes
            return f"started more than {self._limits.processes} processes"
        most = self._limits.memory
        # memory that processes share stays when none of them has it in its tables: more of it in the whole system since
        # this one began, and as much of it mapped here
        grown = shared_memory() - self._shared > most and sum(map(mapped_shared, pids)) > most
        if grown or (held > most and sum(map(share, pids)) > most):
            return f"used more than {size(most)} of memory"
        return None

    def _pids(self) -> list[int]:
        """Everything that runs because of it."""
        return list(descendants(self.pid))

    def stop(self, reason: str) -> None:
        """Kill it and everything it started. The first reason is kept."""
        if self._stopped is None:
            self._stopped, self._stopped_at = reason, time.monotonic()
        if self._alone and self.first_process() is not None:
            self._end_all()
            return
        for pid in descendants(self.pid):
            _kill(pid)
        _kill_group(self.pid)

    def _end_all(self) -> None:
        """Kill the first process of the sandbox: the kernel ends all others with it."""
        _kill(self.first_process() or 0)

    def first_process(self) -> int | None:
        """The first process of the sandbox, by its id out here; None before there is one."""
        with self._asking:  # a server's watcher may ask while whoever wants to reach it does
            if self._first is None and self._info is not None:
                with contextlib.suppress(BlockingIOError):
                    self._told += os.read(self._info, 4096)  # it comes in pieces
                found = _FIRST.search(self._told)
                self._first = None if found is None else int(found[1])
            return self._first

    @property
    def alive(self) -> bool:
        """Whether it has not ended; also where nobody has waited for it yet."""
        if self.ended is not None:
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def text_so_far(self) -> bytes:
        """What it wrote until now, output before errors."""
        return b"".join([*self._parts[self._out], *self._parts[self._err]])

    def _finish(self) -> Ended:
        """Take the status, what it used, and the last output."""
        seconds = time.monotonic() - self._began
        _, status, used = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if self._alone:
            used = self._first_used() or used
        else:
            _kill_group(self.pid)
            _end_orphans()
        self._over(code)
        end = time.monotonic() + _GRACE
        while self._open and time.monotonic() < end:
            ready, _, _ = select.select(list(self._open), [], [], 0.05)
            for fd in ready:
                self._take(fd)
        os.close(self._out)
        os.close(self._err)
        self.ended = Ended(
            output=b"".join(self._parts[self._out]),
            stderr=b"".join(self._parts[self._err]),
            status=128 - code if code < 0 else code,
            stopped=self._stopped,
            timed_out=self._timed_out,
            seconds=seconds,
            # of what was killed the kernel tells nothing: then what was seen has to do
            cpu_seconds=max(used.ru_utime + used.ru_stime, self._seen[1]),
            peak_memory=max(used.ru_maxrss * (1024 if _LINUX else 1), self._seen[0]),
        )
        return self.ended

    def _over(self, code: int) -> None:
        self._process.returncode = code  # it was waited for here

    def _first_used(self) -> resource.struct_rusage | None:
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


class Joined(Running):
    """A process that enters a sandbox which is there already, around a process that waits (`holder`).

    `spawn` is given the files for its input, output and errors, and returns its id; it is a child of this process.
    `end` ends the sandbox with everything in it.
    """

    def __init__(
        self,
        spawn: Callable[[list[int]], int],
        *,
        limits: Limits,
        look: Callable[[Sequence[int]], str | None],
        stdin: bytes,
        holder: int,
        first: int,
        end: Callable[[], None],
    ) -> None:
        self._prepare(limits, look, first=first)
        self._holder, self._end = holder, end
        self._launch(lambda files: spawn(list(files)), stdin)

    def _pids(self) -> list[int]:
        return [*descendants(self._holder), *descendants(self.pid)]

    def _first_used(self) -> resource.struct_rusage | None:
        """End all others; what the process and those it waited for used is known without them."""
        self._end()
        return None

    def _end_all(self) -> None:
        self._end()

    def _over(self, code: int) -> None:
        """Nothing of it is left: the sandbox is its owner's."""


class _Exit:
    """Whether a process has ended: by its descriptor on Linux, elsewhere by asking."""

    def __init__(self, pid: int) -> None:
        self.happened = False
        self._pid = pid
        self._fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def register(self, watched: select.poll) -> None:
        if self._fd is not None:
            watched.register(self._fd, select.POLLIN)

    def ask(self) -> None:
        if self._fd is None:
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            self.happened = found is not None


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
    while _LINUX and (found := [pid for pid in descendants(os.getpid()) if pid != os.getpid()]):
        for pid in found:
            _kill(pid)
        for pid in found:
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
def _as_file(data: bytes) -> Iterator[int]:
    """Standard input as a file that cannot be written to; a program that reads none of it does not hold anything up."""
    if not data:
        fd = os.open(os.devnull, os.O_RDONLY)
    elif hasattr(os, "memfd_create"):
        with open(os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, _SEALED)  # nobody can use it as memory of its own
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
