"""Reads and writes the files of a run: locks, atomic writes, whole directories replaced at once, digests, and errors.

A file is written whole under another name and then renamed, so that a killed writer leaves the old one. New files of a
directory are written into a hidden folder of it. Renaming that folder decides: from then on they are the run, and
whoever opens the directory next moves those into place that a killed writer did not.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.core.escape import one_line
from kofn.core.format import format_count
from kofn.core.system import lock_file
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

SCHEMA_VERSION = 3  # of run.json, evaluation.json and the Parquet files together
OLDEST_EVALUATION = 2  # the first schema with evaluation.json
_NAMED = 5  # run directories that an error names
MANIFEST, CANDIDATES, CASES = "run.json", "candidates.parquet", "cases.parquet"
RESULTS, PAGE, CHECKS = "results.jsonl", "report.html", "checks.json"


def is_run(path: Path | str) -> bool:
    """Whether a path is the directory of a run.

    >>> is_run("-")
    False
    """
    return "://" not in str(path) and (Path(path) / MANIFEST).is_file()


def check_new(directory: Path, *, force: bool | None = None) -> None:
    """Refuse a directory that already holds something, before any work is done.

    What a killed writer left is nothing. `force` accepts a run that `kofn score` wrote, which the new one replaces, but
    none that holds what cannot be made again: replies of models, labels of people. None: the caller has no such option.
    """
    if directory.is_dir():
        recover(directory)
    if not directory.exists() or (directory.is_dir() and all(is_left_over(one.name) for one in directory.iterdir())):
        return
    if not is_run(directory):
        raise InputError(f"{directory}: already there, and not a run: give another directory")
    there = f"{directory}: already holds {describe_run(directory)}"
    held = [name for name in (STORE, "judging") if (directory / name).exists()]
    held += sorted(path.name for path in directory.glob("labels-*.jsonl"))
    if not force:
        hint = "" if force is None or held else ", or --force to replace it"
        raise InputError(f"{there}: give another directory{hint}")
    if held:
        raise InputError(f"{there} with {held[0]}, which --force does not remove: give another directory")


def describe_run(directory: Path) -> str:
    """What a directory holds, in a few words: the task, when it was run, how many cases it has."""
    manifest, evaluation = (read_json(directory / name) for name in (MANIFEST, "evaluation.json"))
    task = evaluation.get("problem_name") or evaluation.get("name") or "no name"
    cases = (manifest.get("result") or {}).get("n_cases")
    counted = "" if not isinstance(cases, int) else f", {format_count(cases, 'case')}"
    when = str(manifest.get("created", ""))[:16].replace("T", " ")
    return f"a run of {one_line(str(task))} ({when} UTC{counted})"


def remove_replaced(directory: Path, before: Mapping[str, Any]) -> None:
    """Remove the files of the run that a new one replaced and has no file of that name; `before` is its manifest."""
    kept = {CANDIDATES, CASES, *read_json(directory / MANIFEST).get("files", {})}
    for name in before.get("files", {}):
        if name not in kept and Path(name).name == name:
            (directory / name).unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be made where it is wanted, before any work is done."""
    folder = next((one for one in path.parents if one.exists()), path.parent)
    probe = folder / f".{path.name[:100]}.{os.getpid()}.tmp"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        probe.unlink()
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None


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


STORE = "store.sqlite"  # replies of a run that was generated here; its lock file stays beside it
LOCK = "store.lock"
LAST = "run.json"  # moved last: a directory with it is whole
_NEXT, _READY = ".next.", ".ready"
_LEFT = re.compile(r"\.next\.\d+|\..+\.\d+\.tmp|store\.lock")
_TRIES = 100  # renames against other writers that finish at the same moment
_NUMBER = re.compile(r"\(os error (\d+)\)")


@contextmanager
def as_os_error() -> Iterator[None]:
    """What the disk said to polars, as Python says it.

    >>> from polars.exceptions import ComputeError
    >>> with as_os_error():
    ...     raise ComputeError("underlying IO error: No space left on device (os error 28)")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device
    """
    try:
        yield
    except Exception as problem:
        # polars gives the number of the error only in its text
        found = _NUMBER.search(str(problem)) if type(problem).__module__.startswith("polars") else None
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from None


@contextmanager
def staging_folder(directory: Path) -> Iterator[Path]:
    """An empty folder for new files; left well, they take the place of those in the directory, all or none of them."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        recover(directory)
        _remove_abandoned_folders(directory)
        folder = directory / f"{_NEXT}{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        mark = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network folders cannot; then nobody sweeps there either
                lock_file(mark)
            with as_os_error():
                yield folder
            for path in folder.iterdir():
                _sync(path)
            # every file is on the disk: from here on nothing can be lost
            _commit(directory, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(mark)
        recover(directory)
        _sync(directory)
    except OSError as problem:
        raise WorldError(
            f"{directory}: cannot write the run: {problem.strerror or problem}: what was there is kept; "
            "make room, or give another --out, and run the same command again"
        ) from None


def recover(directory: Path) -> None:
    """Move into place what a writer had decided on and not moved before it was killed. Doing it twice is harmless."""
    ready = directory / _READY
    if not ready.is_dir():
        return
    try:
        # False sorts before True: run.json comes last
        for path in sorted(ready.iterdir(), key=lambda path: path.name == LAST):
            with suppress(FileNotFoundError):
                path.replace(directory / path.name)
        with suppress(FileNotFoundError):
            ready.rmdir()
    except OSError as problem:
        raise WorldError(
            f"{directory}: its writer was killed before the end, and the rest cannot be done: {problem.strerror}"
        ) from None


def is_left_over(name: str) -> bool:
    """Whether a killed writer left this, and nobody needs it.

    >>> [name for name in (".next.17", ".run.json.17.tmp", "store.lock", "run.json", ".ready") if is_left_over(name)]
    ['.next.17', '.run.json.17.tmp', 'store.lock']
    """
    return _LEFT.fullmatch(name) is not None


def _commit(directory: Path, folder: Path) -> None:
    """From here on the new files are the run. Another writer that decided just now is let through first."""
    for _ in range(_TRIES):
        try:
            folder.rename(directory / _READY)
        except OSError:
            if not (directory / _READY).is_dir():
                raise
            recover(directory)
        else:
            _sync(directory)
            return
    raise WorldError(f"{directory}: another process writes it all the time: wait until that ends")


def _remove_abandoned_folders(directory: Path) -> None:
    """Remove the folders of killed writers: nobody holds the lock of theirs."""
    for folder in directory.glob(f"{_NEXT}*"):
        with suppress(OSError):
            mark = os.open(folder, os.O_RDONLY)
            try:
                lock_file(mark)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(mark)
    remove_abandoned_files(directory)


def remove_abandoned_files(directory: Path, name: str = "*") -> None:
    """Remove the unfinished files of processes that are gone, of this name or of any."""
    for path in directory.glob(f".{name}.*.tmp"):
        with suppress(OSError, ValueError, OverflowError):
            try:
                # signal 0 asks whether the process is there; a name without a number is not ours
                os.kill(int(path.suffixes[-2][1:]), 0)
            except ProcessLookupError:
                path.unlink()


def _sync(path: Path) -> None:
    """To the disk; a folder that cannot be is left to the system."""
    file = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """The lock of a directory, from before it is read until it is written; afterwards nothing is left of it."""
    there = directory.is_dir()
    lock = acquire_lock(directory)
    try:
        yield
    finally:
        with suppress(OSError):
            # beside a store the lock file stays; without one nothing is left behind
            if not (directory / STORE).exists():
                (directory / LOCK).unlink()
            if not there:
                directory.rmdir()  # unless something was written
        os.close(lock)


def acquire_lock(directory: Path) -> int:
    """The lock of a directory, which is made where it is not there: an open file with our process id in it.

    However we end, the lock ends too.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _open_lock(directory)
    except OSError as problem:
        raise WorldError(f"{directory}: cannot be written: {problem.strerror}") from None


def _open_lock(directory: Path) -> int:
    file = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(file)
        if not _is_current(file, directory / LOCK):  # who had it removed it: the next one has a file of its own
            os.close(file)
            return _open_lock(directory)
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        # who holds the lock writes its id right after: it may not be there yet
        first = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise InputError(
            f"{directory}: process {first or '(just started)'} is using it: wait until it ends, or give another --out"
        ) from None
    except BaseException:
        os.close(file)
        raise
    return file


def _is_current(file: int, path: Path) -> bool:
    """Whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
