"""The quick reader of lm-evaluation-harness logs: each line is cut at its keys, and only what matters is decoded.

Nearly all of a line is the prompt, which no number needs. Inside a JSON string every quote has a backslash before it,
so `, "resps": [["` is always a key; the keys of a line stand in one order, and a document that has such keys itself is
seen by a second `"doc_id": `, or by the quotes that follow `"target": `. Between the cuts lie strings, whose escapes
are two characters each: one pass from left to right resolves them, finds where one string ends and the next begins, and
marks what it cannot resolve. Lines that are not as the tool writes them are left to the careful reader by their
numbers; where the sampled lines are not alike, or many are odd, the whole file is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from kofn.importers.lm_eval_lines import FIXED, METRIC, TAG
from kofn.importers.quick import TooMixed, sample_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from kofn.importers.lm_eval_lines import Wanted

_MOST_ODD = 0.05  # of the lines; where more are odd, all are read with care
_TRUE_FALSE = {"true": True, "false": False}
_START, _DOC, _TARGET = '{"doc_id": ', ', "doc": {', '}, "target": "'
_ARGUMENTS, _SETTINGS = ', "arguments": {"gen_args_0": {"arg_0": "', '", "arg_1": '
_RESPS, _FILTERED, _FILTER = ', "resps": [["', '"]], "filtered_resps": [', '], "filter": "'
# characters that stand for nothing: between two strings, and where something is to be looked at by itself
_NEXT, _ODD = "\ufffe", "\uffff"
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\/": "/", "\\b": "\b", "\\f": "\f"}
_RESOLVED = {'"': _ODD, "\\u": _ODD, **_ESCAPES}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What the sampled lines have in common: the names of metrics, and the kinds of the fields asked for.

    Responses are kept of one filter, for the other lines of a document repeat them. `single`: there is one a document.
    """

    metrics: tuple[str, ...]
    tags: Mapping[str, frozenset[type]]
    filter: str
    single: bool


def quick(path: Path, wanted: Wanted) -> tuple[pl.DataFrame, Collection[int]]:
    """The columns of the lines that are as the tool writes them, and the numbers of the others."""
    layout = _sampled(path, wanted)
    found = _read(path, layout, wanted).collect(engine="streaming").with_row_index("line", offset=1)
    found = _checked(found, layout)
    odd = found["odd"]
    rest = found["line"].filter(odd).to_list() if odd.any() else []
    if len(rest) > max(8, _MOST_ODD * found.height):
        raise TooMixed
    return _columns(found.filter(~odd) if rest else found, layout, wanted), frozenset(rest)


def _sampled(path: Path, wanted: Wanted) -> _Layout:
    metrics: tuple[str, ...] | None = None
    kinds: dict[str, set[type]] = {name: set() for name in wanted.tags}
    first, single = wanted.filter, True
    for line in sample_lines(path):
        record = _plain_record(line)
        names = tuple(record["metrics"])
        if metrics not in (None, names) or list(record) != [*FIXED, *names]:
            raise TooMixed
        if not all(isinstance(record[name], (int, float)) for name in names):
            raise TooMixed
        metrics, first = names, first or record["filter"]
        single = single and len(record["resps"][0]) == 1
        for name, seen in kinds.items():
            seen.add(type(record["doc"].get(name)))
    if not metrics or not isinstance(first, str):
        raise TooMixed
    tags = {name: frozenset(seen - {type(None)}) for name, seen in kinds.items()}
    if any(seen - {str, int, float, bool} or (len(seen) > 1 and seen != {int, float}) for seen in tags.values()):
        raise TooMixed
    return _Layout(metrics=metrics, tags=tags, filter=first, single=single)


def _plain_record(line: bytes) -> dict[str, Any]:
    """The object of a sampled line that is as the tool writes them: texts, and one request."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise TooMixed from None
    if not isinstance(record, dict) or not record.keys() >= set(FIXED) or not isinstance(record["metrics"], list):
        raise TooMixed
    resps = record["resps"]
    one = isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list)
    if not one or not isinstance(record["doc"], dict) or not all(isinstance(text, str) for text in resps[0]):
        raise TooMixed
    return record


def _read(path: Path, layout: _Layout, wanted: Wanted) -> pl.LazyFrame:
    """The columns of every line, responses and prompts decoded; `odd` where it must be looked at by itself."""
    own = pl.col("filter") == layout.filter
    responses, made = pl.col("responses"), pl.col("made")
    bare = made.str.strip_prefix('"').str.strip_suffix('"')
    same = bare == responses
    if not layout.single:  # the first of several is no answer of each of them either
        same |= responses.str.starts_with(bare + '", "')
    texts = {"resps": _resolved(pl.when(own).then(responses), several=not layout.single)}
    if wanted.input:
        texts["input"] = _resolved(pl.col("input"))
    odd = [
        *(pl.col(name).is_null() for name in ("target", "filter", "made", *_values(layout), *list(texts)[1:])),
        pl.col("head").str.contains('"doc_id": ', literal=True),
        *(pl.col(name).str.contains(_ODD, literal=True) for name in texts),
        *([] if layout.single else [responses.str.contains(_NEXT, literal=True)]),
    ]
    lines = _cut(path, layout, wanted).with_columns(filtered=pl.when(own & ~same).then(made), **texts)
    kept = ("id", "filter", "target", "filtered", *list(texts)[1:], *(["document"] if layout.tags else []))
    return lines.select(
        *(*kept, *_values(layout)),
        resps=pl.col("resps") if layout.single else pl.col("resps").str.split(_NEXT),
        odd=pl.any_horizontal(check.fill_null(value=False) for check in odd),
    )


def _cut(path: Path, layout: _Layout, wanted: Wanted) -> pl.LazyFrame:
    """The parts of every line as they are written; null where a key is not in its place.

    head: from after `doc_id` to the end of the target; rest: from the first response to the end.
    """
    begins, ends, target = pl.col("begins"), pl.col("ends"), pl.col("target")
    lines = pl.scan_lines(path).with_columns(begins=_place("line", _ARGUMENTS), ends=_place("line", _RESPS))
    in_order = pl.col("line").str.starts_with(_START) & (begins < ends)
    halves = {
        "head": _part("line", len(_START), pl.when(in_order).then(begins - len(_START))),
        "rest": _part("line", ends + len(_RESPS)),
    }
    if wanted.input:
        arguments = _part("line", begins + len(_ARGUMENTS), ends - begins - len(_ARGUMENTS))
        halves["arguments"] = pl.when(in_order).then(arguments)
    lines = lines.select(**halves)
    if wanted.input:
        lines = lines.with_columns(input=_part("arguments", 0, _place("arguments", _SETTINGS)))
    keys = _keys(layout)
    lines = lines.with_columns(
        doc=_place("head", _DOC),
        target=_place("head", _TARGET),
        **{name: _place("rest", k) for name, k in keys.items()},
    )
    names = list(keys)
    between = {
        name: _part("rest", pl.col(name) + len(keys[name].encode()), _distance(name, after, keys))
        for name, after in zip(names, [*names[1:], None], strict=True)
    }
    if layout.tags:
        inside = target - pl.col("doc") - len(_DOC)
        lines = lines.with_columns(document=_part("head", pl.col("doc") + len(_DOC) - 1, inside + 2))
    return lines.with_columns(
        id=_part("head", 0, pl.col("doc")),
        target=_without_end(_part("head", target + len(_TARGET)), '"'),
        responses=_part("rest", 0, pl.col("made")),
        **between | {names[-1]: _without_end(between[names[-1]], "}")},
    )


def _keys(layout: _Layout) -> dict[str, str]:
    """The keys after the responses in their order, under the names of what follows each."""
    listed = '", "metrics": ' + json.dumps(list(layout.metrics), ensure_ascii=False) + ', "doc_hash": "'
    grades = {name: f", {json.dumps(name.removeprefix(METRIC), ensure_ascii=False)}: " for name in _values(layout)}
    return {"made": _FILTERED, "filter": _FILTER, "hashes": listed, **grades}


def _values(layout: _Layout) -> list[str]:
    return [METRIC + name for name in layout.metrics]


def _distance(name: str, after: str | None, keys: Mapping[str, str]) -> pl.Expr | None:
    """How long what follows a key is; null where the next key stands before it."""
    if after is None:
        return None
    length = pl.col(after) - pl.col(name) - len(keys[name].encode())
    return pl.when(length >= 0).then(length)


def _place(column: str, key: str) -> pl.Expr:
    return pl.col(column).str.find(key, literal=True).cast(pl.Int64)


def _part(column: str, offset: pl.Expr | int, length: pl.Expr | None = None) -> pl.Expr:
    return pl.col(column).cast(pl.Binary).bin.slice(offset, length).cast(pl.String)


def _without_end(text: pl.Expr, end: str) -> pl.Expr:
    """Values without what each must end with; null where one does not."""
    return pl.when(text.str.ends_with(end)).then(text.str.strip_suffix(end))


def _resolved(text: pl.Expr, *, several: bool = False) -> pl.Expr:
    """Texts without their escapes; with several in one, the places between them are marked."""
    marks = {'", "': _NEXT, **_RESOLVED} if several else _RESOLVED
    return text.str.replace_many(list(marks), list(marks.values()), leftmost=True)


def _checked(found: pl.DataFrame, layout: _Layout) -> pl.DataFrame:
    """The short columns decoded, and `odd` also where one of them is not what it should be."""
    made = pl.col("filtered")
    listed = made.str.starts_with('["') & made.str.ends_with('"]')
    single = made.str.starts_with('"') & made.str.ends_with('"') & ~made.str.contains('", "', literal=True)
    bare = made.str.strip_prefix("[").str.strip_suffix("]").str.strip_prefix('"').str.strip_suffix('"')
    strange = [pl.col("filter").str.contains("\\", literal=True), made.is_not_null() & ~(listed | single)]
    strange += [pl.col("id").cast(pl.Int64, strict=False).is_null(), made.str.contains(_NEXT, literal=True)]
    decoded = [_resolved(pl.col("target")), _resolved(bare, several=not layout.single)]
    found = found.with_columns(*decoded, *map(_grade, layout.metrics), more=pl.any_horizontal(strange))
    marked = [text.str.contains(_ODD, literal=True) for text in (pl.col("target"), made)]
    no_number = [pl.col(name).is_nan() for name in _values(layout)]
    odd = (pl.col("odd", "more"), *marked, *no_number)
    return found.with_columns(odd=pl.any_horizontal(*odd).fill_null(value=False)).drop("more")


def _grade(name: str) -> pl.Expr:
    """A number, true or false. What Python writes for no number is none, and what is none of these becomes NaN."""
    value = pl.col(METRIC + name)
    number = value.cast(pl.Float64, strict=False).fill_null(float("nan"))
    number = pl.when(value == "true").then(1.0).when(value == "false").then(0.0).otherwise(number)
    return pl.when(~value.is_in(["null", "NaN", "Infinity", "-Infinity"])).then(number).alias(METRIC + name)


def _columns(found: pl.DataFrame, layout: _Layout, wanted: Wanted) -> pl.DataFrame:
    """The columns by the names and of the types of the careful reader."""
    if not found.height:
        raise TooMixed
    resps, made = found["resps"], found["filtered"]
    if layout.single:
        made = made.fill_null(resps) if made.null_count() < made.len() else resps
        resps, made = (texts.reshape((-1, 1)).arr.to_list() for texts in (resps, made))
    else:
        made = made.str.split(_NEXT)
        made = made.zip_with(made.is_not_null(), resps)
    columns = [found["line"].cast(pl.Int64), *found.select("id", "filter", "target"), resps, made.alias("filtered")]
    if wanted.input:
        columns.append(found["input"])
    if layout.tags:
        kinds = pl.Struct(dict.fromkeys(layout.tags, pl.String))
        document = found["document"].str.json_decode(kinds)
        columns += [_as_kind(document.struct.field(t), seen).alias(TAG + t) for t, seen in layout.tags.items()]
    return pl.DataFrame([*columns, *found.select(METRIC + name for name in layout.metrics)])


def _as_kind(texts: pl.Series, kinds: frozenset[type]) -> pl.Series:
    """A field of documents, decoded as text, with the type that was seen; a value of another type is an error."""
    if kinds == {bool}:
        return texts.replace_strict(_TRUE_FALSE, return_dtype=pl.Boolean)
    if kinds == {int}:
        return texts.cast(pl.Int64)
    return texts.cast(pl.Float64) if kinds and kinds <= {int, float} else texts
