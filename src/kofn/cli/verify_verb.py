"""`kofn verify`: programs run against test cases."""

# without `from __future__ import annotations`: all that annotations name is imported anyway
from pathlib import Path
from typing import Any

import click

from kofn import api, problems
from kofn.api.generation import is_data_set
from kofn.api.options import OTHER, VerifyKeywords
from kofn.cli.verb_options import PATH, OutputTarget, VerbCommand, api_options, output_options, tell, verb_option
from kofn.errors import WorldError


@click.command("verify", cls=VerbCommand)
@click.argument("problem", type=PATH)
@click.argument("submissions", nargs=-1, type=PATH)
@api_options(VerifyKeywords)
@verb_option("--lint", is_flag=True, group=OTHER, help="Check the problem only")
@output_options()
def verify_command(
    problem: Path, submissions: tuple[Path, ...], lint: bool, output: OutputTarget, asked: dict[str, Any]
) -> None:
    """Run programs against a problem's cases, in a sandbox, and report.

    PROBLEM is a folder with config.yaml (`kofn new problem NAME` makes one), and a SUBMISSION a folder or a file. Or
    PROBLEM is a data set of functions with tests (JSON lines: task_id, prompt, entry_point, test) and SUBMISSION the
    samples (task_id, completion). Run the same command again to resume.
    """
    if lint:
        if submissions:
            raise click.UsageError("--lint checks the problem alone: leave the submissions out")
        _lint(problem, output)
        return
    if asked.get("unsafe"):
        warning = "! --unsafe: programs run as you, and see your files and network"
        click.echo(click.style(warning, fg="yellow"), err=True)
    progress = problems.ExecutionCount()
    with problems.display_progress(progress):
        found = api.verify(problem, *submissions, **asked, progress=progress, on_note=tell)
    output.show(found)
    if found.failure is not None:
        again = "runs them again" if is_data_set(problem) else "runs those cases again"
        raise WorldError(f"{found.failure}; the same command {again}")


def _lint(path: Path, output: OutputTarget) -> None:
    """What the problem holds, and what is to be looked at; exit code 1 where there is something."""
    if is_data_set(path):
        n = len(problems.read_tasks(path))
        data: dict[str, Any] = {"problem": path.name, "tasks": n, "findings": []}
        output.show_rows([data], data, f"{path}: {n:,} tasks, nothing to complain of")
        return
    problem = problems.load_problem(path)
    problems.check_problem_code(problem)
    findings = [str(finding) for finding in problems.lint(problem)]
    mark = click.style("!", fg="yellow", bold=True)
    ends = f"{len(findings)} to look at" if findings else "nothing to complain of"
    text = "\n".join([problems.problem_text(problem), *(f"{mark} {finding}" for finding in findings), ends])
    rows = [{"finding": finding} for finding in findings]
    output.show_rows(rows, {"problem": problem.name, "findings": findings}, text, names=("finding",))
    if findings:
        raise click.exceptions.Exit(1)
