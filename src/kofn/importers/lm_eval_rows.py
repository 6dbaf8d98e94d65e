"""Row reader of lm-evaluation-harness logs: parses one line at a time, in any version of the format.

A line is a document and a filter. Lines that the fast reader (`lm_eval_fast`) cannot be sure of, files whose lines
differ in layout, and samples in memory are read here; `lm_eval_samples` puts both readers together.

Columns: line, id, target, resps (the candidates' texts), filtered (what the filter made of them), filter,
`metric.NAME`, and where there are any: input, `tag.NAME` (fields of the document), and those of `lm_eval_choices`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.json_records import Columns, parse_line
from kofn.importers.lm_eval_choices import choice_row, is_likelihood
from kofn.importers.long_form import mixed_types_note

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from kofn.importers.base import Peek

NEEDED = ("doc_id", "resps")
FIXED = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
)
METRIC, TAG = "metric.", "tag."
TEXTS = pl.List(pl.String)
_WORDS = {"True": 1.0, "False": 0.0}  # numpy's booleans, which the tool's JSON writer turns into text


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSelection:
    """What is kept beside answers and grades: the prompt, and these fields of the document.

    Responses are those of one filter's lines: the one named, else that of the first line.
    """

    input: bool = False
    filter: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(kw_only=True)
class LineNotes:
    """What a reader could not use, counted, to be reported to the user."""

    no_number: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, set[str]] = field(default_factory=dict)
    more_requests: int = 0

    def messages(self) -> Iterator[str]:
        """One line for each kind of thing."""
        for name, count in self.no_number.items():
            yield f"metric {name} is no single number on {count:,} lines (lm-eval computes it over all cases): left out"
        for name, types in self.kinds.items():
            if "str" in types:  # numbers beside true and false are one kind here
                yield from mixed_types_note("score", name, types)
        if self.more_requests:
            yield f"{self.more_requests:,} lines hold more than one request: the responses to the first are read"


def read_by_row(peek: Peek, selection: LineSelection) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The lines of a log as columns, by the row reader alone, and notes on them."""
    notes = LineNotes()
    return frame_of_rows(rows_of_lines(peek, selection, notes)), tuple(notes.messages())


def read_samples(
    records: Iterable[Mapping[str, Any]], selection: LineSelection
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The same of samples in memory, as `simple_evaluate` returns them."""
    notes = LineNotes()
    rows = ((n, row_of(record, f"samples: row {n}", selection, notes)) for n, record in enumerate(records, 1))
    return frame_of_rows(rows), tuple(notes.messages())


# --- lines


def rows_of_lines(
    peek: Peek, selection: LineSelection, notes: LineNotes, only: Collection[int] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    with peek.path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if (only is None or number in only) and line.strip():
                where = f"{peek.source}: line {number}"
                yield number, row_of(_parsed(line.removeprefix(b"\xef\xbb\xbf"), where), where, selection, notes)


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    """The object on a line. Python's writer of JSON puts NaN where a metric has no value: that is none."""
    if b"NaN" in line or b"Infinity" in line:
        import json

        try:
            found = json.loads(line, parse_constant=lambda _: None)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
    return parse_line(line, where)


def frame_of_rows(rows: Iterable[tuple[int, dict[str, Any]]]) -> pl.DataFrame:
    found = Columns()
    for number, row in rows:
        found.add(number, row)
    if not found.lines:
        return pl.DataFrame(schema={"line": pl.Int64, "id": pl.String})
    columns = [_series(name, values) for name, values in found.columns.items()]
    return pl.DataFrame([pl.Series("line", found.lines, dtype=pl.Int64), *columns])


def _series(name: str, values: list[Any]) -> pl.Series:
    if name in ("resps", "filtered", "choices"):
        return pl.Series(name, values, dtype=TEXTS)
    if name in ("by_place", "by_text"):
        return pl.Series(name, values, dtype=TEXTS)
    if name == "loglik" or name.startswith("each."):
        return pl.Series(name, values, dtype=pl.List(pl.Float64))
    if name.startswith(METRIC):
        return pl.Series(name, values, dtype=pl.Float64)
    if name.startswith(TAG):
        return _tag_series(name, values)
    return pl.Series(name, values, dtype=pl.Boolean if name == "likelihood" else pl.String)


def _tag_series(name: str, values: list[Any]) -> pl.Series:
    """One type for a tag: what all its values are, else text."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float}:
        return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64 if kinds else pl.String)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    return pl.Series(name, [scalars.as_text(v) for v in values], dtype=pl.String)


def row_of(record: Mapping[str, Any], where: str, selection: LineSelection, notes: LineNotes) -> dict[str, Any]:
    """The columns of one line."""
    for name in NEEDED:
        if record.get(name) is None:
            seen = ", ".join(list(record)[:8])
            raise InputError(f"{where}: no {name!r}: expected it on every line of lm-eval samples, found {seen}")
    requests = [r if isinstance(r, list) else [r] for r in _listed(record["resps"])]
    row: dict[str, Any] = {"id": scalars.as_text(record["doc_id"]), "filter": scalars.as_text(record.get("filter"))}
    grades = _grades(record, notes)
    arguments = _arguments(record.get("arguments"))
    if is_likelihood(requests):
        row |= choice_row(requests, arguments, record.get("target"), where)
    else:
        row |= _text_row(requests, record, notes)
    if selection.input and arguments:
        row["input"] = scalars.as_text(arguments[0][0])
    document = record.get("doc")
    for name in selection.tags:
        value = document.get(name) if isinstance(document, dict) else None
        row[f"{TAG}{name}"] = scalars.as_text(value) if isinstance(value, (list, dict)) else value
    return row | {f"{METRIC}{name}": value for name, value in grades.items()}


def _text_row(requests: list[list[Any]], record: Mapping[str, Any], notes: LineNotes) -> dict[str, Any]:
    """Responses that are texts. Of several requests of a document the first that has texts counts."""
    at = next((i for i, responses in enumerate(requests) if not is_likelihood([responses])), 0)
    notes.more_requests += len(requests) > 1
    filtered = _listed(record.get("filtered_resps"))
    made = filtered[at] if at < len(filtered) else None
    return {
        "target": _target(record.get("target")),
        "resps": [scalars.as_text(text) for text in requests[at]] if requests else [],
        "filtered": None if made is None else [scalars.as_text(text) for text in _listed(made)],
    }


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _target(value: Any) -> str | None:
    """A target as the tool's log has it: lists in the words of Python."""
    return str(value) if isinstance(value, (list, tuple)) else scalars.as_text(value)


def _arguments(given: Any) -> list[list[Any]]:
    """The arguments of every request: objects `gen_args_0: {arg_0: ...}`, or lists of lists."""
    requests = given.values() if isinstance(given, dict) else _listed(given)
    out = [list(one.values()) if isinstance(one, dict) else _listed(one) for one in requests]
    return [one for one in out if one]


def _grades(record: Mapping[str, Any], notes: LineNotes) -> dict[str, float | None]:
    """The tool's own grades; logs of older versions do not list their names."""
    names = record.get("metrics")
    names = names if isinstance(names, list) else [name for name in record if name not in FIXED]
    out: dict[str, float | None] = {}
    for name in map(str, names):
        value = record.get(name)
        out[name] = _grade(value)
        if out[name] is not None:
            notes.kinds.setdefault(name, set()).add(type(value).__name__)
        elif value is not None and value == value:  # NaN is not
            notes.no_number[name] = notes.no_number.get(name, 0) + 1
    return {name: value for name, value in out.items() if name not in notes.no_number or value is not None}


def _grade(value: Any) -> float | None:
    """A number, true or false; also in words, for the tool writes what JSON does not know (numpy's values) as text.

    >>> _grade(True), _grade("False"), _grade("0.5"), _grade([1, 2])
    (1.0, 0.0, 0.5, None)
    """
    try:
        return _WORDS[value] if isinstance(value, str) and value in _WORDS else scalars.as_number(value)
    except scalars.InvalidValue:
        return None
