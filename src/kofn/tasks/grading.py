"""How a task is graded and reported: its metrics and aggregators as options for scoring and for the report."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kofn.metrics import MetricConfig
from kofn.metrics.metric_config import REPEAT_AGGREGATORS
from kofn.registry import metric
from kofn.scoring.options import Options
from kofn.scoring.policy import PassPolicy

if TYPE_CHECKING:
    from kofn.runs.report_builder import ReportPlan
    from kofn.tasks.spec import MetricSpec, TaskSpec

# names of other tools' task files for what is an aggregator here
REPEATS = {"any": "any_pass", "all": "all_pass", "best": "best_score", "maj": "majority", "vote": "majority"}


def repeat_aggregators(spec: TaskSpec) -> tuple[str, ...]:
    """The aggregators that the metrics of a task name for their repeats, each once."""
    named = (m.repeat_aggregation for m in spec.metrics if m.repeat_aggregation)
    return tuple(dict.fromkeys(REPEATS.get(name, name) for name in named))


def verdict_of(spec: TaskSpec) -> str | None:
    """The aggregator by which a case passes: the task's own, else the first that a metric names for its repeats."""
    return spec.verdict or next(iter(repeat_aggregators(spec)), None)


def evaluate_options(spec: TaskSpec, **overrides: Any) -> Options:
    """What `kofn.scoring.evaluate` needs. A list of aggregators gains those that metrics name for their repeats."""
    more = repeat_aggregators(spec)
    aggregate = (*spec.aggregate, *(name for name in more if name not in spec.aggregate)) if spec.aggregate else ()
    settings: dict[str, Any] = {
        "extract": spec.extract,
        "metrics": tuple(m.metric for m in spec.metrics),
        "aggregate": aggregate,
        "by": spec.segments,
        "use": spec.use,
    }
    return Options(**{**settings, **overrides})


def report_plan(spec: TaskSpec, **overrides: Any) -> ReportPlan:
    """What the report needs."""
    from kofn.runs.report_builder import ReportPlan  # brings polars, which `kofn list tasks` does without

    groups = spec.groups
    settings: dict[str, Any] = {
        "task": spec.name,
        "task_version": spec.version,
        "group": groups.field if groups else None,
        "types": groups.types if groups else {},
        "weights": groups.weights if groups else {},
        "metric_weights": {m.metric: m.weight for m in spec.metrics if m.weight != 1.0},
        "verdict": verdict_of(spec),
        "policy": PassPolicy(spec.policy),
    }
    return ReportPlan(**{**settings, **overrides})


def metric_configs(spec: TaskSpec) -> list[MetricConfig]:
    """The metrics as `MetricConfig`, for those who score one case at a time."""
    return [_config(one, spec.output_type) for one in spec.metrics]


def _config(one: MetricSpec, output_type: str) -> MetricConfig:
    name = one.repeat_aggregation
    own = name is None or name in REPEAT_AGGREGATORS
    return MetricConfig(
        name=one.metric,
        fn=metric(one.metric),
        repeat_aggregation_fn=name if own else partial(_aggregated, REPEATS.get(str(name), str(name))),
        output_type=output_type,
    )


def _aggregated(name: str, scores: Any, *, predictions: Any = None) -> float:
    """An aggregator of whole runs on the scores of one case."""
    from kofn.scoring.single_set import aggregate  # brings polars, as above

    found = aggregate(name, values=list(scores), answers=None if predictions is None else list(predictions))
    return float("nan") if found is None else found
