"""The books of one map: what is still to do, what came of the rest, and how often an item was lost."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from kofn.engine.base import Failed, pickled
from kofn.engine.worker import DONE, one_line
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kofn.engine.base import OnDone


class Ledger:
    """Hands out items by number and takes their results, each once."""

    def __init__(self, items: Sequence[Any], retries: int, on_done: OnDone | None) -> None:
        self.results: list[Any] = [None] * len(items)
        self.left = len(items)
        self._items = items
        self._todo = deque(range(len(items)))
        self._retries = retries
        self._on_done = on_done
        self._lost: Counter[int] = Counter()

    @property
    def waiting(self) -> bool:
        """Whether there is something to hand out."""
        return bool(self._todo)

    def next(self) -> tuple[int, bytes] | None:
        """The next item to send and its pickle, or None. An item that cannot be pickled is failed on the way."""
        while self._todo:
            index = self._todo.popleft()
            try:
                return index, pickled(self._items[index], "the item")
            except InputError as error:
                self._settle(index, Failed(reason=str(error), attempts=0, lost=False))
        return None

    def take(self, index: int, kind: int, body: bytes) -> None:
        """A worker's answer: the pickle of a result, or why there is none."""
        attempts = self._lost.pop(index, 0) + 1
        if kind != DONE:
            self._settle(index, Failed(reason=body.decode(), attempts=attempts, lost=False))
            return
        try:
            result = pickle.loads(body)  # noqa: S301 - of our own worker
        except Exception as error:
            reason = f"the result cannot be unpickled: {one_line(error)}"
            result = Failed(reason=reason, attempts=attempts, lost=False)
        self._settle(index, result)

    def give_back(self, indices: Iterable[int]) -> None:
        """Items that were waiting where something died: they are handed out again, next."""
        self._todo.extendleft(reversed(list(indices)))

    def lose(self, index: int, how: str) -> None:
        """An item whose worker died while it ran: once more, last, when less runs beside it; or given up."""
        self._lost[index] += 1
        if self._lost[index] <= self._retries:
            self._todo.append(index)
            return
        attempts = self._lost.pop(index)
        times = "once" if attempts == 1 else f"{attempts} times"
        self._settle(index, Failed(reason=f"the worker died {times} ({how})", attempts=attempts, lost=True))

    def _settle(self, index: int, result: Any) -> None:
        self.results[index] = result
        self.left -= 1
        if self._on_done is not None:
            self._on_done(index, result)
