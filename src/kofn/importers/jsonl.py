"""JSON lines (and a JSON array of objects): long, wide and groups.

Two readers with one result. Uniform files go through polars; whatever polars refuses (mixed types, groups, a
broken line) goes through the second, a line at a time, which names the line that is wrong.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import polars as pl

from kofn.errors import InputError
from kofn.fields import (
    CANDIDATE_ROLES,
    CASE_ROLES,
    GROUP_LISTS,
    ROLES,
    SELECTORS,
    WIDE,
    long_fields,
    recognise,
)
from kofn.importers import scalars
from kofn.importers.rows import ReadOptions, check_given, check_something, long_table, role_columns
from kofn.sets import offsets_of
from kofn.table import CASE_COLUMNS, Table, from_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LINE_LIMIT = 64 << 20
_SAMPLE_HEAD = 200
_SAMPLE_PLACES = 64

_NUMERIC = {"score", "cost", "seconds", "tokens", "weight", "candidate_weight"}
_DTYPES = {"bool": pl.Boolean(), "int": pl.Float64(), "float": pl.Float64(), "str": pl.String()}


class _TooMixed(Exception):
    """The quick reader cannot read this file faithfully."""


def read(path: Path, options: ReadOptions) -> Table:
    """Read a JSON lines file in whatever form it is."""
    check_lines(path)
    try:
        return _read_quick(path, options)
    except (_TooMixed, pl.exceptions.PolarsError):
        return _read_lines(path, options)


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
                line = sum(1 for _ in _newlines(data, start)) + 1
                raise InputError(
                    f"{path}: line {line} is longer than {LINE_LIMIT >> 20} MiB: expected one JSON object a line"
                )
            start = newline + 1


def _newlines(data: mmap.mmap, stop: int) -> Iterator[int]:
    at = data.find(b"\n", 0, stop)
    while at >= 0:
        yield at
        at = data.find(b"\n", at + 1, stop)


# The quick reader


class _Sample(NamedTuple):
    """JSON types seen for each field, of rows and of the objects inside the wide list."""

    rows: dict[str, set[str]]
    inner: dict[str, set[str]]
    items: set[str]
    wide: str | None


def _read_quick(path: Path, options: ReadOptions) -> Table:
    sample = _take_sample(path)
    if any(name in sample.rows and "list" in sample.rows[name] for name in GROUP_LISTS):
        raise _TooMixed
    if sample.wide is not None:
        return _quick_wide(path, sample, options)
    check_given(list(sample.rows), str(path), options)
    fields = long_fields(sample.rows, options.fields)
    if not any(role in CANDIDATE_ROLES for role in fields) and not any(name in SELECTORS for name in sample.rows):
        raise _TooMixed  # nothing to score: the careful reader says what it saw
    frame = pl.read_ndjson(path, schema=_schema(sample.rows, fields, options))
    return long_table(frame, str(path), _LineFinder(path), options, "long")


def _take_sample(path: Path) -> _Sample:
    """Types of the first lines and of lines spread over the whole file."""
    rows: dict[str, set[str]] = {}
    inner: dict[str, set[str]] = {}
    items: set[str] = set()
    for line in _sample_lines(path):
        record = _loads(line)
        if not isinstance(record, dict):
            raise _TooMixed
        _note(record, rows)
        for name in WIDE:
            for item in record[name] if isinstance(record.get(name), list) else ():
                items.add(type(item).__name__)
                if isinstance(item, dict):
                    _note(item, inner)
    wide = next((name for name in WIDE if "list" in rows.get(name, ())), None)
    return _Sample(rows, inner, items, wide)


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        raise _TooMixed from None


def _note(record: dict[str, Any], seen: dict[str, set[str]]) -> None:
    for name, value in record.items():
        seen.setdefault(name, set())
        if value is not None:
            seen[name].add(type(value).__name__)


def _sample_lines(path: Path) -> Iterator[bytes]:
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
        wanted = role is not None or name in options.keep or name in SELECTORS or options.everything
        if role == "input" and not options.everything and name not in options.keep:
            wanted = False
        if not wanted or not (types or role == "id"):
            continue
        dtype = _dtype(role, types)
        if dtype is not None:
            out[name] = dtype
        elif role is not None or name in options.keep:
            raise _TooMixed
    return out


def _dtype(role: str | None, types: set[str]) -> Any:
    """The polars type of a field, None when there is none that fits every value seen."""
    if role == "repeat" and types == {"int"}:
        return pl.Int64
    if role in ROLES and role not in _NUMERIC | {"passed", "repeat"} and types <= {"str", "int", "float"}:
        return pl.String  # an id 7 and an id "7" are one id; numbers keep their text
    if types == {"list"} and role in ("choices", "required", "facets", "reference"):
        return pl.List(pl.String)
    if types == {"list"} and role == "ideal":
        return pl.List(pl.Float64)
    if types <= {"int", "float"}:
        return pl.Float64
    return _DTYPES[next(iter(types))] if len(types) == 1 and next(iter(types)) in _DTYPES else None


def _quick_wide(path: Path, sample: _Sample, options: ReadOptions) -> Table:
    assert sample.wide is not None
    case_fields = recognise([c for c in sample.rows if c != sample.wide], CASE_ROLES, options.fields)
    inner_fields = recognise(sample.inner, CANDIDATE_ROLES, options.fields)
    if "id" not in case_fields:
        raise _TooMixed
    schema = _schema({k: v for k, v in sample.rows.items() if k != sample.wide}, case_fields, options)
    if sample.items == {"str"}:
        schema[sample.wide] = pl.List(pl.String)
        inner_fields = {"text": sample.wide}
    elif sample.items == {"dict"}:
        inner = _schema(sample.inner, inner_fields, ReadOptions(keep=options.keep))
        schema[sample.wide] = pl.List(pl.Struct(inner))
    else:
        raise _TooMixed
    frame = pl.read_ndjson(path, schema=schema)
    if not frame.height or frame[sample.wide].null_count() or frame[case_fields["id"]].null_count():
        raise _TooMixed
    return _explode(frame, sample.wide, case_fields, inner_fields, path, options)


def _explode(
    frame: pl.DataFrame,
    wide: str,
    case_fields: dict[str, str],
    inner_fields: dict[str, str],
    path: Path,
    options: ReadOptions,
) -> Table:
    lists = frame[wide]
    sizes = lists.list.len().to_numpy().astype(np.int64)
    items = lists.list.explode(empty_as_null=False)
    where = _LineFinder(path)
    line_of_item = np.repeat(np.arange(len(sizes)), sizes)
    inner = items.struct.unnest() if isinstance(items.dtype, pl.Struct) else items.alias(wide).to_frame()
    candidates = role_columns(inner, inner_fields, str(path), lambda row: where(int(line_of_item[row])))
    cases = role_columns(frame.drop(wide), case_fields, str(path), where)
    if cases["id"].n_unique() != cases.height or "repeat" in candidates.columns:
        raise _TooMixed  # ids on several lines, or an order to respect: the careful reader sees to it
    check_given([*frame.columns, *inner.columns], str(path), options)
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
    )


class _LineFinder:
    """Names the line of a row: blank lines are not rows, so it counts, but only when there is something to say."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, row: int) -> str:
        with self.path.open("rb") as file:
            full = (number for number, line in enumerate(file, 1) if line.strip())
            return f"line {next((number for i, number in enumerate(full) if i == row), row + 1)}"


# The careful reader


class _Columns:
    """Rows as they are found: a list a column, and the line each row came from."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self.lines: list[int] = []

    def add(self, line: int, record: dict[str, Any]) -> None:
        for name, value in record.items():
            if name not in self.columns:
                self.columns[name] = [None] * len(self.lines)
            self.columns[name].append(value)
        self.lines.append(line)
        for values in self.columns.values():
            if len(values) < len(self.lines):
                values.append(None)


def read_records(rows: Iterable[Any], options: ReadOptions) -> Table:
    """Read mappings already in memory, in any of the three forms."""
    places = ((i, _mapping(row, i)) for i, row in enumerate(rows, 1))
    return _gather(places, "rows", "row", options)


def _mapping(row: Any, number: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    raise InputError(f"rows: row {number}: expected a mapping, found {type(row).__name__}")


def _read_lines(path: Path, options: ReadOptions) -> Table:
    return _gather(_records(path), str(path), "line", options)


def _gather(records: Iterable[tuple[int, dict[str, Any]]], source: str, unit: str, options: ReadOptions) -> Table:
    found = _Columns()
    fields: dict[str, str] = {}
    tags: dict[str, None] = {}
    forms: dict[str, None] = {}
    empty: list[str] = []
    for line, record in records:
        where = f"{source}: {unit} {line}"
        form, rows, seen = _candidates(record, where, options)
        forms[form] = None
        fields = {**seen, **fields}
        case = _case(record, where, options, form, tags, fields)
        if not rows:
            empty.append(case["id"])
        for row in rows:
            found.add(line, {**case, **row})
    check_given([*fields.values(), *tags], source, options)
    if not found.lines:
        raise InputError(f"{source}: no candidates: every set is empty" if empty else f"{source}: no rows")
    frame = pl.DataFrame([_series(name, values) for name, values in found.columns.items()])
    dropped = [c for c in frame.columns if c != "id" and frame[c].null_count() == frame.height]
    check_something(set(frame.columns) - set(dropped), f"{source}: {unit} {found.lines[0]}", [*fields.values(), *tags])
    table = from_rows(
        frame.drop(dropped),
        {role: name for role, name in fields.items() if role not in dropped},
        [t for t in tags if t not in dropped],
        lambda row: f"{unit} {found.lines[row]}",
        form=" and ".join(forms),
        sources=(source,),
    )
    return _with_empty(table, empty) if empty else table


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        start = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
        file.seek(0)
        if start.startswith(b"["):
            yield from _array(path, file.read())
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _object(line.removeprefix(b"\xef\xbb\xbf"), f"{path}: line {number}")


def _array(path: Path, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        items = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: line {problem.lineno}: not JSON ({problem.msg})") from None
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise InputError(f"{path}: item {number}: expected an object, found {type(item).__name__}")
        yield number, item


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{where}: {_why(line, problem)}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(record).__name__}")
    return record


def _why(line: bytes, problem: orjson.JSONDecodeError) -> str:
    import re

    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return f"not UTF-8 (byte {bad.start + 1}): save the file as UTF-8"
    if re.search(rb"[:\[,]\s*-?(NaN|Infinity)\b", line):
        return "NaN and Infinity are not JSON: write null where there is no number"
    return f"not JSON ({problem.msg}, column {problem.colno}): expected one object a line"


def _candidates(
    record: dict[str, Any], where: str, options: ReadOptions
) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    """(form, one dict a candidate with roles as keys, role -> field name)."""
    if any(isinstance(record.get(name), list) for name in GROUP_LISTS):
        return _group(record, where)
    wide = next((name for name in WIDE if isinstance(record.get(name), list)), None)
    if wide is None:
        fields = {r: n for r, n in long_fields(record, options.fields).items() if r in CANDIDATE_ROLES}
        return "long", [_roles(record, fields, where)], fields
    rows, seen = [], {}
    for i, item in enumerate(record[wide]):
        one = item if isinstance(item, dict) else {"text": item}
        fields = recognise(one, CANDIDATE_ROLES, options.fields)
        seen.update(fields if isinstance(item, dict) else {"text": wide})
        rows.append(_roles(one, fields, f"{where}: {wide}[{i}]"))
    return "wide", rows, seen


def _group(record: dict[str, Any], where: str) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    lists = {name: record[name] for name in GROUP_LISTS if isinstance(record.get(name), list)}
    sizes = {name: len(values) for name, values in lists.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{where}: lists of unequal length: {', '.join(f'{n} has {s}' for n, s in sizes.items())}")
    fields = {GROUP_LISTS[name]: name for name in lists}
    count = next(iter(sizes.values()))
    rows = [
        _roles({name: values[i] for name, values in lists.items()}, fields, f"{where}: candidate {i}")
        for i in range(count)
    ]
    return "groups", rows, fields


_CONVERT = {
    "passed": scalars.as_pass,
    "repeat": scalars.as_whole,
    "facets": scalars.as_texts,
    "choices": scalars.as_texts,
    "required": scalars.as_texts,
    "reference": scalars.as_texts,
    "ideal": scalars.as_numbers,
    **dict.fromkeys(_NUMERIC, scalars.as_number),
}


def _roles(record: dict[str, Any], fields: dict[str, str], where: str) -> dict[str, Any]:
    """The record's fields by role, each with its one type."""
    out: dict[str, Any] = {}
    for role, name in fields.items():
        try:
            out[role] = _CONVERT.get(role, scalars.as_text)(record[name])
        except scalars.Unreadable as problem:
            raise InputError(f"{where}: field {name!r}: {problem}") from None
    for name in SELECTORS:
        if isinstance(record.get(name), (int, float)) and name not in fields.values():
            out[f"selector.{name}"] = float(record[name])
    return out


def _case(
    record: dict[str, Any],
    where: str,
    options: ReadOptions,
    form: str,
    tags: dict[str, None],
    fields: dict[str, str],
) -> dict[str, Any]:
    """The case's own columns, and every other single value as a tag."""
    if form == "long":
        seen = long_fields(record, options.fields)
        roles = {role: name for role, name in seen.items() if role in CASE_ROLES}
        taken = set(seen.values())
    else:
        lists = WIDE if form == "wide" else tuple(GROUP_LISTS)
        roles = recognise([n for n in record if n not in lists], CASE_ROLES, options.fields)
        taken = {*roles.values(), *lists}
    fields.update(roles)
    case = _roles({n: record[n] for n in roles.values()}, roles, where)
    if case.get("id") is None:
        if form != "groups":
            raise InputError(
                f"{where}: no id: expected one of {', '.join(CASE_ROLES['id'])} (or --field id=NAME), "
                f"found {', '.join(record)}"
            )
        case["id"] = where.rpartition(" ")[2]
    for name, value in record.items():
        if name not in taken and name not in SELECTORS and isinstance(value, (str, int, float, bool)):
            tags[name] = None
            case[name] = value
    return case


def _series(name: str, values: list[Any]) -> pl.Series:
    if name == "reference":
        single = all(v is None or len(v) == 1 for v in values)
        if single:
            return pl.Series(name, [None if v is None else v[0] for v in values], dtype=pl.String)
        return pl.Series(name, values, dtype=pl.List(pl.String))
    if name in ("choices", "required", "facets"):
        return pl.Series(name, values, dtype=pl.List(pl.String))
    if name == "ideal":
        return pl.Series(name, values, dtype=pl.List(pl.Float64))
    if name == "passed":
        return pl.Series(name, values, dtype=pl.Int8)
    if name in _NUMERIC or name.startswith("selector."):
        return pl.Series(name, values, dtype=pl.Float64)
    if name == "repeat":
        return pl.Series(name, values, dtype=pl.Int64)
    kinds = {type(v) for v in values if v is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        return pl.Series(name, [scalars.as_text(v) for v in values], dtype=pl.String)
    return pl.Series(name, values, strict=False)


def _with_empty(table: Table, ids: list[str]) -> Table:
    """Cases with no candidates keep their place: they are undefined, and counted."""
    from dataclasses import replace

    extra = pl.DataFrame({"case_id": ids})
    return replace(
        table,
        cases=pl.concat([table.cases, extra], how="diagonal"),
        tags=pl.concat([table.tags, table.tags.clear(len(ids))]),
        offsets=np.concatenate([table.offsets, np.full(len(ids), table.offsets[-1])]),
    )
