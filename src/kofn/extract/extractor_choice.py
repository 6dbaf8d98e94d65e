"""The default extractor for a set of outputs, and the agreement of several extractors on the same outputs."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from operator import eq
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.core.numbers import numbers_equal, parse_number
from kofn.errors import InputError
from kofn.extract.letter_answer import names_labelled_option
from kofn.extract.number_answer import has_labelled_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_OPTION = re.compile(r"\s*\(?[A-J]\)?[.):]?\s*")
_LATEX = re.compile(r"\\[A-Za-z]+|[\^_]\{|\$[^$]+\$")
_SAMPLE = 300  # references and texts looked at: enough for shares of 0.1 and 0.9


class ExtractorChoice(NamedTuple):
    """An extractor's name, and why it was chosen in a few words."""

    name: str
    reason: str


def choose_extractor(references: Sequence[str], texts: Sequence[str], choices: bool = False) -> ExtractorChoice:
    r"""The default extractor for outputs with these references; without references, for these texts.

    Options, or references that are single letters A to J: `letter`. At least nine in ten references numbers
    (or solutions that end in "#### 18"): `number`. LaTeX in one reference of ten, or a box in most texts: `math`.
    Else `text`, which compares the whole output. Without references: what most texts hold, a
    box, a labelled number or a labelled letter. Only the first few hundred of each are looked at.

    >>> choose_extractor(["1,080", "3/4"], ["The answer is 1080."])
    ExtractorChoice(name='number', reason='2 of 2 references are numbers')
    >>> choose_extractor([], [r"so $\boxed{x}$", r"\boxed{y}"])
    ExtractorChoice(name='math', reason='2 of 2 outputs hold \\boxed')
    """
    references, texts = references[:_SAMPLE], texts[:_SAMPLE]
    if choices:
        return ExtractorChoice("letter", "the cases have options")
    return _by_references(references, texts) if references else _by_texts(texts)


def _by_references(references: Sequence[str], texts: Sequence[str]) -> ExtractorChoice:
    def share(test: Callable[[str], object]) -> int:
        return sum(bool(test(reference)) for reference in references)

    total = len(references)
    if (letters := share(_OPTION.fullmatch)) >= 0.9 * total:
        return ExtractorChoice("letter", f"{letters} of {total} references are single letters")
    if (numbers := share(_is_number)) >= 0.9 * total:
        return ExtractorChoice("number", f"{numbers} of {total} references are numbers")
    if (latex := share(_LATEX.search)) >= 0.1 * total:
        return ExtractorChoice("math", f"{latex} of {total} references hold LaTeX")
    if texts and _boxed(texts) > len(texts) / 2:
        return ExtractorChoice("math", f"{_boxed(texts)} of {len(texts)} outputs hold \\boxed")
    return ExtractorChoice("text", f"{numbers} of {total} references are numbers, {letters} are single letters")


def _is_number(reference: str) -> bool:
    """A number, or a whole solution that ends in "#### 18"."""
    return parse_number(reference.rpartition("####")[2]) is not None


def _by_texts(texts: Sequence[str]) -> ExtractorChoice:
    total = len(texts)
    kinds: tuple[tuple[str, str, int], ...] = (
        ("math", "hold \\boxed", _boxed(texts)),
        ("number", "label a number", sum(map(has_labelled_number, texts))),
        ("letter", "label an option", sum(map(names_labelled_option, texts))),
    )
    for name, what, count in kinds:
        if count > total / 2:
            return ExtractorChoice(name, f"{count} of {total} outputs {what}")
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
    rows = _rows_of_choices(choices, len(texts))
    answers = {
        name: [None if text is None else extractor(text, row) for text, row in zip(texts, rows, strict=True)]
        for name, extractor in extractors.items()
    }
    score = None if references is None else _scores(answers, references, equal or same_answer)
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


def _rows_of_choices(
    choices: Sequence[str] | Sequence[Sequence[str] | None] | None, n: int
) -> Sequence[Sequence[str] | None]:
    if choices is None or all(isinstance(choice, str) for choice in choices):
        return [choices] * n  # type: ignore[list-item]  # one list of labels for all rows
    if len(choices) != n:
        raise InputError(f"audit got {len(choices)} lists of choices for {n} texts")
    return choices


def _scores(
    answers: Mapping[str, Sequence[str | None]], references: Sequence[str | None], equal: Callable[[str, str], bool]
) -> dict[str, float]:
    graded = [(i, reference) for i, reference in enumerate(references) if reference is not None]
    return {
        name: _share(((a := row[i]) is not None and equal(a, reference) for i, reference in graded), len(graded))
        for name, row in answers.items()
    }


def _share(flags: Iterable[bool], n: int) -> float:
    return sum(flags) / n if n else 0.0
