"""Paired differences between sides, with p-values adjusted for all tests by Holm's method."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from kofn.core.document import estimate_dict
from kofn.core.format import format_count
from kofn.errors import InputError
from kofn.stats import compare, holm
from kofn.stats.intervals import at_rows
from kofn.stats.paired import same_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.stats import Comparison, JudgeRates
    from kofn.stats.intervals import Drawing

FEWEST_SHARED = 10  # of fewer cases on both sides no difference is called significant


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRules:
    """How differences are tested: what counts as real, and how intervals and p-values are made."""

    alpha: float = 0.05
    level: float = 0.95
    n_resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha takes a number between 0 and 1, not {self.alpha}")

    @property
    def drawing(self) -> Drawing:
        """How intervals and p-values are made, as keywords of `kofn.stats`."""
        return {"level": self.level, "n_resamples": self.n_resamples, "seed": self.seed}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideValues:
    """One value a case, NaN where there is none, with the weights and clusters of the cases."""

    cases: Sequence[str]
    values: Floats
    weights: Floats | None = None
    clusters: NDArray[Any] | None = None

    def at(self, cases: Sequence[str], at: NDArray[np.bool_]) -> SideValues:
        """On some of the cases, which stand there."""
        units = at_rows(at, weights=self.weights, clusters=self.clusters)
        return SideValues(cases=cases, values=self.values[at], **units)

    def on(self, cases: Sequence[str], column: NDArray[Any] | None) -> list[Any] | None:
        """A column of these cases on others; 0 and a cluster of its own where a case is not here."""
        if column is None:
            return None
        known = dict(zip(self.cases, column.tolist(), strict=True))
        # weight 0 takes no part; a cluster of its own disturbs no other
        return [known.get(case, 0 if column is self.weights else f"alone {case}") for case in cases]


class ComparedNumber(NamedTuple):
    """One number of all sides: a value a case of each."""

    metric: str
    aggregator: str
    columns: tuple[SideValues, ...]
    more_is_better: bool | None


class SegmentCases(NamedTuple):
    """The cases that one field says the same of."""

    name: str
    cases: set[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """b - a of one number. `p_holm` is p adjusted for all that was tested with it; None where nothing is shared."""

    metric: str
    aggregator: str
    name_a: str
    name_b: str
    comparison: Comparison
    segment: str | None = None
    more_is_better: bool | None = True
    p_holm: float | None = None
    alpha: float = 0.05
    sides: tuple[int, int] = (0, 1)

    @property
    def too_few(self) -> bool:
        """Whether too few cases are shared to tell, whatever p is."""
        return self.comparison.n < FEWEST_SHARED

    @property
    def holds(self) -> bool:
        """Whether it is significant: p_holm < alpha, over enough shared cases."""
        significant = self.p_holm is not None and self.p_holm < self.alpha and bool(self.comparison.difference)
        return significant and not self.too_few

    @property
    def interval_agrees(self) -> bool | None:
        """Whether the interval leaves 0 out exactly where p (not adjusted) is below 1 - level.

        None where there is no interval or p, or too few cases for either to say much.
        """
        c = self.comparison
        if c.p is None or c.low is None or c.high is None or self.too_few:
            return None
        return (c.low > 0 or c.high < 0) == (c.p < 1 - c.level)

    @property
    def sign(self) -> int:
        """1 where b is higher, -1 where it is lower, 0 neither."""
        return self.comparison.sign

    @property
    def word(self) -> str:
        """What b is where the difference holds: better, worse, higher, lower; nothing where it may be noise."""
        return self.comparison.word(self.more_is_better) if self.holds else ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON prints it; `a` and `b` are the values on the cases both have."""
        c = self.comparison
        described = ("a", "b", "difference", "low", "high", "level", "method", "p")
        counts = ("mcnemar_p", "wins", "ties", "losses", "n", "n_missing")
        own = ("metric", "aggregator", "segment", "name_a", "name_b")
        return {
            **{name: getattr(self, name) for name in own},
            **{name: getattr(c, name) for name in described},
            "p_holm": self.p_holm,
            **{name: getattr(c, name) for name in counts},
            "holds": self.holds,
            "too_few": self.too_few,
            "interval_agrees": self.interval_agrees,
            "more_is_better": self.more_is_better,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateExcerpt:
    """One candidate as a reader sees it. `index` is its place in its set, from 0."""

    index: int
    text: str | None
    answer: str | None
    passed: bool | None

    def to_dict(self, most: int) -> dict[str, Any]:
        return {**asdict(self), "text": cut_middle(self.text, most)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCase:
    """A case (of two graders, a candidate) on which two sides differ, with what each had to show.

    `passed_a` and `passed_b` are the verdicts; alike where two picks or two answers differ and the verdict does not.
    """

    case: str
    name_a: str
    name_b: str
    passed_a: bool | None
    passed_b: bool | None
    a: tuple[CandidateExcerpt, ...]
    b: tuple[CandidateExcerpt, ...]
    input: str | None = None
    reference: str | None = None

    @property
    def way(self) -> Literal["up", "down", "other"]:
        """From fail to pass, from pass to fail, or neither."""
        if self.passed_a is False and self.passed_b is True:
            return "up"
        return "down" if self.passed_a is True and self.passed_b is False else "other"

    def to_dict(self, most: int = 2000) -> dict[str, Any]:
        """As JSON prints it, long texts cut in the middle."""
        own = ("case", "name_a", "name_b", "passed_a", "passed_b")
        return {
            **{name: getattr(self, name) for name in own},
            "input": cut_middle(self.input, most),
            "reference": self.reference,
            "a": [one.to_dict(most) for one in self.a],
            "b": [one.to_dict(most) for one in self.b],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedCases:
    """The cases that only one of two sides has."""

    name_a: str
    name_b: str
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "only_a": list(self.only_a), "only_b": list(self.only_b)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderAgreement:
    """Two graders on the same candidates: counts of the verdicts, agreement and kappa with intervals by case.

    `same_answer` is the share of the candidates on which both extract the same, none included; None without answers.
    """

    name_a: str
    name_b: str
    rates: JudgeRates
    n_ungraded: int
    same_answer: float | None

    @property
    def counts(self) -> dict[str, int]:
        """Candidates by verdict."""
        c = self.rates.confusion
        return {"both_pass": int(c.tp), "only_a": int(c.fn), "only_b": int(c.fp), "both_fail": int(c.tn)}

    def to_dict(self) -> dict[str, Any]:
        names = ("point", "low", "high", "level", "n", "method")
        ends = {k: estimate_dict(getattr(self.rates, k)) for k in ("agreement", "kappa")}
        return {
            "name_a": self.name_a,
            "name_b": self.name_b,
            **self.counts,
            "n_ungraded": self.n_ungraded,
            "same_answer": self.same_answer,
            **{k: {n: e[n] for n in names} for k, e in ends.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLevel:
    """The value of every side on the cases that all of them have: a row of numbers for a table."""

    metric: str
    aggregator: str
    segment: str | None
    values: tuple[float | None, ...]
    n: int
    more_is_better: bool | None


def cut_middle(text: str | None, most: int) -> str | None:
    """A long text without its middle, since answers stand at its end.

    >>> cut_middle("abcdefghij", 6)
    'abc … 4 characters left out … hij'
    """
    if text is None or len(text) <= most:
        return text
    tail = most // 2
    left = len(text) - most
    return f"{text[: most - tail]} … {format_count(left, 'character')} left out … {text[-tail:]}"


def pairs_of(n: int, *, every: bool) -> list[tuple[int, int]]:
    """Which sides are compared: all with the first, or every two.

    >>> pairs_of(3, every=False), pairs_of(3, every=True)
    ([(0, 1), (0, 2)], [(0, 1), (0, 2), (1, 2)])
    """
    return list(combinations(range(n), 2)) if every else [(0, i) for i in range(1, n)]


def compare_values(a: SideValues, b: SideValues, rules: ComparisonRules) -> Comparison:
    """`kofn.stats.compare` by cluster and by weight: those of b where it has some, else those of a.

    >>> a, b = (SideValues(cases="xyz", values=np.array(v, float)) for v in ([0, 0, 1], [1, 1, 1]))
    >>> found = compare_values(a, b, ComparisonRules())
    >>> found.wins, found.ties, found.losses, found.p
    (2, 1, 0, 0.5)
    """
    weights = a.weights if b.weights is None else b.on(a.cases, b.weights)
    clusters = a.clusters if a.clusters is not None else b.on(a.cases, b.clusters)
    return compare(a.cases, a.values, b.cases, b.values, clusters=clusters, weights=weights, **rules.drawing)


def differences_of(
    numbers: Sequence[ComparedNumber],
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    rules: ComparisonRules,
    segments: Sequence[SegmentCases] = (),
) -> tuple[tuple[Difference, ...], int]:
    """Every difference with p adjusted for all of them, and how many tests these are.

    Pair by pair, first over all cases, then in every segment. Two numbers that are the same in every case of both
    sides, as pass@1 and the mean of 0/1 are, ask one question: they count as one test.
    """
    found: list[tuple[Difference, Any]] = []
    slices = _Slices()
    for a, b in pairs:
        for segment, number in product((None, *segments), numbers):
            left, right = (slices.of(number.columns[i], segment) for i in (a, b))
            difference = Difference(
                metric=number.metric,
                aggregator=number.aggregator,
                name_a=names[a],
                name_b=names[b],
                comparison=compare_values(left, right, rules),
                segment=None if segment is None else segment.name,
                more_is_better=number.more_is_better,
                alpha=rules.alpha,
                sides=(a, b),
            )
            found.append((difference, (a, b, difference.segment, _value_key(left), _value_key(right))))
    # a dict: numbers that are equal in every case are one key and so one test
    p_of = {key: d.comparison.p for d, key in found if d.comparison.p is not None}
    adjusted = dict(zip(p_of, holm(list(p_of.values())), strict=True))
    return tuple(replace(d, p_holm=adjusted.get(key)) for d, key in found), len(p_of)


def _value_key(column: SideValues) -> bytes:
    """Equal where values are, up to rounding."""
    return (np.round(column.values, 12) + 0.0).tobytes()  # + 0.0 turns -0.0 into 0.0


class _Slices:
    """Columns on the cases of segments. Which rows those are is looked up once for all numbers of a side."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[list[str], NDArray[np.bool_]]] = {}

    def of(self, column: SideValues, segment: SegmentCases | None) -> SideValues:
        """A column on the cases of a segment; of none, as it is."""
        if segment is None:
            return column
        key = (id(column.cases), segment.name)  # the columns of a side share their cases
        if key not in self._known:
            at = np.array(list(map(segment.cases.__contains__, column.cases)), dtype=np.bool_)
            self._known[key] = ([column.cases[i] for i in np.flatnonzero(at).tolist()], at)
        return column.at(*self._known[key])


def levels_of(numbers: Sequence[ComparedNumber], segments: Sequence[SegmentCases] = ()) -> tuple[ValueLevel, ...]:
    """Every side's mean of every number on the cases that all have a value of, over all cases and in every segment."""
    slices, levels = _Slices(), []
    for segment, number in product((None, *segments), numbers):
        columns = [slices.of(column, segment) for column in number.columns]
        rows = _shared_rows(columns)
        n = len(rows[0])
        # the weights of the last side that has some, as `compare_values` takes those of b
        weighted = next((i for i in reversed(range(len(columns))) if columns[i].weights is not None), None)
        weights = np.ones(n) if weighted is None else np.asarray(columns[weighted].weights)[rows[weighted]]
        weights = weights if weights.any() else np.ones(n)
        means = (
            float(weights @ c.values[at] / weights.sum()) if n else None for c, at in zip(columns, rows, strict=True)
        )
        level = ValueLevel(
            metric=number.metric,
            aggregator=number.aggregator,
            segment=None if segment is None else segment.name,
            values=tuple(means),
            n=n,
            more_is_better=number.more_is_better,
        )
        levels.append(level)
    return tuple(levels)


def _shared_rows(columns: Sequence[SideValues]) -> list[NDArray[np.intp]]:
    """Where the cases stand that all columns have a value of, in the order of the first; an array a column."""
    first = columns[0].cases
    rows = []
    for column in columns:
        if same_cases(first, column.cases):
            rows.append(np.arange(len(first), dtype=np.intp))
        else:
            at = {case: i for i, case in enumerate(column.cases)}
            rows.append(np.array([at.get(case, -1) for case in first], dtype=np.intp))
    kept = np.ones(len(first), dtype=np.bool_)
    for column, places in zip(columns, rows, strict=True):
        values = np.append(column.values, np.nan)  # the last stands for a case that is not there
        kept &= ~np.isnan(values[places])
    return [places[kept] for places in rows]
