"""`kofn verify PROBLEM SUBMISSION...`: runs programs against weighted test cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import problems
from kofn.cli.colors import style
from kofn.cli.tag_options import tag_option
from kofn.cli.verify_functions import verify_samples
from kofn.cli.verify_options import open_engine, open_sandbox
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from kofn.problems.verification import Verification
    from kofn.scoring.result import ScoredResult

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)


@click.command("verify")
@click.argument("problem", type=_PATH)
@click.argument("submissions", nargs=-1, type=_PATH)
@click.option("--checkpoint", default="last", show_default=True, metavar="C", help="A name, a number from 1, or all.")
@click.option("--policy", default="core-cases", show_default=True, metavar="P", help="When a submission passes.")
@click.option("--group", "groups", multiple=True, metavar="G", help="Only this group; repeatable.")
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only this case, ID or GROUP/ID; repeatable.")
@click.option(
    "--repeat", default=1, show_default=True, type=_COUNT, help="Run every case so often; flaky ones are named."
)
@click.option("--aggregate", "-a", multiple=True, metavar="A", help="Over the set of submissions; repeatable.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds a program of a data set may take."
)
@click.option("--workers", type=_COUNT, metavar="N", help="Programs at the same time (default: the cores).")
@click.option("--engine", "engine_name", default="local", show_default=True, metavar="E", help="local or ray.")
@click.option("--ray-address", metavar="A", help="A Ray cluster; without it one is started here.")
@click.option("--shared", metavar="URL", help="A path that all nodes see, for what is sent to them.")
@click.option("--python", metavar="P", help="What `python` is to a submission (default: the one kofn runs on).")
@click.option(
    "--show", "shown", multiple=True, metavar="PATH", help="Show this path to programs, read-only; repeatable."
)
@click.option("--unsafe", is_flag=True, help="Run programs without a sandbox, with nothing but limits.")
@click.option("--lint", is_flag=True, help="Only check the problem.")
@click.option("--out", type=_PATH, metavar="DIR", help="Where runs go (default: runs/verify-PROBLEM).")
@tag_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(problem: Path, submissions: tuple[Path, ...], lint: bool, as_json: bool, **options: Any) -> None:
    """Run programs against a problem's cases, in a sandbox, and report.

    PROBLEM is a folder with config.yaml (`kofn new problem NAME` makes one), and a SUBMISSION a folder or a file. Or
    PROBLEM is a data set of functions with tests (JSON lines: task_id, prompt, entry_point, test) and SUBMISSION the
    samples (task_id, completion). The same command again runs only what is not finished.
    """
    data_set = problem.is_file() and problem.name != "config.yaml"
    if lint:
        if submissions:
            raise click.UsageError("--lint checks the problem alone: leave the submissions out")
        _lint(problem)
        return
    if not submissions:
        what = "samples (JSON lines with task_id and completion)" if data_set else "a submission, a folder or a file"
        raise click.UsageError(f"nothing to verify: give {what}")
    if data_set:
        verify_samples(problem, submissions, as_json=as_json, **options)
        return
    if options.pop("timeout") is not None:
        raise click.UsageError("--timeout is for data sets: a problem says in its files how long a case may take")
    _verify(problem, submissions, as_json, options)


def _verify(path: Path, submissions: tuple[Path, ...], as_json: bool, options: dict[str, Any]) -> None:
    problem = problems.load_problem(path)
    chosen = problem.select_checkpoints(options["checkpoint"])
    if options["aggregate"] and len(submissions) == 1:
        raise InputError("--aggregate is over a set of submissions: give several")
    problems.check_aggregators(len(submissions), options["aggregate"])
    sandbox = open_sandbox(options)
    out = options["out"] or Path("runs") / f"verify-{problem.name}"
    progress = problems.ExecutionCount()
    try:
        with open_engine(options) as engine, problems.display_progress(progress):
            found = problems.verification.verify(
                problem,
                submissions,
                chosen,
                options=problems.verification.VerifyOptions(
                    **{name: options[name] for name in ("policy", "groups", "cases", "repeat")}
                ),
                engine=engine,
                sandbox=sandbox,
                out=out,
                progress=progress,
            )
    except KeyboardInterrupt:
        click.echo(f"what is finished is kept in {out}: the same command goes on", err=True)
        raise
    kept = {name: options[name] for name in ("checkpoint", "policy", "groups", "cases", "repeat", "aggregate")}
    result = problems.write_runs(found, out, {**kept, "engine": options["engine_name"]}, tags=options["tags"])
    _show(found, result, out, as_json)
    if broken := [
        one.results.infrastructure_failure for one in found.submission_results if one.results.infrastructure_failure
    ]:
        raise WorldError(f"the harness failed: {broken[0]}; the same command runs those cases again")


def _show(found: Verification, result: ScoredResult | None, out: Path, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(problems.verification_runs.as_dict(found, result), option=orjson.OPT_INDENT_2))
        return

    click.echo(problems.verification_runs.as_text(found, result, out, style))


def _lint(path: Path) -> None:
    if path.is_file() and path.name != "config.yaml":
        click.echo(f"{path}: {len(problems.read_tasks(path)):,} tasks, nothing to complain of")
        return
    problem = problems.load_problem(path)
    problems.check_problem_code(problem)
    click.echo(problems.problem_text(problem))
    findings = problems.lint(problem)
    for finding in findings:
        click.echo(f"{click.style('!', fg='yellow', bold=True)} {finding}")
    click.echo("nothing to complain of" if not findings else f"{len(findings)} to look at")
    if findings:
        raise click.exceptions.Exit(1)
