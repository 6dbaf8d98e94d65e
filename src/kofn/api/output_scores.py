"""`kofn.score`: outputs that exist already, from any source, scored and on demand written as a run directory."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kofn import analysis, render, runs
from kofn.api.options import OptionError, ScoreKeywords, settle
from kofn.core.document import Displayable
from kofn.errors import InputError
from kofn.importers.base import ReadOptions
from kofn.importers.sources import expand
from kofn.runs.load import load_table
from kofn.scoring.configuration import GroupType, configure
from kofn.scoring.evaluate import evaluate
from kofn.scoring.partitions import find_streamable, score_parts
from kofn.scoring.result import ScoredResult
from kofn.scoring.splits import Split

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import SimpleNamespace

    from kofn.scoring.configuration import Config, GradingConfig
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
        if asked.out is not None:
            runs.check_new(asked.out, force=asked.force)
            held.enter_context(runs.lock_directory(asked.out))
            runs.check_new(asked.out, force=asked.force)  # another one may have been quicker
            if asked.append_results is not None:
                runs.check_writable(asked.append_results)
        elif unused := next((name for name in _FOR_OUT if name in asked.given), None):
            raise OptionError(f"--{unused.replace('_', '-')} shapes the run directory: give --out DIR too")
        config = _configure(asked)
        engine = held.enter_context(_engine(asked)) if isinstance(asked.engine, str | None) else asked.engine
        wanted = replace(config.grading, engine=engine)
        again = None
        result: Result
        if (run := _single_run(data, places)) is not None:
            _check_reading(asked)
            if isinstance(run, Path) and asked.out is not None and run.resolve() == asked.out.resolve():
                raise InputError(f"{asked.out}: is the run that is graded again: give another --out")
            again = analysis.rescore.rescore(run, wanted)
            result = again.result if again.parent.path is None else replace(again.result, **again.manifest())
        else:
            result = _evaluate(data, places, asked, wanted)
        if asked.out is not None and isinstance(result, ScoredResult):
            replaced = runs.read_json(asked.out / "run.json") if runs.is_run(asked.out) else None
            written = render.write_run(
                replace(result, parent=None),
                asked.out,
                sources=places,
                options=_stored(wanted if again is None else again.options, asked, of_run=again is not None),
                report=replace(
                    config.report,
                    task=asked.task or _task_of(data, places),
                    name=asked.out.resolve().name,
                    case_rule=asked.case_rule,
                ),
                tables=None if again is None else again.tables(),
                parent=result.parent,
            )
            if replaced is not None:
                runs.remove_replaced(asked.out, replaced)
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
    "force",
)  # fmt: skip - options that mean something only together with `out`


_AS_IT_IS = (
    *("extract", "aggregate", "threshold", "top_k", "interval", "level", "seed", "by", "cluster", "weight", "use"),
    *("verdict", "group", "policy", "out", "batch_index", "append_results"),
)  # options that the configuration has by the same name


def _take_from_task(asked: SimpleNamespace) -> None:
    """Where `task` is a task file: its name, and how it grades where the options leave that open."""
    asked.case_rule = None
    if asked.task is None or not asked.task.endswith((".yaml", ".yml")):
        return
    from kofn import tasks  # pydantic: only for task files

    task = tasks.load_task(asked.task)
    for line in task.notes:
        if asked.on_note is not None:
            asked.on_note(f"{asked.task}: {line}")
    spec = task.spec
    asked.task, asked.given = spec.name, asked.given - {"task"}
    asked.verdict, asked.policy = asked.verdict or spec.verdict, asked.policy or tasks.policy_of(spec)
    asked.case_rule, asked.use = tasks.case_rule_of(spec), asked.use or spec.use
    asked.extract = asked.extract or spec.extract
    asked.metric = asked.metric or tuple(m.metric for m in spec.metrics)
    asked.aggregate = asked.aggregate or tuple(dict.fromkeys((*spec.aggregate, *tasks.repeat_aggregators(spec))))


def _configure(asked: SimpleNamespace) -> Config:
    """How outputs are graded and what is reported of them; what follows from the directory is not known yet."""
    given = {name: getattr(asked, name) for name in _AS_IT_IS}
    if asked.n_resamples is not None:
        given["n_resamples"] = asked.n_resamples
    return configure(
        **given,
        metrics=asked.metric,
        split=None if asked.split is None else Split.parse(asked.split),
        types={name: GroupType(kind) for name, kind in asked.group_type.items()},
        weights=_weights("--group-weight", asked.group_weight),
        metric_weights=_weights("--metric-weight", asked.metric_weight),
        tags=asked.tag,
    )


def _weights(option: str, given: Mapping[str, Any]) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in given.items()}
    except ValueError:
        bad = ", ".join(f"{name}={value}" for name, value in given.items())
        raise OptionError(f"{option} {bad}: expected a number above 0") from None


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


def _stored(used: GradingConfig, asked: SimpleNamespace, *, of_run: bool) -> dict[str, Any]:
    """How the outputs were graded, as run.json keeps it: a split as it was asked for, and what fields of files are."""
    fields = {} if of_run else {"fields": [f"{role}={name}" for role, name in asked.field.items()]}
    return {**used.to_dict(), "split": asked.split, **fields}


def _task_of(data: Any, places: list[str]) -> str:
    """What is evaluated, where nobody says: the task of a run, else what the file is called."""
    run = _single_run(data, places)
    if run is not None:
        return (runs.load_run(run) if isinstance(run, Path) else run).task
    if not places:
        return "rows"
    return "stdin" if places[0] == "-" else places[0].rstrip("/").rpartition("/")[2].partition(".")[0]
