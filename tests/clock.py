"""An event loop whose clock jumps: nobody waits, and what is late does not depend on how busy the machine is."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Waits by moving the clock of a loop."""

    loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0 if timeout else timeout)
        if not events and timeout:
            self.loop.now += timeout + 1e-6  # a timer must not stay ahead by what rounding takes away
        return events


class JumpingLoop(asyncio.SelectorEventLoop):
    """Where nothing is ready, it is at once as late as the next timer wants it. Not for threads and sockets."""

    def __init__(self) -> None:
        self.now, selector = 0.0, _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run_with_jumping_clock(work: Coroutine[Any, Any, T]) -> T:
    """What asyncio.run does, without waiting.

    >>> run_with_jumping_clock(asyncio.sleep(3600, "done"))
    'done'
    """
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)
