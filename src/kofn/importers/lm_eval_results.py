"""`results_DATE.json` of lm-evaluation-harness: the model, the task and the number of samples of the log beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kofn.importers.base import Peek

LOWER = frozenset({"perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "brier_score", "ter", "wer"})

_MEANS = ("mean", "nanmean", "bypass")  # aggregations of lm-eval that are the mean over documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one task; everything is optional, since samples may come without results."""

    task: str | None = None
    whole: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    def of_task(self, key: str) -> Any:
        """The entry of this task in a part of the results."""
        part = self.whole.get(key)
        return part.get(self.task) if isinstance(part, dict) else None

    @property
    def nothing(self) -> set[str]:
        """The texts that the filters of the task give where they find no answer."""
        config = self.of_task("configs")
        filters = config.get("filter_list") if isinstance(config, dict) else None
        steps = [step for one in filters or [] if isinstance(one, dict) for step in one.get("filter") or []]
        return {str(step["fallback"]) for step in steps if isinstance(step, dict) and "fallback" in step}

    def higher_is_better(self, metric: str) -> bool:
        """As the results say; else by the metric's name."""
        stated = self.of_task("higher_is_better")
        value = stated.get(metric) if isinstance(stated, dict) else None
        return value if isinstance(value, bool) else metric not in LOWER

    def notes(self, n_cases: int) -> Iterator[str]:
        """Notes: unreadable results, a number of cases that is not that of the run."""
        if self.problem:
            yield self.problem
        samples = self.of_task("n-samples")
        expected = samples.get("effective") if isinstance(samples, dict) else None
        if isinstance(expected, int) and expected != n_cases:
            why = "cut short, or a part of it" if n_cases < expected else "more than one run"
            yield f"{n_cases:,} documents here, and the results are of {expected:,}: the log is {why}"

    def not_means(self, metrics: Iterable[str]) -> Iterator[str]:
        """Notes on metrics that the tool aggregates over cases otherwise than by the mean."""
        config = self.of_task("configs")
        listed = config.get("metric_list") if isinstance(config, dict) else None
        how = (
            {str(m.get("metric")): m.get("aggregation") for m in listed if isinstance(m, dict)}
            if isinstance(listed, list)
            else {}
        )
        for name in metrics:
            if isinstance(how.get(name), str) and how[name] not in _MEANS:
                yield f"{name}: lm-eval's number over cases is {how[name]}; here it is the mean"

    def origin(self) -> dict[str, Any]:
        """Where the samples come from, as far as it is known."""
        found = {
            "tool": "lm-eval",
            "task": self.task,
            "model": self._model(),
            "version": self.whole.get("lm_eval_version"),
            "task_version": self.of_task("versions"),
            "n_shot": self.of_task("n-shot"),
            "seconds": _number(self.whole.get("total_evaluation_time_seconds")),
            "date": self.whole.get("date"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _model(self) -> Any:
        """The model. Where the user did not name it the tool makes up a `model_name`, a new one for each run."""
        config = self.whole.get("config")
        config = config if isinstance(config, dict) else {}
        name, kind = self.whole.get("model_name"), config.get("model") or self.whole.get("model_source")
        made_up = "model_args" in config and str(name) not in str(config["model_args"])
        return kind if kind and (made_up or not name) else name


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def results_beside(peek: Peek, task: str | None, date: str | None) -> Results:
    """The results beside a file of samples: of the same date, else the only ones in the folder."""
    path = _file_beside(peek, date)
    if path is None:
        return Results(task=task)
    try:
        whole = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        problem = f"{path.name} beside it cannot be read as JSON: model and task are not known"
        return Results(task=task, problem=problem)
    return of_results(whole, task) if isinstance(whole, dict) else Results(task=task)


def of_results(whole: Mapping[str, Any], task: str | None) -> Results:
    """The results of a task; without a name that of the only one there is."""
    tasks = whole.get("configs")
    names = list(tasks) if isinstance(tasks, dict) else []
    if task not in names and len(names) == 1:
        task = names[0]
    return Results(task=task, whole=whole)


def _file_beside(peek: Peek, date: str | None) -> Path | None:
    for folder in dict.fromkeys((peek.path.parent, Path(peek.source).parent)):
        if "://" in peek.source and folder != peek.path.parent:
            continue
        try:
            found = sorted(folder.glob("*.json"))
        except OSError:
            continue
        dated = [path for path in found if date is not None and path.stem.endswith(date)]
        only = [path for path in found if path.name.startswith("results")]
        if dated or (date is None and len(only) == 1):
            return (dated or only)[0]
    return None
