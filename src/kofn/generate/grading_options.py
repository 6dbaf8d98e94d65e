"""How a run is graded and reported: the settings of its task, overridden by those of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.scoring.checklist import check_use
from kofn.scoring.policy import PassPolicy

if TYPE_CHECKING:
    from kofn.core.table import Table
    from kofn.generate.prepared_run import PreparedRun
    from kofn.runs.report_builder import ReportPlan
    from kofn.scoring.options import Options


def options_of(prepared: PreparedRun) -> Options:
    """Options for `kofn.scoring.evaluate`: those of the task, overridden by the settings of the run."""
    s = prepared.settings
    values: dict[str, Any] = {
        "extract": s.extract,
        "metrics": tuple(s.metrics),
        "aggregate": tuple(s.aggregate),
        "by": tuple(s.by),
        "threshold": s.threshold,
        "use": check_use(s.use),
    }
    overrides = {name: value for name, value in values.items() if value not in (None, ())}
    if prepared.recipe.stages[-1].kind != "generate":
        overrides["extract"] = None  # the answer is the chosen option: there is no text to search
    return prepared.task.evaluate_options(**overrides, interval=s.interval, level=s.level, seed=s.seed)


def plan_of(prepared: PreparedRun, name: str, table: Table | None = None) -> ReportPlan:
    """How the result becomes a report: as the task says, overridden by the settings of the run.

    With `table`, groups of the task that none of its cases belongs to are left out: a run may be on a part of the data.
    """
    s = prepared.settings
    policy = None if s.policy is None else PassPolicy(s.policy)
    named = {"verdict": s.verdict, "policy": policy, "threshold": s.threshold}
    plan = prepared.task.report_plan(name=name, **{k: v for k, v in named.items() if v is not None})
    if table is None or plan.group is None or plan.group not in table.tags.columns:
        return plan
    there = set(table.tags[plan.group].cast(pl.String).to_list())
    return replace(
        plan,
        types={group: kind for group, kind in plan.types.items() if group in there},
        weights={group: weight for group, weight in plan.weights.items() if group in there},
    )
