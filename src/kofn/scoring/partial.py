"""Scores cases in parts and merges the parts into the result of all cases at once.

A part keeps no candidate and no text. Of every number it keeps how often each value is there (`stats.estimates`), and
what else a result says, in counts that add up. Where cases are weighted or clustered their values are kept, eight bytes
each, because the law of a ratio needs the pairs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.table import case_column, segment_labels
from kofn.core.warnings import coded_sentence
from kofn.errors import InputError
from kofn.registry import aggregator
from kofn.scoring.counts import add_counts, count_candidates, coverage_aggregators
from kofn.scoring.evaluate import (
    ValueColumn,
    default_aggregator_names,
    describe_result,
    drop_redundant,
    estimates_of,
    grade,
    is_rate,
    recipe_of,
    requested_aggregators,
    unreachable_k,
)
from kofn.stats.estimates import Tally, estimate_tally
from kofn.stats.estimates import merge_tallies as summed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.aggregators.base import Aggregator
    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.counts import Counts, MetricCounts
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import Result

    Key = tuple[str, str]  # metric, aggregator
    Segment = tuple[str, Any] | None  # field and value; None: all cases

_SEPARATOR = "\0"  # between metric and aggregator in the names of kept columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What some cases say. `cases` counts them by segment; `kept` holds a row a case where they are weighted.

    `sizes` are those of the sets as they were read, before any were cut or left out.
    """

    facts: Counts
    cases: Counter[Segment]
    sizes: Counter[int] = field(default_factory=Counter)
    tallies: Mapping[tuple[Key, Segment], Tally] = field(default_factory=dict)
    kept: pl.DataFrame | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSample:
    """Some cases from all over the data, graded: where a few are enough to look at."""

    table: Table
    scored: Sequence[Graded]


def part_of(table: Table, options: GradingConfig, base: int | None = None) -> Part:
    """What the cases of a table say, all of them: `options.split` is for whoever reads them.

    Every aggregator that the whole may show by default is computed: which of them it does show depends on all parts.
    """
    if options.top_k is not None:
        table = table.truncate(options.top_k)
    table, scored = grade(table, options, whole=False, base=base)
    values = {(one.metric, rule.name): rule(one.sets) for one in scored for rule in _part_aggregators(one, options)}
    weighted = bool(_weight_fields(table, options))
    segments = {} if weighted else {name: _segments(table, name) for name in options.by}
    return Part(
        facts=count_candidates(table, scored, options),
        cases=_count_segments(table.n_cases, segments),
        tallies={} if weighted else _tallies(values, segments),
        kept=_weighted_rows(table, values, options) if weighted else None,
        notes=table.notes,
    )


def _part_aggregators(one: Graded, options: GradingConfig) -> list[Aggregator]:
    requested = requested_aggregators(options)
    if requested:
        return drop_redundant(requested, one.beside_labels)
    sets = one.sets
    names = default_aggregator_names(
        one.metric,
        beside_labels=one.beside_labels,
        has_answers=sets.answers is not None,
        # with the answers of "maybe": a default that the whole will show must be computed in every part
        zero_one=False,
        verdicts=Counter({int(sets.sizes.max(initial=0)): 1}),
        covering=coverage_aggregators(sets),
    )
    return [aggregator(name) for name in names]


def _segments(table: Table, name: str) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """The values of a field, and which of them each case has."""
    column = case_column(table, name)
    if column.dtype.is_nested():
        raise InputError(f"field {name!r} holds lists or objects: expected one plain value a case")
    # values, not their names: 1 and 1.0 in two parts may be one name only once all types are known
    found = column.unique(maintain_order=True)
    codes = column.to_frame("value").join(
        pl.DataFrame({"value": found, "code": np.arange(len(found))}),
        on="value",
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return found.to_list(), codes["code"].to_numpy()


def _count_segments(n: int, segments: Mapping[str, Any]) -> Counter[Segment]:
    counts: Counter[Segment] = Counter({None: n})
    for name, (found, codes) in segments.items():
        often = np.bincount(codes, minlength=len(found)).tolist()
        counts.update({(name, value): count for value, count in zip(found, often, strict=True)})
    return counts


def _tallies(values: Mapping[Key, Floats], segments: Mapping[str, Any]) -> dict[tuple[Key, Segment], Tally]:
    out: dict[tuple[Key, Segment], Tally] = {(key, None): Tally.of(column) for key, column in values.items()}
    for name, (found, codes) in segments.items():
        # one sort per field cuts every column into its segments
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(found)))[:-1]
        for key, column in values.items():
            for value, part in zip(found, np.split(column[order], ends), strict=True):
                out[key, (name, value)] = Tally.of(part)
    return out


def _weight_fields(table: Table, options: GradingConfig) -> list[str]:
    """The fields that weigh or cluster cases: those named, and those that are there by their role."""
    roles = [role for role in ("weight", "cluster") if role in table.cases.columns]
    return [name for name in (options.weight, options.cluster) if name is not None] + roles


def _weighted_rows(table: Table, values: Mapping[Key, Floats], options: GradingConfig) -> pl.DataFrame:
    """A row a case: what it is weighted, clustered and sliced by, and its values."""
    named = {name: case_column(table, name) for name in (*_weight_fields(table, options), *options.by)}
    columns = [table.cases["case_id"], *(column.alias(name) for name, column in named.items())]
    columns += [pl.Series(_SEPARATOR.join(key), column, nan_to_null=True) for key, column in values.items()]
    return pl.DataFrame(columns)


def result_of_parts(parts: Sequence[Part], sample: PartSample, options: GradingConfig) -> Result:
    """What all parts say together, as `evaluate` would of all their cases."""
    facts = _drop_label_copies(add_counts(part.facts for part in parts))
    extractor = sample.scored[0].extractor
    if parts[0].kept is None:
        estimates = _estimates(parts, facts, extractor, options)
    else:
        estimates = _weighted_estimates(parts, sample.table, facts, extractor, options)
    result = describe_result(sample.table, sample.scored[0], facts, estimates, options)
    return result.with_warnings(
        [coded_sentence(n) for n in dict.fromkeys(line for part in parts for line in part.notes)]
    )


def _drop_label_copies(facts: Counts) -> Counts:
    """Without scores that are the labels again."""
    return replace(facts, metrics=tuple(one for one in facts.metrics if not one.like_labels))


def _shown_aggregators(one: MetricCounts, facts: Counts, options: GradingConfig) -> list[Aggregator]:
    """The aggregators that are shown of a metric."""
    requested = requested_aggregators(options)
    if requested:
        return drop_redundant(requested, one.beside_labels)
    names = default_aggregator_names(
        one.metric,
        beside_labels=one.beside_labels,
        has_answers=facts.has_answers,
        zero_one=one.zero_one,
        verdicts=one.verdicts,
        covering=facts.covering,
    )
    return [aggregator(name) for name in names]


def _estimates(parts: Sequence[Part], facts: Counts, extractor: str | None, options: GradingConfig) -> list[Estimate]:
    cases: Counter[Segment] = Counter()
    for part in parts:
        cases.update(part.cases)
    named = _segments_by_name(cases, options)
    out: list[Estimate] = []
    for one in facts.metrics:
        for rule in _shown_aggregators(one, facts, options):
            key = (one.metric, rule.name)
            common: dict[str, Any] = {
                "metric": one.metric,
                "aggregator": rule.name,
                "interval": options.interval,
                "level": options.level,
                "recipe": recipe_of(one.metric, rule.name, extractor, options),
                "rate": is_rate(rule, one.zero_one),
            }
            try:
                whole = _merge_tallies(parts, key, [None])
                _check_reach(rule, whole, facts)
                out.append(estimate_tally(whole, **common))
                out += [estimate_tally(_merge_tallies(parts, key, of), segment=name, **common) for name, of in named]
            except InputError as problem:
                raise InputError(str(problem) if rule.name in str(problem) else f"{rule.name}: {problem}") from None
    return out


def _segments_by_name(cases: Counter[Segment], options: GradingConfig) -> list[tuple[str, list[Segment]]]:
    """The segments by name, in the order in which they are shown; values of one name are one segment."""
    out: list[tuple[str, list[Segment]]] = []
    for by in options.by:
        values = [segment[1] for segment in cases if segment is not None and segment[0] == by]
        # values of several types may share a name, such as 1 and "1"
        of: dict[str, list[Segment]] = {}
        for name, value in zip(segment_labels(pl.Series(values, strict=False)), values, strict=True):
            of.setdefault(f"{by}={name}", []).append((by, value))
        out += sorted(of.items())
    return out


def _merge_tallies(parts: Sequence[Part], key: Key, segments: Sequence[Segment]) -> Tally:
    """The tally over all parts; of a part that has none of it every case is undefined."""
    # a part in which an aggregator was not computed (no answers, say) still has the cases
    nothing = np.zeros(0), np.zeros(0, dtype=np.int64)
    found = [
        part.tallies.get((key, segment)) or Tally(*nothing, part.cases[segment])
        for part in parts
        for segment in segments
        if part.cases[segment]
    ]
    return summed(found)


def _check_reach(rule: Aggregator, tally: Tally, facts: Counts) -> None:
    k = getattr(rule, "k", None)
    if isinstance(k, int) and k > facts.largest and not tally.n:
        raise unreachable_k(rule, facts.largest)


def _weighted_estimates(
    parts: Sequence[Part], sample: Table, facts: Counts, extractor: str | None, options: GradingConfig
) -> list[Estimate]:
    """As `evaluate` makes them, from the values of all cases."""
    # diagonal and relaxed: a part may lack a column, or have read it as another type
    frame = pl.concat([part.kept for part in parts if part.kept is not None], how="diagonal_relaxed")
    own = [name for name in ("case_id", "weight", "cluster") if name in frame.columns]
    tags = [c for c in frame.columns if c not in own and _SEPARATOR not in c]
    table = replace(sample, cases=frame.select(own), tags=frame.select(tags))
    columns = {}
    for one in facts.metrics:
        for rule in _shown_aggregators(one, facts, options):
            name = _SEPARATOR.join((one.metric, rule.name))
            values = frame[name].to_numpy() if name in frame.columns else np.full(frame.height, np.nan)
            if not frame.height or bool(np.isnan(values).all()):
                _check_reach(rule, Tally.of(values), facts)
            columns[one.metric, rule.name] = ValueColumn(values.astype(np.float64), is_rate(rule, one.zero_one))
    return estimates_of(table, columns, extractor, options)
