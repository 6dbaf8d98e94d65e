"""Agreement of several extractors on the same outputs: extraction errors often exceed the difference between models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kofn.core.numbers import numbers_equal, parse_number
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


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
        agreement={a: {b: _share(map(_same, answers[a], answers[b]), len(texts)) for b in answers} for a in answers},
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
    answers: Mapping[str, Sequence[str | None]],
    references: Sequence[str | None],
    equal: Callable[[str, str], bool],
) -> dict[str, float]:
    graded = [i for i, reference in enumerate(references) if reference is not None]
    return {
        name: _share((_correct(row[i], references[i], equal) for i in graded), len(graded))
        for name, row in answers.items()
    }


def _correct(answer: str | None, reference: str | None, equal: Callable[[str, str], bool]) -> bool:
    return answer is not None and reference is not None and equal(answer, reference)


def _same(a: str | None, b: str | None) -> bool:
    return a == b


def _share(flags: Iterable[bool], n: int) -> float:
    return sum(flags) / n if n else 0.0
