"""Sockets inside the private network of a sandbox.

A socket belongs to the network it was made in, whoever holds it. So a small process enters the sandbox's network, and
nothing else of it, connects there on request, and hands the connected socket over.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Protocol

PORT = 8080  # in a network of its own every port is free
_ASK = b"?"

_CONNECTOR = """
import socket, sys
line = socket.socket(fileno=int(sys.argv[1]))
while line.recv(1):
    for host in ("127.0.0.1", "::1"):
        try:
            made = socket.create_connection((host, int(sys.argv[2])), 2)
            break
        except OSError:
            made = None
    if made is None:
        line.sendall(b"n")
    else:
        socket.send_fds(line, [b"y"], [made.fileno()])
        made.close()
"""


class Network(Protocol):
    """Where the server of a submission is reached."""

    port: int

    def connect(self) -> socket.socket | None: ...

    def close(self) -> None: ...


class Loopback:
    """The machine's own loopback, for programs that run without a sandbox."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])

    def connect(self) -> socket.socket | None:
        """A connection to the server, or none where nobody listens."""
        try:
            return socket.create_connection(("127.0.0.1", self.port), 2)
        except OSError:
            return None

    def close(self) -> None:
        """Nothing to close."""


class Private:
    """The loopback of a sandbox, by the process id of a process in it."""

    port = PORT

    def __init__(self, pid: int) -> None:
        ours, theirs = socket.socketpair()
        enter = ["nsenter", "--target", str(pid), "--net"]
        if os.geteuid() != 0:
            enter += ["--user", "--preserve-credentials"]
        command = [*enter, sys.executable, "-I", "-S", "-c", _CONNECTOR, str(theirs.fileno()), str(PORT)]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        self._line = ours

    def connect(self) -> socket.socket | None:
        """A connection to the server, or none where nobody listens."""
        try:
            self._line.sendall(_ASK)
            said, fds, _, _ = socket.recv_fds(self._line, 1, 1)
        except OSError:
            said, fds = b"", []
        if said == b"":
            raise OSError(f"cannot enter the sandbox's network: {self._complaint()}")
        return socket.socket(fileno=fds[0]) if fds else None

    def _complaint(self) -> str:
        self._process.kill()
        _, stderr = self._process.communicate()
        return stderr.decode(errors="replace").strip()[-200:] or "no answer"

    def close(self) -> None:
        """End the process that connects."""
        self._line.close()
        self._process.kill()
        self._process.communicate()
