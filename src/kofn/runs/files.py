"""Reads and writes the files of a run: atomic writes, digests, and errors that name the file.

A file is written whole under another name and then renamed, so that a killed writer leaves the old one.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.runs.staging import as_os_error, is_left_over, recover, remove_abandoned_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl


SCHEMA_VERSION = 3  # of run.json, evaluation.json and the Parquet files together
OLDEST_EVALUATION = 2  # the first schema with evaluation.json
_NAMED = 5  # run directories that an error names
MANIFEST, CANDIDATES, CASES = "run.json", "candidates.parquet", "cases.parquet"
RESULTS, PAGE = "results.jsonl", "report.html"


def check_new(directory: Path) -> None:
    """Refuse a directory that already holds something, before any work is done.

    What a killed writer left is nothing.
    """
    if directory.is_dir():
        recover(directory)
    if directory.exists() and not (directory.is_dir() and all(is_left_over(one.name) for one in directory.iterdir())):
        raise InputError(f"{directory}: already there: give a new directory for the run, or remove it")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(data: Any) -> bytes:
    """Indented, as people read it, keys in the order they came."""
    import orjson

    # `default=str`: dates, paths and enumerations as text
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a name nobody reads, flush it to the disk, then rename."""
    remove_abandoned_files(path.parent, path.name)
    # the process id keeps two writers apart, and says whether the writer is still alive
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with as_os_error():
            write(partial)
        with partial.open("rb") as file:
            # without it a rename may reach the disk before the data, and a power cut leaves an empty file
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file, or one line that says what is wrong with it."""
    import orjson

    try:
        data = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: missing: {_missing_reason(path)}") from None
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: not JSON: {problem}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _missing_reason(path: Path) -> str:
    if not path.parent.exists():
        return f"there is no directory {path.parent}"
    below = [one.parent for pattern in ("*", "*/*") for one in sorted(path.parent.glob(f"{pattern}/{path.name}"))]
    if below:
        more = f" and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
        return f"not a run directory, but there are runs in it: {', '.join(map(str, below[:_NAMED]))}{more}"
    return "not a run directory, or one that was not finished"


def check_version(path: Path, body: Mapping[str, Any], oldest: int = OLDEST_EVALUATION) -> int:
    """The schema of a file; one that nobody wrote, or that a newer kofn did, is refused."""
    version = body.get("schema_version")
    if version is None:
        raise InputError(f"{path}: no schema_version: not a file that kofn wrote")
    if isinstance(version, bool) or not isinstance(version, int) or version < oldest:
        raise InputError(f"{path}: schema_version is {version!r:.40}: not a file that kofn wrote")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {version}, expected {SCHEMA_VERSION} at most: a newer kofn wrote it: upgrade"
        )
    return version


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """What polars or the disk say of a Parquet file, in one line."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise InputError(f"{path}: damaged, or not Parquet: {str(problem).splitlines()[0][:200]}") from None


def read_parquet(
    path: Path,
    schema: pl.Schema | None = None,
    *,
    sha256: str | None = None,
    columns: list[str] | None = None,
    without: Sequence[str] = (),
) -> tuple[pl.DataFrame, bool]:
    """A Parquet file's rows (of these columns, or all but those in `without`), and whether it is what was written.

    With a schema, its columns must be there with these types. `sha256` is what the file had when it was written.
    """
    import polars as pl

    same = check_parquet(path, sha256)
    with refusing_damage(path):
        there = pl.read_parquet_schema(path)
        missing = [name for name in (columns or schema or ()) if name not in there]
        if missing:
            raise InputError(f"{path}: column {missing[0]!r} is missing")
        if without:
            columns = [name for name in there if name not in without]
        # no glob and no hive columns: a path may contain brackets or "key=value"
        frame = pl.read_parquet(path, columns=columns, glob=False, hive_partitioning=False)
    for name, dtype in (schema or {}).items():
        if frame.schema[name] != dtype:
            raise InputError(f"{path}: column {name!r} is {frame.schema[name]}, expected {dtype}")
    return frame if schema is None else frame.select(schema.names()), same


def checksum_mismatch(path: Path) -> InputError:
    """For a file that can be read and is not the one that was written: its numbers may be any."""
    return InputError(f"{path}: changed since it was written: {MANIFEST} has another digest of it: make the run again")


def check_parquet(path: Path, sha256: str | None = None) -> bool:
    """Refuse a Parquet file that is missing or damaged, before polars reads it; whether it is what was written.

    A damaged file can end a process that reads it, and there is nothing to catch. So a file that is not what it was
    when it was written is first read by another process.
    """
    import subprocess
    import sys

    check_whole(path)
    if digest(path) == sha256:
        return True
    reader = (
        "import sys, polars; polars.read_parquet(sys.argv[1], glob=False); polars.read_parquet_metadata(sys.argv[1])"
    )
    command = [sys.executable, "-c", reader, str(path)]
    # a crash of the reader shows as its exit code
    if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603 - our own words
        raise InputError(f"{path}: damaged: its parts do not fit together")
    return sha256 is None


def check_whole(path: Path) -> None:
    """Refuse a file that is missing, or that does not begin and end as Parquet does."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(max(0, path.stat().st_size - 4))
            tail = file.read(4)
    except FileNotFoundError:
        raise InputError(f"{path}: missing: {_missing_reason(path)}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    # magic bytes at both ends; the last 8 are the length of the footer and the magic
    if not head == tail == b"PAR1" or path.stat().st_size < 12:
        raise InputError(f"{path}: damaged, or not Parquet: its first or last bytes are not Parquet's")
