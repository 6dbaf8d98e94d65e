"""A run on disk. Files are written whole under another name and then renamed: a killed writer leaves the old one."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from kofn.evaluate import Result

SCHEMA_VERSION = 1


def check_new(directory: Path) -> None:
    """Refuse a directory that already holds something, before any work is done."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory}: already there: give a new directory for the run, or remove it")


def write_run(result: Result, directory: Path, *, sources: Sequence[Path], options: Mapping[str, Any]) -> None:
    """Write run.json, candidates.parquet and cases.parquet; run.json last, so that a run with it is whole."""
    manifest = _json(manifest_of(result, sources, options))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _atomic(directory / "candidates.parquet", candidates_frame(result).write_parquet)
        _atomic(directory / "cases.parquet", cases_frame(result).write_parquet)
        _atomic(directory / "run.json", lambda path: path.write_bytes(manifest))
    except OSError as problem:
        raise WorldError(f"{directory}: cannot write the run: {problem.strerror}") from None


def candidates_frame(result: Result) -> pl.DataFrame:
    """A row a candidate: case_id, index, what was read, the answer, and score and passed a metric."""
    import numpy as np
    import polars as pl

    table = result.table
    assert table is not None
    sizes = np.diff(table.offsets)
    kept = [c for c in table.candidates.columns if c not in ("reference", "passed", "score", "repeat", "answer")]
    columns = [
        table.cases["case_id"].gather(np.repeat(np.arange(len(sizes)), sizes)),
        pl.Series("index", np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes)),
        *table.candidates.select(kept).iter_columns(),
    ]
    first = result.scored[0].sets
    if first.answers is not None:
        columns.append(first.answers.alias("answer"))
    for one in result.scored:
        if one.metric:
            columns.append(pl.Series(f"score.{one.metric}", one.sets.values, nan_to_null=True))
            passed = pl.Series(f"passed.{one.metric}", one.sets.passes)
            columns.append((passed == 1).set(passed < 0, None))
    return pl.DataFrame(columns)


def cases_frame(result: Result) -> pl.DataFrame:
    """A row a case: its input, reference, tags, and the value of every aggregator under every metric."""
    import polars as pl

    table = result.table
    assert table is not None
    values = [
        pl.Series(f"{metric}.{name}" if metric else name, column, nan_to_null=True)
        for (metric, name), column in result.case_values.items()
    ]
    return pl.concat([table.cases, table.tags, pl.DataFrame(values)], how="horizontal")


def manifest_of(result: Result, sources: Sequence[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything needed to make the run again, and its result."""
    import platform
    from importlib.metadata import version

    from kofn import __version__

    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "score",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": [_fingerprint(source) for source in sources],
        "options": dict(options),
        "versions": {
            "kofn": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "polars", "scipy")},
        },
        "git_commit": _git_commit(),
        "result": result.to_dict(),
    }


def _git_commit() -> str | None:
    """The commit of the folder the command was run in, where there is one."""
    import subprocess

    try:
        command = ["git", "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _fingerprint(source: Path) -> dict[str, Any]:
    """What a file was; a stream has been read and is gone, so nothing can be said of it but its name."""
    if not source.is_file():
        return {"path": str(source), "bytes": None, "sha256": None}
    import hashlib

    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": str(source), "bytes": source.stat().st_size, "sha256": digest}


def _json(data: Any) -> bytes:
    import orjson

    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)


def _atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a name nobody reads, flush it to the disk, then rename."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
