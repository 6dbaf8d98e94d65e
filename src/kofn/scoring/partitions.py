"""Scores Parquet data larger than memory in partitions, here or on an engine's workers.

On this machine one piece after the other, or as many at a time as an engine has workers; on a cluster each piece goes
to a node that reads it there. What comes back of a piece are some thousand numbers, and the order of the pieces is the
order in which they are added up, so the result is the same bit for bit wherever they were graded.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.candidate_sets import histogram
from kofn.core.escape import redact_address
from kofn.core.fields import long_fields
from kofn.core.table import case_column, segment_labels
from kofn.errors import InputError, WorldError
from kofn.importers import importer_of
from kofn.importers.parquet_partitions import (
    Partition,
    Span,
    buckets,
    columns_to_read,
    columns_with_values,
    find_case_layout,
    find_data_set,
    partitions_of,
    read_partition,
    read_rows,
    sample_cases,
)
from kofn.importers.reading import short_sets
from kofn.importers.recognition import Peek
from kofn.scoring.evaluate import (
    ValueColumn,
    check_options,
    choose_aggregators,
    describe_result,
    estimates_of,
    further_defaults,
    grade,
    has_meaningful_passes,
    is_rate,
    recipe_of,
    resolve_extractor,
    unreachable_k,
)
from kofn.scoring.result import add_counts, count_candidates, coverage_aggregators
from kofn.scoring.splits import draw_cases
from kofn.stats.estimates import Tally, estimate_tally
from kofn.stats.estimates import merge_tallies as summed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.aggregators.base import Aggregator
    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.core.warnings import CodedWarning
    from kofn.importers.base import ReadOptions
    from kofn.importers.parquet_partitions import CaseLayout, DataSet
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import Counts, MetricCounts, Result

    Key = tuple[str, str]
    Segment = tuple[str, Any] | None
    OnPart = Callable[[int, int], None]

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
    notes: tuple[CodedWarning, ...] = ()


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
    sets = one.sets
    return choose_aggregators(
        options,
        one.metric,
        beside_labels=one.beside_labels,
        has_answers=sets.answers is not None,
        # with the answers of "maybe": a default that the whole will show must be computed in every part
        zero_one=False,
        verdicts=Counter({int(sets.sizes.max(initial=0)): 1}),
        further=further_defaults(coverage_aggregators(sets), sets.selectors, one.metric, options.use),
    )


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
    facts = add_counts(part.facts for part in parts)
    # without scores that are the labels again
    facts = replace(facts, metrics=tuple(one for one in facts.metrics if not one.like_labels))
    extractor = sample.scored[0].extractor
    if parts[0].kept is None:
        estimates = _estimates(parts, facts, extractor, options)
    else:
        estimates = _weighted_estimates(parts, sample.table, facts, extractor, options)
    result = describe_result(sample.table, sample.scored[0], facts, estimates, options)
    return result.with_warnings([note for part in parts for note in part.notes])


def _shown_aggregators(one: MetricCounts, facts: Counts, options: GradingConfig) -> list[Aggregator]:
    """The aggregators that are shown of a metric."""
    return choose_aggregators(
        options,
        one.metric,
        beside_labels=one.beside_labels,
        has_answers=facts.has_answers,
        zero_one=one.zero_one,
        passes_mean=has_meaningful_passes(one.low, one.high, options),
        verdicts=one.verdicts,
        further=further_defaults(facts.covering, facts.selectors, one.metric, options.use),
    )


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


PART = 1_000_000  # candidates of a part, about
AUTO = 2_000_000  # candidates of a file from which on it is read in parts where nobody said so
_SAMPLE_CASES = 2_000  # cases of a bucket that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """What every worker must know: the data, what of it is read, and how it is graded."""

    data: DataSet
    columns: tuple[str, ...]
    reading: ReadOptions
    options: GradingConfig
    base: int | None


def find_streamable(places: Sequence[str], reading: ReadOptions, size: int | None) -> DataSet | None:
    """The data where it is read in parts: Parquet with a candidate a row, of which there are many, or a folder of it.

    With a `size` asked for anything else is refused.
    """
    local = [place for place in places if Path(place).is_file() or Path(place).is_dir()]
    plain = bool(places) and reading.format in (None, "parquet") and len(local) == len(places)
    data = find_data_set(places, reading) if plain and _is_unclaimed(local, reading) else None
    if data is None:
        if size is not None:
            raise InputError(_not_streamable_reason(places))
        return None
    folders = any(Path(place).is_dir() for place in places)
    return data if folders or size is not None or data.n_rows > AUTO else None


def _not_streamable_reason(places: Sequence[str]) -> str:
    """What to say where a size is asked for and something is no Parquet of ours."""
    away = next((place for place in places if "://" in place), None)
    if away is not None:
        return f"{redact_address(away)}: addresses are not read in parts: mount or copy the data, and give its path"
    other = next((place for place in places if not place.endswith(".parquet")), places[0] if places else "this")
    return f"{other}: only Parquet files with a candidate a row are read in parts: leave the size out"


def _is_unclaimed(places: Sequence[str], reading: ReadOptions) -> bool:
    """Whether no importer of another tool's logs knows these, and none is a stored run."""
    return not any((Path(p) / "run.json").exists() or importer_of(Peek(Path(p)), reading.format) for p in places)


def score_parts(
    data: DataSet,
    reading: ReadOptions,
    options: GradingConfig,
    *,
    size: int | None = None,
    engine: Any = None,
    on_part: OnPart | None = None,
) -> Result:
    """What `evaluate` says of the data, in memory that does not grow with it; `engine` maps over the parts."""
    size = PART if size is None else size
    if not data.n_rows:
        raise InputError(f"{data.source}: no rows")
    reading = replace(reading, keep=tuple(dict.fromkeys((*reading.keep, *reading.where))))
    columns = columns_to_read(data, reading)
    fields = long_fields(columns, reading.fields)
    if "id" not in fields:
        # one row is enough for the reader to raise its own error
        read_partition(data, columns, Partition(spans=(Span(0, 0, 1),)), reading)
    layout = find_case_layout(data, fields["id"], size, engine)
    seen = sample_cases(data, columns, fields["id"], layout.spans)
    # decided once for all partitions: a column that is empty in one must not change how that one is read
    reading = replace(reading, present=columns_with_values(data, columns, seen.seen))
    with ExitStack() as stack:
        if layout.together:
            pieces = partitions_of(layout.spans, size)
        else:
            if engine is not None and engine.remote:
                raise InputError(
                    f"{data.source}: the rows of a case stand apart, and on a cluster each part is read where it is "
                    "graded: sort the files by their ids, with every case in one file, or leave --engine out"
                )
            pieces = stack.enter_context(buckets(data, columns, fields["id"], size))
        options = resolve_extractor(options)
        plan = PartitionPlan(
            data=data, columns=tuple(columns), reading=reading, options=options, base=_detect_base(data, fields, layout)
        )
        some = seen.table(data, reading) if layout.together else None
        sample = _grade_sample(plan, pieces, some)
        parts = _score_partitions(_resolve_plan(plan, sample), pieces, engine, on_part)
    if not parts:
        raise InputError(f"{data.source}: no case is left: {_describe_filter(reading, options)}")
    result = result_of_parts(parts, sample, options)
    # of the sets as they were read: a worker does not know the usual size
    short = short_sets(sum((part.sizes for part in parts), Counter[int]()))
    return result.with_warnings([*data.notes, *([] if short is None else [short])])


def _grade_sample(plan: PartitionPlan, pieces: Sequence[Partition], some: Table | None) -> PartSample:
    """Cases from all over, graded; where none of them is asked for, the first that are."""
    chosen = None if some is None else _selected_cases(some, plan)
    # the sample may hold none of the cases asked for: then the first partition that has some
    for piece in pieces if chosen is None else ():
        whole = _selected_cases(read_partition(plan.data, plan.columns, piece, plan.reading), plan)
        if whole is not None:
            chosen = draw_cases(whole, _SAMPLE_CASES, plan.options.seed)
            break
    if chosen is None:
        raise InputError(f"{plan.data.source}: no case is left: {_describe_filter(plan.reading, plan.options)}")
    check_options(chosen, plan.options)
    if plan.options.top_k is not None:
        chosen = chosen.truncate(plan.options.top_k)
    table, scored = grade(chosen, replace(plan.options, engine=None), whole=False, base=plan.base)
    return PartSample(table=table, scored=scored)


def _describe_filter(reading: ReadOptions, options: GradingConfig) -> str:
    conditions = [f"{name}={value}" for name, value in reading.where.items()]
    conditions += [] if options.split is None else [f"split {options.split}"]
    return f"none is of {' and '.join(conditions)}"


def _selected_cases(table: Table, plan: PartitionPlan) -> Table | None:
    """The cases asked for with `where` and `split`; None where there are none."""
    some = _filter_cases(table, plan)
    split = plan.options.split
    return some if some is None or split is None else split.of_or_none(some)


def _filter_cases(table: Table, plan: PartitionPlan) -> Table | None:
    for name, value in plan.reading.where.items():
        kept = (case_column(table, name).cast(pl.String) == value).fill_null(value=False)
        if not kept.any():
            return None
        table = table.select_cases(kept.to_numpy())
    return table


def _resolve_plan(plan: PartitionPlan, sample: PartSample) -> PartitionPlan:
    """The plan with the extractor and the metric that were chosen from the sample, so that no part chooses another."""
    options = replace(plan.options, engine=None)
    if sample.scored[0].extractor is not None:
        options = replace(options, extract=options.extract or sample.scored[0].extractor)
    # labels and scores of the file win over a default metric in every partition
    labelled = {"passed", "score"} & set(sample.table.candidates.columns) or sample.table.labels
    if not options.metrics and not labelled and sample.scored[0].metric:
        options = replace(options, metrics=(sample.scored[0].metric,))
    return replace(plan, options=options)


def _score_partitions(
    plan: PartitionPlan, pieces: Sequence[Partition], engine: Any, on_part: OnPart | None
) -> list[Part]:
    total, done = plan.data.n_rows, 0

    def report_done(index: int, part: Any) -> None:
        nonlocal done
        rows = sum(span.stop - span.start for span in pieces[index].spans)
        done += rows or (part.facts.n_candidates if isinstance(part, Part) else 0)
        if on_part is not None:
            on_part(done, total)

    if engine is None:
        parts: list[Any] = []
        for index, piece in enumerate(pieces):
            parts.append(score_partition(plan, piece))
            report_done(index, parts[-1])
    else:
        parts = engine.map(score_partition, pieces, shared=plan, on_done=report_done)
    for part in parts:
        if part is None or isinstance(part, Part):
            continue
        if part.lost:
            raise WorldError(f"a part could not be graded: {part.reason}: fewer --part-size take less memory")
        raise InputError(part.reason.removeprefix("InputError: "))
    return [part for part in parts if part is not None]


def score_partition(plan: PartitionPlan, piece: Partition) -> Part | None:
    """What a worker does: read a piece and say what it holds; None where none of its cases is asked for."""
    read = _filter_cases(read_partition(plan.data, plan.columns, piece, plan.reading), plan)
    table = None if read is None else _selected_cases(read, plan)
    if read is None or table is None:
        return None
    return replace(part_of(table, plan.options, plan.base), sizes=histogram(np.diff(read.offsets)))


def _detect_base(data: DataSet, fields: Any, layout: CaseLayout) -> int | None:
    """Whether references that are places of options count from 0 or from 1, from all of them: see `first_place`."""
    choices, reference = fields.get("choices"), fields.get("reference")
    if choices is None or reference is None or not isinstance(data.schema[choices], pl.List):
        return None
    lowest, at_end = np.inf, False
    for span in layout.spans:
        rows = read_rows(data, [choices, reference], span)
        if isinstance(rows[reference].dtype, pl.List):
            return None
        # what `multiple_choice.detect_base` does, column-wise and without holding all references
        named = rows[reference].cast(pl.String).str.strip_chars()
        places = pl.select(pl.when(named.str.contains(r"^[0-9]{1,9}$")).then(named).cast(pl.Int64)).to_series()
        sizes = rows[choices].list.len()
        known = places.filter(sizes > 0)
        if known.len() > known.null_count():
            lowest = min(lowest, int(known.min()))  # type: ignore[arg-type]  # whole numbers, of which there are some
            at_end = at_end or bool((places == sizes).fill_null(value=False).any())
    return int(np.isfinite(lowest) and lowest > 0 and at_end)
