"""Compares selectors on the same candidates: what each picks, graded by one evaluator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.aggregators.scores import Selected
from kofn.analysis.compare.differences import (
    ChangedCase,
    ComparedNumber,
    ComparisonReport,
    ComparisonRules,
    SideValues,
    differences_of,
    levels_of,
    pairs_of,
)
from kofn.analysis.compare.systems import candidate_excerpts, inherited_warnings, questions_of
from kofn.analysis.selectors import evaluate_selector, graded_scores, pick_outcomes, with_selector
from kofn.core.format import format_count
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning
from kofn.errors import InputError
from kofn.scoring.diagnostics import find_double_dipping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.analysis.selectors import Selector
    from kofn.core.candidate_sets import CandidateSets
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult

    Bools = NDArray[np.bool_]

PASSES, VALUES = "selected", "value of the pick"


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
    _check(selectors)
    scored = _with_metrics(result, evaluator)
    sets, names = scored.sets, [one.name for one in selectors]
    common = dict(units or {})
    pairs = pairs_of(len(selectors), every=all_pairs)
    numbers = list(_numbers(sets, selectors, evaluator, common))
    differences, n_tests = differences_of(numbers, names, pairs, rules)
    drawn = replace(options, level=rules.level, n_resamples=rules.n_resamples, seed=rules.seed)
    about = f"the same {format_count(int(sets.sizes.sum()), 'candidate')} of {format_count(len(sets), 'case')}"
    return ComparisonReport(
        kind="selectors",
        names=tuple(names),
        about=f"{about}, graded by {evaluator}",
        differences=differences,
        levels=levels_of(numbers),
        rules=rules,
        verdict=PASSES,
        changed=tuple(_changed_cases(result, sets, selectors, pairs)),
        selections=tuple(evaluate_selector(sets, one, drawn, metric=evaluator, **common) for one in selectors),
        warnings=tuple(_warnings(result, scored, selectors)),
        n_tests=n_tests,
        facts={"n_cases": len(sets), "evaluator": evaluator},
    )


def _numbers(
    sets: CandidateSets, selectors: Sequence[Selector], evaluator: str, common: Mapping[str, Any]
) -> Iterator[ComparedNumber]:
    """Whether the picks pass; and their values, where these say more than that."""
    cases = sets.case_ids.to_list()
    passed = tuple(SideValues(cases=cases, values=pick_outcomes(sets, one)[0], **common) for one in selectors)
    yield ComparedNumber(evaluator, PASSES, passed, more_is_better=True)
    if not sets.zero_one:
        added = [with_selector(sets, one.name, graded_scores(sets, one)) for one in selectors]
        worth = [Selected(one.name)(of) for one, of in zip(selectors, added, strict=True)]
        columns = tuple(SideValues(cases=cases, values=column, **common) for column in worth)
        yield ComparedNumber(evaluator, VALUES, columns, sets.higher_is_better)


def _check(selectors: Sequence[Selector]) -> None:
    if len(selectors) < 2:
        raise InputError("give at least two selectors to compare, such as --selectors first vote")
    names = [one.name for one in selectors]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two selectors are called {name!r}: give each a name of its own")


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


def _changed_cases(
    result: ScoredResult, sets: CandidateSets, selectors: Sequence[Selector], pairs: Sequence[tuple[int, int]]
) -> Iterator[ChangedCase]:
    """The cases in which two selectors have no pick in common; equal scores share a pick."""
    chosen = [_top_candidates(sets, one) for one in selectors]
    passes = [pick_outcomes(sets, one)[0].tolist() for one in selectors]
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
                passed_a=_verdict(passes[a][i]),
                passed_b=_verdict(passes[b][i]),
                a=candidate_excerpts(sets, i, np.flatnonzero(in_a).tolist()),
                b=candidate_excerpts(sets, i, np.flatnonzero(in_b).tolist()),
                **questions_of(result.table, i),
            )


def _top_candidates(sets: CandidateSets, selector: Selector) -> Bools:
    """Which candidates share the highest score of their set."""
    scores = selector.scores(sets)
    # NaN cannot be picked, and would make the maximum NaN
    known = np.where(np.isnan(scores), -np.inf, scores)
    best = sets.map_blocks(lambda block: block.max(axis=0), known)
    of_row = np.repeat(best, sets.sizes)
    found: Bools = (known == of_row) & np.isfinite(of_row)
    return found


def _verdict(value: float) -> bool | None:
    """Of a pick; None where it is not graded, or shared by candidates that pass and others that fail."""
    return bool(value) if value in (0.0, 1.0) else None


def _warnings(result: ScoredResult, scored: Graded, selectors: Sequence[Selector]) -> Iterator[CodedWarning]:
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
    judge = judges.get(scored.metric)
    if found is not None or judge is None:
        return found
    if judge.get("fingerprint") == selector.fingerprint():
        return {"by": selector.by, "metric": scored.metric, "fault": "same-judge"}
    if selector.model is not None and selector.model in judge.get("models", ()):
        return {"by": selector.by, "metric": scored.metric, "fault": "selector-model", "model": selector.model}
    return None
