"""What an evaluation found: counts over graded candidates, and the `Result` that shows them beside the estimates.

Counts add up, so that a data set can be scored in parts: the counts of some cases plus the counts of others are the
counts of both, on one machine or on many.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from kofn.aggregators.diversity import UniqueTexts
from kofn.aggregators.votes import MajAt, graded_votes, output_counts, tally_votes, without_votes
from kofn.core.candidate_sets import histogram
from kofn.core.document import Displayable, Headline, estimate_dict
from kofn.core.format import format_count
from kofn.core.warnings import DOUBLE_DIPPING, most_severe, warnings_dict, with_code
from kofn.errors import UnknownName
from kofn.metrics import default_metric
from kofn.registry import aggregator
from kofn.scoring.configuration import USES
from kofn.scoring.grade import count_unmatched, score_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kofn.core.candidate_sets import CandidateSets, Floats
    from kofn.core.document import ChecklistLine
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.core.warnings import CodedWarning
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded

UNGRADED = "ungraded "  # before the names of votes that count where nothing at all is graded


class Total(NamedTuple):
    """A sum of numbers that are known, and how many those are."""

    sum: float = 0.0
    n: int = 0

    @classmethod
    def of(cls, values: Floats) -> Total:
        """
        >>> Total.of(np.array([1.0, np.nan, 0.5]))
        Total(sum=1.5, n=2)
        """
        # summed here and divided at the end: means of parts could not be averaged
        known = values[~np.isnan(values)]
        return cls(float(known.sum()), len(known))

    def plus(self, other: Total) -> Total:
        return Total(self.sum + other.sum, self.n + other.n)

    @property
    def mean(self) -> float | None:
        return self.sum / self.n if self.n else None


class SamplingVariance(NamedTuple):
    """Sets whose value was drawn, the sum of their squared errors, and how many sets there are."""

    n: int
    squares: float
    of: int

    def plus(self, other: SamplingVariance) -> SamplingVariance:
        return SamplingVariance(self.n + other.n, self.squares + other.squares, self.of + other.of)

    @property
    def error(self) -> float:
        """The standard error of the mean over the sets that comes from drawing alone."""
        # sets are drawn independently: variances add, and the mean divides by all sets, drawn or not
        return sqrt(self.squares) / self.of


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCounts:
    """The values of one metric.

    low, high       of the graded ones; None where there are none
    zero_one        every graded value is 0 or 1
    like_labels     every value is the label's: the metric says nothing new
    itself          selector -> whether its scores are the metric's values wherever both are known
    verdicts        how many sets have so many candidates with a verdict
    """

    metric: str
    source: str
    beside_labels: bool
    higher_is_better: bool
    n: int
    n_missing: int
    low: float | None
    high: float | None
    zero_one: bool
    like_labels: bool
    itself: Mapping[str, bool]
    verdicts: Counter[int]
    notes: tuple[CodedWarning, ...] = ()

    @property
    def graded(self) -> int:
        return self.n - self.n_missing

    @property
    def varies(self) -> bool:
        return self.low != self.high

    def grades_itself(self, by: str) -> bool:
        """Whether a selector's scores are the metric's values; values all alike pick nothing."""
        return self.graded > 0 and self.itself.get(by, False) and self.varies

    def plus(self, other: MetricCounts) -> MetricCounts:
        # where nothing is graded nothing is said of selectors
        either = dict.fromkeys((*self.itself, *other.itself))
        sides = [one.itself for one in (self, other) if one.graded]
        return MetricCounts(
            metric=self.metric,
            # a part may have no references of its own: any part that has makes it "reference"
            source=self.source if self.source == "reference" else other.source,
            beside_labels=self.beside_labels,
            higher_is_better=self.higher_is_better,
            n=self.n + other.n,
            n_missing=self.n_missing + other.n_missing,
            low=_extreme(min, self.low, other.low),
            high=_extreme(max, self.high, other.high),
            zero_one=self.zero_one and other.zero_one,
            like_labels=self.like_labels and other.like_labels,
            itself={name: all(side.get(name, False) for side in sides) for name in either},
            verdicts=self.verdicts + other.verdicts,
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What is counted of some cases.

    sizes       how many sets have so many candidates
    answers     candidates with a text or a given answer, and those in which no answer was found; None: none looked for
    labels      candidates where label and extracted answer can be compared, and where they differ
    totals      sums by name: agreement, margin, unique_answers, unique_texts, cost, seconds; led by UNGRADED, votes of
                candidates without a grade
    counts      counts by name: ties, unanimous, nobody_answered, several, identical_sets, unclear
    drawn       (aggregator, metric) -> what drawing adds to its error
    below       selectors with a score below 0
    """

    metrics: tuple[MetricCounts, ...]
    sizes: Counter[int]
    has_answers: bool
    answers: tuple[int, int] | None = None
    labels: tuple[str, int, int] | None = None
    totals: Mapping[str, Total] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    selectors: tuple[str, ...] = ()
    covering: tuple[str, ...] = ()
    below: frozenset[str] = frozenset()
    drawn: Mapping[tuple[str, str], SamplingVariance] = field(default_factory=dict)

    @property
    def n_cases(self) -> int:
        return self.sizes.total()

    @property
    def n_candidates(self) -> int:
        return sum(size * n for size, n in self.sizes.items())

    @property
    def largest(self) -> int:
        return max(self.sizes, default=0)

    def of(self, metric: str) -> MetricCounts:
        """Those of one metric."""
        return next(one for one in self.metrics if one.metric == metric)

    def plus(self, other: Counts) -> Counts:
        """The facts of both; metrics that only one of them has are kept."""
        theirs = {one.metric: one for one in other.metrics}
        mine = {one.metric: one for one in self.metrics}
        both = [one.plus(theirs[name]) if name in theirs else one for name, one in mine.items()]
        return Counts(
            metrics=(*both, *(one for name, one in theirs.items() if name not in mine)),
            sizes=self.sizes + other.sizes,
            has_answers=self.has_answers or other.has_answers,
            answers=_add_pairs(self.answers, other.answers),
            labels=_add_labels(self.labels, other.labels),
            totals=_merge(self.totals, other.totals),
            counts=self.counts + other.counts,
            selectors=tuple(dict.fromkeys((*self.selectors, *other.selectors))),
            covering=tuple(dict.fromkeys((*self.covering, *other.covering))),
            below=self.below | other.below,
            drawn=_merge(self.drawn, other.drawn),
        )


def add_counts(several: Iterable[Counts]) -> Counts:
    """The facts of all."""
    return reduce(Counts.plus, several)


def count_candidates(table: Table, scored: Sequence[Graded], options: GradingConfig) -> Counts:
    """What is counted of the cases of a table, graded as they are."""
    answers = scored[0]
    sets = answers.sets
    totals, counts = _count_sets(sets)
    counts["unclear"] = count_unmatched(table) if scored[0].metric == "choice" else 0
    return Counts(
        metrics=tuple(_count_metric(one, scored[0]) for one in scored),
        sizes=histogram(sets.sizes),
        has_answers=sets.answers is not None,
        answers=None if sets.answers is None else (answers.n_outputs, answers.n_failed),
        labels=_label_disagreements(table, answers),
        totals=totals,
        # zeros are dropped, as adding two Counters would drop them
        counts=Counter({name: n for name, n in counts.items() if n}),
        selectors=tuple(sets.selectors),
        covering=coverage_aggregators(sets),
        below=frozenset(name for name, scores in sets.selectors.items() if bool((scores < 0).any())),
        drawn=_sampling_variances(scored, options),
    )


def _count_metric(one: Graded, labels: Graded) -> MetricCounts:
    sets = one.sets
    values = sets.values[sets.graded]
    known = len(values) > 0
    return MetricCounts(
        metric=one.metric,
        source=one.source,
        beside_labels=one.beside_labels,
        higher_is_better=sets.higher_is_better,
        n=len(sets.values),
        n_missing=len(sets.values) - len(values),
        low=float(values.min()) if known else None,
        high=float(values.max()) if known else None,
        zero_one=sets.zero_one,
        like_labels=one.beside_labels and bool(np.array_equal(sets.values, labels.sets.values, equal_nan=True)),
        itself={name: bool((values == scores[sets.graded]).all()) for name, scores in sets.selectors.items()},
        verdicts=histogram(sets.counts[0]),
        notes=one.notes,
    )


def _count_sets(sets: CandidateSets) -> tuple[dict[str, Total], Counter[str]]:
    """Sums and counts of votes, texts, cost and time."""
    totals: dict[str, Total] = {}
    counts: Counter[str] = Counter()
    if sets.answers is not None:
        _add_votes(sets, totals, counts)
    if sets.texts is not None:
        unique, several = UniqueTexts()(sets), sets.sizes > 1
        totals["unique_texts"] = Total.of(unique)
        counts["several"] = int(several.sum())
        # the share of different texts is 1/size where all are the same; rounding makes it only close to that
        counts["identical_sets"] = int((several & np.isclose(unique * sets.sizes, 1)).sum())
    for name, column in (("cost", sets.costs), ("seconds", sets.seconds)):
        if column is not None:
            totals[name] = Total.of(column)
    return totals, counts


def _add_votes(sets: CandidateSets, totals: dict[str, Total], counts: Counter[str]) -> None:
    """Without a grade no vote; where nothing is graded all vote, unless other cases are: so both are counted then."""
    some = bool(sets.graded.any())
    ways = {"": graded_votes(sets) if some else without_votes(sets), **({} if some else {UNGRADED: sets})}
    for way, voting in ways.items():
        votes, size = tally_votes(voting), output_counts(sets)
        totals[f"{way}agreement"] = Total.of(votes.first / size)
        totals[f"{way}margin"] = Total.of((votes.first - votes.second) / size)
        # 0 * size: NaN for a set without outputs, where there is nothing to count
        totals[f"{way}unique_answers"] = Total.of(votes.different + 0 * size)
        counts[f"{way}ties"] = int(votes.tied.sum())
        counts[f"{way}unanimous"] = int(((votes.first == size) & (sets.sizes > 1)).sum())
        counts[f"{way}nobody_answered"] = int(((votes.different == 0) & (sets.sizes > 0)).sum())


def _label_disagreements(table: Table, answers: Graded) -> tuple[str, int, int] | None:
    """Where the file has both labels and references: how often the extracted answer says otherwise than the label."""
    rows = table.candidates
    if "reference" not in rows.columns or "passed" not in rows.columns or answers.metric != "pass":
        return None
    if answers.extractor is None:
        return None

    # the labels are what is reported; this second grading only says how often they disagree
    computed = score_table(table, answers, [default_metric(answers.extractor)], None)[0]
    label = rows["passed"].cast(float).to_numpy()
    both = ~np.isnan(label) & (computed.sets.passes >= 0)
    differ = both & (label != computed.sets.passes)
    return computed.metric, int(both.sum()), int(differ.sum())


def _sampling_variances(scored: Sequence[Graded], options: GradingConfig) -> dict[tuple[str, str], SamplingVariance]:
    """maj@k of large sets is drawn: how far that may be off."""
    out = {}
    for rule in map(aggregator, options.aggregate):
        for one in scored if isinstance(rule, MajAt) else ():
            if isinstance(rule, MajAt) and rule.draws_any(one.sets) and (errors := rule.error(one.sets)).any():
                out[rule.name, one.metric] = SamplingVariance(
                    int((errors > 0).sum()), float((errors**2).sum()), len(errors)
                )
    return out


def coverage_aggregators(sets: CandidateSets) -> tuple[str, ...]:
    """The aggregators of coverage that can be computed: cases say what they require, candidates what they hold."""
    if sets.required is None:
        return ()
    have = {"coverage": sets.answers is not None, "facet_coverage": sets.facets is not None}
    return tuple(name for name, there in have.items() if there)


def _extreme(rule: Any, a: float | None, b: float | None) -> float | None:
    known = [x for x in (a, b) if x is not None]
    return rule(known) if known else None


def _add_pairs(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return a[0] + b[0], a[1] + b[1]


def _add_labels(a: tuple[str, int, int] | None, b: tuple[str, int, int] | None) -> tuple[str, int, int] | None:
    if a is None or b is None:
        return a or b
    return a[0], a[1] + b[1], a[2] + b[2]


def _merge(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**a, **{key: a[key].plus(one) if key in a else one for key, one in b.items()}}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(Displayable):
    """What an evaluation found. Prints as a table; `estimates` holds the numbers.

    `judges` says of each metric that a model graded which model, with which prompt and parameters: `kofn.judge`.
    `parent` is the run whose outputs were graded again, with what changed.
    `source_warnings` are those about how outputs and verdicts were made: nothing else here shows that.
    """

    # by name: `render` is a higher layer, loaded when the result is printed
    view: ClassVar[str] = "kofn.render.result_text:result_document"
    printer: ClassVar[str] = "kofn.render.result_text:format_result"

    n_cases: int
    n_candidates: int
    n_missing: int
    understood: Mapping[str, Any]
    estimates: tuple[Estimate, ...]
    extraction: Mapping[str, Any]
    diagnostics: Mapping[str, Any]
    warnings: tuple[CodedWarning, ...] = ()
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    checklist: tuple[ChecklistLine, ...] = ()
    source_warnings: tuple[CodedWarning, ...] = ()
    scored: tuple[Graded, ...] = field(default=(), repr=False)
    case_values: Mapping[tuple[str, str], Floats] = field(default_factory=dict, repr=False)
    table: Table | None = field(default=None, repr=False)
    parent: Mapping[str, Any] | None = None

    def with_table(
        self, table: Table, scored: Sequence[Graded], case_values: Mapping[tuple[str, str], Floats]
    ) -> ScoredResult:
        """The result with the candidates that it is of."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return ScoredResult(**named | {"table": table, "scored": tuple(scored), "case_values": case_values})

    def to_dict(self) -> dict[str, Any]:
        """As `kofn score --json` prints it."""
        return {
            "headline": self.headline.to_dict(),
            "n_cases": self.n_cases,
            "n_candidates": self.n_candidates,
            "n_missing": self.n_missing,
            "understood": dict(self.understood),
            "estimates": [estimate_dict(e) for e in self.estimates],
            "extraction": dict(self.extraction),
            "diagnostics": dict(self.diagnostics),
            **warnings_dict(self.warnings),
            "judges": {name: dict(judge) for name, judge in self.judges.items()},
            "checklist": [line.to_dict() for line in self.checklist],
            "told": list(map(str, self.source_warnings)),  # its name in run.json and in --json since schema 1
            **({} if self.parent is None else {"parent": dict(self.parent)}),
        }

    def with_warnings(self, warnings: Sequence[CodedWarning]) -> Self:
        """The same with more warnings about how outputs and verdicts were made, before all others."""
        # once each: a run that is read and scored again brings its warnings along
        new = [w for w in dict.fromkeys(warnings) if w not in self.source_warnings]
        return replace(self, source_warnings=(*new, *self.source_warnings), warnings=(*new, *self.warnings))

    @property
    def headline(self) -> Headline:
        """What the result says first."""
        sizes = self.diagnostics["sizes"]
        return headline_of(self.estimates, self.understood, (sizes["min"], sizes["max"]), self.n_cases, self.warnings)

    @property
    def double_dipping(self) -> tuple[CodedWarning, ...]:
        """The warnings about a number that is picked and graded by the same judge or score."""
        return with_code(self.warnings, DOUBLE_DIPPING)

    def rows(self) -> list[dict[str, Any]]:
        """One row per estimate."""
        return [estimate_dict(e) for e in self.estimates]

    def get(self, aggregator: str, *, metric: str | None = None, segment: str | None = None) -> Estimate:
        """The estimate of this aggregator."""
        for e in self.estimates:
            if e.aggregator == aggregator and e.segment == segment and metric in (None, e.metric):
                return e

        raise UnknownName("estimate", aggregator, [e.aggregator for e in self.estimates])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScoredResult(Result):
    """A result that keeps its candidates: every one that is not of data read in parts."""

    table: Table = field(repr=False)


# --- what is said first

# aggregators of values, whatever passes
_BY_VALUE = ("mean", "first", "median", "max", "min", "best_score", "weighted_mean", "majority", "ndcg", "selected")
# without a declared use, and where no aggregator measures it: the first of these that there is
_USUAL = ("mean", "first", "any_pass", "majority", "best_score", "agreement")


def headline_of(
    estimates: Sequence[Estimate],
    understood: Mapping[str, Any],
    sizes: tuple[int, int],
    n_cases: int,
    warnings: Sequence[CodedWarning],
) -> Headline:
    """The headline of a result, or of what is stored of one; `sizes` are those of the smallest and the largest set."""
    use = understood.get("use")
    found, measured = headline_estimate(estimates, use)
    low, high = sizes
    each = format_count(high, "candidate") if low == high else f"{low:,} to {high:,} candidates"
    known = n_cases if found is None else found.n
    cases = format_count(n_cases, "case") if known == n_cases else f"{known:,} of {format_count(n_cases, 'case')}"
    graded = describe_metric(understood, "" if found is None else found.metric)
    about = f"{cases} x {each}, {graded}"
    # what passes does not matter to a mean of scores
    by_value = found is not None and found.aggregator.partition("(")[0] in _BY_VALUE
    relevant = [w for w in warnings if not (by_value and w.code == "no-threshold")]
    first = most_severe(relevant)
    if first is not None and first.values.get("marked"):  # the star marks rows of a table
        first = replace(first, values={name: value for name, value in first.values.items() if name != "marked"})
    # of one candidate per case every use is the same
    return Headline(estimate=found, about=about, use=use, measured=measured or high <= 1, warning=first)


def headline_estimate(estimates: Sequence[Estimate], use: str | None) -> tuple[Estimate | None, bool]:
    """The estimate that a result leads with, and whether it measures the declared use (true where there is none).

    Of the first metric, over all cases: the number of the use, with the largest k; else the mean; else a usual one. The
    order in which aggregators were asked for does not matter.
    """
    overall = [e for e in estimates if e.segment is None]
    own = {e.aggregator: e for e in overall if e.metric == overall[0].metric}
    if not own:
        return None, use is None
    name, measured = headline_name(own, use)
    return own[name], measured


def headline_name(names: Iterable[str], use: str | None) -> tuple[str, bool]:
    """The number that leads, of these; and whether it measures the declared use (true where there is none).

    >>> headline_name(["pass@2", "mean", "any_pass"], None), headline_name(["pass@2", "mean", "any_pass"], "any")
    (('mean', True), ('any_pass', True))
    """
    names = list(names)
    if use is not None and (fitting := measures_of_use(names, use)):
        return fitting[0], True
    # without a use the smallest k: what a single candidate reaches
    return min(names, key=lambda name: (*_place(name, _USUAL)[:2], -_place(name, _USUAL)[2], name)), use is None


def distinct_estimates(result: Result) -> tuple[list[Estimate], dict[str, list[str]]]:
    """The estimates to show, and which further aggregators have the same value in every case as one that is shown.

    Of one candidate per case nearly all aggregators are the same number. The headline's stands for its equals, else
    the first of them. Aggregators that were asked for are all shown.
    """
    if result.understood.get("aggregators"):
        return list(result.estimates), {}
    lead = result.headline.estimate
    numbers: dict[tuple[str, str], list[Estimate]] = {}
    for e in result.estimates:
        numbers.setdefault((e.metric, e.aggregator), []).append(e)
    # the headline first, so that it is the one that stays
    order = sorted(numbers, key=lambda key: lead is None or key != (lead.metric, lead.aggregator))
    kept: list[tuple[str, str]] = []
    equals: dict[str, list[str]] = {}
    for key in order:
        same = next((one for one in kept if one[0] == key[0] and _are_equal(result, numbers, one, key)), None)
        if same is None:
            kept.append(key)
        elif key[1] not in equals.setdefault(same[1], []):
            equals[same[1]].append(key[1])
    shown = [e for e in result.estimates if (e.metric, e.aggregator) in kept]
    return shown, equals


def _are_equal(
    result: Result, numbers: Mapping[tuple[str, str], list[Estimate]], a: tuple[str, str], b: tuple[str, str]
) -> bool:
    """Whether two aggregators have the same value in every case, and so the same estimates."""

    def parts(key: tuple[str, str]) -> list[Any]:
        return [(e.segment, e.n, e.n_missing, *(_rounded(x) for x in (e.point, e.low, e.high))) for e in numbers[key]]

    if parts(a) != parts(b):
        return False
    if a not in result.case_values or b not in result.case_values:  # data read in parts keeps no values
        return bool(result.diagnostics["sizes"]["max"] == 1)
    alike: bool = np.allclose(result.case_values[a], result.case_values[b], rtol=0, atol=1e-12, equal_nan=True)
    return alike


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)


def measures_of_use(names: Iterable[str], use: str) -> list[str]:
    """The aggregators that measure a use, the most direct first; with the largest k where there are several.

    >>> measures_of_use(["pass@2", "pass@10", "mean", "any_pass"], "any")
    ['any_pass', 'pass@10', 'pass@2']
    """
    families = USES[use]
    return sorted((name for name in names if name.startswith(families)), key=lambda name: _place(name, families))


def _place(name: str, families: Sequence[str]) -> tuple[int, bool, int, str]:
    """Where an aggregator stands among families in order: a family by itself first, then the largest k.

    >>> sorted(["pass@2", "pass@10", "any_pass", "majority_pass", "majority"], key=lambda n: _place(n, USES["any"]))
    ['any_pass', 'pass@10', 'pass@2', 'majority', 'majority_pass']
    """
    base, digits = name.partition("(")[0], re.search(r"\d+", name)
    at = next((i for i, family in enumerate(families) if base.startswith(family)), len(families))
    return at, at < len(families) and base != families[at], -int(digits[0]) if digits else 0, name


def describe_metric(understood: Mapping[str, Any], metric: str) -> str:
    """How the candidates were graded, in words.

    >>> describe_metric({"metrics": {"pass": "correct", "numeric": "reference"}}, "pass")
    'labels in `correct`'
    """
    source = understood["metrics"].get(metric)
    if not metric or source is None:
        return "no labels"
    if metric in ("pass", "score"):
        return f"{'labels' if metric == 'pass' else 'scores'} in `{source}`"
    return f"`{metric}` as given" if metric in understood.get("labels", {}) else f"metric {metric}"
