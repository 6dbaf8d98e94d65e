"""Evaluates a table: finds answers, applies metrics and aggregators, and estimates every number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kofn._version import __version__
from kofn.aggregators.passes import CountAggregator
from kofn.core.candidate_sets import histogram
from kofn.core.table import case_codes, case_numbers, segment_names
from kofn.errors import InputError, UnknownName
from kofn.metrics import trait
from kofn.registry import aggregator, check_unique, metric
from kofn.scoring import diagnostics as diagnose
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.diagnostics import build_checklist
from kofn.scoring.grade import find_answers, score_table, with_labels
from kofn.scoring.result import Result, count_candidates, coverage_aggregators
from kofn.stats import estimate, segment_estimates
from kofn.stats.estimates import check_interval
from kofn.stats.intervals import check_level, check_resamples

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Mapping, Sequence

    from kofn.aggregators.base import Aggregator
    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import Counts, ScoredResult

DEFAULTS = ("first", "mean", "any_pass", "all_pass", "majority", "majority_pass")
# of a metric beside labels: its passes are the labels', so pass counts would repeat those of the labels
VALUES_ONLY = ("first", "mean", "best_score")
WITHOUT_LABELS = ("agreement", "vote_margin", "answered", "unique_answers")
_LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_SETS = 0.95  # pass@k is shown by default where this share of the sets has k candidates: it is undefined in others


def resolve_extractor(options: GradingConfig) -> GradingConfig:
    """With the extractor that every metric asked for wants, where nobody named another."""
    if options.extract is not None or not options.metrics:
        return options
    try:
        extractors = {trait(metric(one), "extractor") for one in options.metrics}
    except UnknownName:  # it may be a column of the file
        return options
    return replace(options, extract=extractors.pop() or None) if len(extractors) == 1 else options


def evaluate(table: Table, options: GradingConfig | None = None) -> ScoredResult:
    """Evaluate every candidate of a table."""
    options = resolve_extractor(options or GradingConfig())
    check_options(table, options)
    # the split comes first, so that nothing is chosen (an extractor, a default) by the cases left out
    if options.split is not None:
        table = options.split.of(table)
    if options.top_k is not None:
        table = table.truncate(options.top_k)
    table, graded = grade(table, options)
    return result_of(table, graded, options).with_warnings(table.notes)


def grade(
    table: Table, options: GradingConfig, *, whole: bool = True, base: int | None = None
) -> tuple[Table, list[Graded]]:
    """Every candidate under every metric, before anything is combined; the table has its options labelled.

    Where nothing is graded there is one member, with the answers alone.

    `whole` and `base` are for a table that is a part of the data: see `score_table` and `with_labels`.
    """
    if options.extract is None or str(options.extract).startswith("letter"):
        table = with_labels(table, base)
    answers = find_answers(table, options.extract)
    graded = score_table(table, answers, options.metrics, options.threshold, options.engine, whole=whole)
    return table, graded or [answers]


def result_of(
    table: Table,
    graded: Sequence[Graded],
    options: GradingConfig,
    judges: Mapping[str, Mapping[str, Any]] | None = None,
) -> ScoredResult:
    """The numbers of candidates that are graded already. `judges` describes the metrics that a model graded."""
    found_values = _case_values(graded, options)
    values = {key: column.values for key, column in found_values.items()}
    estimates = estimates_of(table, found_values, graded[0].extractor, options)
    facts = count_candidates(table, graded, options)
    result = describe_result(table, graded[0], facts, estimates, options, judges)
    return result.with_table(table, graded, values)


def describe_result(
    table: Table,
    answers: Graded,
    facts: Counts,
    estimates: Sequence[Estimate],
    options: GradingConfig,
    judges: Mapping[str, Mapping[str, Any]] | None = None,
) -> Result:
    """The result of what was counted and estimated. `table` and `answers` may be a sample of it all.

    They are looked at where a sample is enough: how extractors differ, how n-grams repeat.
    """
    extraction = diagnose.extraction_diagnostics(table, answers, facts, options)
    found = diagnose.set_diagnostics(answers.sets, facts, options)
    result = Result(
        n_cases=facts.n_cases,
        n_candidates=facts.n_candidates,
        n_missing=facts.metrics[0].n_missing if facts.metrics[0].metric else 0,
        understood=_describe_input(table, facts, answers, options),
        estimates=tuple(estimates),
        extraction=extraction,
        diagnostics=found,
        warnings=tuple(diagnose.build_warnings(facts, estimates, extraction, found, options, judges)),
        judges=judges or {},
        table=table,
    )
    # the checklist looks at the fields of the cases; a sample must not stay in the result
    return replace(result, checklist=build_checklist(result, options), table=None)


def aggregators_of(scored: Graded, options: GradingConfig) -> list[Aggregator]:
    """The aggregators that are shown of graded candidates; without any asked for, the defaults."""
    sets = scored.sets
    values = sets.values[sets.graded]
    return choose_aggregators(
        options,
        scored.metric,
        beside_labels=scored.beside_labels,
        has_answers=sets.answers is not None,
        zero_one=sets.zero_one,
        passes_mean=has_meaningful_passes(values.min(initial=0), values.max(initial=0), options),
        verdicts=histogram(sets.counts[0]),
        further=further_defaults(coverage_aggregators(sets), sets.selectors, scored.metric, options.use),
    )


def further_defaults(covering: Sequence[str], selectors: Collection[str], metric: str, use: str | None) -> list[str]:
    """Defaults beyond the usual: coverage, and what measures a declared use: a selector's pick, or the ranked list.

    >>> further_defaults(["coverage"], ["reward"], "numeric", "select"), further_defaults([], [], "numeric", "select")
    (['coverage', 'selected'], [])
    >>> further_defaults([], ["reward", "judge"], "numeric", "select")
    ["selected(by='reward')", "selected(by='judge')"]
    """
    if not metric:
        return [*covering]
    picks = ["selected"] if len(selectors) == 1 else [f"selected(by={name!r})" for name in selectors]
    return [*covering, *{"list": ["ndcg"], "select": picks}.get(use or "", [])]


def has_meaningful_passes(low: float | None, high: float | None, options: GradingConfig) -> bool:
    """Whether passes say anything: not of values beyond 0 to 1 (grades from 1 to 5, BLEU) without a threshold.

    >>> has_meaningful_passes(1, 5, GradingConfig()), has_meaningful_passes(1, 5, GradingConfig(threshold=4))
    (False, True)
    """
    return options.threshold is not None or ((low or 0.0) >= 0 and (high or 0.0) <= 1)


def choose_aggregators(
    options: GradingConfig,
    metric: str,
    *,
    beside_labels: bool,
    has_answers: bool,
    zero_one: bool,
    passes_mean: bool = True,
    verdicts: Counter[int],
    further: Sequence[str],
) -> list[Aggregator]:
    """The aggregators asked for, each once; else defaults by what is counted, with pass@k up to the size of most sets.

    `verdicts` says how many sets have so many graded candidates. A metric that stands beside labels shows its values
    only: its passes are the labels'. Without meaningful passes the defaults count none. `further` are the
    `further_defaults`.
    """
    if options.aggregate:
        rules = [aggregator(spec) for spec in options.aggregate]
        check_unique([rule.name for rule in rules], "aggregator {} is there twice")
        return [rule for rule in rules if not (beside_labels and isinstance(rule, CountAggregator))]
    if not metric:
        names = [*(WITHOUT_LABELS if has_answers else ()), *further]
    elif beside_labels:
        names = list(VALUES_ONLY)
    else:
        names = list(DEFAULTS if has_answers else [d for d in DEFAULTS if d != "majority"])
        if not zero_one:
            # after first and mean; where all values are 0 or 1 it is any_pass
            names.insert(2, "best_score")
        reach = _reach(verdicts)
        names += [*(f"pass@{k}" for k in _LADDER if k <= reach), *further]
    rules = [aggregator(name) for name in names]
    return [rule for rule in rules if passes_mean or not isinstance(rule, CountAggregator)]


def _reach(verdicts: Counter[int]) -> int:
    """The size that nearly all sets have."""
    # the quantile counted off a histogram: parts keep no list of sizes
    below, place = 0, int((1 - _MOST_SETS) * verdicts.total())
    for size in sorted(verdicts):
        below += verdicts[size]
        if below > place:
            return size
    return 0


class ValueColumn(NamedTuple):
    """One value a case, and whether they are shares: only of those is all 1 the same as 100%."""

    values: Floats
    rate: bool


def _case_values(scored: Sequence[Graded], options: GradingConfig) -> dict[tuple[str, str], ValueColumn]:
    """(metric, aggregator) -> one value a case."""
    return {
        (one.metric, rule.name): ValueColumn(apply_aggregator(rule, one), is_rate(rule, one.sets.zero_one))
        for one in scored
        for rule in aggregators_of(one, options)
    }


def is_rate(rule: Aggregator, zero_one: bool) -> bool:
    """Whether an aggregator's values are shares, given whether the metric's are all 0 or 1."""
    return rule.bounded and (zero_one or not rule.of_values)


def apply_aggregator(rule: Aggregator, scored: Graded) -> Floats:
    """An aggregator's value of every set; a k that no set reaches is the user's mistake."""
    values = rule(scored.sets)
    k = getattr(rule, "k", None)
    largest = int(scored.sets.sizes.max()) if len(scored.sets) else 0
    # undefined for some sets is normal and shows as missing cases; for all of them it is a mistake
    if isinstance(k, int) and k > largest and bool(np.isnan(values).all()):
        raise unreachable_k(rule, largest)
    return values


def unreachable_k(rule: Aggregator, largest: int) -> InputError:
    """What to say of a k that no set reaches."""
    return InputError(f"{rule.name} is undefined: the largest set has {largest} candidates; ask for k <= {largest}")


def estimates_of(
    table: Table,
    values: Mapping[tuple[str, str], ValueColumn],
    extractor: str | None,
    options: GradingConfig,
) -> list[Estimate]:
    """The estimate of every column of values, over all cases and by segment."""
    weights = case_numbers(table, options.weight or ("weight" if "weight" in table.cases.columns else None))
    clusters = case_codes(table, options.cluster or ("cluster" if "cluster" in table.cases.columns else None))
    common: dict[str, Any] = {
        "weights": weights,
        "clusters": clusters,
        "interval": options.interval,
        "level": options.level,
        "n_resamples": options.n_resamples,
        "seed": options.seed,
    }
    segments = {name: segment_names(table, name) for name in options.by}
    out: list[Estimate] = []
    for (metric_name, name), column in values.items():
        recipe = recipe_of(metric_name, name, extractor, options)
        named: dict[str, Any] = {"metric": metric_name, "aggregator": name, "recipe": recipe, "rate": column.rate}
        try:
            out.append(estimate(column.values, **named, **common))
            for by, of_case in segments.items():
                out.extend(segment_estimates(column.values, [f"{by}={s}" for s in of_case], **named, **common))
        except InputError as problem:
            # statistics do not know which aggregator asked
            raise InputError(f"{name}: {problem}") from None
    return out


def recipe_of(metric: str, name: str, extractor: str | None, options: GradingConfig) -> dict[str, Any]:
    """What makes an estimate again."""
    return {
        "extractor": extractor,
        "seed": options.seed,
        "version": __version__,
        "top_k": options.top_k,
        "metric": metric,
        "aggregator": name,
    }


def _describe_input(table: Table, facts: Counts, answers: Graded, options: GradingConfig) -> dict[str, Any]:
    return {
        "form": table.form,
        "sources": list(table.sources),
        "origin": dict(table.origin),
        "labels": dict(table.labels),
        "fields": dict(table.fields),
        "set_size": facts.largest if len(facts.sizes) == 1 else None,
        "metrics": {one.metric: one.source for one in facts.metrics if one.metric},
        "answers": answers.reason
        if answers.extractor is None
        else f"extracted by {answers.extractor}: {answers.reason}",
        "top_k": options.top_k,
        "use": options.use,
        "aggregators": [aggregator(spec).name for spec in options.aggregate],
        "selectors": list(facts.selectors),
        "weight": options.weight or ("weight" if "weight" in table.cases.columns else None),
        "cluster": options.cluster or ("cluster" if "cluster" in table.cases.columns else None),
    }


def check_options(table: Table, options: GradingConfig) -> None:
    """Refuse a table without cases, and intervals that mean nothing."""
    if not table.n_cases:
        raise InputError("no cases")

    check_level(options.level)
    check_resamples(options.n_resamples)
    check_interval(options.interval)
