"""The default extractor for a set of outputs, the agreement of several, and extraction over a whole column.

Common shapes of outputs are extracted in polars, every other row by the extractor itself. An output whose tail states
its labelled answer needs no more than that tail: the last label wins, whatever comes before. Two things could change
that, a reasoning block and an invented next question, so rows with a sign of either (and rows with unusual
characters) go to the extractor. Every row's result is the extractor's.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from operator import eq
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from kofn.core.numbers import numbers_equal, parse_number, truth_value
from kofn.errors import CallFailed, InputError
from kofn.extract.answer_labels import RUN_ON_LINE, WORDS, boxed
from kofn.extract.compatible import letter_first, letter_word_boundary
from kofn.extract.labelled_answer import has_labelled_text
from kofn.extract.letter_answer import labels_of_references, letter, names_labelled_option, parse_choices
from kofn.extract.number_answer import has_labelled_number, math, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Extractor = Callable[..., str | None]
    Shape = Callable[[pl.Series], pl.Series]

_OPTION = re.compile(r"\s*[(\[]?[A-Z][)\]]?[.):]?\s*|\s*[(\[][a-z][)\]]\s*")
_LATEX = re.compile(r"\\[A-Za-z]+|[\^_]\{|\$[^$]+\$")
_PHRASE = 200  # characters of a reference that is a phrase: names, dates, sorted lists of words
_SOME = 0.3  # share of outputs with a label from which labels are what outputs answer by
_FEW, _FEW_WORDS = 12, 3  # possible answers, and words of each
_SAMPLE = 300  # references and texts looked at: enough for shares of 0.1 and 0.9


class ExtractorChoice(NamedTuple):
    """An extractor's name, and why it was chosen in a few words."""

    name: str
    reason: str


def choose_extractor(references: Sequence[str], texts: Sequence[str], choices: bool = False) -> ExtractorChoice:
    r"""The default extractor for outputs with these references; without references, for these texts.

    Options, or references that are single letters of options: `letter`. At least nine in ten references numbers (or
    solutions that end in "#### 18"): `number`, unless some are not and most outputs hold a box, which means `math`.
    LaTeX in one reference of ten, or a box in most outputs: `math`. Words or short phrases as references:
    `labelled_text`, where at least three outputs in ten label an answer, or where the references are a few words
    ("yes", "no") and the outputs longer. Else `text`, which compares the whole output. Without references: what most
    texts hold, a box, a labelled number or a labelled letter. Only the first few hundred of each are looked at.

    >>> choose_extractor(["1,080", "3/4"], ["The answer is 1080."])
    ExtractorChoice(name='number', reason='2 of 2 references are numbers')
    >>> choose_extractor(["yes", "no"], ["So the answer is no."]).name
    'labelled_text'
    >>> choose_extractor([], [r"so $\boxed{x}$", r"\boxed{y}"])
    ExtractorChoice(name='math', reason='2 of 2 outputs hold \\boxed')
    """
    references, texts = references[:_SAMPLE], texts[:_SAMPLE]
    if choices:
        return ExtractorChoice("letter", "the cases have options")
    if not references:
        return _by_texts(texts)

    def share(test: Callable[[str], object]) -> int:
        return sum(bool(test(reference)) for reference in references)

    total = len(references)
    letters = share(_OPTION.fullmatch)
    if letters >= 0.9 * total and labels_of_references([r for r in references if _OPTION.fullmatch(r)]):
        return ExtractorChoice("letter", f"{letters} of {total} references are single letters")
    in_boxes = ExtractorChoice("math", f"{(n_boxed := _boxed(texts))} of {len(texts)} outputs hold \\boxed")
    most_boxed = n_boxed > len(texts) / 2
    # a number, or a whole solution that ends in "#### 18"
    if (numbers := share(lambda text: parse_number(text.rpartition("####")[2]) is not None)) >= 0.9 * total:
        if numbers < total and most_boxed:
            return in_boxes
        return ExtractorChoice("number", f"{numbers} of {total} references are numbers")
    if (latex := share(_LATEX.search)) >= 0.1 * total:
        return ExtractorChoice("math", f"{latex} of {total} references hold LaTeX")
    if most_boxed:
        return in_boxes
    return _by_phrases(references, texts) or ExtractorChoice(
        "text", f"{numbers} of {total} references are numbers, {letters} are single letters"
    )


def _by_phrases(references: Sequence[str], texts: Sequence[str]) -> ExtractorChoice | None:
    """`labelled_text` where references are phrases that the outputs can hold as their labelled answer."""
    short = sum(len(reference) <= _PHRASE and "\n" not in reference.strip() for reference in references)
    if not texts or short < 0.9 * len(references):
        return None
    # outputs that are answers by themselves need no label
    longer = sum(len(text.strip()) > 2 * _PHRASE or text.strip().count(" ") > 5 for text in texts) > len(texts) / 2
    labelled = sum(map(has_labelled_text, texts))
    if labelled >= _SOME * len(texts):
        return ExtractorChoice("labelled_text", f"{labelled} of {len(texts)} outputs label an answer")
    words = possible_answers(references)
    if longer and words and all(truth_value(word) is not None for word in words):
        return ExtractorChoice("labelled_text", f"all references are {' or '.join(words)}")
    return None


def possible_answers(references: Sequence[str]) -> tuple[str, ...] | None:
    """The different references where they are a few words that repeat, so that an answer is one of them; else None.

    >>> possible_answers(["Yes", "No", "Yes", "No"]), possible_answers(["Paris", "London"])
    (('Yes', 'No'), None)
    """
    words = tuple(dict.fromkeys(reference.strip() for reference in references))
    known = all(truth_value(word) is not None for word in words)
    few = 1 < len(words) <= _FEW and (known or 4 * len(words) <= len(references))
    return words if few and all(word and len(word.split()) <= _FEW_WORDS for word in words) else None


def _by_texts(texts: Sequence[str]) -> ExtractorChoice:
    counts = {
        ("math", "hold \\boxed"): _boxed(texts),
        ("number", "label a number"): sum(map(has_labelled_number, texts)),
        ("letter", "label an option"): sum(map(names_labelled_option, texts)),
    }
    for (name, what), count in counts.items():
        if count > len(texts) / 2:
            return ExtractorChoice(name, f"{count} of {len(texts)} outputs {what}")
    return ExtractorChoice("text", "no references, and most outputs label no answer")


def _boxed(texts: Sequence[str]) -> int:
    return sum("\\boxed" in text for text in texts)


# --- agreement: extraction errors often exceed the difference between models


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The answers of several extractors on the same outputs, compared.

    `agreement[a][b]` is the share of rows where a and b give the same answer, none included; `failure_rate`
    the share without an answer; `score` the share equal to its reference, None without references; `span` the
    highest score less the lowest; `disagreements` the rows on which not all agree.
    """

    n: int
    agreement: Mapping[str, Mapping[str, float]]
    failure_rate: Mapping[str, float]
    score: Mapping[str, float] | None
    span: float | None
    disagreements: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, ready for JSON."""
        return {**asdict(self), "disagreements": list(self.disagreements)}


def audit(
    texts: Sequence[str | None],
    extractors: Mapping[str, Callable[..., str | None]],
    references: Sequence[str | None] | None = None,
    equal: Callable[[str, str], bool] | None = None,
    choices: Sequence[str] | Sequence[Sequence[str] | None] | None = None,
) -> Audit:
    """Run every extractor on every text and compare them with each other and with the references.

    `choices` is one list for all rows or a list of lists, one a row. A row without a reference is scored by
    none; `equal` compares an answer with a reference, by value where the reference is a number, else as text
    without regard to case.

    >>> from kofn.extract import number, number_simple
    >>> result = audit(["2 + 2 = 4", "Answer: 5 (x = 1)"], {"a": number, "b": number_simple}, ["4", "5"])
    >>> result.score, result.span, result.disagreements
    ({'a': 1.0, 'b': 0.5}, 0.5, (1,))
    """
    if not extractors:
        raise InputError("audit needs at least one extractor")
    if references is not None and len(references) != len(texts):
        raise InputError(f"audit got {len(references)} references for {len(texts)} texts")
    if choices is not None and not all(isinstance(choice, str) for choice in choices):
        if len(choices) != len(texts):
            raise InputError(f"audit got {len(choices)} lists of choices for {len(texts)} texts")
        rows: Sequence[Any] = choices
    else:
        rows = [choices] * len(texts)  # one list of labels for all rows
    answers = {
        name: [None if text is None else extractor(text, row) for text, row in zip(texts, rows, strict=True)]
        for name, extractor in extractors.items()
    }
    score, same = None, equal or same_answer
    if references is not None:
        graded = [(i, reference) for i, reference in enumerate(references) if reference is not None]
        score = {
            name: _share(((a := row[i]) is not None and same(a, reference) for i, reference in graded), len(graded))
            for name, row in answers.items()
        }
    return Audit(
        n=len(texts),
        agreement={a: {b: _share(map(eq, answers[a], answers[b]), len(texts)) for b in answers} for a in answers},
        failure_rate={name: _share((one is None for one in row), len(texts)) for name, row in answers.items()},
        score=score,
        span=max(score.values()) - min(score.values()) if score else None,
        disagreements=tuple(i for i, row in enumerate(zip(*answers.values(), strict=True)) if len(set(row)) > 1),
    )


def same_answer(answer: str, reference: str) -> bool:
    """Equality by value where the reference is a number, else as trimmed text without regard to case.

    >>> same_answer("1080", "1,080.00"), same_answer("paris", " Paris")
    (True, True)
    """
    if parse_number(reference) is not None:
        return numbers_equal(answer, reference)
    return answer.strip().casefold() == reference.strip().casefold()


def _share(flags: Iterable[bool], n: int) -> float:
    return sum(flags) / n if n else 0.0


SLICE_ROWS = 65_536  # rows per task of the thread pool
_TAIL_CHARACTERS = 80  # of an output: nearly all labelled answers stand in them, and a pattern over them is quick

_END = r"[ \n]*$"
_LABEL = r"(?:[ \n][Tt]he (?:final |correct )?answer is:? |[.!?\n] ?(?:Final )?Answer: ?)"
# canonical but for its commas: no leading zero, no trailing zero behind the point unless all are
_VALUE = r"(-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3}){1,5}|[1-9][0-9]{0,15}|0)(?:\.[0-9]{0,15}[1-9])?)(?:\.0{1,8})?"
_NUMBER_TAILS = (
    rf"{_LABEL}\*{{0,2}}\$?{_VALUE}%?(?: [a-z]{{1,20}}){{0,3}}\.?\*{{0,2}}{_END}",
    rf"\n#### ?\$?{_VALUE}{_END}",
    rf"[^\\]\\boxed\{{{_VALUE}\}}[$.)\\\] \n]*$",
)
# signs of a reasoning block or of a new question; each pattern begins with a literal, which the regex engine finds fast
_NEW_QUESTION = (rf"(?i-u:{RUN_ON_LINE})", r"(?i-u:\[/?inst\])")
_GUARDS = (*_NEW_QUESTION, r"<[|/A-Za-z]", "\r")
# anything that could label a number or hide it; ASCII words alone, for other texts go to the extractor
_LABEL_GUARDS = (
    rf"(?:^|[^A-Za-z0-9])(?i-u:{'|'.join(word for word in WORDS if word.isascii())})",
    r"####|A:|[\\<\r]",
    *_NEW_QUESTION,
)
_UNSIGNED = _VALUE.replace("-?", "", 1)
_WHOLE = rf"^\$?{_UNSIGNED}\.?$"
# nor may a number stand before it: "1 234 567" is one
_LAST = rf"[^-+/^*xX. \n$0-9][ \n]=?\$?{_UNSIGNED}(?: [a-z]{{1,20}}){{0,4}}[.!]?{_END}"
# a number of several points (1.2.0) could be taken for another, and "5 million" or "in 5 days" for 5
_OTHERWISE = (
    r"[0-9]\.[0-9]+\.[0-9]"
    r"|[0-9][ -]?(?:(?i:hundred|thousand|million|billion|trillion)|[kKMB]|bn|mn)(?-u:\b)"
    r"|(?i:in|per|for|over|after|every|each|within|during|by|first|last|next)[ \n][0-9.,$]+"
    r" (?i:second|minute|hour|day|week|month|quarter|year|decade)"
)
_TEXT = pl.col("text")
_UNUSUAL = r"[^\x00-\x7f‘’“”—–…×÷°]"


def extract_column(
    extractor: Extractor, texts: pl.Series, choices: Sequence[str] | pl.Series | None = None
) -> pl.Series:
    """`extractor` over every text: a String series, null where there is no text or no answer.

    `choices` is one list for all rows or a series of lists, one a row. An extractor without a columnar form,
    the user's own included, is called once for each different text (and choices).

    >>> import polars as pl
    >>> extract_column(number, pl.Series(["The answer is 42.", "#### 1,080", "none", None])).to_list()
    ['42', '1080', None, None]
    """
    from concurrent.futures import ThreadPoolExecutor

    if isinstance(choices, pl.Series):
        return _by_row(extractor, texts, choices)
    shape = _shape(extractor, choices)
    if shape is None:
        return _by_text(extractor, texts, choices)

    def read(part: pl.Series) -> pl.Series:
        """The answers the columnar form is sure of, and the extractor's for the other rows."""
        answers = shape(part)
        unsure = (answers.is_null() & part.is_not_null()).arg_true()
        return answers.scatter(unsure, _by_text(extractor, part.gather(unsure), choices)) if len(unsure) else answers

    slices = [texts.slice(start, SLICE_ROWS) for start in range(0, len(texts), SLICE_ROWS)]
    # two threads: polars itself uses all cores for a pattern, and the extractor holds the interpreter lock
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        parts = list(pool.map(read, slices))
    return pl.concat(parts).alias(texts.name) if parts else pl.Series(texts.name, [], dtype=pl.String)


def _by_text(extractor: Extractor, texts: pl.Series, choices: Sequence[str] | None) -> pl.Series:
    known: dict[str | None, str | None] = {None: None}  # equal outputs are read once
    answers: list[str | None] = []
    for row, text in enumerate(texts):
        if text not in known:
            known[text] = _call_extractor(extractor, text, choices, row)
        answers.append(known[text])
    return pl.Series(texts.name, answers, dtype=pl.String)


def _by_row(extractor: Extractor, texts: pl.Series, choices: pl.Series) -> pl.Series:
    if len(choices) != len(texts):
        raise InputError(f"choices has {len(choices)} rows for {len(texts)} texts: give one list a text")
    known: dict[tuple[str, tuple[str, ...] | None], str | None] = {}
    answers: list[str | None] = []
    for row, (text, labelled) in enumerate(zip(texts.to_list(), choices.to_list(), strict=True)):
        if text is None:
            answers.append(None)
            continue
        key = (text, None if labelled is None else tuple(labelled))
        if key not in known:
            known[key] = _call_extractor(extractor, text, key[1], row)
        answers.append(known[key])
    return pl.Series(texts.name, answers, dtype=pl.String)


def _call_extractor(extractor: Extractor, text: str, choices: Sequence[str] | None, row: int) -> str | None:
    name = getattr(extractor, "__name__", repr(extractor))
    try:
        answer: Any = extractor(text) if choices is None else extractor(text, choices)
    except InputError:
        raise
    except Exception as problem:  # whatever a user's function raises is about that function and this output
        short = f"{text!r:.40}"
        raise CallFailed(f"extractor {name} failed on {short}: {type(problem).__name__}: {problem}", row) from problem
    if answer is not None and not isinstance(answer, str):
        raise InputError(f"extractor {name} returned {type(answer).__name__}, not text or None")
    return answer


def _shape(extractor: Extractor, choices: Sequence[str] | None) -> Shape | None:
    """The columnar form of an extractor: its answer where the form is sure, null where it is not."""
    if extractor is number:
        return _number_shape
    if extractor in (boxed, math):
        return lambda texts: _canonical(_tail_answers(texts, _NUMBER_TAILS[-1:]))
    if extractor is letter:
        return _letter_shape(choices)
    if choices is None and extractor in (letter_first, letter_word_boundary):
        edge = r"\b" if extractor is letter_word_boundary else ""
        return lambda texts: _ascii_only(texts).str.extract(rf"{edge}([A-Ea-e]){edge}", 1).str.to_uppercase()
    return None


def _number_shape(texts: pl.Series) -> pl.Series:
    """The labelled number of the tail; for a text that cannot hold a label, the number it ends with."""
    answers = _tail_answers(texts, _NUMBER_TAILS)
    left = (answers.is_null() & texts.is_not_null()).arg_true()
    return _canonical(answers.scatter(left, _last_numbers(texts.gather(left))) if len(left) else answers)


def _last_numbers(texts: pl.Series) -> pl.Series:
    """The number that ends a text in which nothing can label another, null where that is not certain."""
    plain = _where(_ascii_only(texts), ~pl.any_horizontal(_TEXT.str.contains(guard) for guard in _LABEL_GUARDS))
    tail, short = pl.col("tail"), _TEXT.str.len_bytes() <= _TAIL_CHARACTERS  # then the tail is the text
    whole = pl.when(short).then(tail.str.extract(_WHOLE, 1))
    frame = pl.DataFrame({"text": plain, "tail": _tails(plain)})
    return frame.select(pl.coalesce(whole, tail.str.extract(_LAST, 1))).to_series()


def _letter_shape(choices: Sequence[str] | None) -> Shape | None:
    options = parse_choices(choices)
    labels = "".join(options.labels)
    # an option's text that ends with a label, such as "(b)" or "Vitamin C", may be what a tail says
    ends_alike = re.compile(rf"(?<![A-Za-z0-9])[{labels}]\W*\Z", re.IGNORECASE)
    if not (labels.isalpha() and labels.isascii()) or any(map(ends_alike.search, options.texts)):
        return None
    tails = (
        rf"{_LABEL}\*{{0,2}}\(?([{labels}])\)?\.?\*{{0,2}}{_END}",
        rf"[^\\]\\boxed\{{([{labels}])\}}[$.)\\\] \n]*$",
    )
    return lambda texts: _tail_answers(texts, tails)


def _tail_answers(texts: pl.Series, patterns: Sequence[str]) -> pl.Series:
    """The match of the first pattern that matches, in the tails of the rows without a guard's sign."""
    tails = _tails(_unguarded(texts))
    answers = tails.str.extract(patterns[0], 1)
    for pattern in patterns[1:]:
        left = (answers.is_null() & tails.is_not_null()).arg_true()
        if len(left):
            answers = answers.scatter(left, tails.gather(left).str.extract(pattern, 1))
    return answers


def _tails(texts: pl.Series) -> pl.Series:
    """The ends of the texts, null where a number in them may mean another."""
    return _where(texts.str.tail(_TAIL_CHARACTERS), ~_TEXT.str.contains(_OTHERWISE))


def _unguarded(texts: pl.Series) -> pl.Series:
    """The texts, null where a reasoning block, a new question or an unusual character may be."""
    texts = _where(texts, ~pl.any_horizontal(_TEXT.str.contains(guard) for guard in _GUARDS))
    other = (texts.str.len_bytes() != texts.str.len_chars()).arg_true()
    if len(other) == 0:
        return texts
    unusual = other.filter(texts.gather(other).str.contains(_UNUSUAL))
    return texts.scatter(unusual, None) if len(unusual) else texts


def _canonical(values: pl.Series) -> pl.Series:
    return values.str.replace_all(",", "", literal=True).replace("-0", None)


def _ascii_only(texts: pl.Series) -> pl.Series:
    return _where(texts, _TEXT.str.len_bytes() == _TEXT.str.len_chars())


def _where(texts: pl.Series, condition: pl.Expr) -> pl.Series:
    """The texts that a condition on `_TEXT` holds for, null for the others."""
    return texts.alias("text").to_frame().select(pl.when(condition).then(_TEXT)).to_series()
