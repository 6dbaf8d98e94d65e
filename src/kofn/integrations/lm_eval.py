"""lm-evaluation-harness: all repeats of a task, scored with the aggregators that its task file names.

    config = task_config("task.yaml")                       # `repeat_aggregation` beside `metric`, read and taken out
    results = lm_eval.simple_evaluate(model=..., tasks=[config.task], log_samples=True)
    scores = score_repeats(results, config)                 # or the folder that --output_path wrote
    scores.values                                           # {"exact_match": 0.84}

lm-eval keeps every response of `repeats` and grades what its filters choose among them; it passes keys of `metric_list`
that it does not know to the metric's function, which refuses them. So the file is read here first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.importers import ReadOptions, read
from kofn.importers.lm_eval import of_results, table_of_lines
from kofn.importers.lm_eval_lines import LineSelection, read_samples
from kofn.metrics.base import metric_name
from kofn.registry import load_module, metric
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.evaluate import evaluate
from kofn.tasks.lm_eval_yaml import OVER_CASES, OWN_KEYS, Function, extraction, metric_entries, read_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.core.warnings import CodedWarning
    from kofn.scoring.result import ScoredResult
    from kofn.tasks.lm_eval_yaml import MetricEntry


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """A task file: what lm-eval takes of it (`task`), and how repeats become one value per case (`metric_entries`)."""

    task: dict[str, Any]
    entries: tuple[MetricEntry, ...]
    extract: str | None = None
    notes: tuple[CodedWarning, ...] = ()

    @property
    def name(self) -> str:
        """The name of the task."""
        return str(self.task.get("task", "task"))


@dataclass(frozen=True, kw_only=True)
class RepeatScores:
    """The scores of a task over its repeats: an estimate for every metric of the file, under its name.

    `result` is that of `kofn score`: every aggregator, intervals, warnings.
    """

    task: str
    result: ScoredResult
    entries: tuple[MetricEntry, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Name of an entry -> its estimate over cases."""
        return {e.name: self.result.get(e.repeat_aggregation, metric=self.metrics[e.name]) for e in self.entries}

    @property
    def values(self) -> dict[str, float | None]:
        """Name of an entry -> its value over cases."""
        return {name: estimate.point for name, estimate in self.estimates.items()}

    def cases(self) -> list[dict[str, Any]]:
        """The result of every case: `{name: value}`, and with several repeats `name_repeats`, their scores in order."""
        rows: list[dict[str, Any]] = [{"doc_id": case} for case in self.result.table.cases["case_id"]]
        for entry in self.entries:
            metric = self.metrics[entry.name]
            sets = next(s.sets for s in self.result.scored if s.metric == metric)
            values = self.result.case_values[metric, entry.repeat_aggregation]
            for at, row in enumerate(rows):
                scores = [_plain(v) for v in sets.values[sets.offsets[at] : sets.offsets[at + 1]]]
                row[entry.name] = _plain(values[at])
                if len(scores) > 1:
                    row[f"{entry.name}_repeats"] = scores
        return rows


def task_config(path: str | Path) -> TaskConfig:
    """Read a task file, and take out of it the keys that lm-eval does not know.

    Functions (`!function`) are imported from beside the file, and data files named relative to it are found there. Two
    entries of one metric need two names (`name:`), an unknown aggregator is an error, and none means the first one.
    """
    path = Path(path)
    config = read_config(path)
    found = metric_entries(config, str(path))
    extract, notes = extraction(config)
    task = _resolved(config)
    listed = [{k: v for k, v in m.items() if k not in (*OWN_KEYS, "weight")} for m in task.get("metric_list") or []]
    if listed:
        task["metric_list"] = [m for at, m in enumerate(listed) if m not in listed[:at]]
    if isinstance(files := (task.get("dataset_kwargs") or {}).get("data_files"), (str, list, dict)):
        task["dataset_kwargs"] = {**task["dataset_kwargs"], "data_files": _beside(files, path.parent)}
    return TaskConfig(task=task, entries=tuple(found), extract=extract, notes=tuple(notes))


def _resolved(value: Any) -> Any:
    """The same values with every `!function` replaced by the function itself."""
    if isinstance(value, Function):
        return _function(value)
    if isinstance(value, dict):
        return {key: _resolved(one) for key, one in value.items()}
    return [_resolved(one) for one in value] if isinstance(value, list) else value


def _function(name: Function) -> Any:
    """The function of a file beside the one that names it, else of a module that can be imported."""
    module, _, attribute = name.rpartition(".")
    file = (name.folder / f"{module.replace('.', '/')}.py").resolve()
    try:
        loaded = _module(file, file.stat().st_mtime_ns) if file.exists() else import_module(module)
    except ModuleNotFoundError as problem:
        missing = "no such file" if problem.name == module.partition(".")[0] else _line(problem)
        raise InputError(f"!function {name}: {file}: {missing}") from None
    except Exception as problem:  # whatever the code of a task raises
        raise InputError(f"!function {name}: {file}: {type(problem).__name__}: {_line(problem)}") from None
    if not hasattr(loaded, attribute):
        raise InputError(f"!function {name}: {file}: it has no {attribute}")
    return getattr(loaded, attribute)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:160]


@lru_cache(maxsize=64)
def _module(file: Path, changed: int) -> Any:  # noqa: ARG001 - a file that was edited is another one
    """A file executed once, however many of its functions are named."""
    return load_module(file, str(file.with_suffix("")))


def _beside(files: Any, folder: Path) -> Any:
    if isinstance(files, dict):
        return {split: _beside(one, folder) for split, one in files.items()}
    if isinstance(files, list):
        return [_beside(one, folder) for one in files]
    return str((folder / files).resolve()) if (folder / files).exists() else files


def score_repeats(
    results: Mapping[str, Any] | str | Path | None,
    config: TaskConfig | str | Path,
    *,
    task: str | None = None,
    extract: str | Callable[..., Any] | None = None,
    **options: Any,
) -> RepeatScores:
    """Score every response of a task, and make one value per case as the task file says.

    `results` is what `simple_evaluate(..., log_samples=True)` returned, a samples file, or the folder that lm-eval
    wrote. `task` is the task in it (default: the file's own). Answers are found by the file's first filter, or by
    `extract`. Further options are those of `kofn.scoring.configuration.GradingConfig`: interval, level, seed, ...
    """

    config = config if isinstance(config, TaskConfig) else task_config(config)
    table = _table(results, task or config.name)
    metrics = _metrics(config, table, anew=extract is not None)
    result = evaluate(
        table,
        GradingConfig(
            extract=extract or config.extract,
            metrics=tuple(dict.fromkeys(metrics.values())),
            aggregate=tuple(dict.fromkeys(e.repeat_aggregation for e in config.entries)),
            **options,
        ),
    )
    return RepeatScores(
        task=task or config.name,
        result=result,
        entries=config.entries,
        metrics={name: m if isinstance(m, str) else metric_name(m) for name, m in metrics.items()},
    )


def _table(results: Mapping[str, Any] | str | Path | None, task: str) -> Table:
    """The candidates of a task: from memory, or from files."""

    if isinstance(results, (str, Path)):
        where = {"task": task} if Path(results).is_dir() else {}
        return read([results], ReadOptions(format="lm_eval", where=where))
    samples = results.get("samples") if results is not None else None
    if results is None or not samples:
        raise InputError("these results hold no samples: call simple_evaluate with log_samples=True")
    if task not in samples:
        raise UnknownName("task", task, list(samples))
    lines, notes = read_samples(samples[task], LineSelection())
    return table_of_lines(lines, f"samples of {task}", ReadOptions(), of_results(results, task), notes)


def _metrics(config: TaskConfig, table: Table, *, anew: bool) -> dict[str, Any]:
    """Name of an entry -> the metric that grades its responses; entries of one metric with the same settings share it.

    The grades of the log where it has them for every response; else a metric here, else the one lm-eval has. Grades of
    the log are of one extractor and one group of settings: with others (`anew`) the metric here comes first.
    """
    metrics: dict[str, Any] = {}
    own: dict[tuple[str, str], LmEvalMetric] = {}
    for entry in config.entries:
        several = len({e.spec for e in config.entries if e.metric == entry.metric}) > 1
        if entry.metric in table.labels and (entry.spec is None or not (anew or several)):
            metrics[entry.name] = str(entry.metric)
        elif entry.spec is not None:  # as an object: by its name it would be the log's own
            metrics[entry.name] = metric(entry.spec) if entry.spec in table.labels else entry.spec
        else:
            key = (entry.metric, repr(entry.settings))
            metrics[entry.name] = own[key] if key in own else own.setdefault(key, LmEvalMetric(entry))
    return metrics


class LmEvalMetric:
    """A metric as lm-eval calls it, with one reference and one prediction, under the name of its entry."""

    def __init__(self, entry: MetricEntry) -> None:
        self.function, self.settings = _lm_eval_function(entry.metric), _resolved(dict(entry.settings))
        self.__name__, self.higher_is_better = entry.name, entry.higher_is_better

    def __call__(self, prediction: Any, reference: Any) -> Any:
        return self.function(references=[reference], predictions=[prediction], **self.settings)


def _lm_eval_function(metric: str) -> Any:
    """A function of the task, or lm-eval's own."""
    if isinstance(metric, Function):
        return _function(metric)
    if metric in OVER_CASES:
        raise InputError(f"metric {metric} has no value of a single response, and this log none of each: leave it out")
    try:
        from lm_eval.api.registry import get_metric  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise InputError(
            f"metric {metric} is not known here, and lm-eval, which may know it, is not installed"
        ) from None
    function = get_metric(metric)
    if function is None:
        raise InputError(f"metric {metric} is known neither here nor to lm-eval")
    return function


def _plain(value: Any) -> float | None:
    return None if value != value else float(value)
