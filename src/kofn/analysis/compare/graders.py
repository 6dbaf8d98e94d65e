"""Compares extractors or metrics on the same outputs: agreement, and where verdicts differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.analysis.compare.differences import (
    ChangedCase,
    ComparedNumber,
    ComparisonReport,
    ComparisonRules,
    GraderAgreement,
    SideValues,
    differences_of,
    levels_of,
    pairs_of,
)
from kofn.analysis.compare.systems import candidate_excerpts, questions_of
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.format import format_count
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.metrics import default_metric
from kofn.registry import aggregator
from kofn.scoring.evaluate import apply_aggregator, evaluate
from kofn.stats import judge_rates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.core.candidate_sets import CandidateSets
    from kofn.core.table import Table
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult


def by_extractor(names: Sequence[str], options: GradingConfig) -> dict[str, GradingConfig]:
    """How to grade with each extractor: the metric that was asked for, else the one that suits the first of them.

    One metric for all, so that only the extractor differs.

    >>> from kofn.scoring.configuration import GradingConfig
    >>> {name: (o.extract, o.metrics) for name, o in by_extractor(["number", "last_line"], GradingConfig()).items()}
    {'number': ('number', ('numeric',)), 'last_line': ('last_line', ('numeric',))}
    """
    metrics = options.metrics[:1] or (default_metric(names[0]),)
    return {name: replace(options, extract=name, metrics=metrics) for name in _check_distinct("extractor", names)}


def by_metric(names: Sequence[str], options: GradingConfig) -> dict[str, GradingConfig]:
    """How to grade with each metric: by the extractor that was asked for, else the one the metric wants."""
    return {name: replace(options, metrics=(name,)) for name in _check_distinct("metric", names)}


def _check_distinct(kind: str, names: Sequence[str]) -> Sequence[str]:
    if len(names) < 2:
        raise InputError(f"give at least two {kind}s to compare, such as --{kind}s {_EXAMPLES[kind]}")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{kind} {name} is there twice: compare it with another")
    return names


_EXAMPLES = {"extractor": "number boxed", "metric": "exact_match numeric"}


def compare_graders(
    table: Table,
    ways: Mapping[str, GradingConfig],
    *,
    units: Mapping[str, Any] | None = None,
    aggregate: Sequence[str] = (),
    all_pairs: bool = False,
    rules: ComparisonRules | None = None,
) -> ComparisonReport:
    """Grade the same candidates in every way, and compare each with the first (or every two).

    Verdicts are counted by candidate, with agreement and Cohen's kappa resampled by case; the scores are compared case
    by case. `units` are weights and clusters of the cases.

    >>> from kofn.runs.load import load_table
    >>> from kofn.scoring.configuration import GradingConfig
    >>> from kofn.importers.base import ReadOptions
    >>> texts = ["4", "2 + 2 = 4", "4 (a)"]
    >>> rows = [{"id": str(i), "reference": "4", "outputs": [text]} for i, text in enumerate(texts)]
    >>> found = compare_graders(load_table(rows, ReadOptions()), by_extractor(["number", "last_line"], GradingConfig()))
    >>> found.agreements[0].counts
    {'both_pass': 1, 'only_a': 2, 'only_b': 0, 'both_fail': 0}
    """
    rules = rules or ComparisonRules()
    results = [_grade(table, name, options) for name, options in ways.items()]
    scored = [result.scored[0] for result in results]
    pairs, names = pairs_of(len(ways), every=all_pairs), list(ways)
    metrics = list(dict.fromkeys(one.metric for one in scored))
    metric = metrics[0] if len(metrics) == 1 else ""  # nothing where it is what differs
    numbers = [
        ComparedNumber(
            metric, rule.name, tuple(_column(results[0], apply_aggregator(rule, one), units) for one in scored), None
        )
        for rule in map(aggregator, aggregate or ("mean",))
    ]  # to grade higher is not to grade better
    differences, n_tests = differences_of(numbers, names, pairs, rules)
    return ComparisonReport(
        kind="graders",
        names=tuple(names),
        about=_about(results[0], metrics),
        differences=differences,
        levels=levels_of(numbers),
        rules=rules,
        verdict="a candidate's verdict",
        changed=tuple(one for a, b in pairs for one in _changed_candidates(results[0], scored, names, a, b)),
        agreements=tuple(_agreement(scored[a].sets, scored[b].sets, names[a], names[b], rules) for a, b in pairs),
        warnings=_warnings(names, results),
        n_tests=n_tests,
        facts={"n_cases": results[0].n_cases, "n_candidates": results[0].n_candidates, "metrics": metrics},
    )


def _grade(table: Table, name: str, options: GradingConfig) -> ScoredResult:
    result = evaluate(table, replace(options, aggregate=("mean",), by=()))
    if not result.scored[0].metric:
        raise InputError(f"{name}: nothing is graded: the outputs have no references or labels to compare with")
    return result


def _column(result: ScoredResult, values: Any, units: Mapping[str, Any] | None) -> SideValues:
    return SideValues(cases=result.table.cases["case_id"].to_list(), values=values, **(units or {}))


def _about(result: ScoredResult, metrics: Sequence[str]) -> str:
    same = f", metric {metrics[0]}" if len(metrics) == 1 else ""
    return f"the same {format_count(result.n_candidates, 'candidate')} of {format_count(result.n_cases, 'case')}{same}"


def _agreement(a: CandidateSets, b: CandidateSets, name_a: str, name_b: str, rules: ComparisonRules) -> GraderAgreement:
    both = (a.passes != NOT_GRADED) & (b.passes != NOT_GRADED)
    owner = np.repeat(np.arange(len(a)), a.sizes)
    # grader a takes the place of the human: the rates are symmetric in agreement and kappa
    rates = judge_rates(
        a.passes[both], b.passes[both], clusters=owner[both], level=rules.level,
        n_resamples=rules.n_resamples, seed=rules.seed,
    )  # fmt: skip
    same = None
    if a.answers is not None and b.answers is not None and len(a.answers):
        # two missing answers agree
        same = float(a.answers.eq_missing(b.answers).to_numpy().mean())
    return GraderAgreement(name_a=name_a, name_b=name_b, rates=rates, n_ungraded=int((~both).sum()), same_answer=same)


def _changed_candidates(
    result: ScoredResult, scored: Sequence[Graded], names: Sequence[str], a: int, b: int
) -> Iterator[ChangedCase]:
    """The candidates with two verdicts, then those with two answers and one verdict."""
    left, right = scored[a].sets, scored[b].sets
    graded = (left.passes != NOT_GRADED) & (right.passes != NOT_GRADED)
    differ = graded & (left.passes != right.passes)
    answers = np.zeros(len(differ), dtype=np.bool_)
    if left.answers is not None and right.answers is not None:
        answers = ~left.answers.eq_missing(right.answers).to_numpy() & ~differ
    owner = np.repeat(np.arange(len(left)), left.sizes)
    cases = result.table.cases["case_id"]
    for row in (*np.flatnonzero(differ).tolist(), *np.flatnonzero(answers).tolist()):
        case = int(owner[row])
        place = row - int(left.offsets[case])
        (in_a,), (in_b,) = (candidate_excerpts(sets, case, [place]) for sets in (left, right))
        yield ChangedCase(
            case=cases[case],
            name_a=names[a],
            name_b=names[b],
            passed_a=in_a.passed,
            passed_b=in_b.passed,
            a=(in_a,),
            b=(in_b,),
            **questions_of(result.table, case),
        )


def _warnings(names: Sequence[str], results: Sequence[ScoredResult]) -> tuple[CodedWarning, ...]:
    out = []
    for name, result in zip(names, results, strict=True):
        failed, n = result.extraction.get("n_failed") or 0, result.extraction.get("n") or 0
        if failed and failed >= 0.05 * n:
            out.append(CodedWarning.of("no-answer-found", name, n=failed, of=n, compared=True))
    return tuple(out)
