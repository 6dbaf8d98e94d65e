"""Samples of a data set of functions: run, kept as they finish, and reported as candidate sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.functional import read_samples, read_tasks, run_programs
from kofn.checkpoint.programs import SECONDS, Program, Ran
from kofn.checkpoint.progress import Count, telling
from kofn.checkpoint.store import Cases
from kofn.checkpoint.work import Checked, Done, Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kofn.checkpoint.functional import Sample, Task
    from kofn.checkpoint.sandbox import Sandbox
    from kofn.engine.base import Engine
    from kofn.evaluate import Result
    from kofn.report.run import Run

EXECUTIONS = "executions.parquet"
TESTS = "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The samples of a data set, and what came of each."""

    paths: tuple[Path, ...]
    tasks: Mapping[str, Task]
    samples: Sequence[Sample]
    ran: Sequence[Ran]
    seconds: float

    @property
    def n_broken(self) -> int:
        """Samples on which the harness failed."""
        return sum(one.passed is None for one in self.ran)

    def reasons(self) -> list[tuple[str, int]]:
        """Why samples did not pass, by kind of error, the most frequent first."""
        return Counter(one.reason.partition(":")[0] for one in self.ran if one.passed is False).most_common()


def judge(
    tasks: Path,
    samples: Sequence[Path],
    *,
    engine: Engine,
    sandbox: Sandbox,
    out: Path,
    seconds: float | None = None,
    aggregate: Sequence[str] = (),
    on_total: Callable[[int, int, int], None] | None = None,
    on_case: Callable[[Done], None] | None = None,
) -> Judged:
    """Run every sample; equal ones are run once, and what is finished in `out` is not run again.

    `aggregate` is what will be asked of them: what cannot be computed is refused before anything is run.
    """
    known_tasks = read_tasks(tasks)
    given = read_samples(samples, known_tasks)
    limit = seconds or SECONDS
    if aggregate:
        nothing = [Ran(passed=False)] * len(given)
        paths = (tasks, *samples)
        _result(Judged(paths=paths, tasks=known_tasks, samples=given, ran=nothing, seconds=limit), aggregate)
    programs = [Program(text=known_tasks[s.task_id].program(s.completion), seconds=limit) for s in given]
    count, name = Count(then_total=on_total, then_case=on_case), tasks.name.partition(".")[0]
    with Cases(out) as store, telling(out, count, name, [path.name for path in samples], keep=True):
        keys = list(dict.fromkeys(p.key(sandbox) for p in programs))
        known = {key: _ran(done) for key, done in store.get(keys).items()}
        count.on_total(len(keys), len(known), sum(bool(ran.passed) for ran in known.values()))

        def keep(key: str, ran: Ran) -> None:
            done = _done(key, ran)
            store.put([done])
            count.on_case(done)

        ran = run_programs(programs, sandbox=sandbox, engine=engine, known=known, on_ran=keep)
    return Judged(
        paths=(tasks, *samples), tasks=known_tasks, samples=given, ran=[r for r in ran if r is not None], seconds=limit
    )


def _done(key: str, ran: Ran) -> Done:
    ended = Ended(seconds=ran.seconds)
    if ran.passed is None:
        return Done(key=key, ended=ended, broken=ran.reason)
    return Done(key=key, checked=(Checked(attribute=TESTS, correct=ran.passed, diff=ran.reason),), ended=ended)


def _ran(done: Done) -> Ran:
    (one,) = done.checked
    return Ran(passed=one.correct, reason=one.diff, seconds=done.ended.seconds)


def records(judged: Judged) -> list[dict[str, Any]]:
    """A record a task with its samples; one that was not attempted has none, and no number."""
    outputs: dict[str, list[dict[str, Any]]] = {task: [] for task in judged.tasks}
    for sample, ran in zip(judged.samples, judged.ran, strict=True):
        text = sample.completion.encode(errors="backslashreplace").decode()
        told = {"text": text, "passed": ran.passed, "seconds": ran.seconds, "note": ran.reason or None}
        outputs[sample.task_id].append(told)
    return [{"id": task, "input": judged.tasks[task].prompt, "outputs": found} for task, found in outputs.items()]


def _result(judged: Judged, aggregate: Sequence[str]) -> Result:
    from kofn.api import load
    from kofn.evaluate import Options, evaluate
    from kofn.importers.rows import ReadOptions

    table = replace(load(records(judged), ReadOptions()), form="samples", sources=tuple(map(str, judged.paths[1:])))
    return evaluate(table, Options(extract="none", aggregate=tuple(aggregate)))


def write(
    judged: Judged,
    directory: Path,
    *,
    aggregate: Sequence[str] = (),
    policy: str = "core-cases",
    tags: Sequence[str] = (),
) -> Run:
    """The run directory: candidate sets like any other, and a row an execution."""
    from kofn.policy import PassPolicy
    from kofn.report.convert import Plan
    from kofn.report.files import write_run

    result = _result(judged, aggregate)
    plan = Plan(task=judged.paths[0].name.partition(".")[0], policy=PassPolicy(policy))
    options = {"aggregate": list(aggregate), "timeout": judged.seconds}
    tables = {EXECUTIONS: executions(judged)}
    return write_run(result, directory, sources=judged.paths, options=options, plan=plan, tags=tags, tables=tables)


def executions(judged: Judged) -> Any:
    """A row a sample: whether it passed, why not, and how long it took."""
    import polars as pl

    return pl.DataFrame(
        {
            "task_id": [s.task_id for s in judged.samples],
            "passed": [r.passed for r in judged.ran],
            "reason": [r.reason for r in judged.ran],
            "seconds": [r.seconds for r in judged.ran],
        },
        schema={"task_id": pl.String, "passed": pl.Boolean, "reason": pl.String, "seconds": pl.Float64},
    )
