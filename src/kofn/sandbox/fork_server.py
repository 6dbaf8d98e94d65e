"""Python programs without the cost of starting Python: a warm interpreter forks, and the fork enters a sandbox.

Starting Python and importing what most programs import takes longer than most programs do. So each worker keeps one
interpreter that has done it. For every program bubblewrap makes a sandbox as ever, around a process that only waits;
the interpreter forks, and the fork enters all of the sandbox's namespaces, takes on the same limits, user and filter
of system calls as any other program there, closes what it has open, and only then reads the program. Like any other
process of that sandbox it ends with it.

Only for root: there the programs are another user's, who can change neither the interpreter's own file, which a fork
still has from outside, nor the process that waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import WorldError
from kofn.sandbox.base import is_root, rlimits
from kofn.sandbox.bubblewrap import WORK, Bubblewrap
from kofn.sandbox.process import ProgramLimits, RunningProgram, descendants
from kofn.sandbox.seccomp import filter_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kofn.sandbox.process import ProcessResult
    from kofn.sandbox.workspace import Workspace

_WAIT = 20.0  # seconds for a sandbox, and for a fork in it
# what most programs import, if only for the names of types: importing them takes longer than most programs run
_WARM = ("bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "random", "re", "string", "typing")

_PROGRAM = str(Path(__file__).with_name("fork_server_program.py"))


_servers: dict[Workspace, ForkServer | None] = {}


def fork_server_for(workspace: Workspace) -> ForkServer | None:
    """The fork server of a worker's programs; None where there can be none, and they are started one by one."""
    if workspace not in _servers:
        _servers[workspace] = None
        if isinstance(workspace.sandbox, Bubblewrap) and is_root():
            server = ForkServer(workspace)
            try:  # programs of their own kind may still be refused, by an older kernel say: then none is forked
                works = server.run(b"word\n", ProgramLimits()).output == b"\nword"
            except (WorldError, OSError):
                works = False
            if works:
                _servers[workspace] = server
            else:
                server.close()
    return _servers[workspace]


def stop_fork_server(workspace: Workspace) -> None:
    """Do without a fork server that has failed; it is not started again."""
    if (server := _servers.pop(workspace, None)) is not None:
        server.close()
        _servers[workspace] = None


class ForkServer:
    """A warm interpreter for the programs of one worker."""

    def __init__(self, workspace: Workspace) -> None:
        assert isinstance(workspace.sandbox, Bubblewrap)
        self.workspace, self._sandbox = workspace, workspace.sandbox
        ours, theirs = socket.socketpair()
        ours.settimeout(_WAIT)
        words = [str(theirs.fileno()), json.dumps([self._sandbox.packages, _WARM])]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                [self._sandbox.python, "-I", "-S", _PROGRAM, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
            )
        self._socket = ours

    def run(self, text: bytes, limits: ProgramLimits) -> ProcessResult:
        """Run a program: `text` is its completion word, a newline, and the program itself."""
        holder = _WaitingSandbox(self._sandbox, self.workspace)
        try:
            running = _JoinedProgram(self, holder, limits, text)
            return running.wait(limits.seconds)
        finally:
            holder.close()

    def spawn(self, holder: _WaitingSandbox, files: Iterable[int], limits: ProgramLimits) -> int:
        """Fork into the sandbox; the process id of the fork."""
        seccomp = filter_descriptor()
        order = {
            "first": holder.first_pid,
            "work": WORK,
            "user": self.workspace.directories.uid,
            "limits": rlimits(limits),
            "env": {**self._sandbox.environment({}), "PWD": WORK},
        }
        error_reader, error_writer = os.pipe()
        try:
            sent_files = [*files, error_writer, *([] if seccomp is None else [seccomp])]
            socket.send_fds(self._socket, [json.dumps(order).encode()], sent_files)
            pid = self._read_answer()
            os.close(error_writer)
            error_writer = -1
            # empty once the fork has closed its end, which it does when it has become a program like any other
            if problem := os.read(error_reader, 500):
                raise WorldError(f"a program cannot be what it is to be: {problem.decode(errors='replace')}")
        finally:
            os.close(error_reader)
            if error_writer >= 0:
                os.close(error_writer)
        return int(pid)

    def _read_answer(self) -> bytes:
        answer = b""
        while not answer.endswith(b"."):
            part = self._socket.recv(4096)
            if not part:
                raise WorldError("the warm interpreter has ended")
            answer += part
        if answer.startswith(b"!"):
            raise WorldError(f"a program cannot enter its sandbox: {answer[2:-1].decode(errors='replace')}")
        return answer[:-1]

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


class _WaitingSandbox:
    """A sandbox with nothing in it but a process that waits; `first_pid` is its first process, by its id out here."""

    def __init__(self, sandbox: Bubblewrap, workspace: Workspace) -> None:
        info, seccomp = os.pipe(), filter_descriptor()
        command = sandbox.waiting_command(workspace.directories, info=info[1], seccomp=seccomp)
        self.process = subprocess.Popen(  # noqa: S603 - our own words
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            pass_fds=[info[1], *([] if seccomp is None else [seccomp])],
            bufsize=0,
        )
        os.close(info[1])
        self.first_pid, self._handle = 0, -1
        try:
            self.first_pid = self._wait_until_ready(info[0])
            self._handle = os.pidfd_open(self.first_pid)  # its number may be another's once it is gone
        except BaseException:
            self.close()
            raise
        finally:
            os.close(info[0])

    def _wait_until_ready(self, info: int) -> int:
        """Wait until what is said to the waiting process comes back: then the sandbox is made."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")
        if self.process.stdout.read(1) != b"\n":
            assert self.process.stderr is not None
            complaint = self.process.stderr.read().decode(errors="replace").strip()
            raise WorldError(f"the sandbox does not work any more: {complaint or self.process.wait()}")
        report: dict[str, Any] = json.loads(os.read(info, 1 << 16))
        return int(report["child-pid"])

    def end(self) -> None:
        """End the sandbox and everything in it."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def close(self) -> None:
        """End it, and leave nothing behind."""
        self.end()
        self.process.kill()
        self.process.communicate()
        if self._handle >= 0:
            with contextlib.suppress(ChildProcessError):  # where bubblewrap did not see to it
                os.waitid(os.P_PIDFD, self._handle, os.WEXITED)
            os.close(self._handle)
            self._handle = -1


class _JoinedProgram(RunningProgram):
    """A process that a fork server has put into a sandbox which is there already; it is a child of this process."""

    def __init__(self, server: ForkServer, holder: _WaitingSandbox, limits: ProgramLimits, stdin: bytes) -> None:
        self._prepare(limits, server.workspace.monitor(limits), first_pid=holder.first_pid)
        self._holder = holder
        self._launch(lambda files: server.spawn(holder, files, limits), stdin)

    def _pids(self) -> list[int]:
        return [*descendants(self._holder.process.pid), *descendants(self.pid)]

    def _sandbox_usage(self) -> None:
        """End all others; what the process and those it waited for used is known without them."""
        self._holder.end()

    def _kill_sandbox(self) -> None:
        self._holder.end()
