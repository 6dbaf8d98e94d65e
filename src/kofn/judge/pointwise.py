"""Pointwise judging: every output on its own, by one judge or a panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kofn.core.sync import run_sync
from kofn.judge.judge_calls import ask_judges, label_judges, open_judges
from kofn.judge.judge_metrics import (
    JudgeResult,
    check_aggregators,
    check_name,
    check_replaced,
    keep_calibration,
    with_verdict_columns,
)
from kofn.judge.judge_record import judge_entry, judge_fingerprint, judge_warnings, verdict_frame
from kofn.judge.prompts import questions_of
from kofn.judge.verdict_scores import judge_scores, panel_entry, panel_scores, variance_entry, verdict_lists

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.judge.judge_settings import JudgeSettings
    from kofn.judge.rubric import Rubric
    from kofn.runs.load import GradedCandidates


def judge_outputs(graded: GradedCandidates, rubric: Rubric, settings: JudgeSettings, directory: Path) -> JudgeResult:
    """Ask every judge about every output, and make metrics of their verdicts."""
    table = graded.table
    questions = questions_of(table, rubric, graded.path)
    ids = [None if q is None else q.id for q in questions]
    unique = {q.id: q for q in questions if q is not None}
    name = settings.name or rubric.name
    check_name(name, graded)
    models = open_judges(settings)
    labels = label_judges(name, models)
    check_aggregators(graded, [*labels, name])
    check_replaced(graded, name, judge_fingerprint(rubric, settings, models), settings)
    replies = run_sync(ask_judges(models, unique, rubric, settings, directory))
    lists = {label: verdict_lists(one, ids) for label, one in zip(labels, replies, strict=True)}
    columns = [judge_scores(label, of, rubric) for label, of in lists.items()]
    if len(columns) > 1:
        columns.append(panel_scores(name, columns, settings.panel, rubric.passing))
    entries = {
        label: judge_entry(rubric, settings, [model], [one], column)
        for label, model, one, column in zip(labels, models, replies, columns, strict=False)
    }
    if len(models) > 1:
        entries[name] = {
            **judge_entry(rubric, settings, models, replies, columns[-1]),
            "panel": {"how": settings.panel, **(panel_entry(columns[:-1]) or {})},
        }
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    entries[name]["variance"] = variance_entry(lists, owner, rubric)
    keep_calibration(graded, columns, entries)
    result = with_verdict_columns(graded, columns, entries)
    result = result.with_warnings(judge_warnings(graded, unique, entries, name, settings, rubric))
    return JudgeResult(
        result=result,
        verdicts=verdict_frame(table, lists, rubric),
        names=tuple(entries),
        stopped=next((one.stopped for one in replies if one.stopped), None),
    )
