"""`kofn check RUN`: requirements on a run, with an exit code for CI, JUnit XML and a step summary."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kofn import analysis, render, runs, scoring
from kofn.cli.colors import style
from kofn.core.escape import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.analysis.checks import Check
    from kofn.runs.record import Run

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("check")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--policy", metavar="P", help="A pass policy; the run's own when nothing else is asked for.")
@click.option("--require", "requirements", multiple=True, metavar="EXPR",
              help="Such as 'any_pass >= 0.8', or on an interval's end 'any_pass.low >= 75%'; repeatable.")  # fmt: skip
@click.option("--each", multiple=True, metavar="FIELD", help="Requirements hold in every segment too; repeatable.")
@click.option(
    "--baseline", type=click.Path(path_type=Path), metavar="RUN", help="No significant drop against this run."
)
@click.option("--alpha", default=0.05, show_default=True, type=float, help="A drop is significant with p below this.")
@click.option("--max-cost", type=float, metavar="X", help="Most that all candidates together may cost.")
@click.option("--min-passes", metavar="M[/N]", help="Every Core case has M passing candidates (of N graded).")
@click.option("--strict", is_flag=True, help="No number is picked and graded by the same judge or score.")
@click.option("--fail-on", multiple=True, metavar="CODE", help="No warning with this code; repeatable.")
@click.option("--allow-missing", is_flag=True, help="Candidates not graded and cases not verified may be.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML.")
@click.option("--summary", type=_FILE, metavar="FILE", envvar="GITHUB_STEP_SUMMARY", show_envvar=True,
              help="Append a summary in markdown.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    run: Path,
    policy: str | None,
    requirements: tuple[str, ...],
    each: tuple[str, ...],
    baseline: Path | None,
    alpha: float,
    max_cost: float | None,
    min_passes: str | None,
    allow_missing: bool,
    strict: bool,
    fail_on: tuple[str, ...],
    junit: Path | None,
    summary: Path | None,
    as_json: bool,
) -> None:
    """Check a run against requirements: exit 0 when all are met, 1 when one is not.

    RUN is a directory of `kofn score --out` or of an evaluation of programs.
    """
    if each and not requirements:
        raise click.UsageError("--each says where --require must hold: give --require too")
    demands = analysis.CheckOptions(
        policy=None if policy is None else scoring.PassPolicy(policy),
        requirements=tuple(scoring.Requirement.parse(text) for text in requirements),
        each=each,
        alpha=alpha,
        max_cost=max_cost,
        passes=None if min_passes is None else analysis.MinPasses.parse(min_passes),
        allow_missing=allow_missing,
        strict=strict,
        fail_on=fail_on,
    )
    if baseline is None and click.get_current_context().get_parameter_source("alpha") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--alpha says when a drop against --baseline is significant: give --baseline too")
    checked = runs.load_run(run)
    against = None if baseline is None else subject_of(runs.load_run(baseline))
    checks = analysis.run_checks(subject_of(checked), demands, against)
    _write(checked, checks, junit, summary)
    passed = all(check.passed for check in checks)
    _echo(_json(checked, checks, passed) if as_json else _lines(checks))
    sys.exit(0 if passed else 1)  # click would return the code to `main` instead, which is about errors


def subject_of(run: Run) -> analysis.CheckSubject:
    """What of a run can be checked."""
    evaluation = run.evaluation
    return analysis.CheckSubject(
        name=run.name,
        task=run.task,
        cases=runs.case_scores(run.reports),
        group_weights={name: group.weight for name, group in evaluation.group_outcomes.items()},
        decide=evaluation.decide,
        options=run.options,
        verdict=evaluation.verdict,
        result=run.result,
        failure=evaluation.infrastructure_failure,
        stopped=made.stopped if (made := runs.generation_of(run.manifest)) is not None else None,
    )


def _write(run: Run, checks: Sequence[Check], junit: Path | None, summary: Path | None) -> None:
    if junit is not None:
        render.write_junit(junit, run, checks)
    if summary is not None:
        render.append_summary(summary, run, checks)


def _lines(checks: Sequence[Check]) -> str:
    """A line a requirement, and how many hold."""
    marks = {True: style("✓", "good"), False: style("✗", "bad")}
    failed = sum(not check.passed for check in checks)
    last = f"failed: {failed} of {len(checks)}" if failed else f"passed: {len(checks)} of {len(checks)}"
    return "\n".join([*(f"{marks[c.passed]} {escape_controls(str(c))}" for c in checks), style(last, "strong")])


def _json(run: Run, checks: Sequence[Check], passed: bool) -> str:
    import orjson

    data = {"run": run.name, "passed": passed, "checks": [check.to_dict() for check in checks]}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def _echo(text: str) -> None:
    """Print; whoever closed the pipe early must not change the exit code of a check."""
    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
