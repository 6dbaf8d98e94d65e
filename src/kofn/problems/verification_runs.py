"""Run directories of a verification: one per submission and checkpoint, and one for the set of submissions."""

from __future__ import annotations

import stat
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.importers.base import ReadOptions
from kofn.problems.case import has_passed
from kofn.render.run_directory import write_evaluation, write_run
from kofn.runs.load import load_table
from kofn.runs.report_builder import ReportPlan
from kofn.scoring.evaluate import evaluate
from kofn.scoring.options import Options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kofn.problems.submissions import Submission
    from kofn.problems.verification import SubmissionResult, Verification
    from kofn.sandbox.work_folder import File
    from kofn.scoring.result import Result

EXECUTIONS = "executions.parquet"
SET = "set"
_PART = ".part"
_MAX_SOURCE = 20_000  # characters of a submission in the report of the set


def write_runs(
    verification: Verification, directory: Path, options: Mapping[str, Any], *, tags: Sequence[str] = ()
) -> Result | None:
    """Write all of them; the result over the set where there are several submissions."""
    for one in verification.submission_results:
        target = directory / run_name(verification, one)
        manifest = _manifest(verification, one, options) | ({"tags": list(tags)} if tags else {})
        write_evaluation(one.results, target, manifest, {EXECUTIONS: executions(one)})
    return (
        write_set(verification, directory / set_run_name(verification), options, tags) if verification.several else None
    )


def run_name(verification: Verification, one: SubmissionResult) -> str:
    """Where the run of a submission is, below the directory; a part of the cases never takes the place of them all."""
    return f"{one.submission.name}/{plain_name(one.checkpoint.name)}{_PART if verification.part else ''}"


def set_run_name(verification: Verification) -> str:
    """Where the run of the set is."""
    return f"{SET}{_PART if verification.part else ''}"


def check_aggregators(n: int, aggregate: Sequence[str]) -> None:
    """Refuse, before anything is run, what cannot be computed over so many submissions."""
    if aggregate:
        _evaluate([{"id": "x", "output": "x", "passed": False, "score": 0.0}] * n, aggregate)


def plain_name(name: str) -> str:
    """A name as the name of a folder.

    >>> plain_name("checkpoint 1/x"), plain_name("..")
    ('checkpoint_1_x', '__')
    """
    kept = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return kept if kept.strip(".") else "_" * max(1, len(kept))


def _manifest(verification: Verification, one: SubmissionResult, options: Mapping[str, Any]) -> dict[str, Any]:
    problem = verification.problem
    return {
        "kind": "verify",
        "sources": [{"path": str(one.submission.path), "bytes": None, "sha256": one.submission.tree.digest}],
        "options": dict(options),
        "verify": {
            "problem": problem.name,
            "problem_version": problem.version,
            "checkpoint": one.checkpoint.name,
            "checkpoint_version": one.checkpoint.version,
            "submission": one.submission.name,
            "entry": list(problem.entry),
            "adapter": problem.adapter,
            "limits": asdict(problem.limits),
            "sandbox": verification.sandbox.name if verification.sandbox.isolated else "none (--unsafe)",
            "python": verification.sandbox.release,
            "repeats": verification.repeats,
            "flaky": one.flaky(),
            "part": verification.part,
        },
    }


def executions(one: SubmissionResult) -> pl.DataFrame:
    """One row per execution: what a program wrote, how it ended, and what it used."""
    rows = [
        {
            "group": group,
            "case_id": case,
            "repeat": repeat,
            "passed": has_passed(outcome),
            "status_code": outcome.process.status,
            "stopped": outcome.process.stopped,
            "timed_out": outcome.process.timed_out,
            "seconds": outcome.process.seconds,
            "cpu_seconds": outcome.process.cpu_seconds,
            "peak_memory": outcome.process.peak_memory,
            "output": outcome.process.output.decode(errors="backslashreplace"),
            "stderr": outcome.process.stderr.decode(errors="backslashreplace"),
            "harness": outcome.harness_error,
        }
        for (group, case), repeats in one.outcomes.items()
        for repeat, outcome in enumerate(repeats)
    ]
    schema = {
        **dict.fromkeys(("group", "case_id"), pl.String),
        "repeat": pl.Int64,
        "passed": pl.Boolean,
        "status_code": pl.Int64,
        "stopped": pl.String,
        "timed_out": pl.Boolean,
        **dict.fromkeys(("seconds", "cpu_seconds"), pl.Float64),
        "peak_memory": pl.Int64,
        **dict.fromkeys(("output", "stderr", "harness"), pl.String),
    }
    return pl.DataFrame(rows, schema=schema)


def set_rows(verification: Verification) -> list[dict[str, Any]]:
    """The submissions as candidates: a case is the problem at a checkpoint, its score that of the checkpoint.

    A submission passes where the policy says so. Where the harness failed it is not graded.
    """
    assets = {file.name for file in verification.problem.assets}
    sources = {one.submission.name: _source(one.submission, assets) for one in verification.submission_results}
    rows = []
    for one in verification.submission_results:
        results = one.results
        decision, graded = results.decide(), results.infrastructure_failure is None
        rows.append(
            {
                "id": f"{verification.problem.name}/{one.checkpoint.name}",
                "output": f"{one.submission.name}: {decision.reason}\n{sources[one.submission.name]}",
                "passed": decision.passed if graded else None,
                "score": results.score() if graded else None,
                "seconds": results.duration,
            }
        )
    return rows


def _source(submission: Submission, assets: Collection[str]) -> str:
    """The files of a submission as one text, cut where it is long; the problem's own are left out."""
    parts: list[str] = []
    room = _MAX_SOURCE
    for file in submission.tree.files:
        if not stat.S_ISREG(file.mode) or file.name in assets:
            continue
        text = f"\n--- {file.name}\n{_text(file)}".encode(errors="backslashreplace").decode()
        parts.append(text[:room])
        room -= len(text)
        if room < 0:
            parts.append(f"\n... ({submission.path} has the rest)")
            break
    return "".join(parts)


def _text(file: File) -> str:
    try:
        data = file.data if file.path is None else Path(file.path).read_bytes()
        return (data or b"").decode()
    except UnicodeDecodeError:
        return "(not text)"
    except OSError as problem:
        return f"({problem.strerror})"


def set_result(verification: Verification, aggregate: Sequence[str] = ()) -> Result:
    """The numbers over the set, as for any other candidates: the requested ones, else the mean, any_pass and pass@k.

    A vote, or the first of them, says nothing of programs that nobody ranked.
    """
    n = len({one.submission.name for one in verification.submission_results})
    usual = ("mean", "any_pass", *(f"pass@{k}" for k in (1, 2, 5, 10, 20, 50, 100) if k <= n))
    return _evaluate(set_rows(verification), aggregate or usual)


def _evaluate(rows: list[dict[str, Any]], aggregate: Sequence[str]) -> Result:
    return evaluate(load_table(rows, ReadOptions()), Options(extract="none", aggregate=tuple(aggregate)))


def write_set(
    verification: Verification, directory: Path, options: Mapping[str, Any], tags: Sequence[str] = ()
) -> Result:
    """The run directory of the set."""
    result = set_result(verification, options.get("aggregate") or ())
    plan = ReportPlan(
        task=verification.problem.name, task_version=verification.problem.version, name=SET, verdict="any_pass"
    )
    paths = list(dict.fromkeys(one.submission.path for one in verification.submission_results))
    write_run(result, directory, sources=paths, options=options, plan=plan, tags=tags)
    return result
