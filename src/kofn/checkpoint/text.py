"""A verification for somebody at a terminal, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.checkpoint.write import run_name, set_name
from kofn.policy import GroupType
from kofn.present import Grid, document, grid_lines, safe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kofn.checkpoint.problem import Problem
    from kofn.checkpoint.run import Verification, Verified
    from kofn.evaluate import Result

    Style = Callable[[str, str], str]

_MOST = 5  # failing cases that are named
_WIDEST = 160  # characters of a line


def as_text(found: Verification, result: Result | None, out: Path, style: Style = lambda text, _: text) -> str:
    """What there is to say: the submissions, what fails, the numbers over the set, where the runs are."""
    parts = [_head(found)]
    for checkpoint in dict.fromkeys(one.checkpoint.name for one in found.verified):
        here = [one for one in found.verified if one.checkpoint.name == checkpoint]
        parts.append(_submissions(here, style))
        parts += [lines for one in here if (lines := _failures(one, style))]
    if result is not None:
        parts.append(_set_lines(result, found, style))
    parts.append([safe(f"! {warning}") for warning in found.warnings])
    parts.append(_ends(found, out))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(found: Verification) -> list[str]:
    n = len({one.submission.name for one in found.verified})
    box = "in bubblewrap" if found.sandbox.bwrap else "without a sandbox (--unsafe)"
    done = f"{_count(found.n_executions, 'execution')} {box}"
    again = f", {found.n_reused:,} finished before" if found.n_reused else ""
    told = f"{found.problem.name} (version {found.problem.version}), {_count(n, 'submission')}"
    return [safe(f"{told}{f', {found.part}' if found.part else ''}: {done}{again}")]


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _submissions(here: list[Verified], style: Style) -> list[str]:
    """A row a submission: its score, how many cases of each type pass, and what the policy says."""
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
    return [_coloured(line, style) for line in lines]


def _coloured(line: str, style: Style) -> str:
    role = {"✓": "good", "✗": "bad"}.get(line[:1])
    return line if role is None else style(line[0], role) + line[1:]


def _failures(one: Verified, style: Style) -> list[str]:
    """The first cases that fail, each with the first thing that is wrong."""
    failing = [r for r in one.results.reports if not r.did_pass()]
    if not failing and not one.flaky():
        return []
    order = list(GroupType)
    failing.sort(key=lambda r: order.index(r.type))
    lines = (
        [style(safe(f"{one.submission.name}: {_count(len(failing), 'case')} not passed"), "strong")] if failing else []
    )
    for report in failing[:_MOST]:
        wrong = next(((n, a) for n, a in report.results.items() if not a.is_correct), None)
        what = "nothing was verified" if wrong is None else f"{wrong[0]}: {_first_lines(wrong[1].diff)}"
        told = report.case.get("harness")
        line = safe(f"  {report.group}/{report.id} ({report.type}) {told or what}")
        lines.append(line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…")
    if len(failing) > _MOST:
        lines.append(f"  and {len(failing) - _MOST:,} more")
    flaky = one.flaky()
    if flaky:
        lines.append(safe(f"{one.submission.name}: {_count(len(flaky), 'flaky case')}: {', '.join(flaky[:_MOST])}"))
    return lines


def _first_lines(diff: str) -> str:
    """The first lines of a diff that say something, in one."""
    told = [line.rstrip() for line in diff.splitlines() if line.strip() and not line.startswith(("---", "+++", "@@"))]
    return " | ".join(told[:3]) or "wrong"


def _set_lines(result: Result, found: Verification, style: Style) -> list[str]:
    graded = next(iter(result.understood["metrics"]), "")
    grids = document(result).grids
    several = len(grids) > 1
    n = len({one.submission.name for one in found.verified})
    title = f"over the set: {_count(result.n_cases, 'checkpoint')}, {_count(n, 'submission')}"
    shown = [grid for grid in grids if not several or grid.title == graded]
    lines = [style(title, "strong")]
    for grid in shown:
        lines += grid_lines(Grid("", grid.header, grid.rows, grid.right), style)
    return lines + [f"! {safe(warning)}" for warning in result.warnings]


def _ends(found: Verification, out: Path) -> list[str]:
    run = out / run_name(found, found.verified[0])
    more = f", the set in {out / set_name(found)}" if found.several else ""
    return [safe(f"runs in {out}{more}; kofn report {run} --detailed shows every case")]


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
    return "\n".join([safe(head), *grid_lines(grid, lambda text, _: text)])


def as_dict(found: Verification, result: Result | None) -> dict[str, Any]:
    """The same as plain data."""
    from kofn.report.evaluation import body_of

    return {
        "problem": found.problem.name,
        "version": found.problem.version,
        "sandbox": "bubblewrap" if found.sandbox.bwrap else None,
        "executions": found.n_executions,
        "finished_before": found.n_reused,
        "part": found.part,
        "warnings": list(found.warnings),
        "submissions": [
            {
                "submission": one.submission.name,
                "checkpoint": one.checkpoint.name,
                "passed": one.results.decide().passed,
                "reason": one.results.decide().reason,
                "score": one.results.score(),
                "flaky": one.flaky(),
                "evaluation": body_of(one.results),
            }
            for one in found.verified
        ],
        "set": None if result is None else result.to_dict(),
    }
