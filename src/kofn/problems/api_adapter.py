"""The adapter `api`: one server per group, started in the sandbox, called over its private loopback, always stopped."""

from __future__ import annotations

import contextlib
import http.client
import io
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.core.format import format_size
from kofn.problems.case import HEADERS, HttpRequest, Observation, read_files
from kofn.sandbox.network import PORT, Loopback, PrivateNetwork
from kofn.sandbox.process import ProcessResult
from kofn.sandbox.workspace import PathBlocked

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from kofn.problems.case import ProblemCase, WorkContext, WorkItem
    from kofn.sandbox.network import Network
    from kofn.sandbox.workspace import Workspace

_LOG = 20_000  # bytes of a server's log in the report of a case


class InvalidResponse(Exception):
    """The server did not answer with HTTP; the text says what it did."""


class SubmissionServer:
    """A submission's server. A watching thread ends it when it uses too much."""

    def __init__(self, workspace: Workspace, context: WorkContext, item: WorkItem) -> None:
        self._limits = context.limits
        self._ready_path = context.ready_path
        self._network: Network | None = None if workspace.sandbox.isolated else Loopback()
        self._began = time.monotonic()
        port = PORT if self._network is None else self._network.port
        entry = [word.replace("{port}", str(port)) for word in context.entries[item.submission]]
        env = {**item.env, "PORT": str(port), "HOST": "127.0.0.1"}
        self._running = workspace.start(entry, limits=replace(context.limits, seconds=86_400.0), env=env)  # it stays
        self.watch = threading.Thread(target=self._running.wait, daemon=True)
        self.watch.start()
        try:
            self.problem = self._wait_until_ready(context.ready_seconds)
            self.waited = time.monotonic() - self._began
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self, seconds: float) -> str | None:
        """Wait until it answers; what is wrong where it does not."""
        end = self._began + seconds
        pause = 0.005
        missing: str | None = "it did not start"
        while self.alive and time.monotonic() < end:
            missing = self._what_is_missing(end)
            if missing is None:
                return None
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        return f"the server was not ready after {seconds:g} s: {missing}" if self.alive else self.describe_end()

    def _what_is_missing(self, end: float) -> str | None:
        """What is still missing before the server is ready; None where it is."""
        if self._network is None:
            first = self._running.first_process()
            if first is None:
                return "it did not start"
            self._network = PrivateNetwork(first)
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
            answer = self.send(HttpRequest(method="GET", path=self._ready_path), max(0.1, end - time.monotonic()))
        except TimeoutError:
            return f"no answer to GET {self._ready_path}"
        except InvalidResponse as problem:
            return f"GET {self._ready_path}: {problem}"
        status = int(answer["status_code"])
        return None if status < 400 else f"GET {self._ready_path} is answered with {status}"

    @property
    def alive(self) -> bool:
        return self._running.alive and self.watch.is_alive()

    def describe_end(self) -> str:
        """How a server that is no longer there ended."""
        self.watch.join(5)
        result = self._running.result or ProcessResult()
        if result.stopped:
            return f"the server was stopped: it {result.stopped}"
        return f"the server ended with status {result.status}"

    def log(self) -> bytes:
        """What it wrote so far; all of it where it has ended."""
        if not self._running.alive:
            self.watch.join(5)
        return self._running.text_so_far()

    def send(self, request: HttpRequest, seconds: float) -> dict[str, Any]:
        """Status, body and headers of an answer; at most `seconds` in all, however slowly it comes."""
        end = time.monotonic() + seconds
        try:
            connection = self._network.connect() if self._network else None
        except OSError:  # the sandbox has gone, and its network with it
            connection = None
        if connection is None:
            raise InvalidResponse(self.describe_end() if not self.alive else "the server does not accept connections")
        with contextlib.closing(connection):
            try:
                connection.settimeout(max(0.01, end - time.monotonic()))
                connection.sendall(_encode_request(request))
                return _read_response(connection, request.method, end, self._limits.output)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException, ValueError, OverflowError, MemoryError) as problem:
                raise InvalidResponse(f"no proper answer: {type(problem).__name__}: {problem}"[:300]) from None

    def close(self) -> None:
        if self._running.result is None:
            self._running.stop("the group is done")
        self.watch.join(10)
        if self._network is not None:
            self._network.close()


def _encode_request(request: HttpRequest) -> bytes:
    body = request.body or b""
    named = {name.lower() for name, _ in request.headers}
    headers = [*request.headers, *(() if "host" in named else (("Host", "localhost"),)), ("Connection", "close")]
    if (body or request.method in ("POST", "PUT", "PATCH")) and "content-length" not in named:
        headers.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode() + body


class _DeadlineSocket(io.RawIOBase):
    """What a socket sends, until a deadline and up to a size: its own timeout starts anew with every byte."""

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
            raise ValueError(f"the answer is longer than {format_size(self._most)}")
        return got

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)


def _read_response(connection: socket.socket, method: str, end: float, most: int) -> dict[str, Any]:
    raw: Any = _DeadlineSocket(connection, end, most)
    response = http.client.HTTPResponse(raw, method=method)
    response.begin()
    body = response.read()
    found: dict[str, Any] = {"status_code": response.status, "response": body}
    for name, value in response.getheaders():
        key = HEADERS + name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def observe(workspace: Workspace, context: WorkContext, item: WorkItem) -> Iterator[tuple[ProblemCase, Observation]]:
    """Send one server all requests of an item; one that went down is started again for the next request."""
    server: SubmissionServer | None = None
    tree = context.trees[item.submission]
    try:
        for case in item.cases:
            if server is not None and (item.reset or not server.alive):
                server.close()
                server = None
            try:
                workspace.folder.fill(tree if server is None else None, case.files)
                server = server or SubmissionServer(workspace, context, item)
            except PathBlocked as problem:
                yield case, Observation(process=ProcessResult(stopped=str(problem)))
                continue
            yield case, _observe_case(workspace, context, case, server)
            if server.problem is not None:  # it would not start: the other cases would wait for nothing
                yield from ((other, _unanswered(server, 0.0)) for other in item.cases[item.cases.index(case) + 1 :])
                return
    finally:
        if server is not None:
            server.close()


def _unanswered(server: SubmissionServer, seconds: float) -> Observation:
    return Observation(process=ProcessResult(stopped=server.problem, seconds=seconds), log=server.log()[-_LOG:])


def _observe_case(
    workspace: Workspace, context: WorkContext, case: ProblemCase, server: SubmissionServer
) -> Observation:
    if server.problem is not None:
        return _unanswered(server, server.waited)
    assert case.request is not None
    before, began = len(server.log()), time.monotonic()
    stopped, timed_out, attributes = None, False, dict[str, Any]()
    try:
        attributes = server.send(case.request, case.seconds)
    except TimeoutError:
        stopped, timed_out = f"no answer within {case.seconds:g} s", True
    except InvalidResponse as problem:
        server.watch.join(0.3)  # one that closed the connection gets time to exit: is it still there?
        stopped = str(problem) if server.alive else f"{server.describe_end()} ({problem})"
    process = ProcessResult(stopped=stopped, timed_out=timed_out, seconds=time.monotonic() - began)
    limits = replace(context.limits, seconds=case.seconds)
    log = server.log()[before:][-_LOG:]
    return Observation(attributes={**attributes, **read_files(workspace, case, limits)}, process=process, log=log)
