"""`kofn.score`: outputs that exist already, from any source, scored and on demand written as a run directory."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from kofn import analysis, render, runs
from kofn.api.options import OptionError, ScoreKeywords, settle
from kofn.core.document import Displayable
from kofn.importers.base import ReadOptions
from kofn.importers.sources import expand
from kofn.runs.load import load_table
from kofn.scoring.configuration import GradingConfig, GroupType, PassPolicy, ReportConfig
from kofn.scoring.evaluate import evaluate
from kofn.scoring.partitions import find_streamable, score_parts
from kofn.scoring.result import ScoredResult
from kofn.scoring.splits import Split

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import SimpleNamespace

    from kofn.analysis.rescore import RescoredRun
    from kofn.scoring.result import Result


def score(data: Any, **options: Unpack[ScoreKeywords]) -> Result:
    """Score outputs: a path or paths, rows as mappings (long, wide or groups), a frame of the long form, or a run.

    A path is a file in any form kofn reads (`kofn list importers`), a pattern, a folder, a run, "-" or an address.
    Options are those of `kofn score`; `metric`, `aggregate` and `extract` also take callables of your own. With `out`
    a run directory is written. A run by itself is graded again: with `extract`, `metric` or `threshold` the result's
    `parent` says which verdicts change.

    `part_size` reads Parquet of the long form in parts of about so many candidates, each on a worker of `engine` where
    one is given, and keeps none of them: memory does not grow with the data, and the result has no `scored`, `table`
    or `case_values`. "auto" does so for folders of Parquet and from two million candidates on.

    >>> rows = [{"id": "q", "reference": "42", "outputs": ["It is 42.", "Maybe 43.", "42!"]}]
    >>> result = score(rows, aggregate=["any_pass", "majority"])
    >>> [(e.aggregator, e.point) for e in result.estimates]
    [('any_pass', 1.0), ('majority', 1.0)]
    """
    asked = settle(ScoreKeywords, options)
    places = _places(data)
    with ExitStack() as held:
        _take_from_task(asked)
        report = None
        if asked.out is not None:
            runs.check_new(asked.out)
            held.enter_context(runs.lock_directory(asked.out))
            runs.check_new(asked.out)  # another one may have been quicker
            report = _report_config(data, places, asked)
        elif unused := next((name for name in _FOR_OUT if name in asked.given), None):
            raise OptionError(f"--{unused.replace('_', '-')} shapes the run directory: give --out DIR too")
        engine = held.enter_context(_engine(asked)) if isinstance(asked.engine, str | None) else asked.engine
        wanted = replace(_options(asked), engine=engine)
        again = None
        result: Result
        if (run := _single_run(data, places)) is not None:
            _check_reading(asked)
            again = analysis.rescore.rescore(run, wanted)
            result = again.result if again.parent.path is None else replace(again.result, **again.manifest())
        else:
            result = _evaluate(data, places, asked, wanted)
        if asked.out is not None and isinstance(result, ScoredResult):
            written = render.write_run(
                replace(result, parent=None),
                asked.out,
                sources=places,
                options=_stored(again, asked),
                report=report,
                tables=None if again is None else again.tables(),
                parent=result.parent,
            )
            result = replace(written.result or result, parent=result.parent)
    return result


def _places(data: Any) -> list[str]:
    """The files that are named, patterns replaced by what they match; none where data is no paths."""
    several = [data] if isinstance(data, (str, Path)) else data
    named = isinstance(several, (list, tuple)) and all(isinstance(one, (str, Path)) for one in several)
    return expand(several) if named else []


def _single_run(data: Any, places: list[str]) -> Any:
    """The run that the data is, loaded or stored; None for outputs of any other kind."""
    if isinstance(data, Displayable) and hasattr(data, "manifest"):
        return data
    return Path(places[0]) if len(places) == 1 and runs.is_run(places[0]) else None


_FOR_OUT = (
    "verdict",
    "group",
    "group_type",
    "group_weight",
    "metric_weight",
    "batch_index",
    "append_results",
    "tag",
    "policy",
    "task",
)  # fmt: skip - options that mean something only together with `out`


def _take_from_task(asked: SimpleNamespace) -> None:
    """Where `task` is a task file: its name, and how it grades where the options leave that open."""
    if asked.task is None or not asked.task.endswith((".yaml", ".yml")):
        return
    from kofn import tasks  # pydantic: only for task files

    task = tasks.load_task(asked.task)
    for line in task.notes:
        if asked.on_note is not None:
            asked.on_note(f"{asked.task}: {line}")
    spec = task.spec
    asked.task, asked.given = spec.name, asked.given - {"task"}
    asked.verdict = asked.verdict or tasks.verdict_of(spec)
    asked.extract = asked.extract or spec.extract
    asked.metric = asked.metric or tuple(m.metric for m in spec.metrics)
    asked.aggregate = asked.aggregate or tuple(dict.fromkeys((*spec.aggregate, *tasks.repeat_aggregators(spec))))


def _options(asked: SimpleNamespace) -> GradingConfig:
    own = {f.name for f in fields(GradingConfig)} - {"metrics", "use", "split", "engine", "n_resamples"}
    given = {} if asked.n_resamples is None else {"n_resamples": asked.n_resamples}
    return GradingConfig(
        **{name: getattr(asked, name) for name in own},
        **given,
        metrics=asked.metric,
        use=asked.use,
        split=None if asked.split is None else Split.parse(asked.split),
    )


def _engine(asked: SimpleNamespace) -> Any:
    """The engine that was asked for, if any."""
    if asked.workers is None and asked.engine is None and asked.ray_address is None:
        return nullcontext()
    from kofn.parallel import engine

    name = asked.engine or ("ray" if asked.ray_address else "local")
    return engine(name, workers=asked.workers, ray_address=asked.ray_address)


def _evaluate(data: Any, places: list[str], asked: SimpleNamespace, options: GradingConfig) -> Result:
    whole = asked.out is not None or asked.as_repeats
    if whole and "part_size" in asked.given:
        raise OptionError(f"--part-size keeps no candidate, which {'--out' if asked.out else '--as-repeats'} needs")
    keep = tuple(name for name in (*options.by, options.cluster, options.weight) if name is not None)
    reading = ReadOptions(
        fields=asked.field,
        keep=keep,
        everything=bool(asked.everything) or asked.out is not None,
        format=asked.format,
        where=asked.where,
    )
    if asked.part_size is not None:
        size = None if asked.part_size == "auto" else asked.part_size
        if (found := find_streamable(places, reading, size)) is not None:
            return score_parts(found, reading, options, size=size, engine=options.engine, on_part=asked.on_part)
    return evaluate(load_table(data, reading, as_repeats=asked.as_repeats), options)


def _check_reading(asked: SimpleNamespace) -> None:
    """A run is read as it is."""
    for name in ("field", "format", "where", "as_repeats"):
        if getattr(asked, name):
            raise OptionError(f"--{name.replace('_', '-')} says how to read files, and a run is read as it is")
    if "part_size" in asked.given and asked.part_size != "auto":
        raise OptionError("--part-size says how to read files, and a run is read as it is")


def _stored(again: RescoredRun | None, asked: SimpleNamespace) -> dict[str, Any]:
    """How the run was evaluated, as run.json keeps it."""
    names = ("extract", "threshold", "top_k", "by", "interval", "level", "seed", "cluster", "weight", "split", "use")
    options = {name: getattr(asked, name) for name in names}
    if again is None:
        named = [f"{role}={name}" for role, name in asked.field.items()]
        return {**options, "metrics": asked.metric, "aggregate": asked.aggregate, "fields": named}
    used = again.options
    kept = {name: getattr(used, name) for name in names if name not in ("split", "use")}
    return {**kept, "use": used.use, "split": asked.split, "metrics": used.metrics, "aggregate": used.aggregate}


class _Named(NamedTuple):
    """A number that an option gives a name, such as a weight."""

    option: str
    given: Mapping[str, Any]

    def weights(self) -> dict[str, float]:
        try:
            return {name: float(value) for name, value in self.given.items()}
        except ValueError:
            bad = ", ".join(f"{name}={value}" for name, value in self.given.items())
            raise OptionError(f"{self.option} {bad}: expected a number above 0") from None


def _report_config(data: Any, places: list[str], asked: SimpleNamespace) -> ReportConfig:
    return ReportConfig(
        task=asked.task or _task_of(data, places),
        name=asked.out.resolve().name,
        verdict=asked.verdict,
        group=asked.group,
        types={name: GroupType(kind) for name, kind in asked.group_type.items()},
        weights=_Named("--group-weight", asked.group_weight).weights(),
        metric_weights=_Named("--metric-weight", asked.metric_weight).weights(),
        policy=PassPolicy(asked.policy),
        threshold=asked.threshold,
        out=asked.out,
        batch_index=asked.batch_index,
        append_results=asked.append_results,
        tags=asked.tag,
    )


def _task_of(data: Any, places: list[str]) -> str:
    """What is evaluated, where nobody says: the task of a run, else what the file is called."""
    run = _single_run(data, places)
    if run is not None:
        return (runs.load_run(run) if isinstance(run, Path) else run).task
    if not places:
        return "rows"
    return "stdin" if places[0] == "-" else places[0].rstrip("/").rpartition("/")[2].partition(".")[0]
