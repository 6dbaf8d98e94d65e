"""Compares graders (extractors or metrics) and selectors on the same outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.analysis.compare.differences import (
    ChangedCase,
    ComparedNumber,
    ComparisonRules,
    GraderAgreement,
    SideValues,
    differences_of,
    levels_of,
    pairs_of,
)
from kofn.analysis.compare.report import ComparisonReport, main_number
from kofn.analysis.compare.systems import (
    candidate_excerpts,
    disagreement_warnings,
    inherited_warnings,
    questions_of,
)
from kofn.analysis.selectors import evaluate_selector, pick_outcomes, pick_values, with_selector
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.format import format_count
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning
from kofn.errors import InputError
from kofn.metrics import default_metric
from kofn.registry import aggregator, check_unique
from kofn.scoring.diagnostics import find_double_dipping
from kofn.scoring.evaluate import apply_aggregator, evaluate
from kofn.stats import judge_rates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.analysis.selectors import Selector
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
        examples = {"extractor": "number boxed", "metric": "exact_match numeric"}
        raise InputError(f"give at least two {kind}s to compare, such as --{kind}s {examples[kind]}")
    check_unique(names, f"{kind} {{}} is there twice: compare it with another")
    return names


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
    results = [evaluate(table, replace(options, aggregate=("mean",), by=())) for options in ways.values()]
    for name, result in zip(ways, results, strict=True):
        if not result.scored[0].metric:
            raise InputError(f"{name}: nothing is graded: the outputs have no references or labels to compare with")
    first, scored = results[0], [result.scored[0] for result in results]
    pairs, names = pairs_of(len(ways), every=all_pairs), list(ways)
    metrics = list(dict.fromkeys(one.metric for one in scored))
    metric = metrics[0] if len(metrics) == 1 else ""  # nothing where it is what differs
    cases = first.table.cases["case_id"].to_list()
    numbers = []
    for rule in map(aggregator, aggregate or ("mean",)):
        values = (apply_aggregator(rule, one) for one in scored)
        columns = tuple(SideValues(cases=cases, values=column, **(units or {})) for column in values)
        numbers.append(ComparedNumber(metric, rule.name, columns, None))  # to grade higher is not to grade better
    differences, n_tests = differences_of(numbers, names, pairs, rules)
    about = f"the same {format_count(first.n_candidates, 'candidate')} of {format_count(first.n_cases, 'case')}"
    return ComparisonReport(
        kind="graders",
        names=tuple(names),
        about=f"{about}, metric {metric}" if len(metrics) == 1 else about,
        differences=differences,
        levels=levels_of(numbers),
        rules=rules,
        main=main_number([(n.metric, n.aggregator) for n in numbers]),
        verdict="a candidate's verdict",
        changed=tuple(one for a, b in pairs for one in _changed_candidates(first, scored, names, a, b)),
        agreements=tuple(_agreement(scored[a].sets, scored[b].sets, names[a], names[b], rules) for a, b in pairs),
        warnings=(*_grader_warnings(names, results), *disagreement_warnings(differences)),
        n_tests=n_tests,
        facts={"n_cases": first.n_cases, "n_candidates": first.n_candidates, "metrics": metrics},
    )


def _agreement(a: CandidateSets, b: CandidateSets, name_a: str, name_b: str, rules: ComparisonRules) -> GraderAgreement:
    both = (a.passes != NOT_GRADED) & (b.passes != NOT_GRADED)
    owner = np.repeat(np.arange(len(a)), a.sizes)
    # grader a takes the place of the human: the rates are symmetric in agreement and kappa
    rates = judge_rates(a.passes[both], b.passes[both], clusters=owner[both], **rules.drawing)
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


def _grader_warnings(names: Sequence[str], results: Sequence[ScoredResult]) -> Iterator[CodedWarning]:
    for name, result in zip(names, results, strict=True):
        failed, n = result.extraction.get("n_failed") or 0, result.extraction.get("n") or 0
        if failed and failed >= 0.05 * n:
            yield CodedWarning.of("no-answer-found", name, n=failed, of=n, compared=True)


# as the aggregators of these names: of 0/1 values they are one number, which goes by the shorter name
SELECTED, SELECTED_PASS = "selected", "selected_pass"


def compare_selectors(
    result: ScoredResult,
    selectors: Sequence[Selector],
    evaluator: str,
    options: GradingConfig,
    *,
    units: Mapping[str, Any] | None = None,
    all_pairs: bool = False,
    rules: ComparisonRules | None = None,
) -> ComparisonReport:
    """What every selector picks of the same sets, graded by one metric that none of them should be.

    A metric of the result may pick too, by its name. Picks are compared case by case; equal scores share a pick.

    >>> import kofn
    >>> from kofn.scoring.configuration import GradingConfig
    >>> from kofn.analysis.selectors import Selector
    >>> rows = [{"id": i, "passes": [0, 1], "texts": ["long", "no"]} for i in "xyz"]
    >>> two = [Selector(name=name, by=name) for name in ("first", "length")]
    >>> found = compare_selectors(kofn.score(rows), two, "pass", GradingConfig())
    >>> found.differences[0].comparison.difference, len(found.changed)
    (0.0, 0)
    """
    rules = rules or ComparisonRules()
    if len(selectors) < 2:
        raise InputError("give at least two selectors to compare, such as --selectors first vote")
    names = [one.name for one in selectors]
    check_unique(names, "two selectors are called {!r}: give each a name of its own")
    scored = _with_metrics(result, evaluator)
    sets, common = scored.sets, dict(units or {})
    pairs = pairs_of(len(selectors), every=all_pairs)
    numbers = list(_numbers(sets, selectors, evaluator, common))
    differences, n_tests = differences_of(numbers, names, pairs, rules)
    drawn = replace(options, **rules.drawing)
    about = f"the same {format_count(int(sets.sizes.sum()), 'candidate')} of {format_count(len(sets), 'case')}"
    return ComparisonReport(
        kind="selectors",
        names=tuple(names),
        about=f"{about}, graded by {evaluator}",
        differences=differences,
        levels=levels_of(numbers),
        rules=rules,
        main=main_number([(n.metric, n.aggregator) for n in numbers]),
        verdict=SELECTED if sets.zero_one else SELECTED_PASS,
        changed=tuple(_changed_picks(result, sets, selectors, pairs)),
        selections=tuple(evaluate_selector(sets, one, drawn, metric=evaluator, **common) for one in selectors),
        warnings=(*_selector_warnings(result, scored, selectors), *disagreement_warnings(differences)),
        n_tests=n_tests,
        facts={"n_cases": len(sets), "evaluator": evaluator},
    )


def _numbers(
    sets: CandidateSets, selectors: Sequence[Selector], evaluator: str, common: Mapping[str, Any]
) -> Iterator[ComparedNumber]:
    """Whether the picks pass; and their values, where these say more than that."""
    cases = sets.case_ids.to_list()
    passed = tuple(SideValues(cases=cases, values=pick_outcomes(sets, one)[0], **common) for one in selectors)
    if sets.zero_one:
        yield ComparedNumber(evaluator, SELECTED, passed, more_is_better=True)
        return
    worth = [pick_values(sets, one) for one in selectors]
    columns = tuple(SideValues(cases=cases, values=column, **common) for column in worth)
    yield ComparedNumber(evaluator, SELECTED, columns, sets.higher_is_better)
    yield ComparedNumber(evaluator, SELECTED_PASS, passed, more_is_better=True)


def _with_metrics(result: ScoredResult, evaluator: str) -> Graded:
    """The sets as the evaluator grades them, with the values of every other metric as a column that may pick."""
    scored = next(one for one in result.scored if one.metric == evaluator)
    sets = scored.sets
    if scored.beside_labels:  # its passes are those of the labels: here it grades by itself
        sets = sets.passing_from(None)
    for one in result.scored:
        if one.metric and one.metric not in sets.selectors:
            sets = with_selector(sets, one.metric, one.sets.values)
    return replace(scored, sets=sets)


def _changed_picks(
    result: ScoredResult, sets: CandidateSets, selectors: Sequence[Selector], pairs: Sequence[tuple[int, int]]
) -> Iterator[ChangedCase]:
    """The cases in which two selectors have no pick in common; equal scores share a pick."""
    chosen = []
    for one in selectors:
        scores = one.scores(sets)
        # NaN cannot be picked, and would make the maximum NaN
        known = np.where(np.isnan(scores), -np.inf, scores)
        best = sets.map_blocks(lambda block: block.max(axis=0), known)
        chosen.append((known == np.repeat(best, sets.sizes)) & np.isfinite(known))
    passes = [pick_outcomes(sets, one)[0].tolist() for one in selectors]
    # of a pick: none where it is not graded, or shared by candidates that pass and others that fail
    verdicts = {0.0: False, 1.0: True}
    for a, b in pairs:
        for i in range(len(sets)):
            low, high = int(sets.offsets[i]), int(sets.offsets[i + 1])
            in_a, in_b = chosen[a][low:high], chosen[b][low:high]
            # with a pick in common they differ by the draw among equal scores at most
            if bool((in_a & in_b).any()) or not (in_a.any() and in_b.any()):
                continue
            yield ChangedCase(
                case=str(sets.case_ids[i]),
                name_a=selectors[a].name,
                name_b=selectors[b].name,
                passed_a=verdicts.get(passes[a][i]),
                passed_b=verdicts.get(passes[b][i]),
                a=candidate_excerpts(sets, i, np.flatnonzero(in_a).tolist()),
                b=candidate_excerpts(sets, i, np.flatnonzero(in_b).tolist()),
                **questions_of(result.table, i),
            )


def _selector_warnings(result: ScoredResult, scored: Graded, selectors: Sequence[Selector]) -> Iterator[CodedWarning]:
    yield from inherited_warnings(result)
    lower = {one.metric for one in result.scored if not one.sets.higher_is_better}
    for one in selectors:
        if (fault := selector_double_dipping(scored, one, result.judges)) is not None:
            yield CodedWarning.of(DOUBLE_DIPPING, picks=one.name, **fault)
        if one.by in lower and one.prefer == "high" and one.by not in result.scored[0].sets.selectors:
            yield CodedWarning.of("picks-the-worst", selector=one.name, by=one.by)
    # a comparison of a selector with itself finds no difference, and proves nothing
    prints: dict[str, str] = {}
    for one in selectors:
        other = prints.setdefault(one.fingerprint(), one.name)
        if other != one.name:
            yield CodedWarning.of("same-selector", a=other, b=one.name)


def selector_double_dipping(
    scored: Graded, selector: Selector, judges: Mapping[str, Mapping[str, Any]]
) -> dict[str, str | None] | None:
    """What is wrong with grading this selector's picks under this metric; None where they are apart.

    As `find_double_dipping`, and the model or fingerprint that a selector file names is compared with the judge.
    """
    found = find_double_dipping(scored, selector.by, judges)
    judge, fault = judges.get(scored.metric), {"by": selector.by, "metric": scored.metric}
    if found is not None or judge is None:
        return found
    if judge.get("fingerprint") == selector.fingerprint():
        return {**fault, "fault": "same-judge"}
    if selector.model is not None and selector.model in judge.get("models", ()):
        return {**fault, "fault": "selector-model", "model": selector.model}
    return None
