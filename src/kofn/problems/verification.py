"""Verification of submissions against a problem: finished cases are reused, the others run, and all are reported."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.core.document import Displayable
from kofn.core.format import MB
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName, WorldError
from kofn.parallel import engine as make_engine
from kofn.parallel.base import FailedItem
from kofn.problems.case import CaseOutcome, Observation, WorkContext, WorkItem
from kofn.problems.case_store import CaseStore, ExecutionCount, write_progress
from kofn.problems.execution import VERIFIER, run_item, try_author_code, verify_case
from kofn.problems.load import load_problem
from kofn.problems.matchers import is_custom
from kofn.problems.problem import ALL, LAST, Problem
from kofn.runs.case_reports import AttributeResult, VerifierReport
from kofn.runs.run_tables import CorrectnessResults
from kofn.sandbox.drivers import LimitsOnly, find_sandbox
from kofn.sandbox.process import ProcessResult
from kofn.sandbox.workspace import Tree, merge_trees, read_tree, scratch_folder
from kofn.scoring.configuration import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kofn.parallel.base import ParallelEngine
    from kofn.problems.case import AttributeVerdict, ProblemCase
    from kofn.problems.problem import CaseGroup, Checkpoint
    from kofn.sandbox.base import Sandbox
    from kofn.scoring.result import ScoredResult

    OutcomesByCase = dict[tuple[str, str], list[CaseOutcome]]  # the repeats of every (group, case)


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
        context = WorkContext(sandbox=LimitsOnly(), code=problem.code, scratch=scratch)
        check_author_code(context, problem.checkpoints, engine, problem.folder)


_MAX_TAIL = 2_000  # characters of a program's standard error in a report


def build_results(
    problem: Problem, checkpoint: Checkpoint, outcomes: OutcomesByCase, policy: PassPolicy, timestamp: datetime
) -> CorrectnessResults:
    """The evaluation of one submission at one checkpoint; `outcomes` has the repeats of every (group, case)."""
    every = [(*key, one.harness_error) for key, repeats in outcomes.items() for one in repeats]
    errors = [f"{group}/{case}: {error}" for group, case, error in every if error is not None]
    more = f" (and {len(errors) - 1:,} more)" if len(errors) > 1 else ""
    results = CorrectnessResults(
        problem_name=problem.name,
        problem_version=problem.version,
        name=checkpoint.name,
        version=checkpoint.version,
        timestamp=timestamp,
        policy=policy,
        infrastructure_failure=f"{errors[0]}{more}" if errors else None,
    )
    for group in checkpoint.groups:
        reports = [build_report(group, case, outcomes[group.name, case.id], timestamp) for case in group.cases]
        duration = sum(report.duration for report in reports)
        results.add_group_report(group.name, group.type, duration, reports, group.weight)
    return results


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
    worst_first = (False, None, True)  # wrong before not verified before right
    found: dict[str, AttributeVerdict] = {}
    for one in (verdict for outcome in repeats for verdict in outcome.verdicts):
        other = found.setdefault(one.attribute, one)
        if worst_first.index(one.correct) < worst_first.index(other.correct):
            found[one.attribute] = one
    results = {}
    for name, one in found.items():
        shown = {"expected": one.expected, "actual": one.actual, "diff": one.diff}
        results[name] = AttributeResult(is_correct=None if failed else one.correct, weight=one.weight, **shown)
    return results


def _run_details(repeats: list[CaseOutcome]) -> dict[str, Any]:
    """How the program ran: the first time that failed, else the first."""
    outcome = next((one for one in repeats if not one.passed), repeats[0])
    process = outcome.process
    facts: dict[str, Any] = {
        "exit_status": process.status,
        "stopped": process.stopped,
        "timed_out": process.timed_out or None,
        "peak_memory_mb": round(process.peak_memory / MB, 1) if process.peak_memory else None,
        "stderr_ends": None if outcome.passed else _tail(process.stderr),
        "server_log_ends": None if outcome.passed else _tail(outcome.log),
        "harness": outcome.harness_error,
    }
    if len(repeats) > 1:
        passing = sum(_passed(repeats))
        facts |= {"times_run": len(repeats), "times_passed": passing, "flaky": 0 < passing < len(repeats)}
    return {name: value for name, value in facts.items() if value is not None}


def _passed(outcomes: Iterable[CaseOutcome]) -> list[bool]:
    return [bool(one.passed) for one in outcomes]


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
    outcomes: OutcomesByCase = field(repr=False)

    def facts(self) -> dict[str, Any]:
        """Which submission and checkpoint it is, whether the policy lets it pass, and the score."""
        decision = self.results.decide()
        return {
            "submission": self.submission.name,
            "checkpoint": self.checkpoint.name,
            "passed": decision.passed,
            "reason": decision.reason,
            "score": self.results.score(),
        }

    def flaky(self) -> list[str]:
        """The cases that pass at some times and fail at others."""
        return [f"{group}/{case}" for (group, case), repeats in self.outcomes.items() if len(set(_passed(repeats))) > 1]


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
        every = self.submission_results
        return [{**one.facts(), "seconds": one.results.duration, "n_flaky": len(one.flaky())} for one in every]

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
        # under the names of earlier commands where there were some
        names = submission_names(paths, store.names() if store else None)
        submissions = load_submissions(problem, paths, names, packed=map_engine.remote)
        if store is not None:
            store.name({str(one.path.resolve()): one.name for one in submissions})
        if not map_engine.remote:
            check_entry(problem, program_sandbox)
        context = WorkContext(
            trees=tuple(one.tree for one in submissions),
            entries=(problem.entry,) * len(submissions),
            adapter=problem.adapter,
            limits=problem.limits,
            sandbox=program_sandbox,
            ready_path=problem.ready_path,
            ready_seconds=problem.ready_seconds,
            code=problem.code,
            scratch=scratch,
        )
        check_author_code(context, selected, map_engine, problem.folder)
        # what is to be run, by the submission's number and the checkpoint's name
        items: dict[tuple[int, str], list[WorkItem]] = {}
        for number, one in enumerate(submissions):
            for checkpoint in selected:
                items[number, checkpoint.name] = part = []
                for group in checkpoint.groups:
                    part += work_items(problem, number, one.tree, group, options.repeat, program_sandbox)
        every = [item for part in items.values() for item in part]
        keys = {case.key for item in every for case in item.cases}
        known = {} if store is None else store.get(keys)
        n_reused = len(known)
        known |= _unusable_outcomes(problem, submissions, items)  # after the store: they are never kept in it
        n_before = len(known)
        todo = _unfinished(every, known)
        with write_progress(out, count, problem.name, [one.name for one in submissions], keep=False):
            finished = keys - {case.key for item in todo for case in item.cases}
            count.on_total(len(keys), len(finished), sum(_passed(known[key] for key in finished)))

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
        outcomes: OutcomesByCase = {}
        for item in part:
            for case in item.cases:
                outcomes.setdefault((item.group, case.id), []).append(known[case.key])
        results = build_results(problem, checkpoint, outcomes, rule, now)
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


def _unusable_outcomes(
    problem: Problem, submissions: Sequence[Submission], items: dict[tuple[int, str], list[WorkItem]]
) -> dict[str, CaseOutcome]:
    """The outcomes of submissions that cannot be run: every case fails, with the reason."""
    with_verifier = f"{VERIFIER}.py" in problem.code
    found = {}
    for (number, _), part in items.items():
        if (reason := submissions[number].unusable) is not None:
            observation = Observation(process=ProcessResult(stopped=reason))
            for case in (case for item in part for case in item.cases):
                found[case.key] = verify_case(case, observation, with_verifier=with_verifier)
    return found


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A program that is verified: its name, its path and its files.

    `unusable` says why it cannot even be run; then every case of it fails.
    """

    name: str
    path: Path
    tree: Tree = field(repr=False)
    unusable: str | None = None


def load_submissions(
    problem: Problem, paths: Sequence[Path], names: Sequence[str], *, packed: bool = False
) -> list[Submission]:
    """The submissions of these paths, under these names."""
    found = []
    for name, path in zip(names, paths, strict=True):
        if path.is_file() and problem.main_file is None:
            what = f"a single file, and `{' '.join(problem.entry)}` names none that it could be: give a folder"
            raise InputError(f"{path}: {what}")
        if not path.exists():
            raise InputError(f"{path}: no such file or folder: expected a submission")
        try:
            tree = read_tree(path, name=problem.main_file, most=problem.limits.disk)
        except InputError as reason:
            tree = Tree(digest=_digest(str(reason)))  # so that another reason is another submission
            found.append(Submission(name=name, path=path, tree=tree, unusable=str(reason)))
        else:
            tree = merge_trees([tree.files, problem.assets], packed=packed)
            found.append(Submission(name=name, path=path, tree=tree))
    return found


def submission_warning(problem: Problem, submission: Submission) -> CodedWarning | None:
    """What to say of a submission that cannot be run, or lacks the file that is; None where all is well."""
    if submission.unusable is not None:
        return CodedWarning.of("submission-unusable", submission.name, reason=submission.unusable)
    main = problem.main_file
    if main is None or any(file.name == main for file in submission.tree.files):
        return None
    folder, command = str(submission.path), " ".join(problem.entry)
    return CodedWarning.of("main-file-missing", submission.name, file=main, folder=folder, command=command)


def check_entry(problem: Problem, sandbox: Sandbox) -> None:
    """Refuse a problem whose command is no program of this machine; one of the submission's own is not looked for."""
    first = problem.entry[0]
    if first in ("python", "python3") or (os.sep in first and not first.startswith(os.sep)):
        return
    folders = os.pathsep.join(sandbox.search_path)
    if shutil.which(first, path=folders) is None:
        raise InputError(
            f"{problem.folder}: entry: there is no program {first!r} in {folders}: correct it, install it, or show "
            "where it is (--show PATH, and the whole path in the entry)"
        )


def submission_names(paths: Sequence[Path], known: Mapping[str, str] | None = None) -> list[str]:
    """Short names that tell paths apart: the last part, with those before it where that is not enough.

    `known` has the names that paths got before: they keep them, and no other path gets one of these.

    >>> from pathlib import Path
    >>> submission_names([Path("a/sol"), Path("b/sol"), Path("c.py")])
    ['a-sol', 'b-sol', 'c']
    >>> submission_names([Path("/b/sol"), Path("/a/sol")], {"/a/sol": "sol"})
    ['b-sol', 'sol']
    """
    known = known or {}
    resolved = [path.resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        twice = next(path for path in paths if resolved.count(path.resolve()) > 1)
        raise InputError(f"{twice}: there twice: give every submission once (--repeat runs its cases several times)")
    parts = [[*path.parent.parts[1:], path.stem if path.suffix == ".py" else path.name] for path in resolved]
    names = [known.get(str(path)) or part[-1] for path, part in zip(resolved, parts, strict=True)]
    taken = {name.lower() for name in known.values()}
    kept = [str(path) in known for path in resolved]
    for depth in range(2, max(map(len, parts), default=1) + 1):
        folded = [name.lower() for name in names]
        clash = [folded.count(name) > 1 or name in taken for name in folded]
        longer = [clashes and not keep for clashes, keep in zip(clash, kept, strict=True)]
        names = ["-".join(p[-depth:]) if more else name for name, p, more in zip(names, parts, longer, strict=True)]
    if len(set(names)) < len(names):
        raise InputError(f"two submissions would both be called {max(names, key=names.count)}: rename a folder")
    # `set` and `outputs` are folders of the output directory itself
    return [f"submission-{name}" if name in ("set", "outputs") else name for name in names]


def select_cases(checkpoints: Sequence[Checkpoint], groups: Sequence[str], cases: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints with only these groups and cases, where any are named; those left with nothing go.

    A case is named by its id, or as GROUP/ID.
    """
    known = [group.name for c in checkpoints for group in c.groups]
    ids = [name for c in checkpoints for g in c.groups for case in g.cases for name in (case.id, f"{g.name}/{case.id}")]
    for kind, names, known_names in (("group", groups, known), ("case", cases, ids)):
        for name in names:
            if name not in known_names:
                hint = f"known: {', '.join(dict.fromkeys(known_names))[:200]}"
                raise UnknownName(kind, name, known_names, hint)
    selected = []
    for checkpoint in checkpoints:
        kept = tuple(filter(None, (_select_in_group(group, groups, cases) for group in checkpoint.groups)))
        if kept:
            selected.append(replace(checkpoint, groups=kept))
    if not selected:
        raise InputError("no case is left: the group and the case that were asked for do not go together")
    return selected


def _select_in_group(group: CaseGroup, groups: Sequence[str], cases: Sequence[str]) -> CaseGroup | None:
    if groups and group.name not in groups:
        return None
    if not cases:
        return group
    selected = tuple(case for case in group.cases if case.id in cases or f"{group.name}/{case.id}" in cases)
    if selected and not group.isolated:
        last = max(group.cases.index(case) for case in selected)
        selected = group.cases[: last + 1]  # they share a work folder, so earlier cases have a part in the result
    return replace(group, cases=selected) if selected else None


def work_items(
    problem: Problem, submission: int, tree: Tree, group: CaseGroup, repeats: int, sandbox: Sandbox
) -> list[WorkItem]:
    """The items of a group: one per case where cases are isolated, else one with all of them; each `repeats` times."""
    # the key of a finished case in the store: a change of anything here runs the case again
    common = {
        "tree": tree.digest,
        "entry": problem.entry,
        "adapter": [problem.adapter, problem.ready_path, problem.ready_seconds],
        "limits": asdict(replace(problem.limits, seconds=0)),
        "code": problem.code,
        "env": dict(group.env),
        "isolated": group.isolated,
        "sandbox": sandbox.identity,
    }
    base = _digest(common)
    parts: list[tuple[ProblemCase, ...]] = []
    for repeat in range(repeats):
        cases, before = [], base
        for case in group.cases:
            # all of a case that can change its outcome, by the names of its fields: renaming one changes all keys
            identity = {name: value for name, value in asdict(case).items() if name not in ("key", "summary")}
            key = _digest([base if group.isolated else before, identity, repeat])
            before = key  # a case that is not isolated depends on those before it
            cases.append(replace(case, key=key))
        parts += [(case,) for case in cases] if group.isolated else [tuple(cases)]
    return [
        WorkItem(submission=submission, group=group.name, env=group.env, cases=part, reset=group.isolated)
        for part in parts
        if part
    ]


def _digest(value: Any) -> str:
    def as_text(other: Any) -> Any:
        return {"bytes": sha256(other).hexdigest()} if isinstance(other, bytes) else repr(other)

    return sha256(json.dumps(value, sort_keys=True, default=as_text, ensure_ascii=True).encode()).hexdigest()
