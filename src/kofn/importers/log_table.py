"""Reads logs of other tools, JSON lines and large JSON documents, and builds the table of their rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import orjson
import polars as pl

from kofn.core.table import CASE_COLUMNS, duplicates_note, from_rows
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.jsonl import CONVERT, Columns, numbered_lines, parse_line, typed_series
from kofn.importers.long_form import check_named_fields, constant_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_CHUNK = 4 << 20  # characters read at a time
_EDGE = 64  # an error this close to the end of what was read may be a value that goes on
_AFTER = ",:]} \t\r\n"  # follows a whole value; a number cut at the end of a chunk may go on
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character outside the basic plane, escaped
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()  # reads NaN, which some tools write

KeyPath = tuple[str, ...]
_TAG, _LABEL, _SELECTOR = "tag.", "label.", "selector."
_EXAMPLES = 3

# --- streaming reader of one large JSON document: its long lists come item by item, so memory holds one item


def iter_members(path: Path, source: str, lists: Collection[KeyPath]) -> Iterator[tuple[KeyPath, Any]]:
    """(("eval",), {...}) of every member of a JSON object; lists named in `lists` give (("samples",), item) for each.

    `lists` are paths of keys: ("results", "results") is the list in the object in the document. An object on the way to
    one is walked, not kept. What is not JSON, and what ends too early, is refused by its place.
    """
    with path.open(encoding="utf-8-sig") as file:
        text = _Buffer(file)
        try:
            yield from _object(text, (), set(lists))
        except UnicodeDecodeError:
            raise InputError(f"{source}: not UTF-8: save the file as UTF-8") from None
        except json.JSONDecodeError as problem:
            if text.ended and problem.pos + _EDGE >= len(text.buffer):
                raise InputError(f"{source}: the JSON ends too early: was it cut off while it was written?") from None
            place = text.before + problem.pos + 1
            raise InputError(f"{source}: not JSON ({problem.msg}, character {place})") from None
        except (ValueError, RecursionError) as problem:  # a number of thousands of digits; brackets in brackets
            raise InputError(f"{source}: JSON that cannot be read: {str(problem).partition(':')[0]:.80}") from None


def parse_json(data: bytes) -> Any:
    """A JSON value; also one with NaN, which JSON does not know and Python's own writer writes.

    >>> parse_json(b'{"value": NaN}')
    {'value': nan}
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return _without_surrogates(value) if _SURROGATE.search(data.decode()) else value


def _without_surrogates(value: Any) -> Any:
    """A value without lone surrogates, which JavaScript writes where it cuts a text inside a character.

    >>> _without_surrogates(["so " + chr(0xD83D)]) == ["so " + chr(0xFFFD)]
    True
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(one) for name, one in value.items()}
    return value


class _Buffer:
    """The part of a file that was read and is not parsed yet."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.buffer, self.at = file, "", 0
        self.before, self.ended = 0, False

    def more(self) -> None:
        """Drop what is parsed and read on.

        The chunk grows with the unparsed rest: a value of many chunks is then parsed again only log(size) times.
        """
        self.before += self.at
        rest = self.buffer[self.at :]
        chunk = self.file.read(max(_CHUNK, len(rest)))
        self.ended = not chunk
        self.buffer, self.at = rest + chunk, 0

    def peek(self) -> str:
        """The next character that is not white space, without taking it; empty at the end."""
        while True:
            match = _SPACE.match(self.buffer, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.buffer) or self.ended:
                return self.buffer[self.at : self.at + 1]
            self.more()

    def take(self, expected: str) -> str:
        """The next character, which must be one of these."""
        char = self.peek()
        if not char or char not in expected:
            raise json.JSONDecodeError(f"expected {' or '.join(expected)}", self.buffer, self.at)
        self.at += 1
        return char

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.at)
            except json.JSONDecodeError as problem:
                going_on = problem.msg.startswith("Unterminated") or problem.pos + _EDGE >= len(self.buffer)
                if self.ended or not going_on:
                    raise
            else:
                if self.ended or (end < len(self.buffer) and self.buffer[end] in _AFTER):
                    start, self.at = self.at, end
                    return _without_surrogates(value) if _SURROGATE.search(self.buffer, start, end) else value
            self.more()


def _object(text: _Buffer, path: KeyPath, lists: set[KeyPath]) -> Iterator[tuple[KeyPath, Any]]:
    for _ in _members(text, "{", "}"):
        key = text.value()
        text.take(":")
        here = (*path, str(key))
        opens = text.peek()
        if here in lists and opens == "[":
            for _ in _members(text, "[", "]"):
                yield here, text.value()
        elif opens == "{" and any(keys[: len(here)] == here and keys != here for keys in lists):
            yield from _object(text, here, lists)
        else:
            yield here, text.value()


def _members(text: _Buffer, begin: str, end: str) -> Iterator[None]:
    """One step for each member between brackets, which the caller takes; what stands around members is taken here."""
    text.take(begin)
    if text.peek() == end:
        text.take(end)
        return
    while True:
        yield
        if text.take(f",{end}") == end:
            return


# --- the table


class LogRow(NamedTuple):
    """One candidate of a log: its place in the file, and its values by role.

    Keys are the roles of `kofn.core.fields` (id, repeat, text, answer, reference, input, passed, score, cost, seconds,
    tokens, reasoning, error, choices, ...), `tokens_in`, `label.NAME` for each grade the tool gave (a number or None),
    `selector.NAME`, and `tag.NAME` for what has one value per case.
    """

    place: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What is known of a log as a whole.

    form      what its rows are called, such as "Inspect samples"
    labels    label NAME -> whether more is better; names that stand only in rows are better when higher
    systems   tags that tell systems apart (provider, prompt, model): where a log has several values of one, each
              (case, system) is a set of its own, its id says which, and the sets of one case are a cluster
    fields    role -> what the tool calls it, for "read FILE as ..."

    `labels`, `notes` and `origin` are read after the rows, so an importer may fill them while it yields rows.
    """

    source: str
    form: str
    labels: Mapping[str, bool] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    notes: Iterable[CodedWarning] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)

    def table(self, rows: Iterable[LogRow], options: ReadOptions) -> Table:
        """The table of its rows, those of one id together.

        A row that occurs twice (the same id and repeat) is a copy of a resumed log: equal ones are dropped, of unequal
        ones the last is kept, with a note. `options.where` is applied first.
        """
        collected = Columns()
        places: list[str] = []
        for place, values in rows:
            if matches(values, options.where):
                collected.add(len(places), _typed(values, f"{self.source}: {place}"))
                places.append(place)
        if not places and options.where:
            condition = ", ".join(f"{name}={value}" for name, value in options.where.items())
            raise InputError(f"{self.source}: no candidate has {condition}")
        if not places:
            raise InputError(
                f"{self.source}: no candidates in these {self.form}: the log is empty, or its run had not begun"
            )
        frame = pl.DataFrame([typed_series(name, values) for name, values in collected.columns.items()])
        return self.table_of_frame(frame, places.__getitem__, options)

    def table_of_frame(self, frame: pl.DataFrame, place: Callable[[int], str], options: ReadOptions) -> Table:
        """The second half of `table`, for readers that have columns already: named as in `LogRow`, each of its type."""
        frame = frame.drop([c for c in frame.columns if c != "id" and frame[c].null_count() == frame.height])
        # tags by their own names; one that has the name of a role keeps its prefix
        taken = {c for c in frame.columns if not c.startswith(_TAG)} | {*CASE_COLUMNS, "id", "at"}
        names = {c: c.removeprefix(_TAG) for c in frame.columns if c.startswith(_TAG)}
        names = {c: n if n not in taken else c for c, n in names.items()}
        frame, tags = frame.rename(names), list(names.values())
        if several := [name for name in self.systems if name in tags and frame[name].n_unique() > 1]:
            # the sets of several systems get ids of their own, and those of one case are a cluster
            words = [pl.col(name).cast(pl.String).fill_null("none") for name in several]
            cluster = [] if "cluster" in frame.columns else [pl.col("id").alias("cluster")]
            own = pl.concat_str([pl.col("id"), *words], separator=" | ").alias("id")
            frame = frame.with_columns(own, *cluster)
        frame = frame.with_columns(pl.Series("at", range(frame.height)))
        frame, copies = without_copies(frame)
        at = frame["at"]
        frame = frame.drop("at")
        roles = {c: self.fields.get(c, c.removeprefix(_LABEL)) for c in frame.columns if c not in tags}
        check_named_fields([*roles, *roles.values(), *tags], self.source, options)
        graded = [c.removeprefix(_LABEL) for c in frame.columns if c.startswith(_LABEL)]
        order = dict.fromkeys([*(name for name in self.labels if name in graded), *graded])
        table = from_rows(
            frame,
            roles,
            tags,
            lambda row: f"{self.source}: {place(at[row])}",
            form=self.form,
            sources=(self.source,),
            constant=constant_columns(options, roles),
            notes=(*self.notes, *copies),
        )
        return replace(table, labels={name: self.labels.get(name, True) for name in order}, origin=self.origin)


def count_notes(counts: Mapping[str, int], kinds: Mapping[str, tuple[str, str]]) -> Iterator[CodedWarning]:
    """A warning for each thing that was counted; `kinds` has its code, and what it is about.

    >>> kinds = {"failed": ("failed-in-log", "output"), "cached": ("log-grades-otherwise", "cached")}
    >>> list(map(str, count_notes({"failed": 2, "cached": 0}, kinds)))
    ['2 outputs failed: not graded']
    """
    return (CodedWarning.of(code, about=about, n=counts[kind]) for kind, (code, about) in kinds.items() if counts[kind])


def matches(values: Mapping[str, Any], where: Mapping[str, str]) -> bool:
    """Whether a row is selected by `where`; a field it lacks selects it, for `check_named_fields` reports that."""
    return all(str(scalars.as_text(values.get(f"{_TAG}{name}", value))) == value for name, value in where.items())


def _typed(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a row, each with the one type of its role."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        try:
            out[name] = None if value is None else _converter(name)(value)
        except scalars.InvalidValue as problem:
            raise InputError(f"{where}: {name}: {problem}") from None
    if out.get("id") is None:
        raise InputError(f"{where}: no id: every row needs the id of its case")
    return out


@lru_cache(maxsize=4096)
def _converter(name: str) -> Callable[[Any], Any]:
    """The function that gives the values of a column their type; cached, as it is looked up for every value."""
    if name.startswith(_TAG):
        return lambda value: value if isinstance(value, (str, int, float, bool)) else scalars.as_text(value)
    plain = scalars.as_number if name.startswith((_LABEL, _SELECTOR)) or name == "tokens_in" else scalars.as_text
    return CONVERT.get(name, plain)


def without_copies(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[CodedWarning, ...]]:
    """Rows without those that a resumed log has twice, and notes on them.

    Of rows with the same id and repeat the last is kept, in the place of the first. Without a repeat index a copy
    cannot be told from a repeat, and all rows are kept.

    >>> frame = pl.DataFrame({"id": ["a", "b", "a"], "repeat": [1, 1, 1], "text": ["x", "y", "x"]})
    >>> rows, notes = without_copies(frame)
    >>> rows["id"].to_list(), tuple(map(str, notes))
    (['a', 'b'], ('1 row is there twice, word for word (case a): a resumed log? it counts once',))
    """
    if "repeat" not in frame.columns or frame["repeat"].null_count() or not frame.height:
        return frame, ()
    key = ["id", "repeat"]
    order = frame.select(key).unique(maintain_order=True)
    if order.height == frame.height:
        return frame, ()
    kept = order.join(frame.unique(key, keep="last"), on=key, how="left", maintain_order="left").select(frame.columns)
    values = [c for c in frame.columns if c != "at"]
    same = frame.height - frame.unique(values).height
    other = frame.height - kept.height - same
    twice = frame.filter(frame.select(key).is_duplicated())["id"].unique(maintain_order=True)
    notes = []
    if same:
        notes.append(duplicates_note(same, frame["id"].filter(frame.select(values).is_duplicated())))
    if other:
        notes.append(CodedWarning.of("conflicting-rows", n=other, cases=tuple(twice[:_EXAMPLES])))
    return kept, tuple(notes)


def objects(peek: Peek, *needed: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """("line 7", object) of every line that is not blank; an object without a needed key is an error."""
    for number, line in numbered_lines(peek.path):
        where = f"{peek.source}: line {number}"
        record = parse_line(line, where)
        require_fields(record, needed, where, "on every line")
        yield f"line {number}", record


def require_fields(record: Mapping[str, Any], needed: Iterable[str], where: str, on: str) -> None:
    """Refuse a record without a field that the tool always writes."""
    for name in needed:
        if name not in record:
            seen = ", ".join(list(record)[:8])
            raise InputError(f"{where}: no {name!r}: expected it {on}, found {seen}")
