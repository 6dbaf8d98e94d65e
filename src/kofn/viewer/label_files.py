"""Sheets of labels in a run's directory, the only files that the viewer writes.

A sheet is `labels-NAME.jsonl`: one row per line, as `kofn calibrate` reads it, with `human` null until somebody says
pass or fail. Whoever changes it holds the lock, reads what is there now, and writes it whole: no label is lost.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kofn.core.file_lock import lock_file
from kofn.errors import InputError
from kofn.runs.files import write_atomically
from kofn.viewer.label_sampling import SheetSpec, check_spec, draw_rows
from kofn.viewer.run_folder import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.viewer.run_view import RunView

MAX_BYTES = 32_000_000  # of a sheet
LOCK, LOCK_TIMEOUT = ".labels.lock", 10.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_FILE = re.compile(rf"labels-({_NAME.pattern})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFile:
    """A sheet as its file has it now."""

    name: str
    path: Path
    spec: SheetSpec
    rows: tuple[dict[str, Any], ...]

    @property
    def total(self) -> int:
        return len(self.rows)

    @property
    def done(self) -> int:
        return sum(row.get("human") is not None for row in self.rows)

    def next_row(self) -> int:
        """Where to continue: the first row neither labelled nor skipped, else the first skipped, else the first."""
        for skipped in (False, True):
            for i, row in enumerate(self.rows):
                if row.get("human") is None and bool(row.get("skipped")) is skipped:
                    return i
        return 0

    def states(self, by: str) -> str:
        """One letter per row: o open, s skipped, d done, t done by somebody else; never the label itself."""

        def state(row: Mapping[str, Any]) -> str:
            if row.get("human") is None:
                return "s" if row.get("skipped") else "o"
            return "d" if is_own(row, by) else "t"

        return "".join(map(state, self.rows))


def is_own(row: Mapping[str, Any], by: str) -> bool:
    """Whether a person may see and change the label of a row: it is theirs, or there is none."""
    return row.get("human") is None or str(row.get("by") or "") == by


def row_key(row: Mapping[str, Any]) -> tuple[str, int | None]:
    """What a row is about: a case, and one of its candidates."""
    return row["id"], row.get("index", row.get("picked"))


# --- reading


def list_sheets(directory: Path) -> list[LabelFile]:
    """The sheets of a run, by name; files that the viewer did not make are left alone."""
    sheets = []
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        match = _FILE.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False):
            try:
                sheets.append(read_sheet(directory, match[1]))
            except (InputError, NotFound, OSError):
                continue
    return sheets


def read_sheet(directory: Path, name: str) -> LabelFile:
    """A sheet as it is now."""
    path = _path(directory, name)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # no link is followed, no pipe waited for
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a path knows no flags
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no sheet {name!r:.130} in this run: it may have been moved or deleted") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path.name}: larger than a sheet of labels can be")
    rows = tuple(_parse_row(path.name, i, line) for i, line in enumerate(data.splitlines(), 1) if line.strip())
    if not rows or not isinstance(rows[0].get("sheet"), dict):
        raise InputError(f"{path.name}: not a sheet that the viewer made")
    try:
        spec = SheetSpec.from_row(rows[0]["sheet"])
    except TypeError:
        raise InputError(f"{path.name}: line 1: what was drawn cannot be read") from None
    return LabelFile(name=name, path=path, spec=spec, rows=rows)


def _parse_row(name: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{name}: line {number}: not JSON: {problem}") from None
    index = row.get("index", row.get("picked", 0)) if isinstance(row, dict) else None
    fits = isinstance(index, int) and isinstance(row.get("id"), str) and row.get("human") in (0, 1, None)
    if not fits:
        raise InputError(f"{name}: line {number}: expected a row with id, and human 1, 0 or null")
    return dict(row)


def _path(directory: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):  # comes from a URL: no slash, no dot at its beginning
        raise NotFound(f"there is no sheet {name!r:.130} in this run")
    return directory / f"labels-{name}.jsonl"


# --- writing


@contextmanager
def lock_labels(directory: Path) -> Iterator[None]:
    """The lock on the labels of a run, against all viewers there are; given up after `LOCK_TIMEOUT`."""
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        lock_file(handle, timeout=LOCK_TIMEOUT)
        yield
    finally:
        os.close(handle)  # releases the lock


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    data = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    write_atomically(path, lambda partial: partial.write_bytes(data))


def start_sheet(view: RunView, spec: SheetSpec) -> str:
    """The name of the sheet with this specification: the one that is there, or a new one."""
    check_spec(view, spec)
    with lock_labels(view.path):
        for known in list_sheets(view.path):
            if known.spec == spec:
                return known.name
        stem = spec.file_stem
        names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1000))
        name = next(name for name in names if not os.path.lexists(_path(view.path, name)))
        _write(_path(view.path, name), draw_rows(view, spec))
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelUpdate:
    """A label for a row; `human` None takes one back. `id` and `index` say which row was meant."""

    row: int
    id: str
    index: int | None = None
    human: int | None = None
    skipped: bool = False


def save_labels(
    directory: Path, name: str, updates: Sequence[LabelUpdate], *, by: str, now: str
) -> tuple[LabelFile, list[int]]:
    """Write labels; (the sheet, the rows left as they are because somebody else labelled them)."""
    with lock_labels(directory):
        sheet = read_sheet(directory, name)
        rows, left = list(sheet.rows), []
        for update in updates:
            at = update.row
            if not 0 <= at < len(rows) or row_key(rows[at]) != (update.id, update.index):
                raise InputError(f"{sheet.path.name}: row {at + 1} is not what was labelled: load the page again")
            if is_own(rows[at], by):
                rows[at] = _updated(rows[at], update, by, now)
            else:
                left.append(at)
        if len(left) < len(updates):
            _write(sheet.path, rows)
    return LabelFile(name=name, path=sheet.path, spec=sheet.spec, rows=tuple(rows)), left


def _updated(row: Mapping[str, Any], update: LabelUpdate, by: str, now: str) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name not in ("human", "skipped", "by", "at", "sheet")}
    mark = {"skipped": True} if update.skipped and update.human is None else {}
    who = {**({"by": by} if by else {}), "at": now} if update.human is not None else {}
    # the specification last: it is the longest part of a line, and of least interest to a reader
    return {**rest, "human": update.human, **mark, **who, "sheet": row.get("sheet")}
