"""Importer of lighteval detail files: Parquet with one row per document and all its predictions."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers.base import Importer, reject_damaged, reject_malformed
from kofn.importers.log_table import LogFacts, LogRow
from kofn.importers.recognition import LIGHTEVAL_COLUMNS, LIGHTEVAL_OLD_COLUMNS, is_lighteval, lighteval_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_OLD_FORM = (*LIGHTEVAL_OLD_COLUMNS, "example", "gold", "gold_index", "choices", "cont_tokens", "input_tokens")
_FILE = re.compile(r"details_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.-]+\.parquet")
_LOWER = re.compile(r"perplexity|ppl|bits_per_byte|^(ter|wer|cer)$", re.IGNORECASE)


def read(peek: Peek, options: ReadOptions) -> Table:
    """One set per document: all its predictions.

    The metrics of a document with one prediction are labels. Of several predictions the tool keeps one value for all of
    them (pass@k, maj@n), which is a tag. Where options were compared by likelihood the likeliest is the output.
    """
    docs = _docs(peek)
    counts: Counter[str] = Counter()
    with reject_malformed(peek.source, "lighteval"):
        rows = list(_rows(docs, counts))
    labels = {name.removeprefix("label."): True for row in rows for name in row.values if name.startswith("label.")}
    return LogFacts(
        source=peek.source,
        form="lighteval details",
        labels={name: not _LOWER.search(name) for name in labels},
        notes=tuple(_notes(docs, counts)),
        origin={"tool": "lighteval", **_origin(peek, docs)},
        fields={"id": "document", "text": "predictions", "reference": "gold"},
    ).table(rows, options)


class _Doc:
    """One document, whatever the form of its file."""

    def __init__(self, doc: Mapping[str, Any], response: Mapping[str, Any], metrics: Any, number: int) -> None:
        self.number, self.task = number, doc.get("task_name")
        self.id = str(doc.get("id") or number)
        self.query = doc.get("query")
        self.texts = _listed(response.get("text"))
        self.final = _listed(response.get("text_post_processed")) or self.texts
        self.reasonings = _listed(response.get("reasonings"))
        self.likelihoods = _listed(response.get("logprobs"))
        self.tokens = _listed(response.get("output_tokens"))
        self.tokens_in = response.get("input_tokens")
        self.metrics = _plain(metrics) or {}
        self.choices = [str(one) for one in _listed(doc.get("choices"))]
        index = doc.get("gold_index")
        places = index if isinstance(index, list) else [index]
        self.golds = [self.choices[i] for i in places if isinstance(i, int) and 0 <= i < len(self.choices)] or None


def _docs(peek: Peek) -> list[_Doc]:
    names = lighteval_columns(peek)
    if names is None and not set(LIGHTEVAL_OLD_COLUMNS) <= set(peek.columns):
        found = ", ".join(list(peek.columns)[:8]) or "no columns"
        expected = f"{', '.join(LIGHTEVAL_COLUMNS)} or {', '.join(LIGHTEVAL_OLD_COLUMNS)}"
        raise InputError(f"{peek.source}: no lighteval details: expected {expected}, found {found}")
    with reject_damaged(peek.source):
        frame = pl.read_parquet(peek.path, columns=list(names or (c for c in _OLD_FORM if c in peek.columns)))
        if names is None:
            frame = _lengths(frame, ("cont_tokens", "input_tokens"))
        else:
            frame = frame.rename(dict(zip(names, LIGHTEVAL_COLUMNS, strict=True)))
            # without the tokens themselves, which are most of such a file: how many there are is enough
            if isinstance(frame.schema["model_response"], pl.Struct):
                inner = frame["model_response"].struct.unnest().drop("logits", strict=False)
                inner = _lengths(inner, ("output_tokens", "input_tokens"))
                frame = frame.with_columns(inner.to_struct("model_response"))
        docs = []
        for number, row in enumerate(frame.iter_rows(named=True)):
            with reject_malformed(f"{peek.source}: row {number + 1}", "lighteval"):
                if names is None:
                    docs.append(_old(row, number))
                else:
                    doc, response = _plain(row["doc"]) or {}, _plain(row["model_response"]) or {}
                    docs.append(_Doc(doc, response, row["metric"], number))
        return docs


def _lengths(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Lists of tokens replaced by their lengths: a number for a list, a list of numbers for a list of lists."""
    for name in names:
        dtype = frame.schema.get(name)
        if isinstance(dtype, pl.List):
            nested = isinstance(dtype.inner, pl.List)
            column = pl.col(name)
            frame = frame.with_columns(column.list.eval(pl.element().list.len()) if nested else column.list.len())
    return frame


def _old(row: Mapping[str, Any], number: int) -> _Doc:
    """A row of the form until 0.10: predictions are texts, or likelihoods, each alone or with whether it is greedy."""
    predictions = _listed(row["predictions"])
    texts = all(isinstance(one, str) for one in predictions)
    numbers = [one[0] if isinstance(one, (list, tuple)) and one else one for one in predictions]
    doc = {**row, "query": row.get("full_prompt") or row.get("example")}
    response = {
        "text": predictions if texts else [],
        "logprobs": [] if texts else numbers,
        "output_tokens": _listed(row.get("cont_tokens")) if texts else [],
    }
    made = _Doc(doc, response, row["metrics"], number)
    made.golds = [str(one) for one in _listed(row.get("gold"))] or made.golds
    return made


def _rows(docs: Sequence[_Doc], counts: Counter[str]) -> Iterator[LogRow]:
    for doc in docs:
        case = {"id": doc.id, "input": doc.query, "reference": doc.golds}
        candidates = list(_candidates(doc))
        kind = "label" if len(candidates) == 1 else "tag"
        grades = _grades(doc.metrics, counts)
        counts["sets"] += kind == "tag" and bool(grades)
        for repeat, candidate in enumerate(candidates or [{"error": "no prediction"}]):
            graded = {f"{kind}.{name}": value for name, value in grades.items()}
            yield LogRow(f"row {doc.number + 1}", {**case, "repeat": repeat, **candidate, **graded})


def _candidates(doc: _Doc) -> Iterator[dict[str, Any]]:
    """Every text; without any, the likeliest option."""
    for i, text in enumerate(doc.final):
        raw = doc.texts[i] if i < len(doc.texts) else text
        reasoning = doc.reasonings[i] if i < len(doc.reasonings) else None
        yield {
            "text": text,
            "reasoning": reasoning or (raw if raw != text else None),
            "tokens": doc.tokens[i] if i < len(doc.tokens) and isinstance(doc.tokens[i], int) else None,
            "tokens_in": doc.tokens_in if isinstance(doc.tokens_in, int) else None,
        }
    if not doc.final and doc.choices and len(doc.likelihoods) == len(doc.choices):
        likeliest = max(range(len(doc.choices)), key=lambda i: doc.likelihoods[i])
        yield {"text": doc.choices[likeliest], "answer": doc.choices[likeliest].strip()}


def _grades(metrics: Mapping[str, Any], counts: Counter[str]) -> dict[str, float]:
    """The metrics that are one number; a corpus metric keeps something else for each document, which is counted."""
    grades = {}
    for name, value in metrics.items():
        one = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(one, (bool, int, float)) and math.isfinite(one):
            grades[name] = float(one)
        elif one is not None:
            counts[f"metric {name}"] += 1
    return grades


def _notes(docs: Sequence[_Doc], counts: Mapping[str, int]) -> Iterator[CodedWarning]:
    if n := counts["sets"]:
        yield CodedWarning.of("log-grades-otherwise", about="sets", n=n, of=len(docs))
    if any(not doc.final and doc.likelihoods for doc in docs):
        yield CodedWarning.of("log-grades-otherwise", about="likelihood")
    for name, n in counts.items():
        if name.startswith("metric "):
            yield CodedWarning.of("left-out-of-log", about="documents", metric=name.removeprefix("metric "), n=n)


def _origin(peek: Peek, docs: Sequence[_Doc]) -> dict[str, Any]:
    """Task and model, where the documents or the folders of the file say so: details/ORG/MODEL/DATE/details_TASK_..."""
    match = _FILE.fullmatch(peek.path.name)
    tasks = {str(doc.task) for doc in docs if doc.task}
    task = tasks.pop() if len(tasks) == 1 else match["task"] if match else None
    parts = peek.path.parts
    model = "/".join(parts[parts.index("details") + 1 : -2]) if match and "details" in parts[:-3] else None
    return {key: value for key, value in {"task": task, "model": model}.items() if value}


def _plain(value: Any) -> Any:
    """The value of a cell; some versions wrote nested values as Python text.

    >>> _plain("['a', 'b']"), _plain({"acc": 1}), _plain("text")
    (['a', 'b'], {'acc': 1}, 'text')
    """
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
    return value


def _listed(value: Any) -> list[Any]:
    plain = _plain(value)
    if plain is None:
        return []
    return list(plain) if isinstance(plain, (list, tuple)) else [plain]


IMPORTER = Importer(
    name="lighteval", what="lighteval details_*.parquet, all predictions", recognises=is_lighteval, read=read
)
