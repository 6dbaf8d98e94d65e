"""The engine of one machine: worker processes that stay for all maps and are replaced when they die."""

from __future__ import annotations

import os
from collections import deque
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from kofn.engine.base import load_message
from kofn.engine.ledger import Ledger
from kofn.engine.process import Worker, own_path
from kofn.engine.worker import ITEM, LOAD, READY, UNUSABLE
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from selectors import BaseSelector

    from kofn.engine.base import Function, OnDone
    from kofn.engine.process import Message

_QUICK = 0.1  # seconds; where items take less, a worker has its next one waiting
_SILENCE = 1.0  # seconds without a message, after which it is checked that all workers live


class Local:
    """Worker processes of this machine, as many as it has cores for this process unless told otherwise.

    >>> import operator
    >>> with Local(workers=1) as engine:
    ...     engine.map(operator.add, [1, 2, "x"], shared=10)
    [11, 12, Failed(reason="TypeError: unsupported operand type(s) for +: 'int' and 'str'", attempts=1, lost=False)]
    """

    remote = False

    def __init__(self, workers: int | None = None, retries: int = 2) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers: expected 1 or more, not {workers}")
        self.workers = workers or cores()
        self.retries = retries
        self._crew: list[Worker] = []
        self._busy = False

    def map(
        self, function: Function, items: Sequence[Any], *, shared: Any = None, on_done: OnDone | None = None
    ) -> list[Any]:
        """See `Engine.map`. A worker is replaced when it dies; its item is tried `retries` times more."""
        if self._busy:
            raise RuntimeError("an engine runs one map at a time")
        ledger = Ledger(items, self.retries, on_done)
        message = load_message(function, shared)
        self._busy = True
        try:
            with DefaultSelector() as selector:
                _Map(self._enough(len(items)), ledger, message, selector).run()
        except BaseException:
            self._kill()
            raise
        finally:
            self._busy = False
        return ledger.results

    def _enough(self, n_items: int) -> list[Worker]:
        """The crew, without its dead and with as many workers as there is work for."""
        for worker in [w for w in self._crew if w.exited()]:
            self._crew.remove(worker)
            worker.bury()
        while len(self._crew) < min(self.workers, n_items):
            self._crew.append(Worker(own_path()))
        return self._crew

    def _kill(self) -> None:
        for worker in self._crew:
            worker.kill()
        for worker in self._crew:
            worker.bury()
        self._crew.clear()

    def close(self) -> None:
        """End the workers."""
        for worker in self._crew:
            worker.hang_up()
        while self._crew:
            self._crew.pop().stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Desk:
    """What is known of one worker during a map."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events = EVENT_READ
        self.ready = False
        self.waiting: deque[int] = deque()  # items sent, in the order of their answers: the first is running
        self.since = 0.0  # when the first began to run


class _Map:
    """One map: hands items to workers, takes answers, replaces the dead. `crew` is changed in place."""

    def __init__(self, crew: list[Worker], ledger: Ledger, message: bytes, selector: BaseSelector) -> None:
        self._crew = crew
        self._ledger = ledger
        self._message = message
        self._selector = selector
        self._unstarted = 0  # workers in a row that died before they were ready
        self._seconds = 0.0  # of all items so far
        self._answers = 0

    def run(self) -> None:
        """Until every item is settled."""
        for worker in self._crew:
            self._seat(worker)
        while self._ledger.left:
            for key, _ in self._selector.select(_SILENCE) or self._silent():
                desk: _Desk = key.data
                desk.worker.flush()
                self._read(desk)

    def _silent(self) -> list[tuple[Any, int]]:
        """Workers that are dead although nothing closed their sockets: a process that they forked may hold them."""
        found = []
        for key in self._selector.get_map().values():
            if key.data.worker.exited():
                key.data.worker.ended = True
                found.append((key, EVENT_READ))
        return found

    def _seat(self, worker: Worker) -> None:
        desk = _Desk(worker)
        self._selector.register(worker, desk.events, desk)
        worker.send(LOAD, 0, self._message)
        self._feed(desk)

    def _feed(self, desk: _Desk) -> None:
        """Give a worker its next item; of quick ones also the one after, so that it need not wait for us."""
        depth = 2 if self._answers and self._seconds / self._answers < _QUICK else 1
        while len(desk.waiting) < depth and (found := self._ledger.next()) is not None:
            if not desk.waiting:
                desk.since = perf_counter()
            desk.waiting.append(found[0])
            desk.worker.send(ITEM, *found)
        self._watch(desk)

    def _watch(self, desk: _Desk) -> None:
        events = EVENT_READ | EVENT_WRITE if desk.worker.writing else EVENT_READ
        if events != desk.events:
            desk.events = events
            self._selector.modify(desk.worker, events, desk)

    def _read(self, desk: _Desk) -> None:
        for message in desk.worker.receive():
            self._heed(desk, message)
        if desk.worker.ended:
            self._replace(desk)
        else:
            self._feed(desk)

    def _heed(self, desk: _Desk, message: Message) -> None:
        if message.kind == READY:
            desk.ready = True
            desk.since = perf_counter()
            self._unstarted = 0
        elif message.kind == UNUSABLE:
            name = self._message.partition(b"\n")[0].decode()
            raise InputError(f"a worker cannot load {name} and what is shared: {message.body.decode()}")
        else:
            now = perf_counter()
            self._seconds += now - desk.since
            self._answers += 1
            desk.since = now
            desk.waiting.popleft()
            self._ledger.take(message.number, message.kind, message.body)

    def _replace(self, desk: _Desk) -> None:
        """A worker died. The item it was at is to blame; those that waited are not, nor any before it was ready."""
        self._selector.unregister(desk.worker)
        how = desk.worker.bury()
        self._crew.remove(desk.worker)
        blamed = desk.waiting.popleft() if desk.ready and desk.waiting else None
        self._ledger.give_back(desk.waiting)
        if blamed is not None:
            self._ledger.lose(blamed, how)
        elif not desk.ready:
            self._count_unstarted(how)
        for key in list(self._selector.get_map().values()):  # who has nothing to do takes what was given back
            self._feed(key.data)
        if self._ledger.waiting:
            self._crew.append(Worker(own_path()))
            self._seat(self._crew[-1])

    def _count_unstarted(self, how: str) -> None:
        self._unstarted += 1
        if self._unstarted > len(self._crew) + 2:
            raise WorldError(f"worker processes end before they can work ({how}); what they print may say why")
