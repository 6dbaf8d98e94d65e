"""Finished cases -> the report classes, by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.checkpoint.work import passed
from kofn.report.results import AttributeResult, CorrectnessResults, VerifierReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kofn.checkpoint.problem import Checkpoint, Group, Problem
    from kofn.checkpoint.work import Checked, Done, Job
    from kofn.policy import PassPolicy

_MOST = 2_000  # characters of a program's errors that a case tells
_MB = 1 << 20


def results_of(
    problem: Problem,
    checkpoint: Checkpoint,
    done: Mapping[tuple[str, str], list[Done]],
    *,
    policy: PassPolicy,
    timestamp: datetime,
) -> CorrectnessResults:
    """The evaluation of one submission at one checkpoint; `done` has the repeats of every (group, case)."""
    results = CorrectnessResults(
        problem_name=problem.name,
        problem_version=problem.version,
        name=checkpoint.name,
        version=checkpoint.version,
        timestamp=timestamp,
        policy=policy,
        infrastructure_failure=_broken(done),
    )
    for group in checkpoint.groups:
        reports = [report_of(group, job, done[group.name, job.id], timestamp) for job in group.cases]
        duration = sum(report.duration for report in reports)
        results.add_group_report(group.name, group.type, duration, reports, group.weight)
    return results


def _broken(done: Mapping[tuple[str, str], list[Done]]) -> str | None:
    """What of the harness failed, the first in words."""
    told = [(key, one.broken) for key, repeats in done.items() for one in repeats if one.broken is not None]
    if not told:
        return None
    (group, case), first = told[0]
    more = f" (and {len(told) - 1:,} more)" if len(told) > 1 else ""
    return f"{group}/{case}: {first}{more}"


def report_of(group: Group, job: Job, repeats: list[Done], timestamp: datetime) -> VerifierReport:
    """One case. Run several times, it passes where every time does; what is shown is the first time that failed."""
    return VerifierReport(
        id=job.id,
        group=group.name,
        type=group.type,
        timestamp=timestamp,
        duration=sum(one.ended.seconds for one in repeats),
        results=_attributes(repeats),
        case={**{name: value for name, value in job.told.items() if name != "id"}, **_facts(repeats)},
        original_checkpoint=group.original_checkpoint,
        original_group=group.original_group,
    )


def _attributes(repeats: list[Done]) -> dict[str, AttributeResult]:
    """Every attribute as its worst time shows it; of a case on which the harness failed, nothing is verified."""
    broken = any(done.broken is not None for done in repeats)
    found: dict[str, Checked] = {}
    for done in repeats:
        for one in done.checked:
            if one.attribute not in found or _rank(one) < _rank(found[one.attribute]):
                found[one.attribute] = one
    return {
        name: AttributeResult(
            is_correct=None if broken else one.correct,
            weight=one.weight,
            expected=one.expected,
            actual=one.actual,
            diff=one.diff,
        )
        for name, one in found.items()
    }


def _rank(one: Checked) -> int:
    """Wrong before not verified before right."""
    return {False: 0, None: 1, True: 2}[one.correct]


def _facts(repeats: list[Done]) -> dict[str, Any]:
    """How the program ran: the first time that failed, else the first."""
    shown = next((one for one in repeats if not passed(one)), repeats[0])
    ended = shown.ended
    facts: dict[str, Any] = {
        "exit_status": ended.status,
        "stopped": ended.stopped,
        "timed_out": ended.timed_out or None,
        "peak_memory_mb": round(ended.peak_memory / _MB, 1) if ended.peak_memory else None,
        "stderr_ends": None if passed(shown) else _end_of(ended.stderr),
        "server_log_ends": None if passed(shown) else _end_of(shown.log),
        "harness": shown.broken,
    }
    if len(repeats) > 1:
        passing = sum(map(passed, repeats))
        facts |= {"times_run": len(repeats), "times_passed": passing, "flaky": 0 < passing < len(repeats)}
    return {name: value for name, value in facts.items() if value is not None}


def _end_of(data: bytes | None) -> str | None:
    text = (data or b"").decode(errors="backslashreplace").strip()
    return text[-_MOST:] or None
