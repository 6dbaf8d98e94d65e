"""What `kofn compare` is asked for, opened and handed to what compares it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kofn.comparing import Side
    from kofn.differences import Compared, Rules
    from kofn.evaluate import Options, Result
    from kofn.opened import Opened
    from kofn.table import Table

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
    def rules(self) -> Rules:
        from kofn.differences import Rules
        from kofn.stats.intervals import check_level

        check_level(self.level)
        return Rules(alpha=self.alpha, level=self.level, seed=self.seed)

    @property
    def options(self) -> Options:
        """How outputs are read and graded."""
        from kofn.evaluate import Options
        from kofn.splits import Split

        return Options(
            extract=self.extract,
            threshold=self.threshold,
            cluster=self.cluster,
            weight=self.weight,
            seed=self.seed,
            split=None if self.split is None else Split.parse(self.split),
        )

    @property
    def fields(self) -> Mapping[str, str]:
        from kofn.fields import parse_field_options

        return parse_field_options(self.field_options)


def found_of(paths: tuple[Path, ...], **asked: Any) -> Compared:
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


def _systems(paths: tuple[Path, ...], request: _Request) -> Compared:
    from kofn.comparing import Ask, comparing

    if len(paths) < 2:
        raise click.UsageError("give at least two runs or files to compare, or one with --extractors, --metrics or "
                               "--selectors")  # fmt: skip
    for i, path in enumerate(paths):
        if any(path.resolve() == other.resolve() for other in paths[:i]):
            raise InputError(f"{path}: given twice: compare it with another run or file")
    ask = Ask(
        aggregate=request.aggregate,
        metrics=tuple(map(_stored_name, request.metric)),
        by=request.by,
        top_k=request.top_k,
        verdict=request.verdict,
        all_pairs=request.all_pairs,
        rules=request.rules,
    )
    sides = [_side_of(_open(path, request, request.metric)) for path in paths]
    return comparing(_named(sides, paths), ask)


def _open(path: Path, request: _Request, metrics: tuple[str, ...]) -> Opened:
    """A file graded, or a run with its stored grades; metrics asked for that a run lacks are computed beside them."""
    from kofn.opened import opened

    options = request.options
    if not path.is_dir():
        return _of_file(path, request, replace(options, metrics=metrics))
    found = opened(path, replace(options, extract=None, threshold=None))
    if request.extract is not None:
        found = opened(path, replace(options, metrics=metrics or _computed(found.result)))
    known = [one.metric for one in found.result.scored]
    if lacking := tuple(name for name in metrics if _stored_name(name) not in known):
        found = replace(found, result=_beside(found.result, opened(path, replace(options, metrics=lacking)).result))
    if request.threshold is not None:
        found = replace(found, result=_side_of(found).passing_from(request.threshold).result)
    return found


def _computed(result: Result) -> tuple[str, ...]:
    """The metrics of a run that can be computed again: no labels, no scores of its file, no judges."""
    names = [one.metric for one in result.scored if one.metric]
    return tuple(name for name in names if name not in ("pass", "score") and name not in result.judges)


def _beside(result: Result, more: Result) -> Result:
    """A result with the metrics of another."""
    values = {**result.case_values, **more.case_values}
    return replace(result, scored=(*result.scored, *more.scored), case_values=values)


def _side_of(found: Opened) -> Side:
    from kofn.comparing import Side

    return Side(name=found.name, result=found.result, **found.units())


def _of_file(path: Path, request: _Request, options: Options) -> Opened:
    """A file, graded. A field to slice by must be one value a case where the file has it; another side may."""
    from kofn.api import load
    from kofn.evaluate import evaluate
    from kofn.importers.rows import ReadOptions
    from kofn.opened import Opened

    needed = tuple(name for name in (request.cluster, request.weight) if name is not None)
    reading = ReadOptions(fields=request.fields, keep=needed, everything=True)
    table = load(path, reading)
    there = tuple(name for name in request.by if _has(table, name))
    if there and path.is_file():  # read again, so that two values in one case are refused with their line
        table = load(path, replace(reading, keep=(*there, *needed)))
    _refuse_twice(path, table)
    name = "standard input" if str(path) == "-" else path.name.partition(".")[0]
    return Opened(name=name, path=path, options=options, result=evaluate(table, options))


def _has(table: Table, name: str) -> bool:
    from kofn.evaluate import case_column

    try:
        case_column(table, name)
    except UnknownName:
        return False
    return True


def _stored_name(name: str) -> str:
    """What a metric is called where it was computed: a function `module:name` by its name."""
    if ":" not in name:
        return name
    from kofn.metrics import metric_name
    from kofn.registry import metric

    return metric_name(metric(name))


def _refuse_twice(path: Path, table: Table) -> None:
    """A case a line, and one id on two lines: two cases under one id, which would be one larger set."""
    from kofn.importers.careful import repeated_id

    if table.form not in ("wide", "groups") or not path.is_file():
        return
    if (twice := repeated_id(path, table.fields.get("id", "id"))) is not None:
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


def _graders(path: Path, request: _Request, way: str) -> Compared:
    from kofn.graders import by_extractor, by_metric, graders

    found = _open(path, request, ())
    options = replace(request.options, metrics=request.metric, top_k=request.top_k)
    names: tuple[str, ...] = getattr(request, way)
    ways = by_extractor(names, options) if way == "extractors" else by_metric(names, options)
    return graders(
        found.table,
        ways,
        units=found.units(),
        aggregate=request.aggregate,
        all_pairs=request.all_pairs,
        rules=request.rules,
    )


def _selectors(path: Path, request: _Request) -> Compared:
    from kofn.contests import contest
    from kofn.selectorfile import selector_of

    chosen = [selector_of(text) for text in request.selectors]
    asked = () if request.evaluator is None else (request.evaluator,)
    found = _open(path, request, asked)
    evaluator = found.metric(None if request.evaluator is None else _stored_name(request.evaluator)).metric
    side = _side_of(found)
    return contest(
        (side if request.top_k is None else side.first(request.top_k)).result,
        chosen,
        evaluator,
        found.options,
        units=found.units(),
        all_pairs=request.all_pairs,
        rules=request.rules,
    )
