"""Turns case outcomes into the report classes of `kofn.runs`, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.problems.case import has_passed
from kofn.runs.correctness_results import CorrectnessResults
from kofn.runs.report_classes import AttributeResult, VerifierReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kofn.problems.case import AttributeVerdict, CaseOutcome, ProblemCase
    from kofn.problems.problem import CaseGroup, Checkpoint, Problem
    from kofn.scoring.policy import PassPolicy

_MAX_TAIL = 2_000  # characters of a program's standard error in a report
_MB = 1 << 20


def build_results(
    problem: Problem,
    checkpoint: Checkpoint,
    outcomes: Mapping[tuple[str, str], list[CaseOutcome]],
    *,
    policy: PassPolicy,
    timestamp: datetime,
) -> CorrectnessResults:
    """The evaluation of one submission at one checkpoint; `outcomes` has the repeats of every (group, case)."""
    results = CorrectnessResults(
        problem_name=problem.name,
        problem_version=problem.version,
        name=checkpoint.name,
        version=checkpoint.version,
        timestamp=timestamp,
        policy=policy,
        infrastructure_failure=_infrastructure_failure(outcomes),
    )
    for group in checkpoint.groups:
        reports = [build_report(group, case, outcomes[group.name, case.id], timestamp) for case in group.cases]
        duration = sum(report.duration for report in reports)
        results.add_group_report(group.name, group.type, duration, reports, group.weight)
    return results


def _infrastructure_failure(outcomes: Mapping[tuple[str, str], list[CaseOutcome]]) -> str | None:
    """What failed in the harness: the first error, and how many there are."""
    errors = [
        (key, one.harness_error)
        for key, repeats in outcomes.items()
        for one in repeats
        if one.harness_error is not None
    ]
    if not errors:
        return None
    (group, case), first = errors[0]
    more = f" (and {len(errors) - 1:,} more)" if len(errors) > 1 else ""
    return f"{group}/{case}: {first}{more}"


def build_report(
    group: CaseGroup, case: ProblemCase, repeats: list[CaseOutcome], timestamp: datetime
) -> VerifierReport:
    """One case. Run several times, it passes where every time does; what is shown is the first time that failed."""
    return VerifierReport(
        id=case.id,
        group=group.name,
        type=group.type,
        timestamp=timestamp,
        duration=sum(one.process.seconds for one in repeats),
        results=_attributes(repeats),
        case={**{name: value for name, value in case.summary.items() if name != "id"}, **_run_details(repeats)},
        original_checkpoint=group.original_checkpoint,
        original_group=group.original_group,
    )


def _attributes(repeats: list[CaseOutcome]) -> dict[str, AttributeResult]:
    """The worst verdict on every attribute; of a case on which the harness failed, nothing is verified."""
    failed = any(outcome.harness_error is not None for outcome in repeats)
    found: dict[str, AttributeVerdict] = {}
    for outcome in repeats:
        for one in outcome.verdicts:
            if one.attribute not in found or _rank(one) < _rank(found[one.attribute]):
                found[one.attribute] = one
    return {
        name: AttributeResult(
            is_correct=None if failed else one.correct,
            weight=one.weight,
            expected=one.expected,
            actual=one.actual,
            diff=one.diff,
        )
        for name, one in found.items()
    }


def _rank(one: AttributeVerdict) -> int:
    """Wrong before not verified before right."""
    return {False: 0, None: 1, True: 2}[one.correct]


def _run_details(repeats: list[CaseOutcome]) -> dict[str, Any]:
    """How the program ran: the first time that failed, else the first."""
    outcome = next((one for one in repeats if not has_passed(one)), repeats[0])
    process = outcome.process
    facts: dict[str, Any] = {
        "exit_status": process.status,
        "stopped": process.stopped,
        "timed_out": process.timed_out or None,
        "peak_memory_mb": round(process.peak_memory / _MB, 1) if process.peak_memory else None,
        "stderr_ends": None if has_passed(outcome) else _tail(process.stderr),
        "server_log_ends": None if has_passed(outcome) else _tail(outcome.log),
        "harness": outcome.harness_error,
    }
    if len(repeats) > 1:
        passing = sum(map(has_passed, repeats))
        facts |= {"times_run": len(repeats), "times_passed": passing, "flaky": 0 < passing < len(repeats)}
    return {name: value for name, value in facts.items() if value is not None}


def _tail(data: bytes | None) -> str | None:
    text = (data or b"").decode(errors="backslashreplace").strip()
    return text[-_MAX_TAIL:] or None
