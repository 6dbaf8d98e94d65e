"""JSON lines, or a JSON array of objects, in long, wide or group form: the fast reader first, else the row reader.

Both readers give the same result. Files whose sampled lines agree in their types go through polars with a strict
schema, in which a value of another type later in the file is an error, never a silent null. Whatever polars refuses
(mixed types, groups, a broken line) goes through `json_records`, a line at a time, which names the line that is wrong.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import polars as pl

from kofn.core.candidate_sets import offsets_of
from kofn.core.fields import (
    CANDIDATE_ROLES,
    CASE_ROLES,
    GROUP_LISTS,
    NUMERIC,
    PREFIXES,
    ROLES,
    SELECTORS,
    labels_in,
    long_fields,
    recognise,
    wide_names,
)
from kofn.core.table import CASE_COLUMNS, Table
from kofn.errors import InputError
from kofn.importers.base import ReadOptions
from kofn.importers.json_records import read_lines
from kofn.importers.long_form import check_named_fields, long_table, mixed_types_note, role_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SAMPLE_HEAD = 200  # lines at the beginning whose types are sampled
_SAMPLE_PLACES = 64  # and places in the rest of the file, one line each
# whole numbers are read as floats, for 0.5 may follow 1 anywhere later in the file
_DTYPES = {"bool": pl.Boolean(), "int": pl.Float64(), "float": pl.Float64(), "str": pl.String()}
_NEWLINE = re.compile(rb"\n")
LINE_LIMIT = 64 << 20  # bytes: a longer line is a file without line ends, not a record


class MixedTypes(Exception):
    """The file cannot be read faithfully with one schema: the row reader must read it."""


class _TypeSample(NamedTuple):
    """JSON types seen for each field, of rows and of the objects inside the wide list."""

    rows: dict[str, set[str]]
    inner: dict[str, set[str]]
    items: set[str]
    wide: str | None

    def nested(self) -> list[str]:
        """Fields that do not have one value per case."""
        return [name for name, types in self.rows.items() if types & {"list", "dict"}]


def read_fast(path: Path, options: ReadOptions) -> Table:
    sample = _take_sample(path, wide_names(options.fields))
    lists = [name for name in GROUP_LISTS if "list" in sample.rows.get(name, ())]
    if lists and not (sample.wide and lists == ["answers"]):
        raise MixedTypes
    check_named_fields([*sample.rows, *sample.inner], str(path), options, sample.nested())
    if sample.wide is not None:
        return _read_wide(path, sample, options)
    fields = long_fields(sample.rows, options.fields)
    if not any(role in CANDIDATE_ROLES for role in fields) and not any(
        name in SELECTORS or _is_score_column(name) for name in sample.rows
    ):
        raise MixedTypes  # nothing to score: the row reader's error names the fields
    schema = _schema(sample.rows, fields, options)
    if "error" not in fields:
        schema["error"] = pl.String  # failed calls are rare: they may stand in none of the sampled lines
    frame = pl.read_ndjson(path, schema=schema)
    return _with_type_note(long_table(frame, str(path), partial(_line_of, path), options, "long"), sample)


def _with_type_note(table: Table, sample: _TypeSample) -> Table:
    """The table, with a note where sampled references have several types; labels of several never get this far."""
    name = table.fields.get("reference", "")
    notes = mixed_types_note("reference", name, sample.rows.get(name, ()))
    return replace(table, notes=(*table.notes, *notes)) if notes else table


def _take_sample(path: Path, wide_lists: tuple[str, ...]) -> _TypeSample:
    """Types of the first lines and of lines spread over the whole file."""
    rows: dict[str, set[str]] = {}
    inner: dict[str, set[str]] = {}
    items: set[str] = set()
    for line in sample_lines(path):
        record = _loads(line)
        if not isinstance(record, dict):
            raise MixedTypes
        _note(record, rows)
        for name in wide_lists:
            for item in record[name] if isinstance(record.get(name), list) else ():
                items.add(type(item).__name__)
                if isinstance(item, dict):
                    _note(item, inner)
    wide = next((name for name in wide_lists if "list" in rows.get(name, ())), None)
    return _TypeSample(rows, inner, items, wide)


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        raise MixedTypes from None


def _note(record: dict[str, Any], seen: dict[str, set[str]]) -> None:
    for name, value in record.items():
        seen.setdefault(name, set())
        if value is not None:
            seen[name].add(type(value).__name__)


def sample_lines(path: Path) -> Iterator[bytes]:
    """The first lines of a file, and lines spread over the rest of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        for _ in range(_SAMPLE_HEAD):
            line = file.readline()
            if line.strip():
                yield line
        if file.tell() >= size:
            return
        for place in np.linspace(file.tell(), size, _SAMPLE_PLACES, endpoint=False).astype(int).tolist():
            file.seek(place)
            file.readline()  # the rest of a line we are in the middle of
            line = file.readline()
            if line.strip():
                yield line


def _schema(seen: dict[str, set[str]], fields: dict[str, str], options: ReadOptions) -> dict[str, Any]:
    """A strict schema: a value of another type later in the file is an error there, never a silent null."""
    roles = {name: role for role, name in fields.items()}
    out: dict[str, Any] = {}
    for name, types in seen.items():
        role = roles.get(name)
        needed = (
            role is not None
            or name in options.keep
            or name in SELECTORS
            or options.everything
            or _is_score_column(name)
        )
        if role == "input" and not options.everything and name not in options.keep:
            needed = False  # prompts are most of a file, and no number depends on them
        if not needed or not (types or role == "id"):
            continue
        dtype = _dtype(role, types)
        if dtype is not None:
            out[name] = dtype
        elif role is not None or name in options.keep:
            raise MixedTypes
    return out


def _is_score_column(name: str) -> bool:
    return name.startswith(PREFIXES)


def _dtype(role: str | None, types: set[str]) -> Any:
    """The polars type of a field, None when there is none that fits every value seen."""
    if role == "repeat" and types == {"int"}:
        return pl.Int64
    if role in ROLES and role not in NUMERIC | {"passed", "repeat"} and types <= {"str", "int", "float"}:
        return pl.String  # an id 7 and an id "7" are one id; numbers keep their text
    if types == {"list"} and role in ("choices", "required", "facets", "reference"):
        return pl.List(pl.String)
    if types == {"list"} and role == "ideal":
        return pl.List(pl.Float64)
    if types <= {"int", "float"}:
        return pl.Float64
    return _DTYPES[next(iter(types))] if len(types) == 1 and next(iter(types)) in _DTYPES else None


def _read_wide(path: Path, sample: _TypeSample, options: ReadOptions) -> Table:
    assert sample.wide is not None
    case_fields = recognise([c for c in sample.rows if c != sample.wide], CASE_ROLES, options.fields)
    inner_fields = recognise(sample.inner, CANDIDATE_ROLES, options.fields)
    if "id" not in case_fields:
        raise MixedTypes
    schema = _schema({k: v for k, v in sample.rows.items() if k != sample.wide}, case_fields, options)
    if sample.items == {"str"}:
        schema[sample.wide] = pl.List(pl.String)
        inner_fields = {"text": sample.wide}
    elif sample.items == {"dict"}:
        inner = {"error": pl.String, **_schema(sample.inner, inner_fields, ReadOptions(keep=options.keep))}
        inner_fields.setdefault("error", "error")
        schema[sample.wide] = pl.List(pl.Struct(inner))
    else:
        raise MixedTypes
    frame = pl.read_ndjson(path, schema=schema)
    if not frame.height or frame[sample.wide].null_count() or frame[case_fields["id"]].null_count():
        raise MixedTypes
    return _with_type_note(_explode(frame, sample.wide, case_fields, inner_fields, path), sample)


def _explode(
    frame: pl.DataFrame, wide: str, case_fields: dict[str, str], inner_fields: dict[str, str], path: Path
) -> Table:
    lists = frame[wide]
    sizes = lists.list.len().to_numpy().astype(np.int64)
    items = lists.list.explode(empty_as_null=False)
    where = partial(_line_of, path)
    line_of_item = np.repeat(np.arange(len(sizes)), sizes)
    inner = items.struct.unnest() if isinstance(items.dtype, pl.Struct) else items.alias(wide).to_frame()
    candidates = role_columns(inner, inner_fields, str(path), lambda row: where(int(line_of_item[row])))
    cases = role_columns(frame.drop(wide), case_fields, str(path), where)
    if cases["id"].n_unique() != cases.height or "repeat" in candidates.columns:
        raise MixedTypes  # ids on several lines, or an order to respect: left to the row reader
    tag_names = [c for c in cases.columns if c not in (*CASE_COLUMNS, "id")]
    if "reference" in cases.columns:
        candidates = candidates.with_columns(cases["reference"].gather(line_of_item).alias("reference"))
    fields = {**case_fields, **inner_fields}
    kept = {role: name for role, name in fields.items() if role in cases.columns or role in candidates.columns}
    return Table(
        candidates=candidates,
        cases=cases.select(pl.col("id").alias("case_id"), *[c for c in CASE_COLUMNS if c in cases.columns]),
        tags=cases.select(tag_names),
        offsets=offsets_of(sizes),
        fields=kept,
        form="wide",
        sources=(str(path),),
        labels=labels_in(candidates.columns),
    )


def _line_of(path: Path, row: int) -> str:
    """The line of a row: blank lines are not rows, so lines are counted, but only when there is something to say."""
    with path.open("rb") as file:
        full = (number for number, line in enumerate(file, 1) if line.strip())
        return f"line {next((number for i, number in enumerate(full) if i == row), row + 1)}"


def read(path: Path, options: ReadOptions) -> Table:
    """Read a JSON lines file in whatever form it is."""
    check_lines(path)
    try:
        return read_fast(path, options)
    except (MixedTypes, pl.exceptions.PolarsError):
        return read_lines(path, options)


def check_lines(path: Path) -> None:
    """Refuse a line too long to be a record before anything tries to hold it."""
    size = path.stat().st_size
    if size <= LINE_LIMIT:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = 0
        while size - start > LINE_LIMIT:
            newline = data.rfind(b"\n", start, start + LINE_LIMIT)
            if newline < 0:
                line = sum(1 for _ in _NEWLINE.finditer(data, 0, start)) + 1
                raise InputError(
                    f"{path}: line {line} is longer than {LINE_LIMIT >> 20} MiB: expected one JSON object a line"
                )
            start = newline + 1
