"""What a verification keeps while it runs: finished cases in SQLite, so that it can resume, and its progress."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from kofn.core.progress import Snapshot, show_progress
from kofn.core.types import Estimate
from kofn.errors import InputError, WorldError
from kofn.generate.progress_file import ProgressWriter
from kofn.problems.case import AttributeVerdict, CaseOutcome
from kofn.runs.files import acquire_lock
from kofn.sandbox.process import ProcessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kofn.errors import KofnError


NAME, OUTPUTS = "cases.sqlite", "outputs"
VERSION = 2  # 1 had no seals: its files are given the column, and cases without a seal are taken as they are
_CHUNK = 500  # keys in one query: SQLite allows 999 parameters in old builds
# the names in the file are those of its first version; fields have other names since
_STORED_NAMES = {"verdicts": "checked", "process": "ended", "harness_error": "broken"}
_FIELD_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}
_TABLES = (
    "cases (key TEXT PRIMARY KEY NOT NULL, done BLOB NOT NULL, seal INTEGER)",
    "submissions (path TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL)",
)


class CaseStore:
    """Finished cases by key, in `cases.sqlite`, with long values in files beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = acquire_lock(directory)
        try:
            (directory / OUTPUTS).mkdir(exist_ok=True)
            self._file = sqlite3.connect(directory / NAME, isolation_level=None)
            self._prepare()
        except BaseException as problem:
            os.close(self._lock)
            if isinstance(problem, sqlite3.Error):
                raise _unusable_error(directory / NAME, problem) from None
            if isinstance(problem, OSError):
                raise _write_error(directory / OUTPUTS, problem) from None
            raise

    def _prepare(self) -> None:
        self._file.execute("PRAGMA journal_mode = WAL")
        # a killed process loses nothing; what a crash of the machine loses can be run again
        self._file.execute("PRAGMA synchronous = NORMAL")
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
            raise _unusable_error(self.directory / NAME, problem) from None

    def name(self, names: Mapping[str, str]) -> None:
        """Remember what submissions are called, by their paths."""
        try:
            self._file.executemany("INSERT OR REPLACE INTO submissions VALUES (?, ?)", list(names.items()))
        except sqlite3.Error as problem:
            raise _write_error(self.directory / NAME, problem) from None

    def put(self, outcomes: Iterable[CaseOutcome]) -> list[CaseOutcome]:
        """Keep finished cases, all or none of them, and give them back as they are kept.

        One of which the harness itself failed is not kept: it is run again.
        """
        import orjson

        try:
            kept = [replace(o, verdicts=tuple(self._file_values(o.key, one) for one in o.verdicts)) for o in outcomes]
        except OSError as problem:
            raise _write_error(self.directory / OUTPUTS, problem) from None
        rows = []
        for one in kept:
            if one.harness_error is None:
                stored = {_STORED_NAMES.get(name, name): value for name, value in asdict(one).items()}
                rows.append((one.key, text := orjson.dumps(stored, default=_text), _checksum(one.key, text)))
        try:
            self._file.execute("BEGIN")
            self._file.executemany("INSERT OR REPLACE INTO cases (key, done, seal) VALUES (?, ?, ?)", rows)
            self._file.execute("COMMIT")
        except sqlite3.Error as problem:
            if self._file.in_transaction:
                self._file.rollback()
            raise _write_error(self.directory / NAME, problem) from None
        return kept

    def get(self, keys: Iterable[str]) -> dict[str, CaseOutcome]:
        """What is there of these; refused where one was changed since."""
        import orjson

        missing, found = list(keys), {}
        for start in range(0, len(missing), _CHUNK):
            part = missing[start : start + _CHUNK]
            marks = ", ".join("?" * len(part))
            try:
                query = f"SELECT key, done, seal FROM cases WHERE key IN ({marks})"  # noqa: S608 - marks alone
                for key, text, seal in self._file.execute(query, part):
                    if seal is not None and seal != _checksum(key, text):
                        raise ValueError("a case was changed since it was stored")
                    found[key] = _outcome(orjson.loads(text))
            except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError) as problem:
                raise _unusable_error(self.directory / NAME, problem) from None
        return found

    def _file_values(self, key: str, one: AttributeVerdict) -> AttributeVerdict:
        """With long values in files, and notes that say where."""
        notes, plain = [], re.sub(r"[^\w.-]", "_", one.attribute)[:60]
        for what, whole in (("actual", one.whole), ("expected", one.whole_expected)):
            if whole is not None:
                name = f"{key[:16]}-{plain}-{what}"
                (self.directory / OUTPUTS / name).write_bytes(whole)
                notes.append(f"whole {what}: {OUTPUTS}/{name}")
        diff = "\n".join([*filter(None, [one.diff]), *(f"({note})" for note in notes)])
        return replace(one, diff=diff, whole=None, whole_expected=None)

    def close(self) -> None:
        self._file.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def _unusable_error(path: Path, problem: Exception) -> KofnError:
    """Whether the disk is at fault, or the file."""
    if isinstance(problem, sqlite3.OperationalError) and "malformed" not in str(problem):
        return WorldError(f"{path}: cannot be used: {problem}")
    return InputError(f"{path}: not a file that kofn wrote, or damaged ({problem}): delete it, or give another --out")


def _write_error(path: Path, problem: Exception) -> WorldError:
    reason = problem.strerror if isinstance(problem, OSError) else problem
    return WorldError(f"{path}: cannot be written: {reason}: what is finished is kept; run the same command again")


def _checksum(key: str, text: bytes | str) -> int:
    """The CRC-32 of a finished case: SQLite does not notice a flipped bit inside a text."""
    return crc32(text.encode() if isinstance(text, str) else text, crc32(key.encode()))


def _text(data: Any) -> str:
    if not isinstance(data, bytes):
        raise TypeError(f"{type(data).__name__} is not JSON")
    return data.decode(errors="backslashreplace")


def _outcome(stored: dict[str, Any]) -> CaseOutcome:
    fields = {_FIELD_NAMES.get(name, name): value for name, value in stored.items()}
    process, log = fields["process"], fields["log"]
    process |= {name: process[name].encode() for name in ("output", "stderr")}
    fields |= {"process": ProcessResult(**process), "log": None if log is None else log.encode()}
    return CaseOutcome(**{**fields, "verdicts": tuple(AttributeVerdict(**one) for one in fields["verdicts"])})


@dataclass(slots=True)
class ExecutionCount:
    """How many executions there are, and the outcomes of those that are done; `before` were finished already."""

    clock: Callable[[], float] = time.monotonic
    total: int = field(default=0, init=False)
    done: int = field(default=0, init=False)
    before: int = field(default=0, init=False)
    passed: int = field(default=0, init=False)
    broken: int = field(default=0, init=False)
    began: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def on_total(self, total: int, finished: int, n_passed: int) -> None:
        """Set how many there are, how many are finished already, and how many of those passed."""
        self.total, self.done, self.before, self.passed = total, finished, finished, n_passed
        self.began = self.clock()

    def on_case(self, outcome: CaseOutcome) -> None:
        self.done += 1
        self.passed += bool(outcome.passed)
        self.broken += outcome.harness_error is not None

    def snapshot(self) -> Snapshot:
        """The state for the progress file. The share that passed has no interval: these cases are all there are."""
        verified = self.done - self.broken
        share = Estimate(
            aggregator="mean",
            metric="pass",
            point=self.passed / verified if verified else None,
            low=None,
            high=None,
            level=0.95,
            n=verified,
            n_missing=self.broken,
            method="none",
        )
        return Snapshot(
            done=self.done,
            total=self.total,
            seconds=self.clock() - self.began,
            reused=self.before,
            cases_done=self.done,
            cases_total=self.total,
            errors=self.broken,
            estimates=(share,) if verified else (),
            notes=(f"{self.passed:,} passed", f"{verified - self.passed:,} failed"),
        )


def display_progress(count: ExecutionCount) -> AbstractContextManager[None]:
    """The display of a terminal, for a `with` block."""
    return show_progress(count.snapshot, "Verifying", unit="cases")


def write_progress(
    out: Path | None, count: ExecutionCount, task: str, programs: Sequence[str], *, keep: bool
) -> AbstractContextManager[object]:
    """Keep the progress file up to date where there is a directory; `keep` as of `ProgressWriter`."""
    label = programs[0] if len(programs) == 1 else f"{len(programs):,} submissions"
    if out is None:
        return nullcontext()
    return ProgressWriter(out, count.snapshot, kind="verify", task=task, model=label, keep=keep)
