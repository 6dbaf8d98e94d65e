"""Group commit for the store: rows that arrive while a commit runs form the next one.

A commit waits for the disk, which takes as long for one row as for five hundred. So no row has a commit of its own.
Rows are inserted in the thread that brings them, which is quick; a thread does nothing but commit, so that the two
hardly ever want the interpreter at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

from kofn.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST = 512  # rows of one commit
APART = 0.008  # seconds from one commit to the next where several wait: a fast disk would be given a row at a time

Waiters = list["asyncio.Future[None]"]


class StoreWriter:
    """One connection to write with, and a thread that commits. To be used from one thread, with a loop or without."""

    def __init__(self, path: Path, connection: sqlite3.Connection, statement: str) -> None:
        self.path = path
        self.problem: WorldError | None = None
        self._connection, self._statement = connection, statement
        self._rows: list[Any] = []
        self._waiters: Waiters = []
        self._planned = False
        self._next = 0.0  # when the next commit may start
        self._idle = threading.Event()
        self._idle.set()
        self._jobs: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, Waiters] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._commit, name=f"kofn commits {path.name}", daemon=True)
        self._thread.start()

    def put(self, rows: Sequence[Any], waiter: asyncio.Future[None] | None = None) -> None:
        """Hand rows over; `waiter` is resolved when they are committed. Without a loop they wait for `flush`."""
        if self.problem is not None:
            raise self.problem
        self._rows += rows
        if waiter is not None:
            self._waiters.append(waiter)
        if not self._planned and self._idle.is_set():
            with contextlib.suppress(RuntimeError):
                self._plan(asyncio.get_running_loop())

    def flush(self) -> None:
        """Return when everything handed over is committed."""
        self._idle.wait()
        self._planned = False
        while self._rows and self.problem is None:
            if self._insert():
                self._end()
        waiters, self._waiters = self._waiters, []
        _resolve(waiters, self.problem)
        if self.problem is not None:
            raise self.problem

    def close(self) -> None:
        """Commit what is left and end the thread. The connection stays with its owner."""
        try:
            self.flush()
        finally:
            self._jobs.put(None)
            self._thread.join()

    # in the thread of the loop

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start soon: what else the loop has received by then goes with it."""
        self._planned = True
        wait = self._next - loop.time()
        if wait > 0:
            loop.call_later(wait, self._start, loop)
        else:
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Insert what is there and have it committed."""
        self._planned = False
        if not self._rows or self.problem is not None or not self._idle.is_set():
            return
        self._next = loop.time() + (APART if len(self._waiters) > 1 else 0.0)
        waiters: Waiters = []
        if len(self._rows) <= MOST:  # those of a longer queue may belong to rows that have to wait
            waiters, self._waiters = self._waiters, []
        if self._insert():
            self._idle.clear()
            self._jobs.put((loop, waiters))
        else:
            _resolve([*waiters, *self._waiters], self.problem)

    def _done(self, loop: asyncio.AbstractEventLoop, waiters: Waiters) -> None:
        _resolve(waiters, self.problem)
        if self.problem is not None:
            _resolve(self._waiters, self.problem)
        elif self._rows and not self._planned:
            self._plan(loop)

    def _insert(self) -> bool:
        rows, self._rows = self._rows[:MOST], self._rows[MOST:]
        try:
            # takes the write lock now, where waiting is possible: a read lock could not always be upgraded later
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(self._statement, rows)
        except sqlite3.Error as problem:
            self._fail(problem)
        return self.problem is None

    # in the thread that commits, and in `flush`

    def _commit(self) -> None:
        while job := self._jobs.get():
            self._end()
            self._idle.set()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                job[0].call_soon_threadsafe(self._done, *job)

    def _end(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            self._fail(problem)

    def _fail(self, problem: sqlite3.Error) -> None:
        self.problem = WorldError(
            f"{self.path}: cannot be written: {problem}: what was stored is kept; run the same command again"
        )
        if self._connection.in_transaction:
            self._connection.rollback()


def _resolve(futures: Waiters, problem: WorldError | None) -> None:
    for future in futures:
        if future.done() or future.get_loop().is_closed():
            continue
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(problem)
            future.exception()  # marks it as seen: a caller that was cancelled never will, and asyncio would log it
