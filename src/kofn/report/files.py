"""A run on disk. Files are written whole under another name and then renamed: a killed writer leaves the old one."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.report.staging import as_os_error, is_left_over, settle, staged, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from kofn.evaluate import Result
    from kofn.report.convert import Plan
    from kofn.report.lines import ModelExtraction
    from kofn.report.results import CorrectnessResults
    from kofn.report.run import Run

SCHEMA_VERSION = 2
_NAMED = 5
MANIFEST, CANDIDATES, CASES = "run.json", "candidates.parquet", "cases.parquet"
RESULTS, PAGE = "results.jsonl", "report.html"
DIGEST = "digest"  # of run.json, in itself


def check_new(directory: Path) -> None:
    """Refuse a directory that already holds something, before any work is done.

    What a killed writer left is nothing.
    """
    if directory.is_dir():
        settle(directory)
    if directory.exists() and not (directory.is_dir() and all(is_left_over(one.name) for one in directory.iterdir())):
        raise InputError(f"{directory}: already there: give a new directory for the run, or remove it")


def write_run(
    result: Result,
    directory: Path,
    *,
    sources: Sequence[Path | str],
    options: Mapping[str, Any],
    plan: Plan | None = None,
    batch_index: int | None = None,
    append_to: Path | None = None,
    generation: Mapping[str, Any] | None = None,
    model_extraction: ModelExtraction | None = None,
    tables: Mapping[str, pl.DataFrame] | None = None,
    parent: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
) -> Run:
    """Write the whole run directory. A run with run.json is whole.

    `append_to` names a results.jsonl of several runs that gets this run's line too. `generation` is what is to be said
    of how the outputs were made, where kofn made them; `tables` are further files of the run; `parent` is what is to be
    said of the run that was graded again here; `tags` are words to find it by. A finished run in the directory stays
    until all of the new one is there.
    """
    import orjson

    from kofn.checklist import kept
    from kofn.report.convert import report_of
    from kofn.report.evaluation import write_frame
    from kofn.report.html import page
    from kofn.report.lines import append_line, results_line
    from kofn.report.run import Run
    from kofn.report.tags import checked_tags

    result = replace(result, checklist=kept(result))
    evaluation, reports = report_of(result, plan)
    manifest = manifest_of(result, sources, options, generation) | ({} if parent is None else {"parent": parent})
    manifest |= {"tags": checked_tags(tags)} if tags else {}
    run = Run(name=directory.resolve().name, evaluation=evaluation, reports=reports, manifest=manifest, result=result)
    with staged(directory) as folder:
        manifest["files"] = _write_tables(result, folder, tables or {})
        write_frame(evaluation, reports, folder)
        line = results_line(run, plan, batch_index=batch_index, model_extraction=model_extraction)
        (folder / RESULTS).write_bytes(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        (folder / MANIFEST).write_bytes(to_json(sealed(manifest)))
        (folder / PAGE).write_text(page(run), encoding="utf-8")
    if append_to is not None:
        append_line(append_to, line)
    return run


def _write_tables(result: Result, directory: Path, more: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Write a run's Parquet files; the digest of each."""
    frames = {CANDIDATES: candidates_frame(result), CASES: cases_frame(result), **more}
    for name, frame in frames.items():
        frame.write_parquet(directory / name)
    return {name: digest(directory / name) for name in frames}


def update_run(
    run: Run,
    result: Result,
    *,
    tables: Mapping[str, pl.DataFrame] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Run:
    """Write a finished run again with a result that has more to say of the same cases and candidates.

    The case reports, and so whether the run passed, stay as they are: they follow from the metrics the run was made
    with. `manifest` is what is to be said beside what the run says already.
    """
    from kofn.checklist import kept
    from kofn.report.html import page

    directory = run.path
    assert directory is not None
    result = replace(result, checklist=kept(result))
    told = {**run.manifest, **(manifest or {}), "layout": layout_of(result), "result": result.to_dict()}
    told["updated"] = datetime.now(UTC).isoformat(timespec="seconds")
    again = replace(run, manifest=told, result=result)
    with staged(directory) as folder:
        told["files"] = {**run.manifest["files"], **_write_tables(result, folder, tables or {})}
        (folder / MANIFEST).write_bytes(to_json(sealed(told)))
        (folder / PAGE).write_text(page(again), encoding="utf-8")
    return again


def write_evaluation(
    evaluation: CorrectnessResults, directory: Path, manifest: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]
) -> Run:
    """Write the run directory of an evaluation that has case reports and no candidates.

    `manifest` is what is to be said beside what every run says; `tables` are further files of the run.
    """
    from kofn.report.evaluation import write_frame
    from kofn.report.frames import reports_frame
    from kofn.report.html import page
    from kofn.report.run import Run

    reports = reports_frame(evaluation)
    with staged(directory) as folder:
        for name, table in tables.items():
            table.write_parquet(folder / name)
        whole = {**common_manifest(), **manifest, "files": {name: digest(folder / name) for name in tables}}
        write_frame(evaluation, reports, folder)
        (folder / MANIFEST).write_bytes(to_json(sealed(whole)))
        slim = evaluation.model_copy(update={"reports": []})
        run = Run(name=directory.resolve().name, evaluation=slim, reports=reports, manifest=whole, result=None)
        (folder / PAGE).write_text(page(run), encoding="utf-8")
    return run


def candidates_frame(result: Result) -> pl.DataFrame:
    """A row a candidate: case_id, index, what was read, the answer, and score and passed a metric."""
    import numpy as np
    import polars as pl

    table = result.table
    assert table is not None
    sizes = np.diff(table.offsets)
    kept = [c for c in table.candidates.columns if c not in ("reference", "passed", "repeat", "answer")]
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
    layout = layout_of(result)
    tags = [table.tags[name].alias(column) for name, column in layout["tags"].items()]
    values = [
        pl.Series(v["column"], result.case_values[v["metric"], v["aggregator"]], nan_to_null=True)
        for v in layout["values"]
    ]
    return pl.DataFrame([*table.cases.iter_columns(), *tags, *values])


def layout_of(result: Result) -> dict[str, Any]:
    """Which column of the files holds what: a tag may be called like an aggregator."""
    table = result.table
    assert table is not None
    values = [
        {"metric": metric, "aggregator": name, "column": f"{metric}.{name}" if metric else name}
        for metric, name in result.case_values
    ]
    return {
        "case_columns": table.cases.columns,
        "tags": _free_names(table.tags.columns, {*table.cases.columns, *(v["column"] for v in values)}),
        "values": values,
        "metrics": [
            {
                "metric": one.metric,
                "source": one.source,
                "beside_labels": one.beside_labels,
                "higher_is_better": one.sets.higher_is_better,
            }
            for one in result.scored
        ],
    }


def _free_names(names: Sequence[str], taken: set[str]) -> dict[str, str]:
    """A column for every name: its own where that is free.

    >>> _free_names(["a", "b", "tag.a"], {"a"})
    {'a': 'tag.tag.a', 'b': 'b', 'tag.a': 'tag.a'}
    """
    used = taken | {name for name in names if name not in taken}
    found = {}
    for name in names:
        column = name
        while name in taken and column in used:
            column = f"tag.{column}"
        used.add(column)
        found[name] = column
    return found


def manifest_of(
    result: Result,
    sources: Sequence[Path | str],
    options: Mapping[str, Any],
    generation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything needed to make the run again, and its result."""
    return {
        **common_manifest(),
        "kind": "score" if generation is None else "run",
        "sources": [_fingerprint(source) for source in sources],
        "options": dict(options),
        **({} if generation is None else {"generation": dict(generation)}),
        "layout": layout_of(result),
        "result": result.to_dict(),
    }


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with the digest of everything else in it."""
    told = {name: value for name, value in manifest.items() if name != DIGEST}
    return {**told, DIGEST: hashed(told)}


def hashed(told: Mapping[str, Any]) -> str:
    """The SHA-256 of what is told, as `to_json` writes it."""
    import hashlib

    return hashlib.sha256(to_json(told)).hexdigest()


def check_seal(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that somebody changed; those of older versions have no digest."""
    if DIGEST in manifest and sealed(manifest)[DIGEST] != manifest[DIGEST]:
        raise InputError(f"{path}: changed since it was written: its digest is of other numbers: make the run again")


def common_manifest() -> dict[str, Any]:
    """What every run says of itself: when it was made, and with what."""
    import platform
    from importlib.metadata import version

    from kofn import __version__

    return {
        "schema_version": SCHEMA_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "kofn": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "polars", "scipy")},
        },
        "git_commit": _git_commit(),
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


def _fingerprint(source: Path | str) -> dict[str, Any]:
    """What a file was; of a folder, an address or a stream that has been read, nothing is said but its name."""
    from pathlib import Path

    from kofn.values import redacted

    place = Path(source)
    if "://" in str(source) or not place.is_file():
        return {"path": redacted(str(source)), "bytes": None, "sha256": None}
    return {"path": str(source), "bytes": place.stat().st_size, "sha256": digest(place)}


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(data: Any) -> bytes:
    """Indented, as people read it, keys in the order they came."""
    import orjson

    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)


def atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a name nobody reads, flush it to the disk, then rename."""
    sweep(path.parent, path.name)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with as_os_error():
            write(partial)
        with partial.open("rb") as file:
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
        raise InputError(f"{path}: missing: {_what_is(path)}") from None
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: not JSON: {problem}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _what_is(path: Path) -> str:
    if not path.parent.exists():
        return f"there is no directory {path.parent}"
    below = [one.parent for pattern in ("*", "*/*") for one in sorted(path.parent.glob(f"{pattern}/{path.name}"))]
    if below:
        more = f" and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
        return f"not a run directory, but there are runs in it: {', '.join(map(str, below[:_NAMED]))}{more}"
    return "not a run directory, or one that was not finished"


def read_parquet(
    path: Path,
    schema: pl.Schema | None = None,
    *,
    sha256: str | None = None,
    columns: list[str] | None = None,
    without: Sequence[str] = (),
) -> tuple[pl.DataFrame, dict[str, str]]:
    """A Parquet file's rows (of these columns, or all but those in `without`) and its metadata.

    With a schema, its columns must be there with these types. `sha256` is what the file had when it was written.
    """
    frame, metadata, _ = read_compared(path, schema, sha256=sha256, columns=columns, without=without)
    return frame, metadata


def read_compared(
    path: Path,
    schema: pl.Schema | None = None,
    *,
    sha256: str | None = None,
    columns: list[str] | None = None,
    without: Sequence[str] = (),
) -> tuple[pl.DataFrame, dict[str, str], bool]:
    """The same, and whether the file is what was written."""
    import polars as pl

    same = check_parquet(path, sha256)
    try:
        if without:
            columns = [name for name in pl.read_parquet_schema(path) if name not in without]
        frame = pl.read_parquet(path, columns=columns, glob=False, hive_partitioning=False)
        metadata = pl.read_parquet_metadata(path)
    except pl.exceptions.ColumnNotFoundError:
        there = pl.read_parquet_schema(path)
        missing = next(name for name in columns or () if name not in there)
        raise InputError(f"{path}: column {missing!r} is missing") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise InputError(f"{path}: damaged, or not Parquet: {str(problem).splitlines()[0][:200]}") from None
    if schema is None:
        return frame, metadata, same
    for name, dtype in schema.items():
        if name not in frame.columns:
            raise InputError(f"{path}: column {name!r} is missing")
        if frame.schema[name] != dtype:
            raise InputError(f"{path}: column {name!r} is {frame.schema[name]}, expected {dtype}")
    return frame.select(schema.names()), metadata, same


def changed(path: Path) -> InputError:
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
        raise InputError(f"{path}: missing: {_what_is(path)}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None
    if not head == tail == b"PAR1" or path.stat().st_size < 12:
        raise InputError(f"{path}: damaged, or not Parquet: its first or last bytes are not Parquet's")
