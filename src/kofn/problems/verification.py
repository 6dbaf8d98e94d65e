"""Verification of submissions against a problem: finished cases are reused, the others run, and all are reported."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.document import Displayable
from kofn.core.format import MB
from kofn.errors import InputError, WorldError
from kofn.parallel import engine as make_engine
from kofn.parallel.base import FailedItem
from kofn.problems.case import CaseOutcome, Observation, WorkContext, has_passed
from kofn.problems.case_files import is_custom
from kofn.problems.case_store import CaseStore
from kofn.problems.execution import VERIFIER, run_item, try_author_code, verify_case
from kofn.problems.load import load_problem
from kofn.problems.problem import ALL, LAST, Problem
from kofn.problems.submissions import (
    check_entry,
    load_submissions,
    select_cases,
    submission_names,
    submission_warning,
    work_context,
    work_items,
)
from kofn.problems.verify_progress import ExecutionCount, write_progress
from kofn.runs.case_reports import AttributeResult, VerifierReport
from kofn.runs.run_tables import CorrectnessResults
from kofn.sandbox.drivers import find_sandbox
from kofn.sandbox.limits_only import LimitsOnly
from kofn.sandbox.program import ProcessResult
from kofn.sandbox.workspace import scratch_folder
from kofn.scoring.configuration import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.warnings import CodedWarning
    from kofn.parallel.base import ParallelEngine
    from kofn.problems.case import AttributeVerdict, ProblemCase, WorkItem
    from kofn.problems.problem import CaseGroup, Checkpoint
    from kofn.problems.submissions import Submission
    from kofn.sandbox.base import Sandbox
    from kofn.scoring.result import ScoredResult


def check_author_code(
    context: WorkContext, checkpoints: Sequence[Checkpoint], engine: ParallelEngine, folder: Path
) -> None:
    """Import verifier.py and every matcher of the author's in a worker, which is where they are used."""
    checks = [check for c in checkpoints for group in c.groups for case in group.cases for check in case.checks]
    custom = {f"{c.matcher} {sorted(c.params)}": (c.matcher, dict(c.params)) for c in checks if is_custom(c.matcher)}
    if not custom and not context.code:
        return
    (problem,) = engine.map(try_author_code, [list(custom.values())], shared=context)
    if isinstance(problem, FailedItem):
        raise WorldError(f"{folder}: the author's code cannot be tried: {problem.reason}")
    if problem is not None:
        raise InputError(f"{folder}: {problem}")


def check_problem_code(problem: Problem) -> None:
    """The same for a problem of which nothing is run."""
    with make_engine("local", workers=1) as engine, scratch_folder() as scratch:
        context = WorkContext(trees=(), entries=(), sandbox=LimitsOnly(), code=problem.code, scratch=scratch)
        check_author_code(context, problem.checkpoints, engine, problem.folder)


_MAX_TAIL = 2_000  # characters of a program's standard error in a report


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
        "peak_memory_mb": round(process.peak_memory / MB, 1) if process.peak_memory else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Which cases are run, how often, by how many workers of this machine, and when a submission passes."""

    policy: PassPolicy | str = PassPolicy.CORE_CASES
    groups: Sequence[str] = ()
    cases: Sequence[str] = ()
    repeat: int = 1
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionResult:
    """One submission at one checkpoint: the results, and every execution by (group, case)."""

    submission: Submission
    checkpoint: Checkpoint
    results: CorrectnessResults
    outcomes: dict[tuple[str, str], list[CaseOutcome]] = field(repr=False)

    def flaky(self) -> list[str]:
        """The cases that pass at some times and fail at others."""
        passing = {key: sum(map(has_passed, repeats)) for key, repeats in self.outcomes.items()}
        return [f"{group}/{case}" for (group, case), n in passing.items() if 0 < n < len(self.outcomes[group, case])]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification(Displayable):
    """The result of `verify`: all submissions at all selected checkpoints.

    `part` says which cases were selected, where not all of them were; `result` is over the set of submissions, and
    `directory` holds the runs, where they were written.
    """

    view: ClassVar[str] = "kofn.problems.verification_runs:verification_document"
    printer: ClassVar[str] = "kofn.problems.verification_runs:as_text"
    data: ClassVar[str] = "kofn.problems.verification_runs:as_dict"

    problem: Problem
    sandbox: Sandbox
    submission_results: tuple[SubmissionResult, ...]
    n_executions: int
    n_reused: int
    repeats: int = 1
    part: str | None = None
    warnings: tuple[CodedWarning, ...] = ()
    result: ScoredResult | None = None
    directory: Path | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One row per submission and checkpoint."""
        return [
            {
                "submission": one.submission.name,
                "checkpoint": one.checkpoint.name,
                "passed": one.results.decide().passed,
                "reason": one.results.decide().reason,
                "score": one.results.score(),
                "seconds": one.results.duration,
                "n_flaky": len(one.flaky()),
            }
            for one in self.submission_results
        ]

    @property
    def failure(self) -> str | None:
        """What broke, where the harness did."""
        failures = (one.results.infrastructure_failure for one in self.submission_results)
        return next((f"the harness failed: {failure}" for failure in failures if failure), None)

    @property
    def n_submissions(self) -> int:
        return len({one.submission.name for one in self.submission_results})


def run_checkpoint(
    problem: Problem | Path | str,
    submission: Path | str,
    checkpoint: str | int = LAST,
    *,
    policy: PassPolicy | str = PassPolicy.CORE_CASES,
    groups: Sequence[str] = (),
    cases: Sequence[str] = (),
    repeat: int = 1,
    workers: int | None = None,
    unsafe: bool = False,
    out: Path | str | None = None,
) -> CorrectnessResults:
    """One submission against one checkpoint (a name, a number from 1, or the last), in the sandbox of this machine.

    With `out`, finished cases are kept there and not run again.
    """
    loaded = problem if isinstance(problem, Problem) else load_problem(problem)
    if checkpoint == ALL:
        raise InputError("run_checkpoint runs one checkpoint: give a name or a number (kofn verify --checkpoint all)")
    verification = verify(
        loaded,
        [Path(submission)],
        loaded.select_checkpoints(checkpoint),
        options=VerifyOptions(policy=policy, groups=groups, cases=cases, repeat=repeat, workers=workers),
        sandbox=find_sandbox(unsafe=unsafe),
        out=None if out is None else Path(out),
    )
    return verification.submission_results[0].results


def verify(
    problem: Problem,
    paths: Sequence[Path],
    checkpoints: Sequence[Checkpoint],
    *,
    options: VerifyOptions | None = None,
    engine: ParallelEngine | None = None,
    sandbox: Sandbox | None = None,
    out: Path | None = None,
    progress: ExecutionCount | None = None,
) -> Verification:
    """Several submissions against several checkpoints; `progress` counts the executions as they finish."""
    options, count = options or VerifyOptions(), progress or ExecutionCount()
    rule = PassPolicy(options.policy)
    selected = select_cases(checkpoints, options.groups, options.cases)
    with (
        make_engine("local", workers=options.workers) if engine is None else nullcontext(engine) as map_engine,
        scratch_folder() as scratch,
        nullcontext(None) if out is None else CaseStore(out) as store,
    ):
        program_sandbox = sandbox or find_sandbox()
        submissions = _submissions(problem, paths, store, packed=map_engine.remote)
        if not map_engine.remote:
            check_entry(problem, program_sandbox)
        context = work_context(problem, submissions, program_sandbox, scratch)
        check_author_code(context, selected, map_engine, problem.folder)
        items = _items(problem, submissions, selected, options.repeat, program_sandbox)
        every = [item for part in items.values() for item in part]
        keys = {case.key for item in every for case in item.cases}
        known = {} if store is None else store.get(keys)
        n_reused = len(known)
        known |= _unusable_outcomes(problem, submissions, items)  # after the store: they are never kept in it
        n_before = len(known)
        todo = _unfinished(every, known)
        with write_progress(out, count, problem.name, [one.name for one in submissions], keep=False):
            finished = keys - {case.key for item in todo for case in item.cases}
            count.on_total(len(keys), len(finished), sum(has_passed(known[key]) for key in finished))

            def keep(index: int, result: list[CaseOutcome] | FailedItem) -> None:
                if isinstance(result, FailedItem):
                    result = [CaseOutcome(key=case.key, harness_error=result.reason) for case in todo[index].cases]
                for outcome in result if store is None else store.put(result):
                    known[outcome.key] = outcome
                    count.on_case(outcome)

            map_engine.map(run_item, todo, shared=context, on_done=keep)
    now = datetime.now(UTC)  # one time for all reports of a command
    part_names = [f"group {name}" for name in options.groups] + [f"case {name}" for name in options.cases]
    submission_results = []
    for (number, name), part in items.items():
        submission, checkpoint = submissions[number], next(c for c in selected if c.name == name)
        outcomes = _outcomes_by_case(part, known)
        results = build_results(problem, checkpoint, outcomes, policy=rule, timestamp=now)
        submission_results.append(
            SubmissionResult(submission=submission, checkpoint=checkpoint, results=results, outcomes=outcomes)
        )
    return Verification(
        problem=problem,
        sandbox=program_sandbox,
        submission_results=tuple(submission_results),
        n_executions=len(known) - n_before,
        n_reused=n_reused,
        repeats=options.repeat,
        part=f"only {', '.join(part_names)}" if part_names else None,
        warnings=tuple(filter(None, (submission_warning(problem, one) for one in submissions))),
    )


def _submissions(problem: Problem, paths: Sequence[Path], store: CaseStore | None, *, packed: bool) -> list[Submission]:
    """The submissions, under the names of earlier commands where there were some."""
    names = submission_names(paths, store.names() if store else None)
    found = load_submissions(problem, paths, names, packed=packed)
    if store is not None:
        store.name({str(one.path.resolve()): one.name for one in found})
    return found


def _items(
    problem: Problem,
    submissions: Sequence[Submission],
    checkpoints: Sequence[Checkpoint],
    repeat: int,
    sandbox: Sandbox,
) -> dict[tuple[int, str], list[WorkItem]]:
    """What is to be run, by the submission's number and the checkpoint's name."""
    return {
        (number, checkpoint.name): [
            item
            for group in checkpoint.groups
            for item in work_items(problem, number, one.tree, group, repeats=repeat, sandbox=sandbox)
        ]
        for number, one in enumerate(submissions)
        for checkpoint in checkpoints
    }


def _unusable_outcomes(
    problem: Problem, submissions: Sequence[Submission], items: dict[tuple[int, str], list[WorkItem]]
) -> dict[str, CaseOutcome]:
    """The outcomes of submissions that cannot be run: every case fails, with the reason."""
    with_verifier = f"{VERIFIER}.py" in problem.code
    return {
        case.key: verify_case(
            case, Observation(process=ProcessResult(stopped=submissions[number].unusable)), with_verifier=with_verifier
        )
        for (number, _), part in items.items()
        if submissions[number].unusable is not None
        for item in part
        for case in item.cases
    }


def _unfinished(items: Sequence[WorkItem], known: dict[str, CaseOutcome]) -> list[WorkItem]:
    """The items with an unfinished case, each once: equal submissions are run once."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for item in items:
        keys = tuple(case.key for case in item.cases)
        if keys not in seen and any(key not in known for key in keys):
            seen.add(keys)
            found.append(item)
    return found


def _outcomes_by_case(
    items: Sequence[WorkItem], known: dict[str, CaseOutcome]
) -> dict[tuple[str, str], list[CaseOutcome]]:
    found: dict[tuple[str, str], list[CaseOutcome]] = {}
    for item in items:
        for case in item.cases:
            found.setdefault((item.group, case.id), []).append(known[case.key])
    return found
