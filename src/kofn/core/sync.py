"""Runs a coroutine from synchronous code, also where an event loop is running already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns. Where a loop is running already, as in a notebook, it gets a thread and its own loop.

    >>> run_sync(asyncio.sleep(0, "done"))
    'done'
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    # asyncio.run refuses to start inside a running loop; another thread has none
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
