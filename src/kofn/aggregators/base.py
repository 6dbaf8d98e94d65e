"""The `Aggregator` interface: candidate sets -> one number per set. A new one: its family's file, and `registry.py`.

Its fields are its parameters, so repr, equality and the stored name follow from them. What it is in general stands
behind its bases: `class Agreement(Aggregator, label="agreement", needs=("answers",))`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, TypedDict, Unpack

import numpy as np

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.core.candidate_sets import CandidateSet, CandidateSets, Floats

_HINTS = {
    "answers": "answers to vote on: give an extractor or an answer field",
    "texts": "the texts of the candidates",
    "selectors": "a selector score a candidate (a judge, a reward model, a log-probability)",
    "required": "the ids or facets a case requires (field `required`)",
    "facets": "the facets each candidate covers (field `facets`)",
}


class AggregatorTraits(TypedDict, total=False):
    """The keywords of a class statement that sets them."""

    label: str
    needs: tuple[str, ...]
    ordered: bool
    of_values: bool
    neutral: bool
    bounded: bool


class Aggregator(ABC):
    """Candidate sets -> one number per set, NaN where undefined; an empty set is always undefined."""

    label: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # the columns it reads
    ordered: ClassVar[bool] = False  # whether the order of the candidates matters
    of_values: ClassVar[bool] = False  # whether its values are on the scale of the metric's
    neutral: ClassVar[bool] = False  # whether a larger value is neither better nor worse, or it cannot be known
    bounded: ClassVar[bool] = True  # whether its values are shares, from 0 to 1, when the metric's are

    def __init_subclass__(cls, **traits: Unpack[AggregatorTraits]) -> None:
        super().__init_subclass__()
        for name, value in traits.items():
            setattr(cls, name, value)

    def __call__(self, sets: CandidateSets) -> Floats:
        for column in self.needs:
            if getattr(sets, column) is None or (column == "selectors" and not sets.selectors):
                raise InputError(f"{self.name} needs {_HINTS[column]}")
        return self.compute(sets)

    @abstractmethod
    def compute(self, sets: CandidateSets) -> Floats:
        """The values; the columns named in `needs` exist."""

    @property
    def name(self) -> str:
        """The name that resolves to an equal aggregator, parameters that differ from their default included.

        >>> from kofn.aggregators.ranking import Ndcg
        >>> Ndcg(k=3).name, Ndcg().name
        ('ndcg(k=3)', 'ndcg')
        """
        return self.label + self._parameters()

    def _parameters(self) -> str:
        changed = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
            if getattr(self, f.name) != f.default
        ]
        return f"({', '.join(changed)})" if changed else ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class PerSet(Aggregator, label="per_set", ordered=True, neutral=True, bounded=False):
    """A user's function of one set, `(CandidateSet) -> float | None`, called once per set.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> longest = PerSet(lambda s: len(s), "size")
    >>> longest(CandidateSets.from_lists([[1, 0], []])).tolist()
    [2.0, nan]
    """

    function: Callable[[CandidateSet], float | None]
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or getattr(self.function, "__name__", "per_set")

    def compute(self, sets: CandidateSets) -> Floats:
        out = np.full(len(sets), np.nan)
        for i, one in enumerate(sets):
            name, case = self.name, repr(one.case_id)
            try:
                result: object = self.function(one) if len(one) else None
            except Exception as problem:  # whatever a user's function raises is about that function and this case
                kind = type(problem).__name__
                raise InputError(f"aggregator {name} failed on case {case}: {kind}: {problem}") from problem
            if isinstance(result, (bool, int, float, np.number, np.bool_)):
                out[i] = float(result)
            elif result is not None:
                kind = type(result).__name__
                raise InputError(f"aggregator {name} gave {kind} for case {case}: return a number or None")
        return out


def positive(name: str, value: object, *, none_is_all: bool = False) -> None:
    """Refuse a count that is not a whole number of at least 1."""
    if none_is_all and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{name} takes a whole number of at least 1, not {value!r}")


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} takes one of {', '.join(allowed)}, not {value!r}")
