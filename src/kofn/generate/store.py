"""Where every reply is kept while a run goes: one SQLite file, committed before a reply counts as done.

A process that is killed loses what was under way and nothing else; the lock it held is gone with it. SQLite brings the
file back to the last commit when it is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kofn.errors import InputError, WorldError
from kofn.generate.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

VERSION = 1
CHUNK = 500  # keys of one lookup
WAIT = 30.0  # seconds for another process that writes: a cache is shared, and somebody may look into a store
NAME = "store.sqlite"
LOCK = "store.lock"


class Row(NamedTuple):
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
COLUMNS = ", ".join(Row._fields)
INSERT = f"INSERT INTO replies VALUES ({', '.join('?' * len(Row._fields))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
    f"CREATE TABLE replies ({', '.join(f'{name} {TYPES[name]}' for name in Row._fields)})",
    f"PRAGMA user_version = {VERSION}",
)


class _File:
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
        self._writer = Writer(path, self._connection, INSERT)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """The stored replies among these keys."""
        wanted = list(keys)
        found: dict[bytes, Row] = {}
        for at in range(0, len(wanted), CHUNK):
            some = wanted[at : at + CHUNK]
            asked = f"SELECT {COLUMNS} FROM replies WHERE key IN ({', '.join('?' * len(some))})"  # noqa: S608 - our own names
            found.update((row[0], Row._make(row)) for row in self._read(asked, some))
        return found

    def put(self, rows: Sequence[Row], waiter: asyncio.Future[None] | None = None) -> None:
        """Hand rows to the writer. A key that is stored already keeps its reply."""
        self._writer.put(rows, waiter)

    async def commit(self, *rows: Row) -> None:
        """Return once these rows are on the disk."""
        done = asyncio.get_running_loop().create_future()
        self.put(rows, done)
        await done

    def add(self, rows: Sequence[Row]) -> None:
        """The same without a loop."""
        self.put(rows)
        self.flush()

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
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as problem:
            raise WorldError(f"{self.path}: cannot be read: {problem}") from None


class Store(_File):
    """The replies of one run directory, held by one process at a time."""

    def __init__(self, path: Path, lock: int) -> None:
        self._lock: int | None = lock
        super().__init__(path)

    @classmethod
    def open(cls, directory: Path, *, fingerprint: Mapping[str, Any]) -> Store:
        """Open or make the store of a run.

        `fingerprint` is what may not change when a run goes on: the first one is kept, and another one is refused.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = locked(directory)
        except OSError as problem:
            raise WorldError(f"{directory}: cannot be written: {problem.strerror}") from None
        try:
            store = cls(directory / NAME, lock)
        except BaseException:
            os.close(lock)
            raise
        try:
            store._agree(fingerprint, directory)
        except BaseException:
            store.close()
            raise
        return store

    def count(self) -> int:
        """How many replies are committed."""
        return int(self._read("SELECT count(*) FROM replies")[0][0])

    def doubled(self) -> bool:
        """Whether some candidate was asked in two ways, as happens when data is edited: which holds is in no row."""
        query = "SELECT 1 FROM replies GROUP BY case_id, stage, repeat HAVING count(*) > 1 LIMIT 1"
        return bool(self._read(query))

    def forget_errors(self) -> int:
        """Drop the rows that hold no output, so that they are asked for again; how many they were."""
        self.flush()
        try:
            return self._connection.execute("DELETE FROM replies WHERE error IS NOT NULL").rowcount
        except sqlite3.Error as problem:
            raise WorldError(f"{self.path}: cannot be written: {problem}: what was stored is kept") from None

    def pieces(self, stages: Sequence[str], size: int = 20_000) -> Iterator[list[tuple[Any, ...]]]:
        """The replies of these stages in the order they came, some at a time, each with its row id in front."""
        self.flush()
        marks = ", ".join("?" * len(stages))
        asked = (
            f"SELECT rowid, {COLUMNS} FROM replies WHERE rowid > ? AND stage IN ({marks}) ORDER BY rowid LIMIT {size}"  # noqa: S608 - our own names
        )
        last = 0
        while piece := self._read(asked, (last, *stages)):
            yield piece
            last = piece[-1][0]

    def close(self) -> None:
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            super().close()
        finally:
            os.close(lock)

    def _agree(self, fingerprint: Mapping[str, Any], directory: Path) -> None:
        import orjson

        now = orjson.dumps(fingerprint).decode()
        told = self._read("SELECT value FROM meta WHERE name = 'fingerprint'")
        if not told:
            try:
                self._connection.execute("INSERT INTO meta VALUES ('fingerprint', ?)", (now,))
            except sqlite3.Error as problem:
                raise WorldError(f"{self.path}: cannot be written: {problem}") from None
        elif orjson.loads(told[0][0]) != orjson.loads(now):
            name, old, new = difference(orjson.loads(told[0][0]), orjson.loads(now))
            raise InputError(
                f"{directory}: was made with {name} {old} and this run has {new}: give another --out for a new run"
            )


class Cache(_File):
    """Replies across runs, for requests whose reply is always the same. Several processes may share it."""

    @classmethod
    def open(cls, path: Path) -> Cache:
        """Open or make the file; another process that writes is waited for."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise WorldError(f"{path.parent}: cannot be written: {problem.strerror}") from None
        return cls(path)


def _connect(path: Path) -> sqlite3.Connection:
    """A connection without transactions of its own: each statement that reads lets the file go at once."""
    try:
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
        for statement in SCHEMA if new else ():
            connection.execute(statement)
        connection.execute("COMMIT")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        fields = tuple(name for _, name, *_ in connection.execute("PRAGMA table_info(replies)"))
        sound = new or connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except sqlite3.Error as problem:
        raise _unusable(path, problem) from None
    if version != VERSION:
        raise InputError(f"{path}: has version {version} and this kofn reads version {VERSION}: give another --out")
    if fields != Row._fields:
        raise InputError(f"{path}: does not have the columns of a store: give another --out, or delete the file")
    if not sound:
        raise InputError(f"{path}: is damaged: give another --out, or delete the file")


def _unusable(path: Path, problem: sqlite3.Error) -> Exception:
    """The disk's fault or the file's."""
    if isinstance(problem, sqlite3.OperationalError):
        return WorldError(f"{path}: cannot be written: {problem}: what was stored is kept")
    return InputError(f"{path}: is damaged or no store ({problem}): give another --out, or delete the file")


def locked(directory: Path) -> int:
    """An open file that holds the lock of this directory, our process id in it. However we end, the lock ends too."""
    import fcntl

    file = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        first = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise InputError(
            f"{directory}: process {first or '(just started)'} is using it: wait until it ends, or give another --out"
        ) from None
    except BaseException:
        os.close(file)
        raise
    return file


def difference(old: Any, new: Any, name: str = "") -> tuple[str, str, str]:
    """The first thing that differs: its dotted name, and both values, short.

    >>> difference({"a": 1, "model": {"name": "x"}}, {"a": 1, "model": {"name": "y"}})
    ('model.name', "'x'", "'y'")
    >>> difference({"a": 1}, {"a": 1, "b": 2})
    ('b', 'nothing', '2')
    >>> difference(["a", "b"], ["a"], "stop")
    ('stop.1', "'b'", 'nothing')
    """
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{name}.{key}" if name else str(key)
            if key not in old or key not in new:
                return below, _short(old.get(key), key in old), _short(new.get(key), key in new)
            if old[key] != new[key]:
                return difference(old[key], new[key], below)
    if isinstance(old, str) and isinstance(new, str):
        old, new = _from_where_they_differ(old, new)
    return name, _short(old), _short(new)


def _from_where_they_differ(old: str, new: str) -> tuple[str, str]:
    """Two long texts from a little before the first difference, which may be far behind what a message can show."""
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return (old, new) if same < 40 else (f"...{old[same - 20 :]}", f"...{new[same - 20 :]}")


def _short(value: Any, there: bool = True) -> str:
    if not there:
        return "nothing"
    told = repr(value)
    return told if len(told) <= 70 else f"{told[:67]}..."
