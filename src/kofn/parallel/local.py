"""The local engine: worker processes of this machine that stay for all maps and are replaced when they die."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kofn.core.system import available_cores
from kofn.errors import InputError, WorldError
from kofn.parallel.base import ParallelEngine
from kofn.parallel.worker import HEADER, ITEM, LOAD, READY, UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from selectors import BaseSelector

    from kofn.parallel.base import ItemQueue

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
        return self._socket.fileno()

    @property
    def writing(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out)

    def send(self, kind: int, index: int, body: bytes) -> None:
        """Queue a message and write what the socket takes of it."""
        head = HEADER.pack(kind, index, len(body))
        self._out.extend(map(memoryview, [head + body] if len(body) <= _MAX_JOINED else [head, body]))
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


_QUICK_ITEM = 0.1  # seconds; a worker whose last item took less has its next one waiting
_CHECK_INTERVAL = 1.0  # seconds without a message, after which it is checked that all workers live


class LocalEngine(ParallelEngine):
    """Worker processes of this machine, as many as it has cores for this process unless `workers` says otherwise.

    A worker is replaced when it dies.

    >>> import operator
    >>> with LocalEngine(workers=1) as engine:
    ...     engine.map(operator.add, [1, 2, "x"], shared=10)
    [11, 12, FailedItem(reason="TypeError: unsupported operand type(s) for +: 'int' and 'str'", attempts=1, lost=False)]
    """

    remote: ClassVar[bool] = False

    def __init__(self, workers: int | None = None, retries: int = 2) -> None:
        super().__init__(workers, retries)
        self._processes: list[WorkerProcess] = []

    @property
    def workers(self) -> int:
        return self._max_workers or available_cores()

    def _run(self, queue: ItemQueue, message: bytes) -> None:
        try:
            with DefaultSelector() as selector:
                _LocalMap(self._ready_processes(queue.left), queue, message, selector).run()
        except BaseException:
            for worker in self._processes:
                worker.kill()
            for worker in self._processes:
                worker.reap()
            self._processes.clear()
            raise

    def _ready_processes(self, n_items: int) -> list[WorkerProcess]:
        """The worker processes, without dead ones and with as many as there is work for."""
        for worker in [w for w in self._processes if w.exited()]:
            self._processes.remove(worker)
            worker.reap()
        while len(self._processes) < min(self.workers, n_items):
            self._processes.append(WorkerProcess(module_path()))
        return self._processes

    def close(self) -> None:
        for worker in self._processes:
            worker.disconnect()
        while self._processes:
            self._processes.pop().stop()


@dataclass(slots=True)
class _WorkerState:
    """The state of one worker during a map."""

    worker: WorkerProcess
    events: int = EVENT_READ
    ready: bool = False
    waiting: deque[int] = field(default_factory=deque)  # items sent, in the order of their answers: the first runs
    started: float = 0.0  # when the first began to run
    quick: bool = False  # whether the last item took little time


@dataclass(slots=True)
class _LocalMap:
    """One map: hands items to workers, takes answers, replaces the dead. `processes` is changed in place."""

    processes: list[WorkerProcess]
    queue: ItemQueue
    message: bytes
    selector: BaseSelector
    unstarted: int = 0  # workers in a row that died before they were ready

    def run(self) -> None:
        for worker in self.processes:
            self._start_worker(worker)
        while self.queue.left:
            for key, _ in self.selector.select(_CHECK_INTERVAL) or self._find_dead():
                state: _WorkerState = key.data
                state.worker.flush()
                for message in state.worker.receive():
                    self._handle(state, message)
                if state.worker.ended:
                    self._replace(state)
                else:
                    self._send_items(state)

    def _find_dead(self) -> list[tuple[Any, int]]:
        """Workers that are dead although nothing closed their sockets: a process that they forked may hold them."""
        dead = [key for key in self.selector.get_map().values() if key.data.worker.exited()]
        for key in dead:
            key.data.worker.ended = True
        return [(key, EVENT_READ) for key in dead]

    def _start_worker(self, worker: WorkerProcess) -> None:
        state = _WorkerState(worker)
        self.selector.register(worker, state.events, state)
        worker.send(LOAD, 0, self.message)
        self._send_items(state)

    def _send_items(self, state: _WorkerState) -> None:
        """Give a worker its next item; of quick ones also the one after, so that it need not wait for us."""
        # a worker still at its first item may be at a slow one, however quick those of others are
        depth = 2 if state.quick else 1
        while len(state.waiting) < depth and (item := self.queue.next()) is not None:
            if not state.waiting:
                state.started = perf_counter()
            state.waiting.append(item[0])
            state.worker.send(ITEM, *item)
        events = EVENT_READ | EVENT_WRITE if state.worker.writing else EVENT_READ
        if events != state.events:
            state.events = events
            self.selector.modify(state.worker, events, state)

    def _handle(self, state: _WorkerState, message: WorkerMessage) -> None:
        if message.kind == READY:
            state.ready = True
            state.started = perf_counter()
            self.unstarted = 0
        elif message.kind == UNUSABLE:
            name = self.message.partition(b"\n")[0].decode()
            raise InputError(f"a worker cannot load {name} and what is shared: {message.body.decode()}")
        else:
            now = perf_counter()
            state.quick = now - state.started < _QUICK_ITEM
            state.started = now
            state.waiting.popleft()
            self.queue.record_answer(message.number, message.kind, message.body)

    def _replace(self, state: _WorkerState) -> None:
        """Replace a worker that died.

        The item it was running is to blame; those that waited are not, nor is any before it was ready.
        """
        self.selector.unregister(state.worker)
        how = state.worker.reap()
        self.processes.remove(state.worker)
        lost_item = state.waiting.popleft() if state.ready and state.waiting else None
        self.queue.put_back(state.waiting)
        if lost_item is not None:
            self.queue.record_loss(lost_item, how)
        elif not state.ready:
            self.unstarted += 1
            if self.unstarted > len(self.processes) + 2:
                raise WorldError(f"worker processes end before they can work ({how}); what they print may say why")
        for key in list(self.selector.get_map().values()):  # idle workers take what was put back
            self._send_items(key.data)
        if self.queue.waiting:
            self.processes.append(WorkerProcess(module_path()))
            self._start_worker(self.processes[-1])
