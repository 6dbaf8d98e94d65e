"""One worker process as its parent sees it: started, sent messages without waiting for it to read, and reaped."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kofn.parallel.worker import HEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

# The parent's sys.path comes first, so that its modules, kofn among them, are found in the same places.
_BOOT = """
import sys
fd, parent, sys.path[:] = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
del sys.argv[1:]
from kofn.parallel.worker import main
main(fd, parent)
"""
_CHUNK = 1 << 18  # bytes read at once
_MAX_JOINED = 1 << 16  # bodies up to this size are sent together with their headers
_STDERR = 2


class WorkerMessage(NamedTuple):
    """A message from a worker."""

    kind: int
    number: int  # of the item
    body: bytes


class WorkerProcess:
    """A worker process and the socket to it. It dies with the thread that started it, on Linux even if that is killed.

    Nothing here waits for the process to read: two that wait for each other, each with a large message, would wait for
    ever.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._in = bytearray()
        self._out: deque[memoryview] = deque()
        self.ended = False  # it will answer no more
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-u", "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), *path],
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                stderr=_STDERR,
                pass_fds=[theirs.fileno()],
                process_group=0,  # what it starts can be killed with it, and Ctrl-C reaches the parent only
            )

    def fileno(self) -> int:
        """The socket's, for selectors."""
        return self._socket.fileno()

    @property
    def writing(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out)

    def send(self, kind: int, index: int, body: bytes) -> None:
        """Queue a message and write what the socket takes of it."""
        head = HEADER.pack(kind, index, len(body))
        parts = [head + body] if len(body) <= _MAX_JOINED else [head, body]
        self._out.extend(map(memoryview, parts))
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes. What is sent to a process that has ended is dropped; reading will tell."""
        while self._out:
            try:
                sent = self._socket.send(self._out[0])
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self._out.clear()
                return
            rest = self._out.popleft()[sent:]
            if rest:
                self._out.appendleft(rest)

    def receive(self) -> list[WorkerMessage]:
        """The messages that have come in whole; sets `ended` at the end of the last."""
        try:
            while chunk := self._socket.recv(_CHUNK):
                self._in += chunk
                if len(chunk) < _CHUNK:
                    break
            self.ended = self.ended or not chunk
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        return self._complete_messages()

    def _complete_messages(self) -> list[WorkerMessage]:
        messages = []
        while len(self._in) >= HEADER.size:
            kind, index, size = HEADER.unpack_from(self._in)
            end = HEADER.size + size
            if len(self._in) < end:
                break
            with memoryview(self._in) as view:
                messages.append(WorkerMessage(kind, index, bytes(view[HEADER.size : end])))
            del self._in[:end]
        return messages

    def request(self, kind: int, body: bytes) -> WorkerMessage | None:
        """Send one message and wait for its answer; None if the process ends instead."""
        self.send(kind, 0, body)
        while True:
            ready = select.poll()  # not select, which fails where a process has many files open
            ready.register(self, select.POLLIN | (select.POLLOUT if self.writing else 0))
            ready.poll(1000)
            self.flush()
            gone = self.exited()  # before reading, so that nothing it has said is missed
            if messages := self.receive():
                return messages[0]
            if gone or self.ended:
                return None

    def exited(self) -> bool:
        """Whether the process is over. Its socket may still be open in a process that it forked."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """End the process and all that it started in its group, at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> str:
        """Make sure that the process has ended, and return how: "signal 9", "exit code 1"."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)  # it may be closing down: how it ends is its own to say
        self.kill()
        code = self.process.wait()
        self._socket.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def disconnect(self) -> None:
        """Let the process end by itself when it is idle."""
        self._socket.close()

    def stop(self) -> None:
        """End a process that is idle; kill it if it takes long."""
        self.disconnect()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2.0)
        self.kill()
        self.process.wait()


def module_path() -> list[str]:
    """Where this process looks for modules."""
    return [os.fspath(entry) for entry in sys.path]
