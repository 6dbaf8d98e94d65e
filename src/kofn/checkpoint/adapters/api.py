"""One server a group: started in the sandbox, asked over its private loopback, always stopped."""

from __future__ import annotations

import contextlib
import http.client
import io
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.adapters.base import HEADERS, Observed, tracked
from kofn.checkpoint.folder import InTheWay
from kofn.checkpoint.network import PORT, Loopback, Private
from kofn.checkpoint.usage import size
from kofn.checkpoint.work import Ended, Request

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from kofn.checkpoint.box import Box
    from kofn.checkpoint.network import Network
    from kofn.checkpoint.work import Context, Item, Job

_LOG = 20_000  # bytes of a server's log that a case shows


class Refused(Exception):
    """The server did not answer as HTTP asks for; the text says how."""


class Server:
    """A submission's server. A watching thread ends it when it uses too much."""

    def __init__(self, box: Box, context: Context, item: Item) -> None:
        self._limits = context.limits
        self._ready_path = context.ready_path
        self._network: Network | None = None
        self._began = time.monotonic()
        loopback = Loopback() if box.sandbox.bwrap is None else None
        port = PORT if loopback is None else loopback.port
        entry = [word.replace("{port}", str(port)) for word in context.entries[item.submission]]
        env = {**item.env, "PORT": str(port), "HOST": "127.0.0.1"}
        self._running = box.start_server(entry, limits=context.limits, env=env)
        self._watch = threading.Thread(target=self._running.wait, daemon=True)
        self._watch.start()
        try:
            self._network = loopback
            self.problem = self._wait(context.ready_seconds)
            self.waited = time.monotonic() - self._began
        except BaseException:
            self.close()
            raise

    def _wait(self, seconds: float) -> str | None:
        """Wait until it answers; what is wrong where it does not."""
        end = self._began + seconds
        pause = 0.005
        missing: str | None = "it did not start"
        while self.alive and time.monotonic() < end:
            missing = self._is_missing(end)
            if missing is None:
                return None
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        return f"the server was not ready after {seconds:g} s: {missing}" if self.alive else self.end()

    def _is_missing(self, end: float) -> str | None:
        """What is still missing before the server is ready; None where it is."""
        if self._network is None:
            first = self._running.first_process()
            if first is None:
                return "it did not start"
            self._network = Private(first)
        try:
            connection = self._network.connect()
        except OSError as problem:  # the sandbox may have gone meanwhile
            self._network.close()
            self._network = None
            return str(problem)
        if connection is None:
            return f"nothing listens at 127.0.0.1, port {self._network.port} ({{port}} in the entry, or PORT)"
        connection.close()
        if self._ready_path is None:
            return None
        try:
            answer = self.ask(Request(method="GET", path=self._ready_path), max(0.1, end - time.monotonic()))
        except TimeoutError:
            return f"no answer to GET {self._ready_path}"
        except Refused as problem:
            return f"GET {self._ready_path}: {problem}"
        status = int(answer["status_code"])
        return None if status < 400 else f"GET {self._ready_path} is answered with {status}"

    @property
    def alive(self) -> bool:
        return self._running.alive and self._watch.is_alive()

    def settle(self) -> None:
        """Give a server that hung up the time to go, so that it is known whether it is still there."""
        self._watch.join(0.3)

    def end(self) -> str:
        """How a server that is no longer there came to its end."""
        self._watch.join(5)
        ended = self._running.ended or Ended()
        if ended.stopped:
            return f"the server was stopped: it {ended.stopped}"
        return f"the server ended with status {ended.status}"

    def log(self) -> bytes:
        """What it wrote so far; all of it where it has ended."""
        if not self._running.alive:
            self._watch.join(5)
        return self._running.text_so_far()

    def ask(self, request: Request, seconds: float) -> dict[str, Any]:
        """Status, body and headers of an answer; at most `seconds` in all, however slowly it comes."""
        end = time.monotonic() + seconds
        try:
            connection = self._network.connect() if self._network else None
        except OSError:  # the sandbox has gone, and its network with it
            connection = None
        if connection is None:
            raise Refused(self.end() if not self.alive else "the server does not accept connections")
        with contextlib.closing(connection):
            try:
                connection.settimeout(max(0.01, end - time.monotonic()))
                connection.sendall(_as_bytes(request))
                return _answer(connection, request.method, end, self._limits.output)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException, ValueError, OverflowError, MemoryError) as problem:
                raise Refused(f"no proper answer: {type(problem).__name__}: {problem}"[:300]) from None

    def close(self) -> None:
        """Stop it."""
        if self._running.ended is None:
            self._running.stop("the group is done")
        self._watch.join(10)
        if self._network is not None:
            self._network.close()


def _as_bytes(request: Request) -> bytes:
    body = request.body or b""
    named = {name.lower() for name, _ in request.headers}
    headers = [*request.headers, *(() if "host" in named else (("Host", "localhost"),)), ("Connection", "close")]
    if (body or request.method in ("POST", "PUT", "PATCH")) and "content-length" not in named:
        headers.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode() + body


class _Timed(io.RawIOBase):
    """What a socket sends, until a moment and up to a size."""

    def __init__(self, connection: socket.socket, end: float, most: int) -> None:
        self._connection, self._end, self._room = connection, end, most
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        got = self._connection.recv_into(buffer)
        self._room -= got
        if self._room < 0:
            raise ValueError(f"the answer is longer than {size(self._most)}")
        return got

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)


def _answer(connection: socket.socket, method: str, end: float, most: int) -> dict[str, Any]:
    raw: Any = _Timed(connection, end, most)
    response = http.client.HTTPResponse(raw, method=method)
    response.begin()
    body = response.read()
    found: dict[str, Any] = {"status_code": response.status, "response": body}
    for name, value in response.getheaders():
        key = HEADERS + name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def observe(box: Box, context: Context, item: Item) -> Iterator[tuple[Job, Observed]]:
    """Ask one server all the questions of an item; one that went down is started again for the next question."""
    server: Server | None = None
    tree = context.trees[item.submission]
    try:
        for job in item.jobs:
            if server is not None and (item.reset or not server.alive):
                server.close()
                server = None
            try:
                if server is None:
                    box.folder.reset(tree, job.files)
                    server = Server(box, context, item)
                else:
                    for file in job.files:
                        box.folder.put(file)
            except InTheWay as problem:
                yield job, Observed(ended=Ended(stopped=str(problem)))
                continue
            yield job, _observed(box, context, job, server)
            if server.problem is not None:  # it would not start: the other questions would wait for nothing
                yield from ((other, _silent(server, 0.0)) for other in item.jobs[item.jobs.index(job) + 1 :])
                return
    finally:
        if server is not None:
            server.close()


def _silent(server: Server, seconds: float) -> Observed:
    return Observed(ended=Ended(stopped=server.problem, seconds=seconds), log=server.log()[-_LOG:])


def _observed(box: Box, context: Context, job: Job, server: Server) -> Observed:
    if server.problem is not None:
        return _silent(server, server.waited)
    assert job.request is not None
    before, began = len(server.log()), time.monotonic()
    stopped, timed_out, seen = None, False, dict[str, Any]()
    try:
        seen = server.ask(job.request, job.seconds)
    except TimeoutError:
        stopped, timed_out = f"no answer within {job.seconds:g} s", True
    except Refused as problem:
        server.settle()
        stopped = str(problem) if server.alive else f"{server.end()} ({problem})"
    ended = Ended(stopped=stopped, timed_out=timed_out, seconds=time.monotonic() - began)
    limits = replace(context.limits, seconds=job.seconds)
    log = server.log()[before:][-_LOG:]
    return Observed(attributes={**seen, **tracked(box, job, limits)}, ended=ended, log=log)
