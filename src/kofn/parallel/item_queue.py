"""The items of one map: which are still to do, the results of the others, and how often an item was lost."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.parallel.base import FailedItem, pickle_value
from kofn.parallel.worker import DONE, format_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kofn.parallel.base import OnDone


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
        times = "once" if attempts == 1 else f"{attempts} times"
        self._finish(index, FailedItem(reason=f"the worker died {times} ({how})", attempts=attempts, lost=True))

    def _finish(self, index: int, result: Any) -> None:
        self.results[index] = result
        self.left -= 1
        if self._on_done is not None:
            self._on_done(index, result)
