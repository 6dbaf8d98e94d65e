"""Row reader of lm-evaluation-harness logs: parses one line at a time, in any version of the format.

A line is a document and a filter. Lines that the fast reader (`lm_eval_samples`) cannot be sure of, files whose lines
differ in layout, and samples in memory are read here.

Columns: line, id, target, resps (the candidates' texts), filtered (what the filter made of them), filter,
`metric.NAME`, and where there are any: input, `tag.NAME` (fields of the document), and those of `choice_row`.

In multiple choice by log-likelihood a request is one option; its responses are pairs (log-likelihood, whether it is the
greedy continuation), one per repeat. The candidate of a repeat is the chosen option: the likeliest, as the tool's `acc`
has it, the first of equal ones.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.extract.letter_answer import parse_choices
from kofn.importers import scalars
from kofn.importers.json_records import Columns, parse_line
from kofn.importers.long_form import mixed_types_note

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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

# --- multiple choice by log-likelihood


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
    labels = _labels(texts)
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
        shared = _shared([context for context, _ in pairs])
        whole = [context[shared:] for context, _ in pairs]
    return [text.strip() for text in whole], whole, n


def _shared(texts: Sequence[str]) -> int:
    """The length of the prefix that all texts share.

    >>> _shared(["He lost", "He left"])
    4
    """
    low, high = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))


def _labels(texts: list[str]) -> list[str]:
    """The options' labels; their texts where there are not enough letters, or two labels are equal."""
    labels = list(parse_choices(texts).labels)
    return labels if len(set(labels)) == len(texts) else texts


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
    target = record.get("target")
    return {
        # as the tool's log has it: lists in the words of Python
        "target": str(target) if isinstance(target, (list, tuple)) else scalars.as_text(target),
        "resps": [scalars.as_text(text) for text in requests[at]] if requests else [],
        "filtered": None if made is None else [scalars.as_text(text) for text in _listed(made)],
    }


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


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
