"""`ParallelEngine`, what an engine provides, and what engines share: the queue of items, and values as bytes."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kofn.errors import InputError
from kofn.parallel.worker import DONE, find_function, format_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Function = Callable[[Any, Any], Any]  # (shared, item) -> result; of a module, by whose name a worker finds it
OnDone = Callable[[int, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedItem:
    """Stands in the place of a result.

    `lost`: whatever ran the item died each time; otherwise the function raised, or the item or its result cannot be
    sent. `attempts` is 0 for an item that could not be sent.
    """

    reason: str  # one line
    attempts: int
    lost: bool


class ParallelEngine(ABC):
    """Maps functions over items. One map at a time.

    remote    whether items may run on other machines: paths of this one mean nothing there
    retries   how often more an item is tried of which the worker died
    """

    remote: ClassVar[bool]

    def __init__(self, workers: int | None, retries: int) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers: expected 1 or more, not {workers}")
        self.retries = retries
        self._max_workers = workers
        self._busy = False

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many items run at a time."""

    def map(
        self, function: Function, items: Sequence[Any], *, shared: Any = None, on_done: OnDone | None = None
    ) -> list[Any]:
        """`function(shared, item)` for every item, in the order of the items, with FailedItem where there is no result.

        `on_done(index, result)` is called in the caller's thread, once an item, as soon as its result is known. If it
        raises, or the caller is interrupted, everything that runs is killed. `shared` is sent once to each worker. How
        long an item may take is for the function to limit.
        """
        if self._busy:
            raise RuntimeError("an engine runs one map at a time")
        queue = ItemQueue(items, self.retries, on_done)
        message = function_name(function).encode() + b"\n" + pickle_value(shared, "what is shared")
        self._busy = True
        try:
            self._run(queue, message)
        finally:
            self._busy = False
        return queue.results

    @abstractmethod
    def _run(self, queue: ItemQueue, message: bytes) -> None:
        """Run until every item has a result; a worker loads `message` first: the function and what is shared."""

    @abstractmethod
    def close(self) -> None:
        """End what the engine started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def function_name(function: Function) -> str:
    """The name by which a worker finds a function; InputError if there is none.

    >>> import os
    >>> function_name(os.path.join)
    'posixpath:join'
    >>> function_name(lambda shared, item: item)
    Traceback (most recent call last):
    kofn.errors.InputError: <lambda> is found by no name in a worker: define it with def at the top level of a module
    """
    name = getattr(function, "__qualname__", None) or repr(function)
    module = getattr(function, "__module__", None)
    if module == "__main__":
        raise InputError(f"{name} is defined in the program itself, which a worker cannot import: put it in a module")
    try:
        if find_function(f"{module}:{name}") is function:
            return f"{module}:{name}"
    except (ImportError, AttributeError, ValueError):
        pass
    raise InputError(f"{name} is found by no name in a worker: define it with def at the top level of a module")


def pickle_value(value: Any, what: str) -> bytes:
    """A value as bytes; InputError if it cannot be.

    >>> pickle_value(lambda: 0, "the item")
    Traceback (most recent call last):
    kofn.errors.InputError: the item cannot be pickled: ...
    """
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # a __reduce__ of the user's may raise anything
        raise InputError(f"{what} cannot be pickled: {format_error(error)}") from error


class ItemQueue:
    """Hands out items by number and records their results, each once."""

    def __init__(self, items: Sequence[Any], retries: int, on_done: OnDone | None) -> None:
        self.results: list[Any] = [None] * len(items)
        self.left = len(items)
        self._items = items
        self._waiting = deque(range(len(items)))
        self._retries = retries
        self._on_done = on_done
        self._lost: Counter[int] = Counter()

    @property
    def waiting(self) -> bool:
        """Whether there is something to hand out."""
        return bool(self._waiting)

    def next(self) -> tuple[int, bytes] | None:
        """The next item to send and its pickle, or None. An item that cannot be pickled is failed on the way."""
        while self._waiting:
            index = self._waiting.popleft()
            try:
                return index, pickle_value(self._items[index], "the item")
            except InputError as error:
                self._finish(index, FailedItem(reason=str(error), attempts=0, lost=False))
        return None

    def record_answer(self, index: int, kind: int, body: bytes) -> None:
        """Record a worker's answer: the pickle of a result, or why there is none."""
        attempts = self._lost.pop(index, 0) + 1
        if kind != DONE:
            self._finish(index, FailedItem(reason=body.decode(), attempts=attempts, lost=False))
            return
        try:
            result = pickle.loads(body)  # noqa: S301 - of our own worker
        except Exception as error:
            reason = f"the result cannot be unpickled: {format_error(error)}"
            result = FailedItem(reason=reason, attempts=attempts, lost=False)
        self._finish(index, result)

    def put_back(self, indices: Iterable[int]) -> None:
        """Return items that were waiting where a worker died: they are handed out next."""
        self._waiting.extendleft(reversed(list(indices)))

    def record_loss(self, index: int, how: str) -> None:
        """Record that a worker died while it ran an item, which is tried again, last, or given up.

        Last, because then less runs beside it: where memory was short it may pass.
        """
        self._lost[index] += 1
        if self._lost[index] <= self._retries:
            self._waiting.append(index)
            return
        attempts = self._lost.pop(index)
        reason = f"the worker died {'once' if attempts == 1 else f'{attempts} times'} ({how})"
        self._finish(index, FailedItem(reason=reason, attempts=attempts, lost=True))

    def _finish(self, index: int, result: Any) -> None:
        self.results[index] = result
        self.left -= 1
        if self._on_done is not None:
            self._on_done(index, result)
