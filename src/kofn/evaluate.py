"""Table in, result out: answers, metrics, aggregators, estimates, and what somebody should know about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kofn.aggregators.passes import CountAggregator
from kofn.errors import InputError
from kofn.facts import covering, facts_of, histogram
from kofn.multiple_choice import lettered
from kofn.scoring import Scored, find_answers, score_table, unlabelled_sets

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from kofn.aggregators.base import Aggregator
    from kofn.checklist import Line
    from kofn.facts import Facts
    from kofn.scoring import Answers
    from kofn.sets import CandidateSets, Floats
    from kofn.splits import Split
    from kofn.table import Table
    from kofn.types import Estimate

Spec = str | Callable[..., Any]

DEFAULTS = ("first", "mean", "any_pass", "all_pass", "majority", "majority_pass")
VALUES_ONLY = ("first", "mean", "best_score")
WITHOUT_LABELS = ("agreement", "vote_margin", "answered", "unique_answers")
_LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_SETS = 0.95  # pass@k is shown by default when this share of the sets has k candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to evaluate. Everything has a sensible default.

    `engine` calls metrics that take long on several processes or machines (`kofn.engine`). `use` is how the product
    uses a set: any, vote, select, list or all. `split` takes the design or the test part of the cases.
    """

    extract: Spec | None = None
    metrics: tuple[Spec, ...] = ()
    aggregate: tuple[Spec, ...] = ()
    threshold: float | None = None
    top_k: int | None = None
    interval: str = "auto"
    level: float = 0.95
    n_resamples: int = 10_000
    seed: int = 0
    by: tuple[str, ...] = ()
    cluster: str | None = None
    weight: str | None = None
    engine: Any = None
    use: str | None = None
    split: Split | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an evaluation found. Prints as a table; `estimates` holds the numbers.

    `judges` says of each metric that a model graded which model, with which prompt and parameters: `kofn.judge`. `told`
    are those warnings that are about how outputs and verdicts were made: nothing else here shows that.
    """

    n_cases: int
    n_candidates: int
    n_missing: int
    understood: Mapping[str, Any]
    estimates: tuple[Estimate, ...]
    extraction: Mapping[str, Any]
    diagnostics: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    checklist: tuple[Line, ...] = ()
    told: tuple[str, ...] = ()
    scored: tuple[Scored, ...] = field(default=(), repr=False)
    case_values: Mapping[tuple[str, str], Floats] = field(default_factory=dict, repr=False)
    table: Table | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As `kofn score --json` prints it."""
        return {
            "n_cases": self.n_cases,
            "n_candidates": self.n_candidates,
            "n_missing": self.n_missing,
            "understood": dict(self.understood),
            "estimates": [estimate_dict(e) for e in self.estimates],
            "extraction": dict(self.extraction),
            "diagnostics": dict(self.diagnostics),
            "warnings": list(self.warnings),
            "judges": {name: dict(told) for name, told in self.judges.items()},
            "checklist": [line.to_dict() for line in self.checklist],
            "told": list(self.told),
        }

    def with_told(self, told: Sequence[str]) -> Result:
        """The same with more warnings about how outputs and verdicts were made, before all others."""
        new = [w for w in dict.fromkeys(told) if w not in self.told]
        return replace(self, told=(*new, *self.told), warnings=(*new, *self.warnings))

    @property
    def double_dipping(self) -> tuple[str, ...]:
        """The warnings about a number that is picked and graded by the same judge or score."""
        from kofn.diagnose import DIPPING

        return tuple(w for w in self.warnings if DIPPING in w)

    def to_polars(self) -> pl.DataFrame:
        """A row an estimate."""
        import polars as pl

        return pl.DataFrame([estimate_dict(e) for e in self.estimates], infer_schema_length=None)

    def get(self, aggregator: str, *, metric: str | None = None, segment: str | None = None) -> Estimate:
        """The estimate of this aggregator."""
        for e in self.estimates:
            if e.aggregator == aggregator and e.segment == segment and metric in (None, e.metric):
                return e
        from kofn.errors import UnknownName

        raise UnknownName("estimate", aggregator, [e.aggregator for e in self.estimates])

    def __str__(self) -> str:
        from kofn.present import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from kofn.notebook import as_html
        from kofn.present import document

        return as_html(document(self))


def estimate_dict(e: Estimate) -> dict[str, Any]:
    """An estimate as plain data, in a stable order."""
    names = ("metric", "aggregator", "segment", "point", "low", "high", "level", "n", "n_missing", "method")
    return {name: getattr(e, name) for name in names}


def suited(options: Options) -> Options:
    """With the extractor that every metric asked for wants, where nobody named another."""
    from kofn.errors import UnknownName
    from kofn.metrics import trait
    from kofn.registry import metric

    if options.extract is not None or not options.metrics:
        return options
    try:
        wanted = {trait(metric(one), "extractor") for one in options.metrics}
    except UnknownName:  # it may be a column of the file
        return options
    return replace(options, extract=wanted.pop() or None) if len(wanted) == 1 else options


def evaluate(table: Table, options: Options | None = None) -> Result:
    """Evaluate every candidate of a table."""
    options = suited(options or Options())
    check_options(table, options)
    if options.split is not None:
        table = options.split.of(table)
    if options.top_k is not None:
        table = table.truncate(options.top_k)
    table, answers, scored = graded(table, options)
    return result_of(table, answers, scored, options).with_told(table.told)


def graded(
    table: Table, options: Options, *, whole: bool = True, base: int | None = None
) -> tuple[Table, Answers, list[Scored]]:
    """The answers and scores of every candidate, before anything is combined; the table has its options labelled.

    `whole` and `base` are for a table that is a part of the data: see `score_table` and `lettered`.
    """
    if options.extract is None or str(options.extract).startswith("letter"):
        table = lettered(table, base)
    answers = find_answers(table, options.extract)
    scored = score_table(table, answers, options.metrics, options.threshold, options.engine, whole=whole)
    if not scored:
        scored = [Scored(metric="", sets=unlabelled_sets(table, answers), source="")]
    return table, answers, scored


def result_of(
    table: Table,
    answers: Answers,
    scored: Sequence[Scored],
    options: Options,
    judges: Mapping[str, Mapping[str, Any]] | None = None,
) -> Result:
    """The numbers of candidates that are graded already. `judges` describes the metrics that a model graded."""
    found_values = _case_values(scored, options)
    values = {key: column.values for key, column in found_values.items()}
    estimates = estimates_of(table, found_values, answers.extractor, options)
    facts = facts_of(table, answers, scored, options)
    result = told_of(table, answers, scored[0].sets, facts, estimates, options, judges)
    return replace(result, scored=tuple(scored), case_values=values, table=table)


def told_of(
    table: Table,
    answers: Answers,
    sets: CandidateSets,
    facts: Facts,
    estimates: Sequence[Estimate],
    options: Options,
    judges: Mapping[str, Mapping[str, Any]] | None = None,
) -> Result:
    """The result of what was counted and estimated. `table`, `answers` and `sets` may be a sample of it all.

    They are looked at where a sample is enough: how extractors differ, how n-grams repeat.
    """
    from kofn import diagnose
    from kofn.checklist import checklist

    extraction = diagnose.extraction(table, answers, facts, options)
    found = diagnose.diagnostics(sets, facts, options)
    result = Result(
        n_cases=facts.n_cases,
        n_candidates=facts.n_candidates,
        n_missing=facts.metrics[0].n_missing if facts.metrics[0].metric else 0,
        understood=_understood(table, facts, answers, options),
        estimates=tuple(estimates),
        extraction=extraction,
        diagnostics=found,
        warnings=tuple(diagnose.warnings(facts, estimates, extraction, found, options, judges)),
        judges=judges or {},
        table=table,
    )
    return replace(result, checklist=checklist(result, options), table=None)


def default_aggregators(scored: Scored) -> list[Spec]:
    """What to show when nothing is asked for; pass@k up to the size that nearly all sets have.

    A metric that stands beside labels shows its values only: its passes are the labels'.
    """
    sets = scored.sets
    return default_names(
        scored.metric,
        beside_labels=scored.beside_labels,
        has_answers=sets.answers is not None,
        zero_one=sets.zero_one,
        verdicts=histogram(sets.counts[0]),
        covering=covering(sets),
    )


def default_names(
    metric: str,
    *,
    beside_labels: bool,
    has_answers: bool,
    zero_one: bool,
    verdicts: Counter[int],
    covering: Sequence[str],
) -> list[Spec]:
    """As `default_aggregators`, from what is counted: `verdicts` says how many sets have so many graded candidates."""
    if not metric:
        return [*(WITHOUT_LABELS if has_answers else ()), *covering]
    if beside_labels:
        return list(VALUES_ONLY)
    names: list[Spec] = list(DEFAULTS if has_answers else [d for d in DEFAULTS if d != "majority"])
    if not zero_one:
        names.insert(2, "best_score")
    reach = _reach(verdicts)
    return [*names, *(f"pass@{k}" for k in _LADDER if k <= reach), *covering]


def _reach(verdicts: Counter[int]) -> int:
    """The size that nearly all sets have."""
    below, place = 0, int((1 - _MOST_SETS) * verdicts.total())
    for size in sorted(verdicts):
        below += verdicts[size]
        if below > place:
            return size
    return 0


class Column(NamedTuple):
    """One value a case, and whether they are shares: only of those is all 1 the same as 100 %."""

    values: Floats
    rate: bool


def _case_values(scored: Sequence[Scored], options: Options) -> dict[tuple[str, str], Column]:
    """(metric, aggregator) -> one value a case."""
    from kofn.registry import aggregator

    asked = asked_rules(options)
    out: dict[tuple[str, str], Column] = {}
    for one in scored:
        rules = asked or [aggregator(a) for a in default_aggregators(one)]
        for rule in fitting(rules, one.beside_labels and bool(asked)):
            out[one.metric, rule.name] = Column(applied(rule, one), is_rate(rule, one.sets.zero_one))
    return out


def asked_rules(options: Options) -> list[Aggregator]:
    """The aggregators asked for, each once."""
    from kofn.registry import aggregator

    asked = [aggregator(a) for a in options.aggregate]
    names = [a.name for a in asked]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"aggregator {name} is there twice")
    return asked


def fitting(rules: Iterable[Aggregator], beside_labels: bool) -> list[Aggregator]:
    """The aggregators that say something new; of passes that are the labels' none does."""
    return [rule for rule in rules if not (beside_labels and isinstance(rule, CountAggregator))]


def is_rate(rule: Aggregator, zero_one: bool) -> bool:
    """Whether an aggregator's values are shares, given whether the metric's are all 0 or 1."""
    return rule.bounded and (zero_one or not rule.of_values)


def applied(rule: Aggregator, scored: Scored) -> Floats:
    """An aggregator's value of every set; a k that no set reaches is the user's mistake."""
    values = rule(scored.sets)
    k = getattr(rule, "k", None)
    largest = int(scored.sets.sizes.max()) if len(scored.sets) else 0
    if isinstance(k, int) and k > largest and bool(np.isnan(values).all()):
        raise out_of_reach(rule, largest)
    return values


def out_of_reach(rule: Aggregator, largest: int) -> InputError:
    """What to say of a k that no set reaches."""
    return InputError(f"{rule.name} is undefined: the largest set has {largest} candidates; ask for k <= {largest}")


def estimates_of(
    table: Table,
    values: Mapping[tuple[str, str], Column],
    extractor: str | None,
    options: Options,
) -> list[Estimate]:
    """The estimate of every column of values, over all cases and by segment."""
    from kofn.stats import estimate, segment_estimates

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
    for (metric, name), column in values.items():
        recipe = recipe_of(metric, name, extractor, options)
        named: dict[str, Any] = {"metric": metric, "aggregator": name, "recipe": recipe, "rate": column.rate}
        try:
            out.append(estimate(column.values, **named, **common))
            for by, of_case in segments.items():
                out.extend(segment_estimates(column.values, [f"{by}={s}" for s in of_case], **named, **common))
        except InputError as problem:
            raise InputError(f"{name}: {problem}") from None
    return out


def recipe_of(metric: str, name: str, extractor: str | None, options: Options) -> dict[str, Any]:
    """What makes an estimate again."""
    from kofn import __version__

    return {
        "extractor": extractor,
        "seed": options.seed,
        "version": __version__,
        "top_k": options.top_k,
        "metric": metric,
        "aggregator": name,
    }


def _understood(table: Table, facts: Facts, answers: Answers, options: Options) -> dict[str, Any]:
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
        "selectors": list(facts.selectors),
        "weight": options.weight or ("weight" if "weight" in table.cases.columns else None),
        "cluster": options.cluster or ("cluster" if "cluster" in table.cases.columns else None),
    }


def check_options(table: Table, options: Options) -> None:
    """Refuse options that mean nothing, and a table without cases."""
    k: Any = options.top_k
    if k is not None and (not isinstance(k, int) or k < 1):
        raise InputError(f"top_k takes a whole number of at least 1, not {options.top_k}")
    if options.threshold is not None and not np.isfinite(options.threshold):
        raise InputError(f"threshold takes a finite number, not {options.threshold}")
    if not table.n_cases:
        raise InputError("no cases")
    from kofn.stats.estimate import check_interval
    from kofn.stats.intervals import check_level

    check_level(options.level)
    check_interval(options.interval)


def case_column(table: Table, name: str) -> pl.Series:
    """A field that is one value a case, by its name in the file or by its role."""
    role = next((role for role, field_name in table.fields.items() if field_name == name), name)
    role = "case_id" if role == "id" else role
    for frame in (table.tags, table.cases):
        if role in frame.columns:
            return frame[role]
    if role in table.candidates.columns:
        raise InputError(f"field {name!r} is one value a candidate: expected one value a case")
    from kofn.errors import UnknownName

    raise UnknownName("field", name, [*table.tags.columns, *table.fields.values()])


def segment_names(table: Table, name: str) -> list[str]:
    """The segment of every case by a field; "(none)" where the field is null."""
    column = case_column(table, name)
    if column.dtype.is_nested():
        raise InputError(f"field {name!r} holds lists or objects: expected one plain value a case")
    return names_of(column)


def names_of(column: pl.Series) -> list[str]:
    """Values as names of segments."""
    import polars as pl

    if column.dtype.is_float() and bool((column.drop_nulls() % 1 == 0).all()):
        column = column.cast(pl.Int64, strict=False)  # whole numbers are read as numbers; a name has no ".0"
    names: list[str | None] = column.cast(pl.String).to_list()
    return ["(none)" if n is None else n for n in names]


def case_codes(table: Table, name: str | None) -> Any:
    """Clusters as integers; a case without one is a cluster of its own."""
    if name is None:
        return None
    import polars as pl

    column = case_column(table, name).cast(pl.String)
    codes = column.rank("dense").cast(pl.Int64).to_numpy().astype(np.float64)
    alone = np.isnan(codes)
    codes[alone] = -1.0 - np.arange(int(alone.sum()))
    return codes.astype(np.int64)


def case_numbers(table: Table, name: str | None) -> Floats | None:
    """Weights: finite and not negative, one a case."""
    if name is None:
        return None
    import polars as pl

    column = case_column(table, name)
    numbers = column.cast(pl.Float64, strict=False)
    bad = (numbers.is_null() | ~numbers.is_finite() | (numbers < 0)).fill_null(value=True)
    if bad.any():
        at = int(bad.arg_true()[0])
        raise InputError(
            f"field {name!r}: case {table.cases['case_id'][at]!r}: expected a weight of 0 or more, found {column[at]!r}"
        )
    if not (numbers > 0).any():
        raise InputError(f"field {name!r}: every weight is 0")
    return numbers.to_numpy()
