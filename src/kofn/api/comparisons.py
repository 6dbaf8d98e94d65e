"""`kofn.compare`: systems, graders or selectors side by side; `audit`: extractors compared on the same outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kofn import analysis, generate, importers, metrics, runs, scoring, stats
from kofn.api.options import AuditKeywords, CompareKeywords, OptionError, call_limits, settle
from kofn.core.table import case_column
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName
from kofn.registry import metric

if TYPE_CHECKING:
    from types import SimpleNamespace

    from kofn.analysis.compare.report import ComparisonReport
    from kofn.analysis.compare.systems import Side
    from kofn.analysis.extraction_audit import ExtractionAudit
    from kofn.core.table import Table
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.result import ScoredResult

_WAYS = ("extractors", "metrics", "selectors")


def compare(*sides: Any, **options: Unpack[CompareKeywords]) -> ComparisonReport:
    """Compare systems, ways to grade, or selectors, case by case.

    Each side is a run, a file, rows, a frame or a result of `kofn.score`; the first is the baseline. One mapping of
    names to sides names them. With `extractors` or `metrics` the outputs of one side are graded in several ways, with
    `selectors` its candidates are picked in several ways. Options are those of `kofn compare`.

    >>> a = [{"id": f"q{i}", "reference": "4", "outputs": ["4", "5"]} for i in range(9)]
    >>> b = [{"id": f"q{i}", "reference": "4", "outputs": ["4", "4"]} for i in range(9)]
    >>> compare({"old": a, "new": b}, aggregate="mean").differences[0].comparison.difference
    0.5
    """
    asked = settle(CompareKeywords, options)
    named: dict[int, str] = {}
    if len(sides) == 1 and isinstance(sides[0], Mapping):
        named, sides = dict(enumerate(sides[0])), tuple(sides[0].values())
    ways = [name for name in _WAYS if getattr(asked, name)]
    if asked.field and sides and all(isinstance(side, (str, Path)) and Path(side).is_dir() for side in sides):
        raise OptionError("--field names fields of files: a run has its own names already")
    if len(ways) > 1:
        raise OptionError(f"{' and '.join(f'--{w}' for w in ways)} compare different things: give one of them")
    if not ways:
        if asked.evaluator is not None:
            raise OptionError("--evaluator grades what selectors pick: give --selectors too")
        return _systems(sides, named, asked)
    _not_with(asked, ways[0])
    if len(sides) != 1:
        what = "no file" if not sides else f"{len(sides)} files"
        raise OptionError(f"--{ways[0]} compares on one run or file, before the option: {what} given")
    return _selectors(sides[0], asked) if ways[0] == "selectors" else _graders(sides[0], asked, ways[0])


def _not_with(asked: SimpleNamespace, way: str) -> None:
    """Options that mean nothing here are refused, not passed over."""
    idle = {
        "selectors": ("aggregate", "metric"),
        "extractors": ("evaluator", "extract"),
        "metrics": ("evaluator", "metric"),
    }
    for name in ("by", "verdict", "use", *idle[way]):
        if getattr(asked, name):
            hint = "; --evaluator names the metric" if name == "metric" and way == "selectors" else ""
            raise OptionError(f"--{name} has no meaning with --{way}{hint}")


def _rules(asked: SimpleNamespace) -> analysis.ComparisonRules:
    stats.check_level(asked.level)
    return analysis.ComparisonRules(alpha=asked.alpha, level=asked.level, seed=asked.seed)


def _options(asked: SimpleNamespace) -> GradingConfig:
    """How outputs are read and graded."""
    return scoring.GradingConfig(
        extract=asked.extract,
        threshold=asked.threshold,
        cluster=asked.cluster,
        weight=asked.weight,
        seed=asked.seed,
        split=None if asked.split is None else scoring.Split.parse(asked.split),
    )


# systems


def _systems(given: tuple[Any, ...], named: Mapping[int, str], asked: SimpleNamespace) -> ComparisonReport:
    if len(given) < 2:
        raise OptionError(
            "give at least two runs or files to compare, or one with --extractors, --metrics or --selectors"
        )
    paths = [Path(one) if isinstance(one, (str, Path)) else None for one in given]
    for i, path in enumerate(paths):
        if path is not None and any(other and path.resolve() == other.resolve() for other in paths[:i]):
            raise InputError(f"{path}: given twice: compare it with another run or file")
    options = analysis.ComparisonOptions(
        aggregate=asked.aggregate,
        metrics=tuple(map(_stored_name, asked.metric)),
        by=asked.by,
        top_k=asked.top_k,
        verdict=asked.verdict,
        all_pairs=asked.all_pairs,
        use=asked.use,
        rules=_rules(asked),
    )
    sides = [_side_of(_open(one, asked, asked.metric)) for one in given]
    sides, computed = _with_common_metric(_with_names(sides, paths, named), given, asked)
    found = analysis.compare_systems(sides, options)
    return replace(found, warnings=(*computed, *found.warnings))


def _with_common_metric(
    sides: list[Side], given: tuple[Any, ...], asked: SimpleNamespace
) -> tuple[list[Side], list[CodedWarning]]:
    """Sides that share a metric as they are; else all graded by the first metric of theirs that suits them all."""
    of_sides = [set(side.metrics) for side in sides]
    if asked.metric or set.intersection(*of_sides):
        return sides, []
    for name in dict.fromkeys(name for side in sides for name in _computed(side.result)):
        lacking = tuple(side.name for side in sides if name not in side.metrics)
        try:
            graded = [
                side if name in side.metrics else replace(_side_of(_open(one, asked, (name,))), name=side.name)
                for one, side in zip(given, sides, strict=True)
            ]
        except InputError:  # a side has nothing to compare its outputs with, or the metric is a function of the user's
            continue
        return graded, [CodedWarning.of("metric-computed", metric=name, names=lacking)]
    return sides, []


def _open(data: Any, asked: SimpleNamespace, metrics: tuple[str, ...]) -> GradedCandidates:
    """Outputs graded, or a run with its stored grades; metrics asked for that a run lacks are computed beside them."""
    options = _options(asked)
    if isinstance(data, (str, Path)) and not Path(data).is_dir():
        return _of_file(Path(data), asked, replace(options, metrics=metrics))
    if not isinstance(data, (str, Path)) and not hasattr(data, "to_dict"):
        return _of_file(data, asked, replace(options, metrics=metrics))
    found = runs.load_graded(data, replace(options, extract=None, threshold=None))
    if asked.extract is not None:
        found = runs.load_graded(data, replace(options, metrics=metrics or _computed(found.result)))
    known = [one.metric for one in found.result.scored]
    if lacking := tuple(name for name in metrics if _stored_name(name) not in known):
        more = runs.load_graded(data, replace(options, metrics=lacking)).result
        found = replace(found, result=_beside(found.result, more))
    if asked.threshold is not None:
        found = replace(found, result=_side_of(found).passing_from(asked.threshold).result)
    return found


def _computed(result: ScoredResult) -> tuple[str, ...]:
    """The metrics of a run that can be computed again: no labels, no scores of its file, no judges."""
    names = [one.metric for one in result.scored if one.metric]
    return tuple(name for name in names if name not in ("pass", "score") and name not in result.judges)


def _beside(result: ScoredResult, more: ScoredResult) -> ScoredResult:
    """A result with the metrics of another."""
    values = {**result.case_values, **more.case_values}
    return replace(result, scored=(*result.scored, *more.scored), case_values=values)


def _side_of(found: GradedCandidates) -> Side:
    use = found.options.use or found.result.understood.get("use")
    return analysis.Side(name=found.name, result=found.result, use=use, **found.units())


def _of_file(data: Any, asked: SimpleNamespace, options: GradingConfig) -> GradedCandidates:
    """Outputs, graded. A field to slice by must be one value per case where they have it; another side may."""
    needed = tuple(name for name in (asked.cluster, asked.weight) if name is not None)
    reading = importers.ReadOptions(fields=asked.field, keep=needed, everything=True)
    table = runs.load_table(data, reading)
    there = tuple(name for name in asked.by if _has(table, name))
    path = data if isinstance(data, Path) else Path("rows")
    if there and path.is_file():  # read again, so that two values in one case are refused with their line
        table = runs.load_table(path, replace(reading, keep=(*there, *needed)))
    _refuse_twice(path, table)
    name = "standard input" if str(path) == "-" else path.name.partition(".")[0]
    result = scoring.evaluate.evaluate(table, options)
    return runs.GradedCandidates(name=name, path=path, options=options, result=result)


def _has(table: Table, name: str) -> bool:
    try:
        case_column(table, name)
    except UnknownName:
        return False
    return True


def _stored_name(name: str) -> str:
    """What a metric is called where it was computed: a function `module:name` by its name."""
    return metrics.metric_name(metric(name)) if ":" in name else name


def _refuse_twice(path: Path, table: Table) -> None:
    """One case per line, and one id on two lines: two cases under one id, which would be one larger set."""
    if table.form not in ("wide", "groups") or not path.is_file():
        return
    if (twice := importers.repeated_id(path, table.fields.get("id", "id"))) is not None:
        case, line = twice
        raise InputError(f"{path}: line {line}: case {case!r} is there twice: cases are matched by their id")


def _with_names(sides: list[Side], paths: list[Path | None], named: Mapping[int, str]) -> list[Side]:
    """Sides with the names they were given; those of one name are called by their paths, else numbered."""
    names = [side.name for side in sides]

    def name(at: int) -> str:
        if at in named:
            return named[at]
        if names.count(names[at]) == 1:
            return names[at]
        return f"{names[at]} {at + 1}" if paths[at] is None else str(paths[at])

    return [replace(side, name=name(at)) for at, side in enumerate(sides)]


# graders and selectors


def _graders(data: Any, asked: SimpleNamespace, way: str) -> ComparisonReport:
    found = _open(data, asked, ())
    options = replace(_options(asked), metrics=asked.metric, top_k=asked.top_k)
    names: tuple[str, ...] = getattr(asked, way)
    ways = analysis.by_extractor(names, options) if way == "extractors" else analysis.by_metric(names, options)
    return analysis.compare_graders(
        found.table,
        ways,
        units=found.units(),
        aggregate=asked.aggregate,
        all_pairs=asked.all_pairs,
        rules=_rules(asked),
    )


def _selectors(data: Any, asked: SimpleNamespace) -> ComparisonReport:
    chosen = [analysis.load_selector(text) for text in asked.selectors]
    found = _open(data, asked, () if asked.evaluator is None else (asked.evaluator,))
    evaluator = found.metric(None if asked.evaluator is None else _stored_name(asked.evaluator)).metric
    side = _side_of(found)
    return analysis.compare_selectors(
        (side if asked.top_k is None else side.first(asked.top_k)).result,
        chosen,
        evaluator,
        found.options,
        units=found.units(),
        all_pairs=asked.all_pairs,
        rules=_rules(asked),
    )


# extractors alone


def audit(*data: Any, **options: Unpack[AuditKeywords]) -> ExtractionAudit:
    """Compare extractors on the same outputs: where they disagree, what each misses, the score each would give.

    With `model` a language model reads every output as well. Options are those of `kofn extract-audit`.

    >>> rows = [{"id": "q", "reference": "4", "outputs": ["2 + 2 = 4", "4 (of 5)"]}]
    >>> audit(rows, extract=["number", "number_simple"]).n_failed
    {'number': 0, 'number_simple': 0}
    """
    asked = settle(AuditKeywords, options)
    reading = importers.ReadOptions(fields=asked.field, everything=True, format=asked.format)
    paths = all(isinstance(one, (str, Path)) for one in data)
    table = runs.load_table(list(map(str, data)) if paths else data[0], reading)
    names = asked.extract or analysis.extractors_for(table)
    if asked.sample is not None and asked.sample < table.n_cases:
        table = scoring.draw_cases(table, asked.sample, asked.seed)
    read, notes = _read_by_model(table, names[0], asked)
    grading = scoring.GradingConfig(metrics=() if asked.metric is None else (asked.metric,), seed=asked.seed)
    return analysis.audit_extractors(table, names, grading, read=read, notes=notes)


def _read_by_model(
    table: Table, extractor: str, asked: SimpleNamespace
) -> tuple[dict[str, tuple[str | None, ...]], tuple[str, ...]]:
    """The model's answers by its name, and what there is to say of the calls."""
    if asked.model is None:
        return {}, ()
    found = generate.extract_table_with_llm(
        table,
        extractor,
        asked.model,
        limits=call_limits(asked),
        prices=asked.prices,
        store=asked.store,
        cache=asked.cache,
    )
    return {found.model: found.answers}, (str(found),)
