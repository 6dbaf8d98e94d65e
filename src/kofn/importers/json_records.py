"""Row reader of JSON records: one at a time, in any form, with errors that name the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from kofn.core.fields import (
    CANDIDATE_ROLES,
    CASE_ROLES,
    GROUP_LISTS,
    NUMERIC,
    PREFIXES,
    SELECTORS,
    labels_in,
    long_fields,
    recognise,
    wide_names,
)
from kofn.core.table import from_rows
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.long_form import check_gradable, check_named_fields, constant_columns, mixed_types_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions


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
    places = ((i, _mapping(row, i)) for i, row in enumerate(rows, 1))
    return _gather(places, source, "row", options)


def _mapping(row: Any, number: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    raise InputError(f"rows: row {number}: expected a mapping, found {type(row).__name__}")


def read_lines(path: Path, options: ReadOptions) -> Table:
    return _gather(_records(path), str(path), "line", options)


def _gather(records: Iterable[tuple[int, dict[str, Any]]], source: str, unit: str, options: ReadOptions) -> Table:
    collected = Columns()
    fields: dict[str, str] = {}
    tags: dict[str, None] = {}
    nested: dict[str, None] = {}
    forms: dict[str, None] = {}
    empty: list[str] = []
    notes, unnamed = _RecordNotes(), ""
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
    check_gradable(
        set(frame.columns) - set(dropped), f"{source}: {unit} {collected.lines[0]}", [*fields.values(), *tags]
    )
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
    return _with_empty(table, empty) if empty else table


class _RecordNotes:
    """What looks wrong in records that are read all the same: mixed types, sets that occur twice."""

    def __init__(self) -> None:
        self.types: dict[str, set[str]] = {}
        self.sets: dict[str, set[int]] = {}  # case -> hashes of the sets of candidates it already has
        self.repeated: list[str] = []

    def add(self, record: dict[str, Any], fields: dict[str, str], form: str, case: str, rows: list[Any]) -> None:
        for role in ("passed", "score", "reference"):
            if role in fields:
                values = _values(record, role, fields[role])
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


def _values(record: dict[str, Any], role: str, name: str) -> list[Any]:
    """The values of a record for a role: its own, those of its parallel list, or those of its outputs."""
    if name not in record:
        return [v.get(name) for vs in record.values() if isinstance(vs, list) for v in vs if isinstance(v, dict)]
    value = record[name]
    return value if isinstance(value, list) and role != "reference" else [value]


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        start = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
        file.seek(0)
        if start.startswith(b"["):
            yield from _array(path, file.read())
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, parse_line(line.removeprefix(b"\xef\xbb\xbf"), f"{path}: line {number}")


def repeated_id(path: Path, name: str) -> tuple[str, int] | None:
    """The first id that two records of a JSON lines file give in field `name`, and the line (or item) of the second."""
    seen: set[str] = set()
    for line, record in _records(path):
        case = str(record.get(name))
        if case in seen:
            return case, line
        seen.add(case)
    return None


def _array(path: Path, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        items = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: line {problem.lineno}: not JSON ({problem.msg})") from None
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise InputError(f"{path}: item {number}: expected an object, found {type(item).__name__}")
        yield number, item


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
    if parallel:
        return _group(record, [*parallel, *([wide] if wide else [])], where)
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
            raise InputError(
                f"{where}: field {name!r}: expected a list of outputs, found {type(record[name]).__name__}"
            )
    return None


def _group(record: dict[str, Any], names: list[str], where: str) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    """Parallel lists: one candidate per place. A list of outputs beside them gives the texts."""
    lists = {name: record[name] for name in names}
    sizes = {name: len(values) for name, values in lists.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{where}: lists of unequal length: {', '.join(f'{n} has {s}' for n, s in sizes.items())}")
    fields = {GROUP_LISTS.get(name, "text"): name for name in lists}
    rows = [
        _roles({name: values[i] for name, values in lists.items()}, fields, f"{where}: place {i + 1} of the lists")
        for i in range(next(iter(sizes.values())))
    ]
    return "groups", rows, fields


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
    for role, name in fields.items():
        try:
            out[role] = CONVERT.get(role, scalars.as_text)(record[name])
        except scalars.InvalidValue as problem:
            raise InputError(f"{where}: field {name!r}: {problem}") from None
    for name in SELECTORS:
        if isinstance(record.get(name), (int, float)) and name not in fields.values():
            out[f"selector.{name}"] = float(record[name])
    for name in record:
        if name.startswith(PREFIXES):
            out[name] = _number(record[name], f"{where}: field {name!r}")
    return out


def _number(value: Any, where: str) -> float | None:
    try:
        return scalars.as_number(value)
    except scalars.InvalidValue as problem:
        raise InputError(f"{where}: {problem}") from None


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
        raise InputError(
            f"{where}: no id: expected one of {', '.join(CASE_ROLES['id'])} (or --field id=NAME), "
            f"found {', '.join(record)}"
        )
    for name, value in record.items():
        own = name in taken or name in SELECTORS or name.startswith(PREFIXES)
        if not own and isinstance(value, (str, int, float, bool)):
            tags[name] = None
            case[name] = value
    return case


def typed_series(name: str, values: list[Any]) -> pl.Series:
    """A column of rows by role, each role with its one type; anything of several types is text."""
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
    if name in NUMERIC or name.startswith(("selector.", "label.")):
        return pl.Series(name, values, dtype=pl.Float64)
    if name == "repeat":
        return pl.Series(name, values, dtype=pl.Int64)
    kinds = {type(v) for v in values if v is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        return pl.Series(name, [scalars.as_text(v) for v in values], dtype=pl.String)
    return pl.Series(name, values, strict=False)


def _with_empty(table: Table, ids: list[str]) -> Table:
    """Cases with no candidates keep their place: they are undefined, and counted."""
    extra = pl.DataFrame({"case_id": ids})
    return replace(
        table,
        cases=pl.concat([table.cases, extra], how="diagonal"),
        tags=pl.concat([table.tags, table.tags.clear(len(ids))]),
        offsets=np.concatenate([table.offsets, np.full(len(ids), table.offsets[-1])]),
    )
