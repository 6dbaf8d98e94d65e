"""Replies in SQLite: the store of a run, committed before a reply counts as done; the cache that runs share.

A process that is killed loses what was under way and nothing else; the lock it held is gone with it. SQLite brings the
file back to the last commit when it is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from zlib import crc32

from kofn.core.system import cache_folder
from kofn.errors import InputError, WorldError
from kofn.runs.files import STORE, acquire_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


VERSION = 2  # 1 had no seals: its files are given the column, and rows without a seal are taken as they are
CHUNK = 500  # keys of one lookup: SQLite before 3.32 takes at most 999 variables per statement
WAIT = 30.0  # seconds to wait for another process: a cache is shared, and a store may be open in another program


class ReplyRow(NamedTuple):
    """One reply, as it is kept. `error` is set when there is no output; `detail` is JSON.

    `attempts` counts the calls that were made for it, 0 for a copy from the cache; `seconds` are those of the last.
    """

    key: bytes
    case_id: str
    stage: str
    repeat: int
    text: str | None
    reasoning: str | None
    finish: str | None
    logprob: float | None
    tokens_in: int | None
    tokens_out: int | None
    cost: float | None
    seconds: float | None
    error: str | None
    attempts: int
    detail: str | None
    created: float


def total_cost(rows: Iterable[ReplyRow]) -> float | None:
    """What these replies cost; None where the price of one is not known. A failed call costs nothing."""
    costs = [row.cost for row in rows if row.error is None]
    return None if None in costs else sum(cost or 0.0 for cost in costs)


# a table with row ids: keys are random, and rows that lie in the order of their keys cost four times the writing
TYPES = {
    "key": "BLOB PRIMARY KEY NOT NULL",
    **dict.fromkeys(("case_id", "stage"), "TEXT NOT NULL"),
    **dict.fromkeys(("text", "reasoning", "finish", "error", "detail"), "TEXT"),
    **dict.fromkeys(("repeat", "attempts"), "INTEGER NOT NULL"),
    **dict.fromkeys(("tokens_in", "tokens_out"), "INTEGER"),
    **dict.fromkeys(("logprob", "cost", "seconds"), "REAL"),
    "created": "REAL NOT NULL",
}
SEAL = "seal"  # the checksum of the row, in a column of its own
STORED = (*ReplyRow._fields, SEAL)
ERROR = 1 + ReplyRow._fields.index("error")  # behind the row id
COLUMNS = ", ".join(STORED)
INSERT = f"INSERT INTO replies ({COLUMNS}) VALUES ({', '.join('?' * len(STORED))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
    f"CREATE TABLE replies ({', '.join(f'{name} {TYPES[name]}' for name in ReplyRow._fields)}, {SEAL} INTEGER)",
    f"PRAGMA user_version = {VERSION}",
)
UPGRADE = (f"ALTER TABLE replies ADD COLUMN {SEAL} INTEGER", f"PRAGMA user_version = {VERSION}")


def seal(row: Sequence[Any]) -> int:
    """The CRC-32 of a row as SQLite gives it back: SQLite itself does not notice a flipped bit inside a text.

    SQLite keeps whole numbers of a REAL column as floats, no minus before 0, and NULL for NaN.

    >>> row = ReplyRow(b"k", "c1", "answer", 0, "It is 4.", None, "stop", -0.0, 7, 3, 0, 0.2, None, 1, None, 9.0)
    >>> seal(row) == seal(row._replace(logprob=0.0, cost=0.0)) != seal(row._replace(text="It is 5."))
    True
    """
    key, case, stage, repeat, text, reasoning, finish, logprob, tokens_in, tokens_out, cost, seconds, *rest = row
    error, attempts, detail, created = rest
    text_form = (
        f"{case}\0{stage}\0{reasoning}\0{finish}\0{error}\0{detail}\0{+repeat}\0{+attempts}\0{_real(created)}\0"
        f"{tokens_in if tokens_in is None else +tokens_in}\0{tokens_out if tokens_out is None else +tokens_out}\0"
        f"{_real(logprob)}\0{_real(cost)}\0{_real(seconds)}"
    )
    found = crc32(text_form.encode(errors="surrogatepass"), crc32(key))
    return found if text is None else crc32(text.encode(errors="surrogatepass"), found)


def _real(number: float | None) -> float | None:
    return None if number is None or number != number else float(number) + 0.0


def is_broken(row: Sequence[Any]) -> bool:
    """Whether a row is not what was written: its seal, which stands behind it, is of something else."""
    if row[-1] is None:
        return False
    try:
        return bool(seal(row[:-1]) != row[-1])
    except (TypeError, ValueError, OverflowError, AttributeError):  # a value of another type
        return True


class _ReplyFile:
    """A SQLite file of replies: one connection to read, one that the writer has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _connect(path)
        try:
            _prepare(self._reader, path)
            self._connection = _connect(path)
        except BaseException:
            self._reader.close()
            raise
        self._writer = StoreWriter(path, self._connection, INSERT)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, ReplyRow]:
        """The stored replies among these keys."""
        all_keys = list(keys)
        found: dict[bytes, ReplyRow] = {}
        for at in range(0, len(all_keys), CHUNK):
            some = all_keys[at : at + CHUNK]
            query = f"SELECT {COLUMNS} FROM replies WHERE key IN ({', '.join('?' * len(some))})"  # noqa: S608 - our own names
            found.update((row[0], ReplyRow._make(row)) for row in self._check_seals(self._read(query, some)))
        return found

    def put(self, rows: Sequence[ReplyRow], waiter: asyncio.Future[None] | None = None) -> None:
        """Hand rows to the writer. A key that is stored already keeps its reply."""
        self._writer.put([(*row, seal(row)) for row in rows], waiter)

    def flush(self) -> None:
        """Return once everything handed over is on the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Write what is left and let the file go. Doing it twice is doing it once."""
        try:
            self._writer.close()
        finally:
            self._connection.close()
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            try:
                return self._reader.execute(statement, values).fetchall()
            except sqlite3.OperationalError as problem:
                if "decode" not in str(problem):
                    raise
                self._reader.text_factory = _lenient  # a damaged text: its seal will tell
                return self._reader.execute(statement, values).fetchall()
        except sqlite3.OperationalError as problem:
            raise WorldError(f"{self.path}: cannot be read: {problem}") from None
        except sqlite3.Error as problem:
            raise _unusable(self.path, problem) from None

    def _check_seals(self, rows: Sequence[Any], before: int = 0) -> list[Any]:
        """The rows without their seals, and refused where one does not fit; `before` columns stand before a row."""
        if broken := sum(is_broken(row[before:]) for row in rows):
            raise InputError(
                f"{self.path}: {broken:,} of its replies {'is' if broken == 1 else 'are'} damaged: "
                "--retry-errors drops such replies and asks again; or give another --out"
            )
        return [row[:-1] for row in rows]


class Store(_ReplyFile):
    """The replies of one run directory, held by one process at a time."""

    def __init__(self, path: Path, lock: int) -> None:
        self._lock: int | None = lock
        super().__init__(path)

    @classmethod
    def open(cls, directory: Path, *, fingerprint: Mapping[str, Any]) -> Store:
        """Open or make the store of a run.

        `fingerprint` is what may not change when a run goes on: the first one is kept, and another one is refused.
        """
        lock = acquire_lock(directory)
        try:
            store = cls(directory / STORE, lock)
        except BaseException:
            os.close(lock)
            raise
        try:
            store._check_fingerprint(fingerprint, directory)
        except BaseException:
            store.close()
            raise
        return store

    def count(self) -> int:
        """How many replies are committed."""
        return int(self._read("SELECT count(*) FROM replies")[0][0])

    def has_duplicates(self) -> bool:
        """Whether a candidate has two replies, as when data was edited between runs: no row says which one holds."""
        query = "SELECT 1 FROM replies GROUP BY case_id, stage, repeat HAVING count(*) > 1 LIMIT 1"
        return bool(self._read(query))

    def forget_errors(self) -> int:
        """Drop the rows that hold no output or are damaged, so that they are asked for again; how many they were."""
        self.flush()
        try:
            self._reader.text_factory = _lenient
            every = self._reader.execute(f"SELECT rowid, {COLUMNS} FROM replies")  # noqa: S608 - our own names
            broken = [(row[0],) for row in every if row[ERROR] is None and is_broken(row[1:])]
            dropped = self._connection.execute("DELETE FROM replies WHERE error IS NOT NULL").rowcount
            self._connection.executemany("DELETE FROM replies WHERE rowid = ?", broken)
            self._reader.text_factory = str
        except sqlite3.Error as problem:
            raise WorldError(f"{self.path}: cannot be written: {problem}: what was stored is kept") from None
        return dropped + len(broken)

    def pieces(self, stages: Sequence[str], size: int = 20_000) -> Iterator[list[tuple[Any, ...]]]:
        """The replies of these stages in the order they came, some at a time, each with its row id in front."""
        self.flush()
        marks = ", ".join("?" * len(stages))
        query = (
            f"SELECT rowid, {COLUMNS} FROM replies WHERE rowid > ? AND stage IN ({marks}) ORDER BY rowid LIMIT {size}"  # noqa: S608 - our own names
        )
        last = 0
        while piece := self._read(query, (last, *stages)):
            yield self._check_seals(piece, 1)
            last = piece[-1][0]

    def close(self) -> None:
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            super().close()
        finally:
            os.close(lock)  # last: nobody else may write before everything is committed

    def _check_fingerprint(self, fingerprint: Mapping[str, Any], directory: Path) -> None:
        import orjson

        # compared as JSON, in which tuples are lists
        now = orjson.dumps(fingerprint).decode()
        stored = self._read("SELECT value FROM meta WHERE name = 'fingerprint'")
        if not stored:
            try:
                self._connection.execute("INSERT INTO meta VALUES ('fingerprint', ?)", (now,))
            except sqlite3.Error as problem:
                raise WorldError(f"{self.path}: cannot be written: {problem}") from None
        else:
            _compare_fingerprints(orjson.loads(stored[0][0]), orjson.loads(now), directory)


def _compare_fingerprints(began: dict[str, Any], now: dict[str, Any], directory: Path) -> None:
    """Refuse to resume a run whose settings have changed; every changed one is named."""
    sent, changed = began.pop(SENT, {}), list(differences(began, {k: v for k, v in now.items() if k != SENT}))
    if not changed:
        return
    # the digest says that something of the task differs; stores that are older keep nothing that says what
    details = list(differences(sent, now.get(SENT, {}))) if sent else []
    names = [one for one in changed if one[0] != DIGEST] + details
    what = [f"{name} was {old} and is {new}" for name, old, new in names[:MOST_CHANGES]]
    what += [f"{len(names) - MOST_CHANGES} more"] if len(names) > MOST_CHANGES else []
    reason = "; ".join(what) or "what the task asks has changed"
    raise InputError(
        f"{directory}: settings have changed since this run began: {reason}. Give another --out, or undo the change"
    )


DIGEST, SENT = "asked", "sent"  # of what a task sends, and that itself, to say what of it has changed
MOST_CHANGES = 5  # that a message names


class Cache(_ReplyFile):
    """Replies across runs, for requests whose reply is always the same. Several processes may share it."""

    @classmethod
    def of_user(cls) -> Cache:
        """The one that all runs of a user share."""
        return cls.open(cache_folder() / "replies.sqlite")

    @classmethod
    def open(cls, path: Path) -> Cache:
        """Open or make the file; another process that writes is waited for."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise WorldError(f"{path.parent}: cannot be written: {problem.strerror}") from None
        return cls(path)

    def _check_seals(self, rows: Sequence[Any], before: int = 0) -> list[Any]:
        """The rows that are what was written: a damaged one is as good as none, and asked for again."""
        return [row[:-1] for row in rows if not is_broken(row[before:])]


def _lenient(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


def _connect(path: Path) -> sqlite3.Connection:
    """A connection without transactions of its own: each statement that reads lets the file go at once."""
    try:
        # check_same_thread=False: the thread of the writer commits on a connection that was opened here
        connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as problem:
        raise WorldError(f"{path}: cannot be opened: {problem}") from None
    try:
        # written to the disk at every commit, copied into the file every 4,000 pages
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as problem:
        connection.close()
        raise _unusable(path, problem) from None
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file in one transaction; refuse a file that is not one of ours, or is broken."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        with contextlib.closing(connection.execute("SELECT name FROM sqlite_master")) as names:
            new = not names.fetchall()
        version, fields = _version(connection), _fields(connection)
        for statement in SCHEMA if new else UPGRADE if (version, fields) == (1, ReplyRow._fields) else ():
            connection.execute(statement)
        connection.execute("COMMIT")
        version, fields = _version(connection), _fields(connection)
        sound = new or connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
    except sqlite3.Error as problem:
        raise _unusable(path, problem) from None
    if version != VERSION:
        raise InputError(f"{path}: has version {version} and this kofn reads version {VERSION}: give another --out")
    if fields != STORED:
        raise InputError(f"{path}: does not have the columns of a store: give another --out, or delete the file")
    if not sound:
        raise InputError(f"{path}: is damaged: give another --out, or delete the file")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _fields(connection: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(name for _, name, *_ in connection.execute("PRAGMA table_info(replies)"))


def _unusable(path: Path, problem: sqlite3.Error) -> Exception:
    """The disk's fault or the file's."""
    if isinstance(problem, sqlite3.OperationalError):
        return WorldError(f"{path}: cannot be written: {problem}: what was stored is kept")
    return InputError(f"{path}: is damaged or no store ({problem}): give another --out, or delete the file")


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """What differs: dotted names, and both values, short.

    >>> list(differences({"a": 1, "model": {"name": "x"}}, {"a": 2, "model": {"name": "y"}}))
    [('a', '1', '2'), ('model.name', "'x'", "'y'")]
    >>> list(differences({"a": 1}, {"a": 1, "b": 2}))
    [('b', 'unset', '2')]
    >>> list(differences(["a", "b"], ["a"], "stop"))
    [('stop.1', "'b'", 'unset')]
    """
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{name}.{key}" if name else str(key)
            if key not in old or key not in new:
                yield below, _short(old.get(key), key in old), _short(new.get(key), key in new)
            elif old[key] != new[key]:
                yield from differences(old[key], new[key], below)
        return
    if isinstance(old, str) and isinstance(new, str):
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        if same >= 40:  # from a little before the difference, which may be far behind what a message can show
            old, new = f"...{old[same - 20 :]}", f"...{new[same - 20 :]}"
    if old != new:
        yield name, _short(old), _short(new)


def _short(value: Any, there: bool = True) -> str:
    if not there:
        return "unset"
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:67]}..."


MOST = 512  # rows of one commit
APART = 0.008  # seconds from one commit to the next where several wait: a fast disk would be given a row at a time

Waiters = list["asyncio.Future[None]"]


class StoreWriter:
    """One connection to write with, and a thread that commits: rows that arrive while a commit runs form the next one.

    A commit waits for the disk, which takes as long for one row as for five hundred. So no row has a commit of its own.
    Rows are inserted in the thread that brings them, which is quick; a thread does nothing but commit, so that the two
    hardly ever want the interpreter at the same time. To be used from one thread, with a loop or without.
    """

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
