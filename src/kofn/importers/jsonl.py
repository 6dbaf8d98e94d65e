"""JSON lines, or a JSON array of objects, in long, wide or group form: the fast reader first, else the row reader.

Both readers give the same result. Files whose sampled lines agree in their types go through polars with a strict
schema, in which a value of another type later in the file is an error, never a silent null. Whatever polars refuses
(mixed types, groups, a broken line) goes through the row reader, a line at a time, which names the line that is wrong.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
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
from kofn.core.table import CASE_COLUMNS, Table, from_rows
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.base import ReadOptions
from kofn.importers.long_form import (
    LISTS,
    check_gradable,
    check_named_fields,
    constant_columns,
    long_table,
    mixed_types_note,
    role_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_SAMPLE_HEAD = 200  # lines at the beginning whose types are sampled
_SAMPLE_PLACES = 64  # and places in the rest of the file, one line each
# whole numbers are read as floats, for 0.5 may follow 1 anywhere later in the file
_DTYPES = {"bool": pl.Boolean(), "int": pl.Float64(), "float": pl.Float64(), "str": pl.String()}
_NEWLINE = re.compile(rb"\n")
LINE_LIMIT = 64 << 20  # bytes: a longer line is a file without line ends, not a record


# --- the fast reader: columns of one type each


class MixedTypes(Exception):
    """The file cannot be read faithfully with one schema: the row reader must read it."""


class _TypeSample(NamedTuple):
    """JSON types seen for each field, of rows and of the objects inside the wide list."""

    rows: dict[str, set[str]]
    inner: dict[str, set[str]]
    items: set[str]
    wide: str | None


def read_fast(path: Path, options: ReadOptions) -> Table:
    sample = _take_sample(path, wide_names(options.fields))
    lists = [name for name in GROUP_LISTS if "list" in sample.rows.get(name, ())]
    if lists and not (sample.wide and lists == ["answers"]):
        raise MixedTypes
    nested = [name for name, types in sample.rows.items() if types & {"list", "dict"}]
    check_named_fields([*sample.rows, *sample.inner], str(path), options, nested)
    if sample.wide is not None:
        return _read_wide(path, sample.wide, sample, options)
    fields = long_fields(sample.rows, options.fields)
    if not any(role in CANDIDATE_ROLES for role in fields) and not any(map(_is_score_column, sample.rows)):
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
    rows, inner, items = dict[str, set[str]](), dict[str, set[str]](), set[str]()
    for line in sample_lines(path):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise MixedTypes from None
        if not isinstance(record, dict):
            raise MixedTypes
        _note(record, rows)
        for name in wide_lists:
            for item in record[name] if isinstance(record.get(name), list) else ():
                items.add(type(item).__name__)
                if isinstance(item, dict):
                    _note(item, inner)
    return _TypeSample(rows, inner, items, next((name for name in wide_lists if "list" in rows.get(name, ())), None))


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
        # prompts are most of a file, and no number depends on them
        means_something = role != "input" if role else _is_score_column(name)
        needed = means_something or options.everything or name in options.keep
        if not needed or not (types or role == "id"):
            continue
        dtype = _dtype(role, types)
        if dtype is not None:
            out[name] = dtype
        elif role is not None or name in options.keep:
            raise MixedTypes
    return out


def _is_score_column(name: str) -> bool:
    return name in SELECTORS or name.startswith(PREFIXES)


def _dtype(role: str | None, types: set[str]) -> Any:
    """The polars type of a field, None when there is none that fits every value seen."""
    if role == "repeat" and types == {"int"}:
        return pl.Int64
    if role in ROLES and role not in NUMERIC | {"passed", "repeat"} and types <= {"str", "int", "float"}:
        return pl.String  # an id 7 and an id "7" are one id; numbers keep their text
    if types == {"list"}:
        return pl.List(pl.String) if role == "reference" else LISTS.get(str(role))
    if types <= {"int", "float"}:
        return pl.Float64
    return _DTYPES[next(iter(types))] if len(types) == 1 and next(iter(types)) in _DTYPES else None


def _read_wide(path: Path, wide: str, sample: _TypeSample, options: ReadOptions) -> Table:
    outer = {name: types for name, types in sample.rows.items() if name != wide}
    case_fields = recognise(outer, CASE_ROLES, options.fields)
    inner_fields = recognise(sample.inner, CANDIDATE_ROLES, options.fields)
    if "id" not in case_fields:
        raise MixedTypes
    schema = _schema(outer, case_fields, options)
    if sample.items == {"str"}:
        schema[wide] = pl.List(pl.String)
        inner_fields = {"text": wide}
    elif sample.items == {"dict"}:
        fields = {"error": pl.String, **_schema(sample.inner, inner_fields, ReadOptions(keep=options.keep))}
        inner_fields.setdefault("error", "error")
        schema[wide] = pl.List(pl.Struct(fields))
    else:
        raise MixedTypes
    frame = pl.read_ndjson(path, schema=schema)
    if not frame.height or frame[wide].null_count() or frame[case_fields["id"]].null_count():
        raise MixedTypes
    sizes = frame[wide].list.len().to_numpy().astype(np.int64)
    items = frame[wide].list.explode(empty_as_null=False)
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
    columns = {*cases.columns, *candidates.columns}
    table = Table(
        candidates=candidates,
        cases=cases.select(pl.col("id").alias("case_id"), *[c for c in CASE_COLUMNS if c in cases.columns]),
        tags=cases.select(tag_names),
        offsets=offsets_of(sizes),
        fields={role: name for role, name in (case_fields | inner_fields).items() if role in columns},
        form="wide",
        sources=(str(path),),
        labels=labels_in(candidates.columns),
    )
    return _with_type_note(table, sample)


def _line_of(path: Path, row: int) -> str:
    """The line of a row: blank lines are not rows, so lines are counted, but only when there is something to say."""
    return f"line {next((number for number, _ in islice(numbered_lines(path), row, None)), row + 1)}"


def read(path: Path, options: ReadOptions) -> Table:
    """Read a JSON lines file in whatever form it is."""
    check_lines(path)
    try:
        return read_fast(path, options)
    except (MixedTypes, pl.exceptions.PolarsError):
        return read_lines(path, options)


def check_lines(path: Path) -> None:
    """Refuse a line too long to be a record before anything tries to hold it."""
    size, start, most = path.stat().st_size, 0, LINE_LIMIT >> 20
    if size <= LINE_LIMIT:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while size - start > LINE_LIMIT:
            newline = data.rfind(b"\n", start, start + LINE_LIMIT)
            if newline < 0:
                line = sum(1 for _ in _NEWLINE.finditer(data, 0, start)) + 1
                raise InputError(f"{path}: line {line} is longer than {most} MiB: expected one JSON object a line")
            start = newline + 1


# --- the row reader: one record at a time, in any form, with errors that name the line


class Columns:
    """Rows collected into columns: one list per column, and the line that each row came from."""

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


def read_records(rows: Iterable[Any], options: ReadOptions, source: str = "rows") -> Table:
    """Read mappings already in memory, in any of the three forms."""

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise InputError(f"rows: row {number}: expected a mapping, found {type(row).__name__}")
            yield number, dict(row)

    return _gather(records(), source, "row", options)


def read_lines(path: Path, options: ReadOptions) -> Table:
    return _gather(_records(path), str(path), "line", options)


def _gather(records: Iterable[tuple[int, dict[str, Any]]], source: str, unit: str, options: ReadOptions) -> Table:
    collected, notes, unnamed = Columns(), _RecordNotes(), ""
    fields, empty = dict[str, str](), list[str]()
    tags, nested, forms = dict[str, None](), dict[str, None](), dict[str, None]()  # used as ordered sets
    for number, (line, record) in enumerate(records, 1):
        where = f"{source}: {unit} {line}"
        form, rows, seen = _candidates(record, where, options)
        forms[form] = None
        fields = {**seen, **fields}
        case = _case(record, where, options, form, tags, fields)
        if case.get("id") is None:
            case["id"] = str(number if options.by_line else line)
            unnamed = where
        notes.add(record, fields, form, case["id"], rows)
        nested.update({name: None for name, value in record.items() if isinstance(value, (list, dict))})
        if not rows:
            empty.append(case["id"])
        for row in rows:
            collected.add(line, {**case, **row})
    check_named_fields([*fields.values(), *tags, *nested], source, options, nested)
    if unnamed and options.by_line and "id" in fields:
        raise InputError(f"{unnamed}: no {fields['id']!r}, which other rows have: give every row the id of its case")
    if not collected.lines:
        raise InputError(f"{source}: no candidates: every set is empty" if empty else f"{source}: no rows")
    frame = pl.DataFrame([typed_series(name, values) for name, values in collected.columns.items()])
    dropped = [c for c in frame.columns if c != "id" and frame[c].null_count() == frame.height]
    graded = set(frame.columns) - set(dropped)
    check_gradable(graded, f"{source}: {unit} {collected.lines[0]}", [*fields.values(), *tags])
    table = from_rows(
        frame.drop(dropped),
        {role: name for role, name in fields.items() if role not in dropped},
        [t for t in tags if t not in dropped],
        lambda row: f"{source}: {unit} {collected.lines[row]}",
        form=" and ".join(forms),
        sources=(source,),
        constant=constant_columns(options, fields),
        notes=tuple(notes.messages(fields)),
    )
    table = replace(table, labels=labels_in(frame.columns))
    if not empty:
        return table
    # cases with no candidates keep their place: they are undefined, and counted
    return replace(
        table,
        cases=pl.concat([table.cases, pl.DataFrame({"case_id": empty})], how="diagonal"),
        tags=pl.concat([table.tags, table.tags.clear(len(empty))]),
        offsets=np.concatenate([table.offsets, np.full(len(empty), table.offsets[-1])]),
    )


class _RecordNotes:
    """What looks wrong in records that are read all the same: mixed types, sets that occur twice."""

    def __init__(self) -> None:
        self.types: dict[str, set[str]] = {}
        self.sets: dict[str, set[int]] = {}  # case -> hashes of the sets of candidates it already has
        self.repeated: list[str] = []

    def add(self, record: dict[str, Any], fields: dict[str, str], form: str, case: str, rows: list[Any]) -> None:
        for role in ("passed", "score", "reference"):
            if (name := fields.get(role)) is None:
                continue
            # its own, those of its parallel list, or those of its outputs
            values: list[Any] = [record.get(name)]
            if name not in record:
                lists = (value for value in record.values() if isinstance(value, list))
                values = [one.get(name) for several in lists for one in several if isinstance(one, dict)]
            elif isinstance(record[name], list) and role != "reference":
                values = record[name]
            self.types.setdefault(role, set()).update(type(v).__name__ for v in values if v not in (None, ""))
        if form != "long" and rows:
            earlier, digest = self.sets.setdefault(case, set()), hash(repr(rows))
            if digest in earlier:
                self.repeated.append(case)
            earlier.add(digest)

    def messages(self, fields: dict[str, str]) -> Iterator[CodedWarning]:
        for role, types in self.types.items():
            yield from mixed_types_note(role, fields[role], types)
        if self.repeated:
            yield CodedWarning.of("repeated-outputs", n=len(self.repeated), cases=tuple(self.repeated[:3]))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        start = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith(b"["):
        yield from ((number, parse_line(line, f"{path}: line {number}")) for number, line in numbered_lines(path))
        return
    try:
        items = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: line {problem.lineno}: not JSON ({problem.msg})") from None
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise InputError(f"{path}: item {number}: expected an object, found {type(item).__name__}")
        yield number, item


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers, without a byte order mark."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf")


def repeated_id(path: Path, name: str) -> tuple[str, int] | None:
    """The first id that two records of a JSON lines file give in field `name`, and the line (or item) of the second."""
    seen: set[str] = set()
    for line, record in _records(path):
        case = str(record.get(name))
        if case in seen:
            return case, line
        seen.add(case)
    return None


def parse_line(line: bytes, where: str) -> dict[str, Any]:
    """The object on a line; anything else is an error that names the line."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{where}: {_parse_problem(line, problem)}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(record).__name__}")
    return record


def _parse_problem(line: bytes, problem: orjson.JSONDecodeError) -> str:
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
    """(form, one dict per candidate with roles as keys, role -> field name)."""
    wide = _wide_list(record, where, options)
    parallel = [name for name in GROUP_LISTS if isinstance(record.get(name), list)]
    if wide is not None and "answers" in parallel:
        parallel.remove("answers")  # beside a list of outputs, `answers` are references
    if parallel:  # one candidate per place; a list of outputs beside them gives the texts
        lists = {name: record[name] for name in [*parallel, *([wide] if wide else [])]}
        sizes = {name: len(values) for name, values in lists.items()}
        if len(set(sizes.values())) > 1:
            unequal = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise InputError(f"{where}: lists of unequal length: {unequal}")
        fields = {GROUP_LISTS.get(name, "text"): name for name in lists}
        places = (dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))
        found = [_roles(one, fields, f"{where}: place {i} of the lists") for i, one in enumerate(places, 1)]
        return "groups", found, fields
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


def _wide_list(record: dict[str, Any], where: str, options: ReadOptions) -> str | None:
    """The name of the list of outputs, where there is one."""
    for name in wide_names(options.fields):
        if isinstance(record.get(name), list):
            return name
        if name in record and (name in options.fields.values() or name == "outputs"):
            found = type(record[name]).__name__
            raise InputError(f"{where}: field {name!r}: expected a list of outputs, found {found}")
    return None


CONVERT = {
    "passed": scalars.as_pass,
    "repeat": scalars.as_whole,
    "facets": scalars.as_texts,
    "choices": scalars.as_texts,
    "required": scalars.as_texts,
    "reference": scalars.as_references,
    "ideal": scalars.as_numbers,
    **dict.fromkeys(NUMERIC, scalars.as_number),
}


def _roles(record: dict[str, Any], fields: dict[str, str], where: str) -> dict[str, Any]:
    """The record's fields by role, each with its one type."""
    out: dict[str, Any] = {}
    try:
        for role, name in fields.items():
            out[role] = CONVERT.get(role, scalars.as_text)(record[name])
        for name in SELECTORS:
            if isinstance(record.get(name), (int, float)) and name not in fields.values():
                out[f"selector.{name}"] = float(record[name])
        for name in record:
            if name.startswith(PREFIXES):
                out[name] = scalars.as_number(record[name])
    except scalars.InvalidValue as problem:
        raise InputError(f"{where}: field {name!r}: {problem}") from None
    return out


def _case(
    record: dict[str, Any], where: str, options: ReadOptions, form: str, tags: dict[str, None], fields: dict[str, str]
) -> dict[str, Any]:
    """The case's own columns, and every other single value as a tag."""
    if form == "long":
        seen = long_fields(record, options.fields)
        roles = {role: name for role, name in seen.items() if role in CASE_ROLES}
        taken = set(seen.values())
    else:
        wide = _wide_list(record, where, options)
        parallel = [name for name in GROUP_LISTS if form == "groups" and not (wide and name == "answers")]
        lists = {*parallel, *([wide] if wide else [])}
        roles = recognise([n for n in record if n not in lists], CASE_ROLES, options.fields)
        taken = {*roles.values(), *lists}
    fields.update(roles)
    case = _roles({n: record[n] for n in roles.values()}, roles, where)
    if case.get("id") is None and form != "groups" and not (options.by_line and "id" not in roles):
        if "id" in roles:
            raise InputError(f"{where}: field {roles['id']!r} is null: every case needs an id")
        expected, found = ", ".join(CASE_ROLES["id"]), ", ".join(record)
        raise InputError(f"{where}: no id: expected one of {expected} (or --field id=NAME), found {found}")
    for name, value in record.items():
        own = name in taken or name in SELECTORS or name.startswith(PREFIXES)
        if not own and isinstance(value, (str, int, float, bool)):
            tags[name] = None
            case[name] = value
    return case


_TYPES = {**LISTS, **dict.fromkeys(NUMERIC, pl.Float64()), "passed": pl.Int8(), "repeat": pl.Int64()}


def typed_series(name: str, values: list[Any]) -> pl.Series:
    """A column of rows by role, each role with its one type; anything of several types is text."""
    if name == "reference":
        if all(v is None or len(v) == 1 for v in values):
            return pl.Series(name, [None if v is None else v[0] for v in values], dtype=pl.String)
        return pl.Series(name, values, dtype=pl.List(pl.String))
    if dtype := pl.Float64() if name.startswith(PREFIXES) else _TYPES.get(name):
        return pl.Series(name, values, dtype=dtype)
    kinds = {type(v) for v in values if v is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        return pl.Series(name, [scalars.as_text(v) for v in values], dtype=pl.String)
    return pl.Series(name, values, strict=False)
