"""Run directories of a verification: one a submission and checkpoint, and one for the set of submissions."""

from __future__ import annotations

import stat
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.work import passed
from kofn.report.files import write_evaluation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import polars as pl

    from kofn.checkpoint.plan import Submission
    from kofn.checkpoint.run import Verification, Verified
    from kofn.checkpoint.work import File
    from kofn.evaluate import Result

EXECUTIONS = "executions.parquet"
SET = "set"
_PART = ".part"
_MOST = 20_000  # characters of a submission that the set's report shows


def write(
    found: Verification, directory: Path, options: Mapping[str, Any], *, tags: Sequence[str] = ()
) -> Result | None:
    """Write everything; the result over the set where there are several submissions."""
    for one in found.verified:
        target = directory / run_name(found, one)
        told = _manifest(found, one, options) | ({"tags": list(tags)} if tags else {})
        write_evaluation(one.results, target, told, {EXECUTIONS: executions(one)})
    return write_set(found, directory / set_name(found), options, tags) if found.several else None


def run_name(found: Verification, one: Verified) -> str:
    """Where the run of a submission is, below the directory; a part of the cases never takes the place of them all."""
    return f"{one.submission.name}/{plain_name(one.checkpoint.name)}{_PART if found.part else ''}"


def set_name(found: Verification) -> str:
    """Where the run of the set is."""
    return f"{SET}{_PART if found.part else ''}"


def check_aggregators(n: int, aggregate: Sequence[str]) -> None:
    """Refuse, before anything is run, what cannot be computed over so many submissions."""
    if aggregate:
        _evaluated([{"id": "x", "output": "x", "passed": False, "score": 0.0}] * n, aggregate)


def plain_name(name: str) -> str:
    """A name as a folder's.

    >>> plain_name("checkpoint 1/x"), plain_name("..")
    ('checkpoint_1_x', '__')
    """
    kept = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return kept if kept.strip(".") else "_" * max(1, len(kept))


def _manifest(found: Verification, one: Verified, options: Mapping[str, Any]) -> dict[str, Any]:
    problem = found.problem
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
            "sandbox": "bubblewrap" if found.sandbox.bwrap else "none (--unsafe)",
            "python": found.sandbox.release,
            "repeats": found.repeats,
            "flaky": one.flaky(),
            "part": found.part,
        },
    }


def executions(one: Verified) -> pl.DataFrame:
    """A row an execution: what a program wrote, how it ended, and what it used."""
    import polars as pl

    rows = [
        {
            "group": group,
            "case_id": case,
            "repeat": repeat,
            "passed": passed(done),
            "status_code": done.ended.status,
            "stopped": done.ended.stopped,
            "timed_out": done.ended.timed_out,
            "seconds": done.ended.seconds,
            "cpu_seconds": done.ended.cpu_seconds,
            "peak_memory": done.ended.peak_memory,
            "output": done.ended.output.decode(errors="backslashreplace"),
            "stderr": done.ended.stderr.decode(errors="backslashreplace"),
            "harness": done.broken,
        }
        for (group, case), repeats in one.done.items()
        for repeat, done in enumerate(repeats)
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


def set_rows(found: Verification) -> list[dict[str, Any]]:
    """The submissions as candidates: the case is the problem at a checkpoint, the score that of the checkpoint.

    A submission passes where the policy says so. Where the harness failed it is not graded.
    """
    assets = {file.name for file in found.problem.assets}
    sources = {one.submission.name: _source(one.submission, assets) for one in found.verified}
    rows = []
    for one in found.verified:
        results = one.results
        decision, graded = results.decide(), results.infrastructure_failure is None
        rows.append(
            {
                "id": f"{found.problem.name}/{one.checkpoint.name}",
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
    room = _MOST
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


def set_result(found: Verification, aggregate: Sequence[str] = ()) -> Result:
    """The numbers over the set, as for any other candidates: those asked for, else the mean, any_pass and pass@k.

    A vote, or the first of them, says nothing of programs that nobody ranked.
    """
    n = len({one.submission.name for one in found.verified})
    usual = ("mean", "any_pass", *(f"pass@{k}" for k in (1, 2, 5, 10, 20, 50, 100) if k <= n))
    return _evaluated(set_rows(found), aggregate or usual)


def _evaluated(rows: list[dict[str, Any]], aggregate: Sequence[str]) -> Result:
    from kofn.api import load
    from kofn.evaluate import Options, evaluate
    from kofn.importers.rows import ReadOptions

    return evaluate(load(rows, ReadOptions()), Options(extract="none", aggregate=tuple(aggregate)))


def write_set(found: Verification, directory: Path, options: Mapping[str, Any], tags: Sequence[str] = ()) -> Result:
    """The run directory of the set."""
    from kofn.report.convert import Plan
    from kofn.report.files import write_run

    result = set_result(found, options.get("aggregate") or ())
    plan = Plan(task=found.problem.name, task_version=found.problem.version, name=SET, verdict="any_pass")
    paths = list(dict.fromkeys(one.submission.path for one in found.verified))
    write_run(result, directory, sources=paths, options=options, plan=plan, tags=tags)
    return result
