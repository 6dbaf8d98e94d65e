"""Extraction over a column: the shapes that most outputs have in polars, every other row by the extractor itself.

An output whose tail states its labelled answer needs no more than that tail: the last label wins, whatever comes
before. Two things could change that, a reasoning block and an invented next question, so rows with a sign of
either (and rows with unusual characters) go to the extractor. The result is that of the extractor for every row.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.extract.boxed import boxed
from kofn.extract.compatible import letter_first, letter_word_boundary, number_simple
from kofn.extract.labels import RUN_ON_PATTERN
from kofn.extract.letter import letter, options_of
from kofn.extract.mathematical import math
from kofn.extract.number import number
from kofn.extract.reasoning import TAG_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    Extractor = Callable[..., str | None]

SLICE_ROWS = 65_536
_TAIL_CHARACTERS = 96

_END = r"[ \n]*$"
_LABEL = r"(?:[ \n][Tt]he (?:final |correct )?answer is:? |[.!?\n] ?(?:Final )?Answer: ?)"
# canonical already, but for its commas: no leading zero, no trailing zero behind the point unless all are
_VALUE = r"(-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3}){1,5}|[1-9][0-9]{0,15}|0)(?:\.[0-9]{0,15}[1-9])?)(?:\.0{1,8})?"
_NUMBER_TAILS = (
    rf"{_LABEL}\*{{0,2}}\$?{_VALUE}%?(?: [a-z]{{1,20}}){{0,3}}\.?\*{{0,2}}{_END}",
    rf"\n#### ?\$?{_VALUE}{_END}",
    rf"[^\\]\\boxed\{{{_VALUE}\}}[$.)\\\] \n]*$",
)
_NOT_PLAIN = r"[^\x00-\x7f‘’“”—–…×÷°]|\r"
_GUARD = rf"(?i-u:{TAG_PATTERN}|{RUN_ON_PATTERN})|{_NOT_PLAIN}"


def extract_column(
    extractor: Extractor, texts: pl.Series, choices: Sequence[str] | pl.Series | None = None
) -> pl.Series:
    """`extractor` over every text: a String series, null where there is no text or no answer.

    `choices` is one list for all rows or a series of lists, one a row. An extractor without a columnar form, the
    user's own included, is called once for each different text (and choices).

    >>> import polars as pl
    >>> extract_column(number, pl.Series(["The answer is 42.", "#### 1,080", "none", None])).to_list()
    ['42', '1080', None, None]
    """
    import polars as pl

    if isinstance(choices, pl.Series):
        return _by_row(extractor, texts, choices)
    shape = _shape(extractor, choices)
    if shape is None:
        return _by_unique(extractor, texts, choices).alias(texts.name)
    slices = [texts.slice(start, SLICE_ROWS) for start in range(0, len(texts), SLICE_ROWS)]
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        parts = list(pool.map(lambda part: _by_shape(extractor, part, choices, shape), slices))
    return pl.concat(parts).alias(texts.name) if parts else pl.Series(texts.name, [], dtype=pl.String)


def _by_shape(
    extractor: Extractor, texts: pl.Series, choices: Sequence[str] | None, shape: pl.Expr
) -> pl.Series:
    """The answers the columnar form is sure of, and the extractor's for the other rows."""
    import polars as pl

    answers = texts.alias("text").to_frame().select(shape.alias("answer")).to_series()
    unsure = (answers.is_null() & texts.is_not_null()).arg_true()
    if len(unsure) == 0:
        return answers
    rest = _by_unique(extractor, texts.gather(unsure), choices)
    return answers.scatter(unsure, rest).cast(pl.String)


def _by_unique(extractor: Extractor, texts: pl.Series, choices: Sequence[str] | None) -> pl.Series:
    import polars as pl

    known: dict[str | None, str | None] = {None: None}
    for text in texts.unique().to_list():
        if text is not None:
            known[text] = _called(extractor, text, choices)
    return pl.Series(texts.name, [known[text] for text in texts.to_list()], dtype=pl.String)


def _by_row(extractor: Extractor, texts: pl.Series, choices: pl.Series) -> pl.Series:
    import polars as pl

    if len(choices) != len(texts):
        raise InputError(f"choices has {len(choices)} rows for {len(texts)} texts: give one list a text")
    known: dict[tuple[str, tuple[str, ...] | None], str | None] = {}
    answers: list[str | None] = []
    for text, row in zip(texts.to_list(), choices.to_list(), strict=True):
        if text is None:
            answers.append(None)
            continue
        key = (text, None if row is None else tuple(row))
        if key not in known:
            known[key] = _called(extractor, text, key[1])
        answers.append(known[key])
    return pl.Series(texts.name, answers, dtype=pl.String)


def _called(extractor: Extractor, text: str, choices: Sequence[str] | None) -> str | None:
    answer: Any = extractor(text) if choices is None else extractor(text, choices)
    if answer is not None and not isinstance(answer, str):
        name = getattr(extractor, "__name__", repr(extractor))
        raise InputError(f"extractor {name} returned {type(answer).__name__}, not text or None")
    return answer


def _shape(extractor: Extractor, choices: Sequence[str] | None) -> pl.Expr | None:
    """The columnar form of an extractor: its answer where the form is sure, null where it is not."""
    import polars as pl

    text = pl.col("text")
    if extractor is number:
        return _guarded(_canonical(_tail(*_NUMBER_TAILS)))
    if extractor in (boxed, math):
        return _guarded(_canonical(_tail(_NUMBER_TAILS[-1])))
    if extractor is letter:
        return _letter_shape(choices)
    if choices is None and extractor in (letter_first, letter_word_boundary):
        edge = r"\b" if extractor is letter_word_boundary else ""
        return pl.when(_ascii()).then(text.str.extract(rf"{edge}([A-Ea-e]){edge}", 1).str.to_uppercase())
    if extractor is number_simple:
        after = text.str.replace_all(",", "", literal=True).str.extract(r"([^=]*)$", 1)
        first = after.str.extract(r"^[^0-9]*?(-?(?:0|[1-9][0-9]{0,300}))(?:[^0-9]|$)", 1)
        return pl.when(_ascii()).then(first.replace("-0", "0"))
    return None


def _letter_shape(choices: Sequence[str] | None) -> pl.Expr | None:
    labels = "".join(options_of(choices).labels)
    if not (labels.isalpha() and labels.isascii()):
        return None
    tails = (
        rf"{_LABEL}\*{{0,2}}\(?([{labels}])\)?\.?\*{{0,2}}{_END}",
        rf"[^\\]\\boxed\{{([{labels}])\}}[$.)\\\] \n]*$",
    )
    return _guarded(_tail(*tails))


def _tail(*patterns: str) -> pl.Expr:
    import polars as pl

    tail = pl.col("text").str.tail(_TAIL_CHARACTERS)
    return pl.coalesce([tail.str.extract(pattern, 1) for pattern in patterns])


def _canonical(value: pl.Expr) -> pl.Expr:
    import polars as pl

    plain = value.str.replace_all(",", "", literal=True)
    return pl.when(plain != "-0").then(plain)


def _guarded(answer: pl.Expr) -> pl.Expr:
    import polars as pl

    return pl.when(~pl.col("text").str.contains(_GUARD)).then(answer)


def _ascii() -> pl.Expr:
    import polars as pl

    return pl.col("text").str.len_bytes() == pl.col("text").str.len_chars()
