"""A frame in long form (one row per candidate) as a table: columns recognised as roles, values given their one type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from kofn.core.fields import CANDIDATE_ROLES, CASE_ROLES, NUMERIC, PREFIXES, SELECTORS, labels_in, long_fields
from kofn.core.table import case_column, from_rows
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions

Where = Callable[[int], str]

NUMBERED = "place in the file"  # instead of the name of a field of ids, where there is none

_KINDS = {"bool": "true/false", "int": "numbers", "float": "numbers", "str": "text"}
_READ_AS = {"passed": "pass or fail", "score": "numbers", "reference": "text"}

LISTS = {**dict.fromkeys(("choices", "required", "facets"), pl.List(pl.String)), "ideal": pl.List(pl.Float64)}


def long_table(raw: pl.DataFrame, source: str, where: Where, options: ReadOptions, form: str) -> Table:
    """A table from a frame with one row per candidate. `where` names the place of a row for messages."""
    fields = long_fields(raw.columns, options.fields)
    if "id" not in fields and options.by_line:
        raw = raw.with_columns(pl.Series(NUMBERED, np.arange(1, raw.height + 1)))
        fields = {"id": NUMBERED, **fields}
    if "id" not in fields:
        seen, known = ", ".join(raw.columns[:12]) or "no fields", ", ".join(CASE_ROLES["id"])
        raise InputError(f"{source}: no id field: expected one of {known} (or --field id=NAME), found {seen}")
    rows = role_columns(raw, fields, source, where, options.present)
    if options.everything and "input" in fields:
        options = replace(options, keep=(*options.keep, "input"))
    if rows["id"].null_count():
        row = int(rows["id"].is_null().arg_max() or 0)
        raise InputError(f"{source}: {where(row)}: missing {fields['id']!r}: every row needs the id of its case")
    check_gradable(rows.columns, f"{source}: {where(0)}", raw.columns)
    notes = []
    if (name := fields.get("passed")) is not None and raw.schema[name] == pl.String:
        # labels that are all text, as in CSV: by what is spelled
        words = raw[name].drop_nulls().str.strip_chars().str.to_lowercase().unique()
        types = ["int" if w[:1].isdigit() else "bool" if w in ("true", "false") else "str" for w in words if w]
        notes = mixed_types_note("passed", name, types)
    rest = [c for c in raw.columns if c not in fields.values() and c in rows.columns]
    table = from_rows(
        rows,
        fields,
        [c for c in rest if not c.startswith(PREFIXES)],
        lambda row: f"{source}: {where(row)}",
        form=form,
        sources=(source,),
        constant=constant_columns(options, fields),
        notes=tuple(notes),
    )
    return replace(table, labels=labels_in(rows.columns))


def filter_cases(table: Table, options: ReadOptions) -> Table:
    """The cases that `options.where` selects."""
    for name, value in options.where.items():
        kept = (case_column(table, name).cast(pl.String) == value).fill_null(value=False)
        if not kept.any():
            raise InputError(f"{', '.join(table.sources)}: no case has {name}={value}")
        table = table.select_cases(kept.to_numpy())
    return table


def mixed_types_note(role: str, name: str, types: Iterable[str]) -> list[CodedWarning]:
    """A note where a field that grades holds values of several types, and what they are read as.

    >>> [str(w) for w in mixed_types_note("passed", "correct", ["int", "str", "bool"])]
    ["field 'correct' holds numbers, text and true/false: all are read as pass or fail"]
    >>> mixed_types_note("passed", "correct", ["int", "float"])
    []
    """
    kinds = sorted({_KINDS[name] for name in types if name in _KINDS})
    if role not in _READ_AS or len(kinds) < 2:
        return []
    read_as, last = _READ_AS[role], kinds[-1]
    return [CodedWarning.of("mixed-types", field=name, kinds=tuple(kinds[:-1]), last=last, read_as=read_as)]


def constant_columns(options: ReadOptions, fields: Mapping[str, str]) -> tuple[str, ...]:
    """Columns that must have one value per case because cases are segmented, weighted or clustered by them."""
    roles = {name: role for role, name in fields.items()}
    return ("weight", "cluster", *(roles.get(name, name) for name in options.keep))


def check_gradable(columns: Iterable[str], where: str, seen: Iterable[str]) -> None:
    """Refuse input in which no row has anything to grade."""
    if not any(c in CANDIDATE_ROLES or c.startswith(PREFIXES) for c in columns if c != "repeat"):
        known = f"{', '.join(CANDIDATE_ROLES['text'][:4])}, pass or score, a list such as outputs"
        found = ", ".join(seen)
        raise InputError(f"{where}: nothing to score: expected {known}, or lists scores/passes; found {found}")


def check_named_fields(columns: Iterable[str], source: str, options: ReadOptions, nested: Iterable[str] = ()) -> None:
    """Fields the user named must exist; those to segment by must have one value per case, not a list or an object."""
    columns = list(dict.fromkeys(columns))
    for name in options.keep:
        if name in set(nested):
            raise InputError(f"{source}: field {name!r} holds lists or objects: expected one value a case")
    for name in (*options.fields.values(), *options.keep):
        if name not in columns:
            near = get_close_matches(name, columns, n=1)
            offer = f"did you mean {near[0]}?" if near else f"it has {', '.join(columns[:20])}"
            raise InputError(f"{source}: no field {name!r}: {offer}")


def role_columns(
    raw: pl.DataFrame, fields: Mapping[str, str], source: str, where: Where, present: Collection[str] = ()
) -> pl.DataFrame:
    """Columns renamed to their roles and given their one type; columns without any value are dropped.

    Those in `present` have values elsewhere, and are kept.
    """
    columns: list[pl.Series] = []
    names = {name: role for role, name in fields.items()}
    for column in raw.iter_columns():
        role = names.get(column.name, column.name)
        if role != "id" and column.name not in present and column.null_count() == len(column):
            continue
        if role in SELECTORS and column.dtype.is_numeric() and column.name not in names:
            columns.append(column.cast(pl.Float64).alias(f"selector.{role}"))
        elif role.startswith(PREFIXES) and column.name not in names:
            columns.append(_numbers(column, source, where))
        elif column.name in names:
            columns.append(_typed(role, column, source, where).alias(role))
        elif not column.dtype.is_nested() and column.name not in fields:
            columns.append(column)
    return pl.DataFrame(columns)


def _typed(role: str, column: pl.Series, source: str, where: Where) -> pl.Series:
    if role == "passed":
        zero_or_one = column.dtype.is_numeric() and ((column == 0) | (column == 1)).fill_null(value=True).all()
        if zero_or_one or column.dtype == pl.Boolean:
            return column.cast(pl.Int8)
        return _each(column, scalars.as_pass, pl.Int8, source, where)
    if role in NUMERIC:
        return _numbers(column, source, where)
    if role == "repeat":
        return _each(column, scalars.as_whole, pl.Int64, source, where) if not column.dtype.is_integer() else column
    if role == "ideal" or (role in LISTS and isinstance(column.dtype, pl.List)):
        return column.cast(LISTS[role])
    if role in LISTS and column.dtype == pl.String:  # a cell of a CSV file holds a JSON list
        return _each(column, _json_list, pl.List(pl.String), source, where)
    if role in LISTS:
        raise InputError(f"{source}: field {column.name!r}: expected lists, found {column.dtype}")
    if role == "reference" and isinstance(column.dtype, pl.List):
        return column.cast(pl.List(pl.String))
    if column.dtype.is_nested():
        return column.map_elements(lambda v: scalars.as_text(v.to_list() if isinstance(v, pl.Series) else v), pl.String)
    return column.cast(pl.String)


def _numbers(column: pl.Series, source: str, where: Where) -> pl.Series:
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers = column.cast(pl.Float64)
        if numbers.is_finite().fill_null(value=True).all():
            return numbers
    return _each(column, scalars.as_number, pl.Float64, source, where)


def _json_list(value: str | None) -> list[str] | None:
    try:
        return None if value is None else scalars.as_texts(orjson.loads(value))
    except orjson.JSONDecodeError:
        raise scalars.InvalidValue(f"expected a JSON list, found {value!r:.40}") from None


def _each(column: pl.Series, convert: Callable[[Any], Any], dtype: Any, source: str, where: Where) -> pl.Series:
    out: list[Any] = []
    for row, value in enumerate(column.to_list()):
        try:
            out.append(convert(value))
        except scalars.InvalidValue as problem:
            raise InputError(f"{source}: {where(row)}: field {column.name!r}: {problem}") from None
    try:
        return pl.Series(column.name, out, dtype=dtype)
    except (OverflowError, TypeError, pl.exceptions.PolarsError) as problem:
        detail = " ".join(str(problem).split())
        raise InputError(f"{source}: field {column.name!r}: a value that no column can hold: {detail:.100}") from None
