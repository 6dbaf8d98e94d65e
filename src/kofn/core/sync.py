"""Runs a coroutine from synchronous code, also where an event loop is running already."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns. Where a loop is running already, as in a notebook, it gets a thread and its own loop.

    >>> run_sync(asyncio.sleep(0, "done"))
    'done'
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_cancellable(work))
    from concurrent.futures import ThreadPoolExecutor

    # asyncio.run refuses to start inside a running loop; another thread has none
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


_Running = list[tuple[asyncio.AbstractEventLoop, "asyncio.Task[Any]"]]
_RUNNING: ContextVar[_Running | None] = ContextVar("running", default=None)


async def _cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Do the work where a task of another thread may wait for it, and so may have to cancel it."""
    task = asyncio.current_task()
    running = _RUNNING.get()
    if running is not None and task is not None:
        running.append((asyncio.get_running_loop(), task))
    return await work


def run_async(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same function to be awaited: it works in a thread, and the loop goes on meanwhile.

    Cancelling the task that awaits it cancels the calls it makes, and waits until what was answered is stored.

    >>> asyncio.run(run_async(lambda x: run_sync(asyncio.sleep(0, x)))(2))
    2
    """

    @wraps(function)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        running: _Running = []
        token = _RUNNING.set(running)
        done = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))  # keeps the list in its context
        _RUNNING.reset(token)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            for loop, task in running:
                loop.call_soon_threadsafe(task.cancel)
            if running:
                await asyncio.wait([done])
                done.exception() if not done.cancelled() else None
            raise

    return awaited
