"""The samples of an lm-evaluation-harness log as columns: most lines by a fast reader, the rest by a row reader.

A line is a document and a filter. Columns: line, id, target, resps (the candidates' texts), filtered (what the filter
made of them), filter, `metric.NAME`, and where there are any: input, `tag.NAME` (fields of the document), and those of
`choice_row`.

Fast reader. Nearly all of a line is the prompt, which no number needs. Inside a JSON string every quote has a backslash
before it, so `, "resps": [["` is always a key, and the keys of a line stand in one order. What lies between those that
matter is put together into a smaller object, and polars decodes that. A document that has such keys itself is detected
by a second `"doc_id": `, or because the smaller object is not JSON. Lines that are not as the tool writes them are left
to the row reader by their numbers; so is the whole file where the sampled lines differ in layout, many lines are
irregular, or one does not decode.

Row reader. It parses one line at a time, in any version of the format. In multiple choice by log-likelihood a request
is one option; its responses are pairs (log-likelihood, whether it is the greedy continuation), one per repeat. The
candidate of a repeat is the chosen option: the likeliest, as the tool's `acc` has it, the first of equal ones.
"""

from __future__ import annotations

import ast
import json
import math
from collections import Counter
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.extract.letter_answer import parse_choices
from kofn.importers import scalars
from kofn.importers.jsonl import Columns, MixedTypes, check_lines, numbered_lines, parse_line, sample_lines
from kofn.importers.long_form import mixed_types_note

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.importers.recognition import Peek

_PAIR = 2  # (log-likelihood, greedy)
NEEDED = ("doc_id", "resps")
FIXED = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
)
METRIC, TAG = "metric.", "tag."
TEXTS = pl.List(pl.String)
_WORDS = {"True": 1.0, "False": 0.0}  # numpy's booleans, which the tool's JSON writer turns into text
_MOST_IRREGULAR = 0.05  # of the lines: above it the row reader reads the whole file
_BATCH = 4 << 20  # bytes of the file decoded at a time, which bounds the memory
_TRUE_FALSE = {"true": True, "false": False}
_START, _DOC, _TARGET = '{"doc_id": ', ', "doc": {', '}, "target": "'
_ARGUMENTS = ', "arguments": {"gen_args_0": {"arg_0": "'
_RESPS, _FILTERED, _FILTER = ', "resps": [["', '"]], "filtered_resps": [', '], "filter": "'
_MORE = '"], ["'  # responses to a second request: inside a string the second quote has a backslash before it
_SURROGATES = ("\\ud", "\\uD")  # polars decodes half a pair as something, where JSON's readers refuse it
_NO_JSON = ("NaN", "Infinity")  # what Python's json module writes for these floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSelection:
    """What is kept beside answers and grades: the prompt, and these fields of the document.

    Responses are those of one filter's lines: the one named, else that of the first line.
    """

    input: bool = False
    filter: str | None = None
    tags: tuple[str, ...] = ()


# --- the fast reader


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineLayout:
    """What the sampled lines have in common: the names of metrics, and the types of the selected document fields.

    Responses are kept of one filter, for the other lines of a document repeat them. `single`: every document has one
    response. `batch`: the number of lines read at a time.
    """

    metrics: tuple[str, ...]
    tags: Mapping[str, frozenset[type]]
    filter: str
    single: bool
    batch: int


def read_fast(path: Path, selection: LineSelection) -> tuple[pl.DataFrame, Collection[int]]:
    """The columns of the lines that are as the tool writes them, and the numbers of the others."""
    layout = _sample_layout(path, selection)
    # responses are copied as they come: a third of the buffers that polars decodes into is empty
    copied = pl.concat_str(pl.col("resps") if layout.single else pl.element(), pl.lit(""))
    exact = copied if layout.single else pl.col("resps").list.eval(copied)
    lines = _scan(path, layout, selection)
    batches = lines.collect_batches(chunk_size=layout.batch, maintain_order=True, engine="streaming")
    frame = pl.concat([batch.rechunk().with_columns(exact.alias("resps")) for batch in batches])
    frame = frame.with_row_index("line", offset=1)
    irregular = frame["irregular"]
    rest = frame["line"].filter(irregular).to_list() if irregular.any() else []
    if len(rest) > max(8, _MOST_IRREGULAR * frame.height):
        raise MixedTypes
    return _columns(frame.filter(~irregular) if rest else frame, layout, selection), frozenset(rest)


def _sample_layout(path: Path, selection: LineSelection) -> _LineLayout:
    metrics: tuple[str, ...] | None = None
    kinds: dict[str, set[type]] = {name: set() for name in selection.tags}
    first, single, lengths = selection.filter, True, [0]
    for line in sample_lines(path):
        lengths.append(len(line))
        record = _plain_record(line)
        names = tuple(record["metrics"])
        if metrics not in (None, names) or list(record) != [*FIXED, *names]:
            raise MixedTypes
        if not all(isinstance(record[name], (int, float)) for name in names):
            raise MixedTypes
        metrics, first = names, first or record["filter"]
        single = single and len(record["resps"][0]) == 1
        for name, seen in kinds.items():
            seen.add(type(record["doc"].get(name)))
    if not metrics or not isinstance(first, str):
        raise MixedTypes
    tags = {name: frozenset(seen - {type(None)}) for name, seen in kinds.items()}
    if any(seen - {str, int, float, bool} or (len(seen) > 1 and seen != {int, float}) for seen in tags.values()):
        raise MixedTypes
    batch = 1 + _BATCH * len(lengths) // (1 + sum(lengths))
    return _LineLayout(metrics=metrics, tags=tags, filter=first, single=single, batch=batch)


def _plain_record(line: bytes) -> dict[str, Any]:
    """The object of a sampled line that is as the tool writes them: texts, and one request."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise MixedTypes from None
    if not isinstance(record, dict) or not record.keys() >= set(FIXED) or not isinstance(record["metrics"], list):
        raise MixedTypes
    resps = record["resps"]
    one = isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list)
    if not one or not isinstance(record["doc"], dict) or not all(isinstance(text, str) for text in resps[0]):
        raise MixedTypes
    return record


def _scan(path: Path, layout: _LineLayout, selection: LineSelection) -> pl.LazyFrame:
    """The columns of every line; `irregular` where the row reader must read it."""
    # what is decoded, and its type: a value of another type is an error, and the row reader reads the file
    kinds: dict[str, Any] = {"target": pl.String, "filter": pl.String}
    if layout.tags:
        kinds["doc"] = pl.Struct(dict.fromkeys(layout.tags, pl.String))
    if selection.input:
        kinds["arguments"] = pl.Struct({"gen_args_0": pl.Struct({"arg_0": pl.String})})
    decoded = pl.Struct(kinds | dict.fromkeys(layout.metrics, pl.Float64))
    lines = _cut(path, selection).with_columns(decoded=pl.col("small").str.json_decode(decoded))
    field_of = pl.col("decoded").struct.field
    fields = {name: field_of(name) for name in ("filter", "target")}
    if selection.input:
        fields["input"] = field_of("arguments").struct.field("gen_args_0").struct.field("arg_0")
    fields |= {TAG + name: field_of("doc").struct.field(name) for name in layout.tags}
    fields |= {METRIC + name: field_of(name) for name in layout.metrics}
    own, responses, inner = fields["filter"] == layout.filter, pl.col("responses"), pl.col("inner")
    # a response that the filter left as it is need not be decoded twice
    bare = pl.col("made").str.strip_prefix('"').str.strip_suffix('"')
    unfiltered = bare == inner
    if not layout.single:  # the first of several is no answer of each of them either
        unfiltered |= inner.str.starts_with(bare + '", "')
    made = pl.concat_str(pl.lit('{"made": '), pl.when(own & ~unfiltered).then("made"), pl.lit("}"))
    cut = [pl.col(name).str for name in ("small", "responses", "made")]
    written = (part.contains(half, literal=True) for part in cut for half in _SURROGATES)
    irregular = [
        *(fields[name].is_null() for name in fields if not name.startswith((METRIC, TAG))),
        *(responses.is_null(), responses.str.contains(_MORE, literal=True), *written),
        pl.col("id").cast(pl.Int64, strict=False).is_null(),
    ]
    texts = pl.when(own & ~responses.str.contains(_MORE, literal=True)).then(responses).str.json_decode(TEXTS)
    return lines.select(
        id="id",
        **fields,
        resps=texts.list.first() if layout.single else texts,
        filtered=made.str.json_decode(pl.Struct({"made": TEXTS})).struct.field("made"),
        irregular=pl.any_horizontal(check.fill_null(value=True) for check in irregular),
    )


def _cut(path: Path, selection: LineSelection) -> pl.LazyFrame:
    """The parts of every line as they are written; null where a key is not in its place.

    id, responses (a list; `inner` without its brackets and outer quotes), made (what the filter made of them), and
    `small`: a JSON object of all else that is decoded. On the way there head is the line from after `doc_id` to
    `arguments`, and rest the line from `resps` on.
    """
    begins, ends, doc, made, of = (pl.col(name) for name in ("begins", "ends", "doc", "made", "of"))
    lines = pl.scan_lines(path).with_columns(begins=_place("line", _ARGUMENTS), ends=_place("line", _RESPS))
    in_order = pl.col("line").str.starts_with(_START) & (begins < ends)
    lines = lines.select(
        head=_part("line", len(_START), pl.when(in_order).then(begins - len(_START))),
        prompt=_part("line", begins, ends - begins) if selection.input else pl.lit(""),
        rest=_part("line", ends),
    ).with_columns(
        doc=_place("head", _DOC),
        target=_place("head", _TARGET),
        made=_place("rest", _FILTERED),
        of=_place("rest", _FILTER),
    )
    begin = doc + len(", ") if selection.tags else pl.col("target") + len("}, ")
    tail = _part("rest", of + len("]"))
    small = pl.concat_str(pl.lit("{"), _part("head", begin), pl.col("prompt"), tail)
    strange = [pl.col("head").str.contains('"doc_id": ', literal=True), tail.str.contains_any(list(_NO_JSON))]
    is_empty = of <= made + len(_FILTERED)
    return lines.select(
        id=_part("head", 0, doc),
        responses=_part("rest", len(_RESPS) - len('["'), made - len(_RESPS) + len('[""]')),
        inner=_part("rest", len(_RESPS), made - len(_RESPS)),
        made=_part("rest", made + len(_FILTERED), of - made - len(_FILTERED)),
        small=pl.when(~pl.any_horizontal(*strange, is_empty)).then(small),
    )


def _place(column: str, key: str) -> pl.Expr:
    return pl.col(column).str.find(key, literal=True).cast(pl.Int64)


def _part(column: str, offset: pl.Expr | int, length: pl.Expr | None = None) -> pl.Expr:
    # by bytes, as `str.find` counts them; `str.slice` would count characters, from the start of every line
    return pl.col(column).cast(pl.Binary).bin.slice(offset, length).cast(pl.String)


def _columns(found: pl.DataFrame, layout: _LineLayout, selection: LineSelection) -> pl.DataFrame:
    """The columns with the names and types of the row reader."""
    if not found.height:
        raise MixedTypes
    resps, made = found["resps"], found["filtered"]
    if layout.single:
        resps = resps.reshape((-1, 1)).arr.to_list()
    made = resps if made.null_count() == made.len() else made.zip_with(made.is_not_null(), resps)
    columns = [found["line"].cast(pl.Int64), *found.select("id", "filter", "target"), resps, made.alias("filtered")]
    if selection.input:
        columns.append(found["input"])
    for name, kinds in layout.tags.items():
        # decoded as text, each gets the type that was seen; a value of another type is an error
        texts = found[TAG + name]
        if kinds == {bool}:
            texts = texts.replace_strict(_TRUE_FALSE, return_dtype=pl.Boolean)
        elif kinds and kinds <= {int, float}:
            texts = texts.cast(pl.Int64 if kinds == {int} else pl.Float64)
        columns.append(texts)
    return pl.DataFrame([*columns, *found.select(METRIC + name for name in layout.metrics)])


def read_lines(peek: Peek, selection: LineSelection) -> tuple[pl.DataFrame, tuple[CodedWarning, ...]]:
    """The lines of a log as columns, and notes on them."""
    check_lines(peek.path)
    try:
        regular, rest = read_fast(peek.path, selection)
        return _merge_in_order(regular, rest, peek, selection), ()
    except (MixedTypes, pl.exceptions.PolarsError):
        return read_by_row(peek, selection)


def _merge_in_order(regular: pl.DataFrame, rest: Collection[int], peek: Peek, selection: LineSelection) -> pl.DataFrame:
    """The lines of the fast reader and those it left out, each in its place."""
    if not rest:
        return regular
    notes = LineNotes()
    others = frame_of_rows(rows_of_lines(peek, selection, notes, only=rest))
    if not others.height:  # blank lines
        return regular
    # a column of another type, or a note, depends on all lines together: only the row reader sees them so
    if any(regular.schema.get(name) != kind for name, kind in others.schema.items()) or any(notes.messages()):
        raise MixedTypes
    return pl.concat([regular, others], how="diagonal").sort("line")


# --- the row reader


def is_likelihood(requests: Sequence[Sequence[Any]]) -> bool:
    """Whether the responses are pairs (log-likelihood, greedy) and not texts."""
    responses = [response for request in requests for response in request]
    return bool(responses) and all(isinstance(r, (list, tuple)) and len(r) == _PAIR for r in responses)


def choice_row(
    requests: Sequence[Sequence[Any]], arguments: Sequence[Sequence[Any]], target: Any, where: str
) -> dict[str, Any]:
    """The columns of a line whose requests are options.

    resps      the text of the option chosen in each repeat; filtered: its label
    by_place, by_text    the labels of the right options where the target is their place, or their text
    loglik     of the chosen option in each repeat
    each.NAME  whether the option of each repeat is right by acc, acc_norm and acc_bytes, as the tool defines them
    """
    pairs = [[_pair(response, where) for response in request] for request in requests]
    if len({len(request) for request in pairs}) > 1:
        raise InputError(f"{where}: options with unequal numbers of repeats: the line is not as lm-eval writes it")
    if len(pairs) == 1:
        return _continuation(pairs[0], arguments, target)
    texts, whole, n = _options(arguments, len(pairs))
    repeats = [[request[r][0] for request in pairs[:n]] for r in range(len(pairs[0]))]
    labels = list(parse_choices(texts).labels)
    if len(set(labels)) != len(texts):  # not enough letters, or two labels are equal
        labels = texts
    picks = [_best(repeat) for repeat in repeats]
    by_place, by_text = _golds(target, texts)
    golds = by_place if by_place is not None else by_text
    row: dict[str, Any] = {
        "likelihood": True,
        "choices": texts if len(labels) == len(texts) and labels != texts else None,
        "resps": [texts[i] for i in picks],
        "filtered": [labels[i] for i in picks],
        "by_place": None if by_place is None else [labels[i] for i in by_place],
        "by_text": None if by_text is None else [labels[i] for i in by_text],
        "loglik": [repeat[i] for repeat, i in zip(repeats, picks, strict=True)],
    }
    if len(repeats) > 1 and golds is not None:
        row |= _each(repeats, golds, whole)
    return row


def _continuation(
    responses: Sequence[tuple[float, bool]], arguments: Sequence[Sequence[Any]], target: Any
) -> dict[str, Any]:
    """One text whose likelihood was requested: it is the output where it is the greedy one, else none is known."""
    text = str(arguments[0][1]) if arguments and len(arguments[0]) > 1 else str(target)
    greedy = [right for _, right in responses]
    row: dict[str, Any] = {
        "likelihood": True,
        "target": None if target is None else str(target),
        "resps": [text if right else None for right in greedy],
        "loglik": [value for value, _ in responses],
    }
    return row | ({"each.acc": [float(right) for right in greedy]} if len(greedy) > 1 else {})


def _pair(response: Any, where: str) -> tuple[float, bool]:
    value, greedy = response
    try:
        return float(value), str(greedy) == "True"
    except (TypeError, ValueError):
        raise InputError(f"{where}: resps: expected a log-likelihood, found {value!r:.40}") from None


def _options(arguments: Sequence[Sequence[Any]], n: int) -> tuple[list[str], list[str], int]:
    """(the options' texts stripped, as they were scored, how many there are).

    Requests without a context in the second half are those of `acc_mutual_info`, which lm-eval appends. Where the
    continuations are all the same the contexts differ, and what differs in them is the option (as in WinoGrande).
    """
    pairs = [(str(a[0]), str(a[1])) for a in arguments if len(a) > 1]
    if len(pairs) != n:
        names = [str(place) for place in range(n)]
        return names, names, n
    half = n // 2
    if n % 2 == 0 and all(not context for context, _ in pairs[half:]) and all(context for context, _ in pairs[:half]):
        n, pairs = half, pairs[:half]
    whole = [text for _, text in pairs]
    if len(set(whole)) == 1 and n > 1:
        shared = len(commonprefix([context for context, _ in pairs]))  # noqa: RUF071 - texts, not paths
        whole = [context[shared:] for context, _ in pairs]
    return [text.strip() for text in whole], whole, n


def _best(values: Sequence[float]) -> int:
    """The place of the largest, the first of equal ones."""
    return max(range(len(values)), key=lambda i: values[i])


def _golds(target: Any, texts: Sequence[str]) -> tuple[list[int] | None, list[int] | None]:
    """The places of the right options, read as places and read as texts; a target may be several."""
    targets = _targets(target)
    places = [int(t) for t in targets if t.isdecimal() and int(t) < len(texts)]
    by_text = [texts.index(t.strip()) for t in targets if t.strip() in texts]
    return (
        places if targets and len(places) == len(targets) else None,
        by_text if targets and len(by_text) == len(targets) else None,
    )


def _targets(target: Any) -> list[str]:
    """The targets of a line as texts; a list may be written as Python text."""
    if isinstance(target, str) and target.startswith("[") and target.endswith("]"):
        try:
            target = ast.literal_eval(target)
        except (ValueError, SyntaxError):
            return [target]
    if target is None:
        return []
    return [str(t) for t in target] if isinstance(target, (list, tuple)) else [str(target)]


def _each(repeats: Sequence[Sequence[float]], golds: Sequence[int], whole: Sequence[str]) -> dict[str, list[float]]:
    """1 or 0 for each repeat by each of the tool's three accuracies.

    As in lm-eval's `process_results`: acc_norm divides by characters, acc_bytes by bytes, each without the space that
    the tool puts before an option.
    """
    bare = [text.removeprefix(" ") for text in whole]
    lengths: dict[str, list[float]] = {
        "acc": [1.0] * len(bare),
        "acc_norm": [len(t) for t in bare],
        "acc_bytes": [len(t.encode()) for t in bare],
    }
    out: dict[str, list[float]] = {}
    for name, sizes in lengths.items():
        scaled = [[v / s if s else -math.inf for v, s in zip(values, sizes, strict=True)] for values in repeats]
        out[f"each.{name}"] = [float(_best(values) in golds) for values in scaled]
    return out


@dataclass(kw_only=True)
class LineNotes:
    """What a reader could not use, counted, to be reported to the user."""

    no_number: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, set[str]] = field(default_factory=dict)
    more_requests: int = 0

    def messages(self) -> Iterator[CodedWarning]:
        """One warning for each kind of thing."""
        for name, count in self.no_number.items():
            yield CodedWarning.of("left-out-of-log", about="lines", metric=name, n=count)
        for name, types in self.kinds.items():
            if "str" in types:  # numbers beside true and false are one kind here
                yield from mixed_types_note("score", name, types)
        if self.more_requests:
            yield CodedWarning.of("left-out-of-log", about="requests", n=self.more_requests)


def read_by_row(peek: Peek, selection: LineSelection) -> tuple[pl.DataFrame, tuple[CodedWarning, ...]]:
    """The lines of a log as columns, by the row reader alone, and notes on them."""
    notes = LineNotes()
    return frame_of_rows(rows_of_lines(peek, selection, notes)), tuple(notes.messages())


def read_samples(
    records: Iterable[Mapping[str, Any]], selection: LineSelection
) -> tuple[pl.DataFrame, tuple[CodedWarning, ...]]:
    """The same of samples in memory, as `simple_evaluate` returns them."""
    notes = LineNotes()
    rows = ((n, row_of(record, f"samples: row {n}", selection, notes)) for n, record in enumerate(records, 1))
    return frame_of_rows(rows), tuple(notes.messages())


# --- lines


def rows_of_lines(
    peek: Peek, selection: LineSelection, notes: LineNotes, only: Collection[int] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in numbered_lines(peek.path):
        if only is None or number in only:
            where = f"{peek.source}: line {number}"
            yield number, row_of(_parsed(line, where), where, selection, notes)


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    """The object on a line. Python's writer of JSON puts NaN where a metric has no value: that is none."""
    if b"NaN" in line or b"Infinity" in line:
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
    if name in ("resps", "filtered", "choices", "by_place", "by_text"):
        return pl.Series(name, values, dtype=TEXTS)
    if name == "loglik" or name.startswith("each."):
        return pl.Series(name, values, dtype=pl.List(pl.Float64))
    if name.startswith(METRIC):
        return pl.Series(name, values, dtype=pl.Float64)
    if not name.startswith(TAG):
        return pl.Series(name, values, dtype=pl.Boolean if name == "likelihood" else pl.String)
    # one type for a tag: what all its values are, else text
    kinds = {type(v) for v in values if v is not None}
    if kinds and kinds <= {int, float}:
        return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64)
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
    # of every request: objects `gen_args_0: {arg_0: ...}`, or lists of lists
    given = record.get("arguments")
    every = given.values() if isinstance(given, dict) else _listed(given)
    listed = [list(one.values()) if isinstance(one, dict) else _listed(one) for one in every]
    arguments = [one for one in listed if one]
    target = record.get("target")
    if is_likelihood(requests):
        row |= choice_row(requests, arguments, target, where)
    else:
        # of several requests of a document the first that has texts counts
        at = next((i for i, responses in enumerate(requests) if not is_likelihood([responses])), 0)
        notes.more_requests += len(requests) > 1
        filtered = _listed(record.get("filtered_resps"))
        made = filtered[at] if at < len(filtered) else None
        row |= {
            # as the tool's log has it: lists in the words of Python
            "target": str(target) if isinstance(target, (list, tuple)) else scalars.as_text(target),
            "resps": [scalars.as_text(text) for text in requests[at]] if requests else [],
            "filtered": None if made is None else [scalars.as_text(text) for text in _listed(made)],
        }
    if selection.input and arguments:
        row["input"] = scalars.as_text(arguments[0][0])
    document = record.get("doc")
    for name in selection.tags:
        value = document.get(name) if isinstance(document, dict) else None
        row[f"{TAG}{name}"] = scalars.as_text(value) if isinstance(value, (list, dict)) else value
    return row | {f"{METRIC}{name}": value for name, value in grades.items()}


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _grades(record: Mapping[str, Any], notes: LineNotes) -> dict[str, float | None]:
    """The tool's own grades; logs of older versions do not list their names."""
    names = record.get("metrics")
    names = names if isinstance(names, list) else [name for name in record if name not in FIXED]
    out: dict[str, float | None] = {}
    for name in map(str, names):
        value = record.get(name)
        try:  # also in words, for the tool writes what JSON does not know (numpy's values) as text
            out[name] = _WORDS[value] if isinstance(value, str) and value in _WORDS else scalars.as_number(value)
        except scalars.InvalidValue:
            out[name] = None
        if out[name] is not None:
            notes.kinds.setdefault(name, set()).add(type(value).__name__)
        elif value is not None and value == value:  # NaN is not
            notes.no_number[name] += 1
    return {name: value for name, value in out.items() if name not in notes.no_number or value is not None}
