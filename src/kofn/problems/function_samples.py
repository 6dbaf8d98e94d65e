"""Samples of a data set of functions (HumanEval): run, stored as they finish, and reported as candidate sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.importers.base import ReadOptions
from kofn.problems.case import AttributeVerdict, CaseOutcome
from kofn.problems.case_store import CaseStore
from kofn.problems.functions import read_samples, read_tasks, run_programs
from kofn.problems.program_runner import SECONDS, Program, ProgramOutcome
from kofn.problems.verify_progress import ExecutionCount, write_progress
from kofn.render.run_directory import write_run
from kofn.runs.load import load_table
from kofn.runs.report_builder import ReportPlan
from kofn.sandbox.program import ProcessResult
from kofn.scoring.evaluate import evaluate
from kofn.scoring.options import Options
from kofn.scoring.policy import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kofn.parallel.base import ParallelEngine
    from kofn.problems.functions import FunctionSample, FunctionTask
    from kofn.runs.record import Run
    from kofn.sandbox.base import Sandbox
    from kofn.scoring.result import Result

EXECUTIONS = "executions.parquet"
TESTS = "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResults:
    """The samples of a data set, and the outcome of each."""

    paths: tuple[Path, ...]
    tasks: Mapping[str, FunctionTask]
    samples: Sequence[FunctionSample]
    outcomes: Sequence[ProgramOutcome]
    seconds: float

    @property
    def n_harness_errors(self) -> int:
        """Samples on which the harness failed."""
        return sum(one.passed is None for one in self.outcomes)

    def reasons(self) -> list[tuple[str, int]]:
        """Why samples did not pass, by kind of error, the most frequent first."""
        return Counter(one.reason.partition(":")[0] for one in self.outcomes if one.passed is False).most_common()


def run_samples(
    tasks: Path,
    samples: Sequence[Path],
    *,
    engine: ParallelEngine,
    sandbox: Sandbox,
    out: Path,
    seconds: float | None = None,
    aggregate: Sequence[str] = (),
    on_total: Callable[[int, int, int], None] | None = None,
    on_case: Callable[[CaseOutcome], None] | None = None,
) -> SampleResults:
    """Run every sample; equal ones are run once, and what is finished in `out` is not run again.

    `aggregate` are the aggregators of the report: what cannot be computed is refused before anything is run.
    """
    known_tasks = read_tasks(tasks)
    loaded = read_samples(samples, known_tasks)
    limit = seconds or SECONDS
    if aggregate:
        nothing = [ProgramOutcome(passed=False)] * len(loaded)
        paths = (tasks, *samples)
        _result(
            SampleResults(paths=paths, tasks=known_tasks, samples=loaded, outcomes=nothing, seconds=limit), aggregate
        )
    programs = [Program(text=known_tasks[s.task_id].program(s.completion), seconds=limit) for s in loaded]
    count, name = ExecutionCount(then_total=on_total, then_case=on_case), tasks.name.partition(".")[0]
    with CaseStore(out) as store, write_progress(out, count, name, [path.name for path in samples], keep=True):
        keys = list(dict.fromkeys(p.key(sandbox) for p in programs))
        known = {key: _as_program_outcome(stored) for key, stored in store.get(keys).items()}
        count.on_total(len(keys), len(known), sum(bool(outcome.passed) for outcome in known.values()))

        def keep(key: str, outcome: ProgramOutcome) -> None:
            case_outcome = _as_case_outcome(key, outcome)
            store.put([case_outcome])
            count.on_case(case_outcome)

        outcomes = run_programs(programs, sandbox=sandbox, engine=engine, known=known, on_outcome=keep)
    finished = [one for one in outcomes if one is not None]
    return SampleResults(paths=(tasks, *samples), tasks=known_tasks, samples=loaded, outcomes=finished, seconds=limit)


def _as_case_outcome(key: str, outcome: ProgramOutcome) -> CaseOutcome:
    process = ProcessResult(seconds=outcome.seconds)
    if outcome.passed is None:
        return CaseOutcome(key=key, process=process, harness_error=outcome.reason)
    verdict = AttributeVerdict(attribute=TESTS, correct=outcome.passed, diff=outcome.reason)
    return CaseOutcome(key=key, verdicts=(verdict,), process=process)


def _as_program_outcome(outcome: CaseOutcome) -> ProgramOutcome:
    (verdict,) = outcome.verdicts
    return ProgramOutcome(passed=verdict.correct, reason=verdict.diff, seconds=outcome.process.seconds)


def task_records(results: SampleResults) -> list[dict[str, Any]]:
    """One record per task with its samples; a task that was not attempted has none, and no number."""
    outputs: dict[str, list[dict[str, Any]]] = {task: [] for task in results.tasks}
    for sample, outcome in zip(results.samples, results.outcomes, strict=True):
        text = sample.completion.encode(errors="backslashreplace").decode()
        outputs[sample.task_id].append(
            {"text": text, "passed": outcome.passed, "seconds": outcome.seconds, "note": outcome.reason or None}
        )
    return [
        {"id": task, "input": results.tasks[task].prompt, "outputs": candidates} for task, candidates in outputs.items()
    ]


def _result(results: SampleResults, aggregate: Sequence[str]) -> Result:
    table = replace(
        load_table(task_records(results), ReadOptions()), form="samples", sources=tuple(map(str, results.paths[1:]))
    )
    return evaluate(table, Options(extract="none", aggregate=tuple(aggregate)))


def write_samples(
    results: SampleResults,
    directory: Path,
    *,
    aggregate: Sequence[str] = (),
    policy: str = "core-cases",
    tags: Sequence[str] = (),
) -> Run:
    """Write the run directory: candidate sets like any other, and one row per execution."""
    result = _result(results, aggregate)
    plan = ReportPlan(task=results.paths[0].name.partition(".")[0], policy=PassPolicy(policy))
    options = {"aggregate": list(aggregate), "timeout": results.seconds}
    tables = {EXECUTIONS: executions(results)}
    return write_run(result, directory, sources=results.paths, options=options, plan=plan, tags=tags, tables=tables)


def executions(results: SampleResults) -> pl.DataFrame:
    """One row per sample: whether it passed, why not, and how long it took."""
    return pl.DataFrame(
        {
            "task_id": [s.task_id for s in results.samples],
            "passed": [r.passed for r in results.outcomes],
            "reason": [r.reason for r in results.outcomes],
            "seconds": [r.seconds for r in results.outcomes],
        },
        schema={"task_id": pl.String, "passed": pl.Boolean, "reason": pl.String, "seconds": pl.Float64},
    )
