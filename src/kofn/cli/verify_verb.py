"""`kofn verify PROBLEM SUBMISSION...`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.tags import tag_option

if TYPE_CHECKING:
    from kofn.checkpoint.run import Verification
    from kofn.checkpoint.sandbox import Sandbox
    from kofn.engine.base import Engine
    from kofn.evaluate import Result

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
        from kofn.cli.functional import verify_samples

        verify_samples(problem, submissions, as_json=as_json, **options)
        return
    if options.pop("timeout") is not None:
        raise click.UsageError("--timeout is for data sets: a problem says in its files how long a case may take")
    _verify(problem, submissions, as_json, options)


def sandbox_of(options: dict[str, Any]) -> Sandbox:
    """The sandbox that the options ask for."""
    from kofn.checkpoint.sandbox import find

    if options["unsafe"]:
        click.echo(
            click.style("! --unsafe: programs run as you, and see your files and network", fg="yellow"), err=True
        )
    return find(unsafe=options["unsafe"], python=options["python"], shown=options["shown"])


def engine_of(options: dict[str, Any]) -> Engine:
    """The engine that the options ask for."""
    from kofn.engine import engine

    if options["engine_name"] != "ray" and (options["ray_address"] or options["shared"]):
        raise click.UsageError("--ray-address and --shared are for --engine ray")
    return engine(
        options["engine_name"],
        workers=options["workers"],
        ray_address=options["ray_address"],
        shared_path=options["shared"],
    )


def _verify(path: Path, submissions: tuple[Path, ...], as_json: bool, options: dict[str, Any]) -> None:
    from kofn.checkpoint import load_problem
    from kofn.checkpoint.progress import Progress
    from kofn.checkpoint.run import verify
    from kofn.checkpoint.write import check_aggregators, write
    from kofn.errors import InputError, WorldError

    problem = load_problem(path)
    chosen = problem.chosen(options["checkpoint"])
    if options["aggregate"] and len(submissions) == 1:
        raise InputError("--aggregate is over a set of submissions: give several")
    check_aggregators(len(submissions), options["aggregate"])
    sandbox = sandbox_of(options)
    out = options["out"] or Path("runs") / f"verify-{problem.name}"
    try:
        with engine_of(options) as engine, Progress() as progress:
            found = verify(
                problem,
                submissions,
                chosen,
                policy=options["policy"],
                groups=options["groups"],
                cases=options["cases"],
                repeat=options["repeat"],
                engine=engine,
                sandbox=sandbox,
                out=out,
                on_total=progress.on_total,
                on_case=progress.on_case,
            )
    except KeyboardInterrupt:
        click.echo(f"what is finished is kept in {out}: the same command goes on", err=True)
        raise
    kept = {name: options[name] for name in ("checkpoint", "policy", "groups", "cases", "repeat", "aggregate")}
    result = write(found, out, {**kept, "engine": options["engine_name"]}, tags=options["tags"])
    _show(found, result, out, as_json)
    if broken := [one.results.infrastructure_failure for one in found.verified if one.results.infrastructure_failure]:
        raise WorldError(f"the harness failed: {broken[0]}; the same command runs those cases again")


def _show(found: Verification, result: Result | None, out: Path, as_json: bool) -> None:
    from kofn.checkpoint.text import as_dict, as_text

    if as_json:
        import orjson

        click.echo(orjson.dumps(as_dict(found, result), option=orjson.OPT_INDENT_2))
        return
    from kofn.cli.looks import style

    click.echo(as_text(found, result, out, style))


def _lint(path: Path) -> None:
    from kofn.checkpoint import load_problem
    from kofn.checkpoint.author import check_alone
    from kofn.checkpoint.lint import lint
    from kofn.checkpoint.text import problem_text

    if path.is_file() and path.name != "config.yaml":
        from kofn.checkpoint.functional import read_tasks

        click.echo(f"{path}: {len(read_tasks(path)):,} tasks, nothing to complain of")
        return
    problem = load_problem(path)
    check_alone(problem)
    click.echo(problem_text(problem))
    findings = lint(problem)
    for finding in findings:
        click.echo(f"{click.style('!', fg='yellow', bold=True)} {finding}")
    click.echo("nothing to complain of" if not findings else f"{len(findings)} to look at")
    if findings:
        raise click.exceptions.Exit(1)
