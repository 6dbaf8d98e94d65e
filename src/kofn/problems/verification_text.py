"""A verification as text for a terminal and as data for --json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.document import Grid, grid_lines
from kofn.core.escape import escape_controls
from kofn.problems.verification_runs import run_name, set_run_name
from kofn.render.result_text import result_document
from kofn.runs.evaluation_files import evaluation_body
from kofn.scoring.policy import GroupType

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kofn.problems.problem import Problem
    from kofn.problems.verification import SubmissionResult, Verification
    from kofn.scoring.result import Result

    Style = Callable[[str, str], str]

_MAX_CASES = 5  # failing cases that are listed
_MAX_WIDTH = 160  # characters of a line


def as_text(verification: Verification, result: Result | None, out: Path, style: Style = lambda text, _: text) -> str:
    """The submissions, the failing cases, the numbers over the set, and where the runs are."""
    parts = [_head(verification)]
    for checkpoint in dict.fromkeys(one.checkpoint.name for one in verification.submission_results):
        here = [one for one in verification.submission_results if one.checkpoint.name == checkpoint]
        parts.append(_submissions(here, style))
        parts += [lines for one in here if (lines := _failures(one, style))]
    if result is not None:
        parts.append(_set_lines(result, verification, style))
    parts.append([escape_controls(f"! {warning}") for warning in verification.warnings])
    parts.append(_ends(verification, out))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(verification: Verification) -> list[str]:
    n = len({one.submission.name for one in verification.submission_results})
    place = f"in {verification.sandbox.name}" if verification.sandbox.isolated else "without a sandbox (--unsafe)"
    done = f"{_count(verification.n_executions, 'execution')} {place}"
    reused = f", {verification.n_reused:,} finished before" if verification.n_reused else ""
    title = f"{verification.problem.name} (version {verification.problem.version}), {_count(n, 'submission')}"
    return [escape_controls(f"{title}{f', {verification.part}' if verification.part else ''}: {done}{reused}")]


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _submissions(here: list[SubmissionResult], style: Style) -> list[str]:
    """One row per submission: its score, how many cases of each type pass, and what the policy says."""
    types = [t for t in GroupType if any(t in one.results.total_counts for one in here)]
    rows = []
    for one in here:
        r, decision = one.results, one.results.decide()
        score = r.score()
        counts = [f"{r.pass_counts.get(t, 0)}/{r.total_counts.get(t, 0)}" for t in types]
        rows.append(
            (
                "✓" if decision.passed else "✗",
                one.submission.name,
                "-" if score is None else f"{score:.3f}",
                *counts,
                f"{r.duration:.1f} s",
                decision.reason,
            )
        )
    header = ("", "submission", "score", *map(str, types), "time", "policy")
    right = (False, False, True, *(True for _ in types), True, False)
    title = f"{here[0].checkpoint.name} (version {here[0].checkpoint.version})"
    lines = grid_lines(Grid(title, header, tuple(rows), right), style)
    return [_colored(line, style) for line in lines]


def _colored(line: str, style: Style) -> str:
    role = {"✓": "good", "✗": "bad"}.get(line[:1])
    return line if role is None else style(line[0], role) + line[1:]


def _failures(one: SubmissionResult, style: Style) -> list[str]:
    """The first cases that fail, each with the first thing that is wrong."""
    failing = [r for r in one.results.reports if not r.did_pass()]
    if not failing and not one.flaky():
        return []
    order = list(GroupType)
    failing.sort(key=lambda r: order.index(r.type))
    lines = (
        [style(escape_controls(f"{one.submission.name}: {_count(len(failing), 'case')} not passed"), "strong")]
        if failing
        else []
    )
    for report in failing[:_MAX_CASES]:
        wrong = next(((n, a) for n, a in report.results.items() if not a.is_correct), None)
        what = "nothing was verified" if wrong is None else f"{wrong[0]}: {_first_lines(wrong[1].diff)}"
        harness_error = report.case.get("harness")
        line = escape_controls(f"  {report.group}/{report.id} ({report.type}) {harness_error or what}")
        lines.append(line if len(line) <= _MAX_WIDTH else f"{line[: _MAX_WIDTH - 1]}…")
    if len(failing) > _MAX_CASES:
        lines.append(f"  and {len(failing) - _MAX_CASES:,} more")
    flaky = one.flaky()
    if flaky:
        lines.append(
            escape_controls(
                f"{one.submission.name}: {_count(len(flaky), 'flaky case')}: {', '.join(flaky[:_MAX_CASES])}"
            )
        )
    return lines


def _first_lines(diff: str) -> str:
    """The first lines of a diff that have content, as one line."""
    lines = [line.rstrip() for line in diff.splitlines() if line.strip() and not line.startswith(("---", "+++", "@@"))]
    return " | ".join(lines[:3]) or "wrong"


def _set_lines(result: Result, verification: Verification, style: Style) -> list[str]:
    graded = next(iter(result.understood["metrics"]), "")
    grids = result_document(result).grids
    several = len(grids) > 1
    n = len({one.submission.name for one in verification.submission_results})
    title = f"over the set: {_count(result.n_cases, 'checkpoint')}, {_count(n, 'submission')}"
    displayed = [grid for grid in grids if not several or grid.title == graded]
    lines = [style(title, "strong")]
    for grid in displayed:
        lines += grid_lines(Grid("", grid.header, grid.rows, grid.right), style)
    return lines + [f"! {escape_controls(warning)}" for warning in result.warnings]


def _ends(verification: Verification, out: Path) -> list[str]:
    run = out / run_name(verification, verification.submission_results[0])
    more = f", the set in {out / set_run_name(verification)}" if verification.several else ""
    return [escape_controls(f"runs in {out}{more}; kofn report {run} --detailed shows every case")]


def problem_text(problem: Problem) -> str:
    """A problem's checkpoints, groups and cases as a table."""
    rows = [
        (
            checkpoint.name,
            group.name,
            str(group.type),
            f"{group.weight:g}",
            f"{len(group.cases):,}",
            f"{group.original_checkpoint}/{group.original_group}" if group.original_checkpoint else "",
        )
        for checkpoint in problem.checkpoints
        for group in checkpoint.groups
    ]
    header = ("checkpoint", "group", "type", "weight", "cases", "from")
    head = f"{problem.name} (version {problem.version}), {problem.adapter}: {' '.join(problem.entry)}"
    grid = Grid("", header, tuple(rows), (False, False, False, True, True, False))
    return "\n".join([escape_controls(head), *grid_lines(grid, lambda text, _: text)])


def as_dict(verification: Verification, result: Result | None) -> dict[str, Any]:
    """As `kofn verify --json` prints it."""
    return {
        "problem": verification.problem.name,
        "version": verification.problem.version,
        "sandbox": verification.sandbox.name if verification.sandbox.isolated else None,
        "executions": verification.n_executions,
        "finished_before": verification.n_reused,
        "part": verification.part,
        "warnings": list(verification.warnings),
        "submissions": [
            {
                "submission": one.submission.name,
                "checkpoint": one.checkpoint.name,
                "passed": one.results.decide().passed,
                "reason": one.results.decide().reason,
                "score": one.results.score(),
                "flaky": one.flaky(),
                "evaluation": evaluation_body(one.results),
            }
            for one in verification.submission_results
        ],
        "set": None if result is None else result.to_dict(),
    }
