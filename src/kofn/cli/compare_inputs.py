"""Loads what `kofn compare` compares (runs, files, extractors, metrics or selectors) and calls the comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kofn import analysis, importers, metrics, runs, scoring, stats
from kofn.core.fields import parse_field_options
from kofn.errors import InputError, UnknownName
from kofn.registry import metric

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kofn.analysis.compare.differences import ComparisonReport
    from kofn.analysis.compare.systems import Side
    from kofn.core.table import Table
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.result import ScoredResult

_ONE = {"extractors": "--extractors", "metrics": "--metrics", "selectors": "--selectors"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The options of the verb."""

    aggregate: tuple[str, ...]
    metric: tuple[str, ...]
    by: tuple[str, ...]
    split: str | None
    top_k: int | None
    all_pairs: bool
    verdict: str | None
    extractors: tuple[str, ...]
    metrics: tuple[str, ...]
    selectors: tuple[str, ...]
    evaluator: str | None
    extract: str | None
    threshold: float | None
    cluster: str | None
    weight: str | None
    field_options: tuple[str, ...]
    alpha: float
    level: float
    seed: int

    @property
    def rules(self) -> analysis.ComparisonRules:
        stats.check_level(self.level)
        return analysis.ComparisonRules(alpha=self.alpha, level=self.level, seed=self.seed)

    @property
    def options(self) -> scoring.GradingConfig:
        """How outputs are read and graded."""
        return scoring.GradingConfig(
            extract=self.extract,
            threshold=self.threshold,
            cluster=self.cluster,
            weight=self.weight,
            seed=self.seed,
            split=None if self.split is None else scoring.Split.parse(self.split),
        )

    @property
    def fields(self) -> Mapping[str, str]:
        return parse_field_options(self.field_options)


def found_of(paths: tuple[Path, ...], **asked: Any) -> ComparisonReport:
    """Compare what was asked for: systems, ways to grade one file, or selectors of one."""
    request = _Request(**asked)
    ways = [name for name in _ONE if getattr(request, name)]
    if request.field_options and paths and all(path.is_dir() for path in paths):
        raise click.UsageError("--field names fields of files: a run has its own names already")
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(_ONE[w] for w in ways)} compare different things: give one of them")
    if not ways:
        _only_with(request)
        return _systems(paths, request)
    _not_with(request, ways[0])
    if len(paths) != 1:
        what = "no file" if not paths else f"{len(paths)} files"
        raise click.UsageError(f"{_ONE[ways[0]]} compares on one run or file, before the option: {what} given")
    return _selectors(paths[0], request) if ways[0] == "selectors" else _graders(paths[0], request, ways[0])


def _only_with(request: _Request) -> None:
    if request.evaluator is not None:
        raise click.UsageError("--evaluator grades what selectors pick: give --selectors too")


def _not_with(request: _Request, way: str) -> None:
    """Options that mean nothing here are refused, not passed over."""
    idle = {"--by": request.by, "--verdict": request.verdict}
    if way == "selectors":
        idle |= {"--aggregate": request.aggregate, "--metric": request.metric}
    else:
        idle |= {"--evaluator": request.evaluator}
        idle |= {"--extract": request.extract} if way == "extractors" else {"--metric": request.metric}
    for option, given in idle.items():
        if given:
            hint = "; --evaluator names the metric" if option == "--metric" and way == "selectors" else ""
            raise click.UsageError(f"{option} has no meaning with {_ONE[way]}{hint}")


# systems


def _systems(paths: tuple[Path, ...], request: _Request) -> ComparisonReport:
    if len(paths) < 2:
        raise click.UsageError("give at least two runs or files to compare, or one with --extractors, --metrics or "
                               "--selectors")  # fmt: skip
    for i, path in enumerate(paths):
        if any(path.resolve() == other.resolve() for other in paths[:i]):
            raise InputError(f"{path}: given twice: compare it with another run or file")
    ask = analysis.ComparisonOptions(
        aggregate=request.aggregate,
        metrics=tuple(map(_stored_name, request.metric)),
        by=request.by,
        top_k=request.top_k,
        verdict=request.verdict,
        all_pairs=request.all_pairs,
        rules=request.rules,
    )
    sides = [_side_of(_open(path, request, request.metric)) for path in paths]
    return analysis.compare_systems(_named(sides, paths), ask)


def _open(path: Path, request: _Request, metrics: tuple[str, ...]) -> GradedCandidates:
    """A file graded, or a run with its stored grades; metrics asked for that a run lacks are computed beside them."""
    options = request.options
    if not path.is_dir():
        return _of_file(path, request, replace(options, metrics=metrics))
    found = runs.load_graded(path, replace(options, extract=None, threshold=None))
    if request.extract is not None:
        found = runs.load_graded(path, replace(options, metrics=metrics or _computed(found.result)))
    known = [one.metric for one in found.result.scored]
    if lacking := tuple(name for name in metrics if _stored_name(name) not in known):
        found = replace(
            found, result=_beside(found.result, runs.load_graded(path, replace(options, metrics=lacking)).result)
        )
    if request.threshold is not None:
        found = replace(found, result=_side_of(found).passing_from(request.threshold).result)
    return found


def _computed(result: ScoredResult) -> tuple[str, ...]:
    """The metrics of a run that can be computed again: no labels, no scores of its file, no judges."""
    names = [one.metric for one in result.scored if one.metric]
    return tuple(name for name in names if name not in ("pass", "score") and name not in result.judges)


def _beside(result: ScoredResult, more: ScoredResult) -> ScoredResult:
    """A result with the metrics of another."""
    values = {**result.case_values, **more.case_values}
    return replace(result, scored=(*result.scored, *more.scored), case_values=values)


def _side_of(found: GradedCandidates) -> analysis.Side:
    return analysis.Side(name=found.name, result=found.result, **found.units())


def _of_file(path: Path, request: _Request, options: GradingConfig) -> runs.GradedCandidates:
    """A file, graded. A field to slice by must be one value a case where the file has it; another side may."""
    needed = tuple(name for name in (request.cluster, request.weight) if name is not None)
    reading = importers.ReadOptions(fields=request.fields, keep=needed, everything=True)
    table = runs.load_table(path, reading)
    there = tuple(name for name in request.by if _has(table, name))
    if there and path.is_file():  # read again, so that two values in one case are refused with their line
        table = runs.load_table(path, replace(reading, keep=(*there, *needed)))
    _refuse_twice(path, table)
    name = "standard input" if str(path) == "-" else path.name.partition(".")[0]
    return runs.GradedCandidates(
        name=name, path=path, options=options, result=scoring.evaluate.evaluate(table, options)
    )


def _has(table: Table, name: str) -> bool:
    from kofn.core.table import case_column

    try:
        case_column(table, name)
    except UnknownName:
        return False
    return True


def _stored_name(name: str) -> str:
    """What a metric is called where it was computed: a function `module:name` by its name."""
    if ":" not in name:
        return name

    return metrics.metric_name(metric(name))


def _refuse_twice(path: Path, table: Table) -> None:
    """A case a line, and one id on two lines: two cases under one id, which would be one larger set."""
    if table.form not in ("wide", "groups") or not path.is_file():
        return
    if (twice := importers.repeated_id(path, table.fields.get("id", "id"))) is not None:
        case, line = twice
        raise InputError(f"{path}: line {line}: case {case!r} is there twice: cases are matched by their id")


def _named(sides: list[Side], paths: tuple[Path, ...]) -> list[Side]:
    """Sides of one name are called by their paths."""
    names = [side.name for side in sides]
    return [
        replace(side, name=str(path)) if names.count(side.name) > 1 else side
        for side, path in zip(sides, paths, strict=True)
    ]


# graders and selectors


def _graders(path: Path, request: _Request, way: str) -> ComparisonReport:
    found = _open(path, request, ())
    options = replace(request.options, metrics=request.metric, top_k=request.top_k)
    names: tuple[str, ...] = getattr(request, way)
    ways = analysis.by_extractor(names, options) if way == "extractors" else analysis.by_metric(names, options)
    return analysis.compare_graders(
        found.table,
        ways,
        units=found.units(),
        aggregate=request.aggregate,
        all_pairs=request.all_pairs,
        rules=request.rules,
    )


def _selectors(path: Path, request: _Request) -> ComparisonReport:
    chosen = [analysis.load_selector(text) for text in request.selectors]
    asked = () if request.evaluator is None else (request.evaluator,)
    found = _open(path, request, asked)
    evaluator = found.metric(None if request.evaluator is None else _stored_name(request.evaluator)).metric
    side = _side_of(found)
    return analysis.compare_selectors(
        (side if request.top_k is None else side.first(request.top_k)).result,
        chosen,
        evaluator,
        found.options,
        units=found.units(),
        all_pairs=request.all_pairs,
        rules=request.rules,
    )
