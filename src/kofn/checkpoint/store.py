"""Finished cases, kept as they finish: a killed run goes on where it was, and more submissions run only what is new."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from kofn.checkpoint.work import Checked, Done, Ended
from kofn.errors import InputError, WorldError
from kofn.generate.store import locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kofn.errors import KofnError

NAME, OUTPUTS = "cases.sqlite", "outputs"
VERSION = 2  # 1 had no seals: its files are given the column, and cases without a seal are taken as they are
_CHUNK = 500
_TABLES = (
    "cases (key TEXT PRIMARY KEY NOT NULL, done BLOB NOT NULL, seal INTEGER)",
    "submissions (path TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL)",
)


class Cases:
    """A file of finished cases by key, and a folder of what was too long for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / OUTPUTS).mkdir(exist_ok=True)
        except OSError as problem:
            raise WorldError(f"{directory}: cannot be written: {problem.strerror}") from None
        try:
            self._lock = locked(directory)
        except OSError as problem:
            raise WorldError(f"{directory}: cannot be written: {problem.strerror}") from None
        try:
            self._file = sqlite3.connect(directory / NAME, isolation_level=None)
            self._prepare()
        except sqlite3.Error as problem:
            os.close(self._lock)
            raise _unusable(directory / NAME, problem) from None
        except BaseException:
            os.close(self._lock)
            raise

    def _prepare(self) -> None:
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute(
            "PRAGMA synchronous = NORMAL"
        )  # a killed process loses nothing; what is lost can be run again
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, 1, VERSION):
            raise InputError(f"{self.directory / NAME}: version {version}, expected {VERSION}: another kofn wrote it")
        self._file.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            self._file.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        if version == 1:
            self._file.execute("ALTER TABLE cases ADD COLUMN seal INTEGER")
        self._file.execute(f"PRAGMA user_version = {VERSION}")
        self._file.execute("COMMIT")
        if version and (found := self._file.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found.splitlines()[-1])

    def names(self) -> dict[str, str]:
        """What the submissions of earlier commands are called, by their paths."""
        try:
            return dict(self._file.execute("SELECT path, name FROM submissions"))
        except sqlite3.Error as problem:
            raise _unusable(self.directory / NAME, problem) from None

    def name(self, names: Mapping[str, str]) -> None:
        """Remember what submissions are called, by their paths."""
        try:
            self._file.executemany("INSERT OR REPLACE INTO submissions VALUES (?, ?)", list(names.items()))
        except sqlite3.Error as problem:
            raise _unwritable(self.directory / NAME, problem) from None

    def put(self, done: Iterable[Done]) -> list[Done]:
        """Keep finished cases, all or none of them, and give them back as they are kept.

        One of which the harness itself failed is not kept: it is run again.
        """
        import orjson

        try:
            kept = [self._filed(one) for one in done]
        except OSError as problem:
            raise _unwritable(self.directory / OUTPUTS, problem) from None
        told = [(one.key, orjson.dumps(asdict(one), default=_text)) for one in kept if one.broken is None]
        try:
            self._file.execute("BEGIN")
            self._file.executemany(
                "INSERT OR REPLACE INTO cases (key, done, seal) VALUES (?, ?, ?)",
                [(key, text, _seal(key, text)) for key, text in told],
            )
            self._file.execute("COMMIT")
        except sqlite3.Error as problem:
            if self._file.in_transaction:
                self._file.rollback()
            raise _unwritable(self.directory / NAME, problem) from None
        return kept

    def get(self, keys: Iterable[str]) -> dict[str, Done]:
        """What is there of these; refused where one was changed since."""
        import orjson

        wanted, found = list(keys), {}
        for start in range(0, len(wanted), _CHUNK):
            part = wanted[start : start + _CHUNK]
            marks = ", ".join("?" * len(part))
            try:
                asked = f"SELECT key, done, seal FROM cases WHERE key IN ({marks})"  # noqa: S608 - marks alone
                for key, text, seal in self._file.execute(asked, part):
                    if seal is not None and seal != _seal(key, text):
                        raise ValueError("a case was changed since it was stored")
                    found[key] = _done(orjson.loads(text))
            except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError) as problem:
                raise _unusable(self.directory / NAME, problem) from None
        return found

    def _filed(self, done: Done) -> Done:
        """With long values in files, and notes that say where."""
        return replace(done, checked=tuple(self._noted(done.key, one) for one in done.checked))

    def _noted(self, key: str, one: Checked) -> Checked:
        notes = []
        for what, whole in (("actual", one.whole), ("expected", one.whole_expected)):
            if whole is not None:
                name = f"{key[:16]}-{_plain(one.attribute)}-{what}"
                (self.directory / OUTPUTS / name).write_bytes(whole)
                notes.append(f"whole {what}: {OUTPUTS}/{name}")
        diff = "\n".join([*filter(None, [one.diff]), *(f"({note})" for note in notes)])
        return replace(one, diff=diff, whole=None, whole_expected=None)

    def close(self) -> None:
        """Close the file and free the directory."""
        self._file.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def _unusable(path: Path, problem: Exception) -> KofnError:
    """Whether the disk is at fault, or the file."""
    if isinstance(problem, sqlite3.OperationalError) and "malformed" not in str(problem):
        return WorldError(f"{path}: cannot be used: {problem}")
    return InputError(f"{path}: not a file that kofn wrote, or damaged ({problem}): delete it, or give another --out")


def _unwritable(path: Path, problem: Exception) -> WorldError:
    said = problem.strerror if isinstance(problem, OSError) else problem
    return WorldError(f"{path}: cannot be written: {said}: what is finished is kept; run the same command again")


def _seal(key: str, text: bytes | str) -> int:
    """The CRC-32 of a finished case: SQLite does not notice a flipped bit inside a text."""
    return crc32(text.encode() if isinstance(text, str) else text, crc32(key.encode()))


def _text(data: Any) -> str:
    if not isinstance(data, bytes):
        raise TypeError(f"{type(data).__name__} is not JSON")
    return data.decode(errors="backslashreplace")


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:60]


def _done(stored: dict[str, Any]) -> Done:
    checked = tuple(Checked(**one) for one in stored["checked"])
    told = stored["ended"]
    ended = Ended(**{**told, "output": told["output"].encode(), "stderr": told["stderr"].encode()})
    log = stored["log"]
    return Done(**{**stored, "checked": checked, "ended": ended, "log": None if log is None else log.encode()})
