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
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.process import Joined
from kofn.checkpoint.sandbox import FILES_OPEN, WORK, others
from kofn.checkpoint.seccomp import descriptor
from kofn.checkpoint.work import Limits
from kofn.errors import WorldError

if TYPE_CHECKING:
    from kofn.checkpoint.box import Box
    from kofn.checkpoint.work import Ended

_WAIT = 20.0  # seconds for a sandbox, and for a fork in it
# what most programs import, if only for the names of types
_IMPORTS = (
    "bisect",
    "collections",
    "copy",
    "functools",
    "heapq",
    "itertools",
    "math",
    "random",
    "re",
    "string",
    "typing",
)

_INTERPRETER = str(Path(__file__).with_name("interpreter.py"))


_warm: dict[Box, Warm | None] = {}


def warm(box: Box) -> Warm | None:
    """The interpreter for a worker's programs; None where there can be none, and they are started one by one."""
    if box not in _warm:
        _warm[box] = None
        if box.sandbox.bwrap is not None and os.geteuid() == 0:
            made = Warm(box)
            try:
                works = made.run(b"word\n", Limits()).output == b"\nword"
            except (WorldError, OSError):
                works = False
            if works:
                _warm[box] = made
            else:
                made.close()
    return _warm[box]


def forget(box: Box) -> None:
    """Do without an interpreter that does not work any more."""
    found = _warm.pop(box, None)
    if found is not None:
        found.close()
        _warm[box] = None


class Warm:
    """A warm interpreter for the programs of one worker."""

    def __init__(self, box: Box) -> None:
        self._box = box
        ours, theirs = socket.socketpair()
        ours.settimeout(_WAIT)
        sandbox = box.sandbox
        words = [str(theirs.fileno()), json.dumps([sandbox.packages, _IMPORTS])]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                [sandbox.python, "-I", "-S", _INTERPRETER, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
            )
        self._line = ours

    def run(self, text: bytes, limits: Limits) -> Ended:
        """Run a program that is said, after its word, on standard input."""
        holder = _Holder(self._box)
        try:
            running = Joined(
                lambda files: self._spawned(holder, files, limits),
                limits=limits,
                look=self._box.looker(limits),
                stdin=text,
                holder=holder.process.pid,
                first=holder.first,
                end=holder.end,
            )
            return running.wait(limits.seconds)
        finally:
            holder.close()

    def _spawned(self, holder: _Holder, files: list[int], limits: Limits) -> int:
        """The process id of a fork in the sandbox."""
        barred = descriptor()
        order = {
            "first": holder.first,
            "work": WORK,
            "user": self._box.place.uid,
            "limits": _limits(limits),
            "env": {**self._box.sandbox.environment(self._box.place, {}), "PWD": WORK},
        }
        wrong, told = os.pipe()
        try:
            given = [*files, told, *([] if barred is None else [barred])]
            socket.send_fds(self._line, [json.dumps(order).encode()], given)
            said = self._answer()
            os.close(told)
            told = -1
            if problem := os.read(
                wrong, 500
            ):  # closed, by the fork itself, when it has become a program like any other
                raise WorldError(f"a program cannot be what it is to be: {problem.decode(errors='replace')}")
        finally:
            os.close(wrong)
            if told >= 0:
                os.close(told)
        return int(said)

    def _answer(self) -> bytes:
        said = b""
        while not said.endswith(b"."):
            part = self._line.recv(4096)
            if not part:
                raise WorldError("the warm interpreter has ended")
            said += part
        if said.startswith(b"!"):
            raise WorldError(f"a program cannot enter its sandbox: {said[2:-1].decode(errors='replace')}")
        return said[:-1]

    def close(self) -> None:
        """End the interpreter."""
        self._line.close()
        self._process.kill()
        self._process.wait()


class _Holder:
    """A sandbox with nothing in it but a process that waits; `first` is its first process, by its id out here."""

    def __init__(self, box: Box) -> None:
        info, barred = os.pipe(), descriptor()
        command = box.sandbox.waiting(box.place, info=info[1], barred=barred)
        self.process = subprocess.Popen(  # noqa: S603 - our own words
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            pass_fds=[info[1], *([] if barred is None else [barred])],
            bufsize=0,
        )
        os.close(info[1])
        self.first, self._handle = 0, -1
        try:
            self.first = self._ready(info[0])
            self._handle = os.pidfd_open(self.first)  # its number may be another's once it is gone
        except BaseException:
            self.close()
            raise
        finally:
            os.close(info[0])

    def _ready(self, info: int) -> int:
        """Wait until what is said to the waiting process comes back: then the sandbox is made."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")
        if self.process.stdout.read(1) != b"\n":
            assert self.process.stderr is not None
            said = self.process.stderr.read().decode(errors="replace").strip()
            raise WorldError(f"the sandbox does not work any more: {said or self.process.wait()}")
        told: dict[str, Any] = json.loads(os.read(info, 1 << 16))
        return int(told["child-pid"])

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


def _limits(limits: Limits) -> dict[str, tuple[int, int]]:
    """The kernel's limits, as `prlimit` sets them for other programs."""
    seconds = ceil(limits.seconds) + 1
    same = {
        "DATA": limits.memory,
        "FSIZE": limits.file_size,
        "CORE": 0,
        "NOFILE": FILES_OPEN,
        "NPROC": limits.processes + others(),
    }
    return {"CPU": (seconds, seconds + 1), **{name: (value, value) for name, value in same.items()}}
