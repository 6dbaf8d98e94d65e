"""What a verification leaves: run directories per submission and for the set, text for a terminal, data for JSON."""

from __future__ import annotations

import stat
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.document import Document, Grid, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import format_count, format_number
from kofn.core.warnings import warnings_dict
from kofn.importers.base import ReadOptions
from kofn.render.result_text import result_document
from kofn.render.run_directory import write_evaluation, write_run
from kofn.runs.load import load_table
from kofn.runs.run_tables import evaluation_body
from kofn.scoring.configuration import GradingConfig, GroupType, ReportConfig
from kofn.scoring.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kofn.problems.problem import Problem
    from kofn.problems.verification import Submission, SubmissionResult, Verification
    from kofn.sandbox.workspace import File
    from kofn.scoring.result import ScoredResult

    Style = Callable[[str, str], str]

EXECUTIONS = "executions.parquet"
SET = "set"
_EXECUTIONS_SCHEMA = {
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
_PART = ".part"
_MAX_SOURCE = 20_000  # characters of a submission in the report of the set


def write_runs(
    verification: Verification, directory: Path, options: Mapping[str, Any], *, tags: Sequence[str] = ()
) -> ScoredResult | None:
    """Write all of them; the result over the set where there are several submissions."""
    for one in verification.submission_results:
        target = directory / run_name(verification, one)
        manifest = _manifest(verification, one, options) | ({"tags": list(tags)} if tags else {})
        write_evaluation(one.results, target, manifest, {EXECUTIONS: executions(one)})
    if verification.n_submissions < 2:
        return None
    # a vote, or the first of them, says nothing of programs that nobody ranked
    usual = ("mean", "any_pass", *(f"pass@{k}" for k in (1, 2, 5, 10, 20, 50, 100) if k <= verification.n_submissions))
    result = _evaluate(set_rows(verification), options.get("aggregate") or usual)
    name, version = verification.problem.name, verification.problem.version
    plan = ReportConfig(task=name, task_version=version, name=SET, verdict="any_pass", tags=tags)
    paths = list(dict.fromkeys(one.submission.path for one in verification.submission_results))
    write_run(result, directory / set_run_name(verification), sources=paths, options=options, report=plan)
    return result


def run_name(verification: Verification, one: SubmissionResult) -> str:
    """Where the run of a submission is, below the directory; a part of the cases never takes the place of them all."""
    return f"{one.submission.name}/{plain_name(one.checkpoint.name)}{_PART if verification.part else ''}"


def set_run_name(verification: Verification) -> str:
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
    rows = []
    for (group, case), repeats in one.outcomes.items():
        for repeat, outcome in enumerate(repeats):
            p = outcome.process
            used = (p.status, p.stopped, p.timed_out, p.seconds, p.cpu_seconds, p.peak_memory)
            texts = [data.decode(errors="backslashreplace") for data in (p.output, p.stderr)]
            rows.append((group, case, repeat, bool(outcome.passed), *used, *texts, outcome.harness_error))
    return pl.DataFrame(rows, schema=_EXECUTIONS_SCHEMA, orient="row")


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


def _evaluate(rows: list[dict[str, Any]], aggregate: Sequence[str]) -> ScoredResult:
    return evaluate(load_table(rows, ReadOptions()), GradingConfig(extract="none", aggregate=tuple(aggregate)))


_MAX_CASES = 5  # failing cases that are listed
_MAX_WIDTH = 160  # characters of a line
_MARKS = {"✓": "good", "✗": "bad"}
_DIFF_HEADS = ("---", "+++", "@@")


def as_text(verification: Verification, style: Style = lambda text, _: text) -> str:
    """The submissions, the failing cases, the numbers over the set, and where the runs are."""
    parts = [[_head(verification)]]
    for checkpoint in dict.fromkeys(one.checkpoint.name for one in verification.submission_results):
        here = [one for one in verification.submission_results if one.checkpoint.name == checkpoint]
        lines = grid_lines(_submissions(here), style)
        parts.append([style(line[0], _MARKS[line[0]]) + line[1:] if line[:1] in _MARKS else line for line in lines])
        parts += [_failures(one, style) for one in here]
    if verification.result is not None:
        parts.append(_set_lines(verification.result, verification, style))
    parts.append([escape_controls(f"! {warning}") for warning in verification.warnings])
    if verification.directory is not None:
        parts.append([_ends(verification, verification.directory)])
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(verification: Verification) -> str:
    place = f"in {verification.sandbox.name}" if verification.sandbox.isolated else "without a sandbox (--unsafe)"
    done = f"{format_count(verification.n_executions, 'execution')} {place}"
    reused = f", {verification.n_reused:,} finished before" if verification.n_reused else ""
    submissions = format_count(verification.n_submissions, "submission")
    title = f"{verification.problem.name} (version {verification.problem.version}), {submissions}"
    return escape_controls(f"{title}{f', {verification.part}' if verification.part else ''}: {done}{reused}")


def verification_document(verification: Verification) -> Document:
    """The same for a notebook, without single cases."""
    found = verification.submission_results
    names = dict.fromkeys(one.checkpoint.name for one in found)
    grids = [_submissions([one for one in found if one.checkpoint.name == name]) for name in names]
    grids += [] if verification.result is None else result_document(verification.result).grids
    out = verification.directory
    notes = () if out is None else (("runs", _ends(verification, out)),)
    return Document((_head(verification),), tuple(grids), notes, tuple(map(str, verification.warnings)))


def _submissions(here: list[SubmissionResult]) -> Grid:
    """One row per submission: its score, how many cases of each type pass, and what the policy says."""
    types = [t for t in GroupType if any(t in one.results.total_counts for one in here)]
    rows = []
    for one in here:
        r, decision = one.results, one.results.decide()
        counts = [f"{r.pass_counts.get(t, 0)}/{r.total_counts.get(t, 0)}" for t in types]
        mark, score = "✓" if decision.passed else "✗", format_number(r.score())
        rows.append((mark, one.submission.name, score, *counts, f"{r.duration:.1f} s", decision.reason))
    header = ("", "submission", "score", *map(str, types), "time", "policy")
    right = (False, False, True, *(True for _ in types), True, False)
    title = f"{here[0].checkpoint.name} (version {here[0].checkpoint.version})"
    return Grid(title, header, tuple(rows), right)


def _failures(one: SubmissionResult, style: Style) -> list[str]:
    """The first cases that fail, each with the first thing that is wrong."""
    order = list(GroupType)
    failing = sorted((r for r in one.results.reports if not r.did_pass()), key=lambda r: order.index(r.type))
    title = escape_controls(f"{one.submission.name}: {format_count(len(failing), 'case')} not passed")
    lines = [style(title, "strong")] if failing else []
    for report in failing[:_MAX_CASES]:
        wrong = next(((n, a) for n, a in report.results.items() if not a.is_correct), None)
        what = "nothing was verified"
        if wrong is not None:
            diff = [t.rstrip() for t in wrong[1].diff.splitlines() if t.strip() and not t.startswith(_DIFF_HEADS)]
            what = f"{wrong[0]}: {' | '.join(diff[:3]) or 'wrong'}"
        harness_error = report.case.get("harness")
        line = escape_controls(f"  {report.group}/{report.id} ({report.type}) {harness_error or what}")
        lines.append(line if len(line) <= _MAX_WIDTH else f"{line[: _MAX_WIDTH - 1]}…")
    if len(failing) > _MAX_CASES:
        lines.append(f"  and {len(failing) - _MAX_CASES:,} more")
    if flaky := one.flaky():
        names = ", ".join(flaky[:_MAX_CASES])
        lines.append(escape_controls(f"{one.submission.name}: {format_count(len(flaky), 'flaky case')}: {names}"))
    return lines


def _set_lines(result: ScoredResult, verification: Verification, style: Style) -> list[str]:
    graded = next(iter(result.understood["metrics"]), "")
    grids = result_document(result).grids
    submissions = format_count(verification.n_submissions, "submission")
    lines = [style(f"over the set: {format_count(result.n_cases, 'checkpoint')}, {submissions}", "strong")]
    for grid in grids:
        if len(grids) == 1 or grid.title == graded:
            lines += grid_lines(Grid("", grid.header, grid.rows, grid.right), style)
    return lines + [f"! {escape_controls(str(warning))}" for warning in result.warnings]


def _ends(verification: Verification, out: Path) -> str:
    run = out / run_name(verification, verification.submission_results[0])
    more = f", the set in {out / set_run_name(verification)}" if verification.n_submissions > 1 else ""
    return escape_controls(f"runs in {out}{more}; kofn report {run} --detailed shows every case")


def problem_text(problem: Problem) -> str:
    """A problem's checkpoints, groups and cases as a table."""
    rows = []
    for checkpoint in problem.checkpoints:
        for group in checkpoint.groups:
            origin = f"{group.original_checkpoint}/{group.original_group}" if group.original_checkpoint else ""
            counts = (f"{group.weight:g}", f"{len(group.cases):,}")
            rows.append((checkpoint.name, group.name, str(group.type), *counts, origin))
    header = ("checkpoint", "group", "type", "weight", "cases", "from")
    head = f"{problem.name} (version {problem.version}), {problem.adapter}: {' '.join(problem.entry)}"
    grid = Grid("", header, tuple(rows), (False, False, False, True, True, False))
    return "\n".join([escape_controls(head), *grid_lines(grid, lambda text, _: text)])


def as_dict(verification: Verification) -> dict[str, Any]:
    """As `kofn verify --json` prints it."""
    return {
        "problem": verification.problem.name,
        "version": verification.problem.version,
        "sandbox": verification.sandbox.name if verification.sandbox.isolated else None,
        "executions": verification.n_executions,
        "finished_before": verification.n_reused,
        "part": verification.part,
        **warnings_dict(verification.warnings),
        "submissions": [
            {**one.facts(), "flaky": one.flaky(), "evaluation": evaluation_body(one.results)}
            for one in verification.submission_results
        ],
        "set": None if verification.result is None else verification.result.to_dict(),
    }
