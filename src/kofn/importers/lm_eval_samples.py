"""The samples of an lm-evaluation-harness log as columns: most lines by a fast reader, the rest one at a time.

Nearly all of a line is the prompt, which no number needs. Inside a JSON string every quote has a backslash before it,
so `, "resps": [["` is always a key, and the keys of a line stand in one order. What lies between those that matter is
put together into a smaller object, and polars decodes that. A document that has such keys itself is detected by a
second `"doc_id": `, or because the smaller object is not JSON. Lines that are not as the tool writes them are left to
the row reader (`lm_eval_rows`) by their numbers; so is the whole file where the sampled lines differ in layout, many
lines are irregular, or one does not decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from kofn.importers.jsonl import MixedTypes, check_lines, sample_lines
from kofn.importers.lm_eval_rows import FIXED, METRIC, TAG, TEXTS, LineNotes, frame_of_rows, read_by_row, rows_of_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from kofn.core.warnings import CodedWarning
    from kofn.importers.lm_eval_rows import LineSelection
    from kofn.importers.recognition import Peek

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
    frame = _collect(_scan(path, layout, selection), layout).with_row_index("line", offset=1)
    irregular = frame["irregular"]
    rest = frame["line"].filter(irregular).to_list() if irregular.any() else []
    if len(rest) > max(8, _MOST_IRREGULAR * frame.height):
        raise MixedTypes
    return _columns(frame.filter(~irregular) if rest else frame, layout, selection), frozenset(rest)


def _collect(lines: pl.LazyFrame, layout: _LineLayout) -> pl.DataFrame:
    """All lines, the responses copied as they come: a third of the buffers that polars decodes into is empty."""
    text = pl.col("resps") if layout.single else pl.element()
    copied = pl.concat_str(text, pl.lit(""))
    batches = lines.collect_batches(chunk_size=layout.batch, maintain_order=True, engine="streaming")
    exact = copied if layout.single else pl.col("resps").list.eval(copied)
    return pl.concat([batch.rechunk().with_columns(exact.alias("resps")) for batch in batches])


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
    lines = _cut(path, selection).with_columns(
        decoded=pl.col("small").str.json_decode(pl.Struct(_kinds(layout, selection)))
    )
    fields = _fields(layout, selection)
    own, responses = fields["filter"] == layout.filter, pl.col("responses")
    made = pl.concat_str(pl.lit('{"made": '), pl.when(own & ~_is_unfiltered(layout)).then("made"), pl.lit("}"))
    written = (
        pl.col(name).str.contains(s, literal=True) for name in ("small", "responses", "made") for s in _SURROGATES
    )
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


def _kinds(layout: _LineLayout, selection: LineSelection) -> dict[str, Any]:
    """What is decoded, and its type: a value of another type is an error, and the row reader reads the file."""
    kinds: dict[str, Any] = {"target": pl.String, "filter": pl.String}
    if layout.tags:
        kinds["doc"] = pl.Struct(dict.fromkeys(layout.tags, pl.String))
    if selection.input:
        kinds["arguments"] = pl.Struct({"gen_args_0": pl.Struct({"arg_0": pl.String})})
    return kinds | dict.fromkeys(layout.metrics, pl.Float64)


def _fields(layout: _LineLayout, selection: LineSelection) -> dict[str, pl.Expr]:
    """The columns that are fields of the decoded object, under the names of the row reader."""
    prompt = _field("arguments").struct.field("gen_args_0").struct.field("arg_0")
    return {
        **{name: _field(name) for name in ("filter", "target")},
        **({"input": prompt} if selection.input else {}),
        **{TAG + name: _field("doc").struct.field(name) for name in layout.tags},
        **{METRIC + name: _field(name) for name in layout.metrics},
    }


def _field(name: str) -> pl.Expr:
    return pl.col("decoded").struct.field(name)


def _is_unfiltered(layout: _LineLayout) -> pl.Expr:
    """Whether the filter left the response as it is, which then need not be decoded twice."""
    inner, made = pl.col("inner"), pl.col("made")
    bare = made.str.strip_prefix('"').str.strip_suffix('"')
    same = bare == inner
    # the first of several is no answer of each of them either
    return same if layout.single else same | inner.str.starts_with(bare + '", "')


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
    columns += [_as_kind(found[TAG + name], seen) for name, seen in layout.tags.items()]
    return pl.DataFrame([*columns, *found.select(METRIC + name for name in layout.metrics)])


def _as_kind(texts: pl.Series, kinds: frozenset[type]) -> pl.Series:
    """A field of documents, decoded as text, with the type that was seen; a value of another type is an error."""
    if kinds == {bool}:
        return texts.replace_strict(_TRUE_FALSE, return_dtype=pl.Boolean)
    if kinds == {int}:
        return texts.cast(pl.Int64)
    return texts.cast(pl.Float64) if kinds and kinds <= {int, float} else texts


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
