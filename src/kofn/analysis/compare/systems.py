"""Compares systems on the same cases: differences of every number, and the cases whose verdict changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.aggregators.passes import CountAggregator
from kofn.analysis.compare.differences import (
    FEWEST_SHARED,
    CandidateExcerpt,
    ChangedCase,
    ComparedNumber,
    ComparisonRules,
    SegmentCases,
    SideValues,
    UnmatchedCases,
    differences_of,
    levels_of,
    pairs_of,
)
from kofn.analysis.compare.report import NUMBER_OF_USE, ComparisonReport, main_number
from kofn.analysis.series import count_changed_questions, questions_in
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.format import format_count
from kofn.core.table import case_column, segment_names
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning, with_code
from kofn.errors import InputError, UnknownName
from kofn.registry import aggregator, check_unique, higher_is_better, parse_spec
from kofn.scoring.configuration import Requirement
from kofn.scoring.diagnostics import find_double_dipping
from kofn.scoring.evaluate import apply_aggregator
from kofn.stats.estimates import SMALL_SEGMENT, is_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kofn.aggregators.base import Aggregator
    from kofn.analysis.compare.differences import Difference
    from kofn.core.candidate_sets import CandidateSets, Floats
    from kofn.core.table import Table
    from kofn.runs.index import Questions
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult

VERDICTS = ("any_pass", "majority", "majority_pass")  # what decides about a case, where nobody said
FEW = 5  # names in a message


@dataclass(frozen=True, kw_only=True)
class Side:
    """One system: its graded candidates under a name, with the weights and clusters of its cases.

    `questions` says what the cases ask and expect where the table does not hold it; `use` how the product uses a set,
    where that is declared.
    """

    name: str
    result: ScoredResult
    weights: Floats | None = None
    clusters: NDArray[Any] | None = None
    questions: Questions | None = None
    use: str | None = None

    @property
    def table(self) -> Table:
        return self.result.table

    @cached_property
    def cases(self) -> list[str]:
        found: list[str] = self.table.cases["case_id"].to_list()
        return found

    @property
    def metrics(self) -> list[str]:
        return [one.metric for one in self.result.scored]

    def metric(self, name: str) -> Graded:
        """The sets under this metric."""
        return next(one for one in self.result.scored if one.metric == name)

    def of(self, values: Floats) -> SideValues:
        """One value a case, with what the cases weigh."""
        return SideValues(cases=self.cases, values=values, weights=self.weights, clusters=self.clusters)

    def first(self, k: int) -> Side:
        """The same of the first k candidates of every set; numbers that need more are gone."""
        scored = [replace(one, sets=one.sets.truncate(k)) for one in self.result.scored]
        return replace(self, result=_recompute(self.result, scored, k))

    def passing_from(self, threshold: float) -> Side:
        """The same where values pass from here on; labels stay what they are."""
        # labels are verdicts already: no threshold applies
        scored = [
            one
            if one.metric in ("", "pass")
            else replace(one, sets=one.sets.passing_from(threshold), beside_labels=False)
            for one in self.result.scored
        ]
        # every stored number still fits: sets keep their sizes
        largest = max((int(one.sets.sizes.max(initial=0)) for one in scored), default=0)
        return replace(self, result=_recompute(self.result, scored, largest))


def _recompute(result: ScoredResult, scored: Sequence[Graded], k: int) -> ScoredResult:
    """The numbers a result has, made again of sets of at most k candidates."""
    of = {one.metric: one for one in scored}
    values = {}
    for metric, name in result.case_values:
        rule = _named_aggregator(name)
        # sets of k candidates have no number that needs more; one that is no name of ours cannot be made again
        if rule is not None and (getattr(rule, "k", None) or 0) <= k:
            values[metric, name] = apply_aggregator(rule, of[metric])
    return replace(result, scored=tuple(scored), case_values=values)


def _named_aggregator(name: str) -> Aggregator | None:
    """The aggregator that a run names; None of a function "module:name": a stored run must not import code."""
    try:
        return None if ":" in parse_spec("aggregator", name)[0] else aggregator(name)
    except InputError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """What is compared: of these metrics these aggregators, within the values of these fields.

    `use` says how the product uses a set, instead of what the sides declare.
    """

    aggregate: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    top_k: int | None = None
    verdict: str | None = None
    all_pairs: bool = False
    use: str | None = None
    rules: ComparisonRules = field(default_factory=ComparisonRules)


def compare_systems(
    sides: Sequence[Side], options: ComparisonOptions | None = None, *, bodies: bool = True
) -> ComparisonReport:
    """Compare every system with the first, or every two, number by number on the cases both have.

    Per number the difference with its paired interval, the permutation p, McNemar's where both are 0/1, and p adjusted
    for the whole family of metrics, aggregators, segments and pairs (Holm). Without `bodies` the cases that changed
    come without their candidates and what they ask.

    >>> import kofn
    >>> a, b = (kofn.score([{"id": str(i), "passes": [x, y]} for i, (x, y) in enumerate(rows)], aggregate="any_pass")
    ...         for rows in ([(0, 0), (0, 1), (0, 0)], [(1, 0), (0, 1), (0, 0)]))
    >>> found = compare_systems([Side(name="a", result=a), Side(name="b", result=b)])
    >>> [(d.aggregator, round(d.comparison.difference, 3), d.comparison.wins) for d in found.differences]
    [('any_pass', 0.333, 1), ('mean', 0.167, 1)]
    >>> [(c.case, c.way) for c in found.changed]
    [('0', 'up')]
    """
    options = options or ComparisonOptions()
    _check(sides)
    pairs = pairs_of(len(sides), every=options.all_pairs)
    warnings = _warnings(sides, pairs, options)
    if options.top_k is not None:
        sides = [side.first(options.top_k) for side in sides]
    declared = {options.use} if options.use is not None else {side.use for side in sides if side.use is not None}
    use = next(iter(declared)) if len(declared) == 1 else None
    numbers, left_out = _numbers(sides, options, use)
    segments = list(_segments(sides, options.by))
    names = [side.name for side in sides]
    differences, n_tests = differences_of(numbers, names, pairs, options.rules, segments)
    rule, metric = _verdict(sides, numbers, options, use)
    changed: tuple[ChangedCase, ...] = ()
    verdict = None
    if rule is not None:
        changed = tuple(_changed_cases(sides, pairs, metric, rule, bodies=bodies))
        # its bound only where it is not the natural one
        verdict = rule.name if (rule.operator, rule.bound) == (">=", 1.0) else str(rule)
    shared = set.intersection(*(set(side.cases) for side in sides))
    first = f", the first {options.top_k} candidates of each set" if options.top_k is not None else ""
    where = "both" if len(sides) == 2 else f"all {len(sides)}"
    return ComparisonReport(
        kind="runs",
        names=tuple(names),
        about=f"{format_count(len(shared), 'case')} in {where}{first}",
        differences=differences,
        levels=levels_of(numbers, segments),
        rules=options.rules,
        main=main_number([(n.metric, n.aggregator) for n in numbers], use, metric),
        use=use,
        verdict=verdict,
        graded_by=metric,
        changed=changed,
        unmatched=tuple(_unmatched_cases(sides, pairs)),
        warnings=(
            *warnings,
            *([CodedWarning.of("different-uses", uses=tuple(sorted(declared)))] if len(declared) > 1 else []),
            *left_out,
            *_double_dipping_warnings(sides, numbers, options),
            *_small_segment_warnings(segments, shared),
            *disagreement_warnings(differences),
        ),
        n_tests=n_tests,
        facts={"n_cases": [len(side.cases) for side in sides], "top_k": options.top_k},
    )


# what can be compared


def _check(sides: Sequence[Side]) -> None:
    if len(sides) < 2:
        raise InputError("a comparison takes at least two runs or files of the same cases")
    names = [side.name for side in sides]
    check_unique(names, "two sides are called {!r}: give each a name of its own")
    for side in sides:
        if len(set(side.cases)) < len(side.cases):
            twice = next(case for case in side.cases if side.cases.count(case) > 1)
            raise InputError(f"{side.name}: case {twice!r} is there twice: cases are matched by their id")


def _unmatched_cases(sides: Sequence[Side], pairs: Sequence[tuple[int, int]]) -> Iterator[UnmatchedCases]:
    for a, b in pairs:
        in_a, in_b = set(sides[a].cases), set(sides[b].cases)
        only_a, only_b = (tuple(c for c in sides[i].cases if c not in other) for i, other in ((a, in_b), (b, in_a)))
        if only_a or only_b:
            yield UnmatchedCases(name_a=sides[a].name, name_b=sides[b].name, only_a=only_a, only_b=only_b)


def _shared_metrics(sides: Sequence[Side], requested: Sequence[str]) -> list[str]:
    """The metrics all sides have, or those asked for."""
    # in the order of the first side
    shared = [m for m in sides[0].metrics if all(m in side.metrics for side in sides[1:])]
    for name in requested:
        for side in sides:
            if name not in side.metrics:
                raise UnknownName("metric", name, [m for m in side.metrics if m], hint=f"{side.name} does not have it")
    if not shared:
        each = "; ".join(f"{side.name} has {', '.join(m or 'no labels' for m in side.metrics)}" for side in sides)
        raise InputError(f"no metric in common: {each}: name one that all can be graded by with --metric")
    return list(requested) or shared


def _numbers(
    sides: Sequence[Side], options: ComparisonOptions, use: str | None
) -> tuple[list[ComparedNumber], list[CodedWarning]]:
    """Every number asked for, else every number that a side shows; and what is left out.

    What one side lacks is computed from its candidates, and so are the mean and the number of the declared use.
    """
    requested = [aggregator(name) for name in options.aggregate]
    check_unique([rule.name for rule in requested], "aggregator {} is there twice")
    found: list[ComparedNumber] = []
    left_out: list[CodedWarning] = []
    for metric in _shared_metrics(sides, options.metrics):
        if requested:
            found += _requested_numbers(sides, metric, requested)
            continue
        shown = [name for side in sides for of, name in side.result.case_values if of == metric]
        implied = ["mean", *([NUMBER_OF_USE[use]] if use in NUMBER_OF_USE else [])]
        beside = any(side.metric(metric).beside_labels for side in sides)
        for name in dict.fromkeys([*shown, *(implied if metric and shown and not beside else [])]):
            columns = [_column(side, metric, name, beside_labels=beside) for side in sides]
            if all(column is not None for column in columns):
                sets = sides[0].metric(metric).sets
                found.append(ComparedNumber(metric, name, tuple(filter(None, columns)), _direction(name, sets)))
            elif name in shown and not beside:
                lacking = tuple(side.name for side, column in zip(sides, columns, strict=True) if column is None)
                left_out.append(CodedWarning.of("number-left-out", number=name, names=lacking))
    if not found:
        raise InputError("no number in common: name one with -a, such as -a any_pass")
    return found, left_out


def _column(side: Side, metric: str, name: str, *, beside_labels: bool) -> SideValues | None:
    """A number that a side has stored, or that its candidates give; None where they cannot."""
    if (stored := side.result.case_values.get((metric, name))) is not None:
        return side.of(stored)
    rule, scored = _named_aggregator(name), side.metric(metric)
    if rule is None or (beside_labels and isinstance(rule, CountAggregator)):
        return None  # beside labels a count is the same number as under the labels
    try:
        values = apply_aggregator(rule, scored)
    except InputError:  # the candidates lack what it needs: answers, texts, scores of a selector
        return None
    return None if bool(np.isnan(values).all()) else side.of(values)


def _requested_numbers(sides: Sequence[Side], metric: str, rules: Sequence[Aggregator]) -> Iterator[ComparedNumber]:
    scored = [side.metric(metric) for side in sides]
    for rule in rules:
        if any(one.beside_labels for one in scored) and isinstance(rule, CountAggregator):
            continue  # the same numbers as under the labels
        columns = []
        for side, one in zip(sides, scored, strict=True):
            try:
                columns.append(side.of(apply_aggregator(rule, one)))
            except InputError as problem:
                raise InputError(f"{side.name}: {problem}") from None
        yield ComparedNumber(metric, rule.name, tuple(columns), _direction(rule.name, scored[0].sets))


def _direction(name: str, sets: CandidateSets) -> bool | None:
    return higher_is_better(name, sets.higher_is_better)


# segments


def _segments(sides: Sequence[Side], by: Sequence[str]) -> Iterator[SegmentCases]:
    """The slices of the cases by each field, as the first side that has the field tells it."""
    for name in by:
        side = sides[-1]
        for one in sides[:-1]:
            try:
                case_column(one.table, name)
            except UnknownName:
                continue
            side = one
            break
        slices: dict[str, set[str]] = {}
        for case, value in zip(side.cases, segment_names(side.table, name), strict=True):
            slices.setdefault(f"{name}={value}", set()).add(case)
        yield from (SegmentCases(of, cases) for of, cases in slices.items())


# the cases that changed


def _verdict(
    sides: Sequence[Side], numbers: Sequence[ComparedNumber], options: ComparisonOptions, use: str | None
) -> tuple[Requirement | None, str]:
    """The rule by which a case passes, and its metric: the one asked for, else that of the declared use.

    Without either, the first of `VERDICTS`, else another number that is 0/1.
    """
    # a metric with passes of its own before one that stands beside labels
    graded = [n.metric for n in numbers if n.metric and not sides[0].metric(n.metric).beside_labels]
    graded += [n.metric for n in numbers if n.metric]
    if not graded:
        if options.verdict is not None:
            raise InputError(f"verdict {options.verdict}: nothing is graded, so no case passes or fails")
        return None, ""
    metric = graded[0]
    if options.verdict is not None:
        return _parse_verdict(options.verdict, sides[0].metric(metric).sets), metric
    of_metric = [n for n in numbers if n.metric == metric and (options.aggregate or _named_aggregator(n.aggregator))]
    decided = [n.aggregator for n in of_metric if all(is_rate(c.values[~np.isnan(c.values)]) for c in n.columns)]
    preferred = (*([NUMBER_OF_USE[use]] if use in NUMBER_OF_USE else []), *VERDICTS)
    name = next((v for v in preferred if v in decided), min(decided, default=VERDICTS[0]))
    return _parse_verdict(name, sides[0].metric(metric).sets), metric


def _parse_verdict(text: str, sets: CandidateSets) -> Requirement:
    """A bound that was given, or the natural one: 1 of a share, 0 of values of which less is better."""
    if any(sign in text for sign in "<>"):
        rule = Requirement.parse(text)
        if rule.part != "point":
            raise InputError(f"verdict {text!r}: a single case has no interval; bound the value itself")
        return replace(rule, name=aggregator(rule.name).name)
    name = aggregator(text).name
    way = _direction(name, sets)
    if way is None:
        raise InputError(f"verdict {name}: say from where on a case passes, such as --verdict '{name} >= 1'")
    return Requirement(name=name, operator=">=" if way else "<=", bound=1.0 if way else 0.0)


def set_verdicts(sets: CandidateSets, rule: Requirement) -> list[bool | None]:
    """Whether each set passes; None where it has no value."""
    # few distinct values: each is compared with the bound once
    values, places = np.unique(aggregator(rule.name)(sets), return_inverse=True)
    verdict_of = [None if v != v else rule.met_by(v) for v in values.tolist()]
    return [verdict_of[i] for i in places.tolist()]


def _changed_cases(
    sides: Sequence[Side], pairs: Sequence[tuple[int, int]], metric: str, rule: Requirement, *, bodies: bool
) -> Iterator[ChangedCase]:
    """The cases that pass on one side and fail on the other, in the order of the first."""
    sets = [side.metric(metric).sets for side in sides]
    passed = [dict(zip(side.cases, set_verdicts(s, rule), strict=True)) for side, s in zip(sides, sets, strict=True)]
    places = [{case: i for i, case in enumerate(side.cases)} for side in sides]
    for a, b in pairs:
        for case, before in passed[a].items():
            after = passed[b].get(case)
            if before is None or after is None or before == after:
                continue
            yield ChangedCase(
                case=case,
                name_a=sides[a].name,
                name_b=sides[b].name,
                passed_a=before,
                passed_b=after,
                a=candidate_excerpts(sets[a], places[a][case]) if bodies else (),
                b=candidate_excerpts(sets[b], places[b][case]) if bodies else (),
                **(questions_of(sides[b].table, places[b][case]) if bodies else {}),
            )


def candidate_excerpts(sets: CandidateSets, at: int, only: Sequence[int] | None = None) -> tuple[CandidateExcerpt, ...]:
    """The candidates of a set, all or some, as a reader sees them."""
    low, high = int(sets.offsets[at]), int(sets.offsets[at + 1])
    return tuple(
        CandidateExcerpt(
            index=i,
            text=None if sets.texts is None else sets.texts[low + i],
            answer=None if sets.answers is None else sets.answers[low + i],
            passed=None if sets.passes[low + i] == NOT_GRADED else bool(sets.passes[low + i]),
        )
        for i in (range(high - low) if only is None else only)
    )


def questions_of(table: Table, at: int) -> dict[str, str | None]:
    """What a case asks and expects, as texts."""
    out: dict[str, str | None] = {"input": None, "reference": None}
    for name in out:
        if name in table.cases.columns and (value := table.cases[name][at]) is not None:
            out[name] = value if isinstance(value, str) else " | ".join(map(str, value))
    return out


# what to beware of


def _warnings(
    sides: Sequence[Side], pairs: Sequence[tuple[int, int]], options: ComparisonOptions
) -> list[CodedWarning]:
    out: list[CodedWarning] = []
    for a, b in pairs:
        left, right = sides[a], sides[b]
        shared = set(left.cases) & set(right.cases)
        if not shared:
            here, there = (", ".join(map(repr, side.cases[:2])) for side in (left, right))
            raise InputError(
                f"{left.name} and {right.name} share no case id ({here}, ... against {there}, ...): "
                "give runs or files of the same cases"
            )
        out += _pair_warnings(left, right, shared, options.top_k)
    return [*out, *dict.fromkeys(w for side in sides for w in inherited_warnings(side.result))]


def inherited_warnings(result: ScoredResult) -> tuple[CodedWarning, ...]:
    """What was said of a result that holds for whatever is made of it: no threshold chosen, a judge not corrected."""
    return with_code(result.warnings, "no-threshold", "judge-not-calibrated")


def _pair_warnings(a: Side, b: Side, shared: set[str], top_k: int | None) -> Iterator[CodedWarning]:
    """What makes a difference of two sides more than one of their systems."""
    names: dict[str, Any] = {"a": a.name, "b": b.name}
    # cases of one id that are not the same case
    differ, n = count_changed_questions(_questions(a), _questions(b))
    if differ:
        yield CodedWarning.of("different-cases", n=differ, of=n, **names)
    # any_pass of 5 candidates is not any_pass of 10
    both = [side.result.scored[0].sets.sizes for side in (a, b)]
    both = both if top_k is None else [np.minimum(own, top_k) for own in both]
    sizes = [_by_case(side, own, shared) for side, own in zip((a, b), both, strict=True)]
    if n_differ := sum(x != y for x, y in zip(*sizes, strict=True)):
        spans = tuple(f"{min(s)}" if min(s) == max(s) else f"{min(s)} to {max(s)}" for s in sizes)
        least = min(map(min, sizes))
        yield CodedWarning.of("sets-differ-in-size", n=n_differ, names=(a.name, b.name), sizes=spans, least=least)
    left, right = (side.result.extraction.get("extractor") for side in (a, b))
    if left != right and left is not None and right is not None:
        yield CodedWarning.of("different-extractors", **names, extractor_a=left, extractor_b=right)
    if a.weights is not None and b.weights is not None:
        weights = [_by_case(a, a.weights, shared), _by_case(b, b.weights, shared)]
        if n_differ := sum(x != y for x, y in zip(*weights, strict=True)):
            yield CodedWarning.of("different-weights", n=n_differ, **names)
    for metric in sorted(a.result.judges.keys() & b.result.judges.keys()):
        in_a, in_b = a.result.judges[metric], b.result.judges[metric]
        # the fingerprint covers model, prompt and parameters
        if in_a["fingerprint"] != in_b["fingerprint"]:
            models = {"models_a": tuple(in_a["models"]), "models_b": tuple(in_b["models"])}
            yield CodedWarning.of("different-judges", metric=metric, **names, **models)


def _by_case(side: Side, column: NDArray[Any], cases: set[str]) -> list[Any]:
    """A column of a side's cases on some of them, in the order of the set."""
    known = dict(zip(side.cases, column.tolist(), strict=True))
    return [known[case] for case in cases]


def _questions(side: Side) -> Questions:
    return side.questions or questions_in(side.table)


def _double_dipping_warnings(
    sides: Sequence[Side], numbers: Sequence[ComparedNumber], options: ComparisonOptions
) -> list[CodedWarning]:
    """Numbers that are picked and graded by the same score or judge."""
    out = []
    requested = {rule.name: rule for rule in map(aggregator, options.aggregate)}
    for metric, name in dict.fromkeys((n.metric, n.aggregator) for n in numbers):
        rule = requested.get(name) or _named_aggregator(name)
        for side in sides if rule is not None and "selectors" in rule.needs else ():
            scored = side.metric(metric)
            by = getattr(rule, "by", "") or next(iter(scored.sets.selectors), "")
            if (fault := find_double_dipping(scored, by, side.result.judges)) is not None:
                out.append(CodedWarning.of(DOUBLE_DIPPING, side.name, picks=name, **fault))
    return out


def disagreement_warnings(differences: Sequence[Difference]) -> list[CodedWarning]:
    """The numbers whose interval and p-value disagree about 0."""
    of = {d.aggregator if d.segment is None else f"{d.aggregator} in {d.segment}": d for d in differences
          if d.interval_agrees is False}  # fmt: skip
    return [CodedWarning.of("interval-and-p-disagree", numbers=tuple(of))] if of else []


def _small_segment_warnings(segments: Sequence[SegmentCases], shared: set[str]) -> list[CodedWarning]:
    if len(shared) < FEWEST_SHARED:
        return [CodedWarning.of("too-few-shared-cases", n=len(shared), fewest=FEWEST_SHARED)]
    if len(shared) < SMALL_SEGMENT:
        return [CodedWarning.of("few-cases", n=len(shared), shared=True)]
    small = tuple(s.name for s in segments if len(s.cases & shared) < SMALL_SEGMENT)
    return [CodedWarning.of("small-segments", fewest=SMALL_SEGMENT, segments=small)] if small else []
