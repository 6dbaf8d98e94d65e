"""`kofn verify TASKS SAMPLES...`: samples of functions with tests, such as HumanEval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import problems, render
from kofn.cli.colors import style
from kofn.cli.verify_options import open_engine, open_sandbox
from kofn.core.escape import escape_controls
from kofn.errors import WorldError

if TYPE_CHECKING:
    from kofn.problems.functions import SampleResults
    from kofn.runs.record import Run

_NOT_HERE = ("groups", "cases")
_MOST = 5


def verify_samples(tasks: Path, samples: tuple[Path, ...], *, as_json: bool, **options: Any) -> None:
    """Run every sample against its task's tests, and report pass@k."""
    if given := [name for name in _NOT_HERE if options[name]] or (
        ["checkpoint"] if options["checkpoint"] != "last" else []
    ):
        raise click.UsageError(f"--{given[0].removesuffix('s')} is for problems with checkpoints, not for data sets")
    if options["repeat"] > 1:
        raise click.UsageError("--repeat is for problems with checkpoints: give more samples")
    sandbox = open_sandbox(options)
    stem = tasks.name.partition(".")[0]
    out = options["out"] or Path("runs") / f"verify-{stem}"
    progress = problems.ExecutionCount()
    try:
        with open_engine(options) as engine, problems.display_progress(progress):
            judged = problems.run_samples(
                tasks,
                samples,
                seconds=options["timeout"],
                aggregate=options["aggregate"],
                engine=engine,
                sandbox=sandbox,
                out=out,
                progress=progress,
            )
    except KeyboardInterrupt:
        click.echo(f"what is finished is kept in {out}: the same command goes on", err=True)
        raise
    run = problems.write_samples(
        judged, out, aggregate=options["aggregate"], policy=options["policy"], tags=options["tags"]
    )
    _show(judged, run, out, as_json)
    if judged.n_harness_errors:
        first = next(one.reason for one in judged.outcomes if one.passed is None)
        raise WorldError(
            f"the harness failed on {judged.n_harness_errors:,}: {first}; the same command runs them again"
        )


def _show(judged: SampleResults, run: Run, out: Path, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(run.scored_result.to_dict(), option=orjson.OPT_INDENT_2))
        return

    click.echo(render.format_result(run.scored_result, style))
    if reasons := judged.reasons():
        shares = ", ".join(f"{reason} ({n:,})" for reason, n in reasons[:_MOST])
        more = f" and {len(reasons) - _MOST:,} other reasons" if len(reasons) > _MOST else ""
        click.echo(escape_controls(f"not passed  {shares}{more}"))
    click.echo(escape_controls(f"run in {out}; open {out / 'report.html'}"))
