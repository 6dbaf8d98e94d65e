"""`kofn verify TASKS SAMPLES...`: functions with tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.verify_verb import engine_of, sandbox_of

if TYPE_CHECKING:
    from kofn.checkpoint.samples import Judged
    from kofn.report.run import Run

_NOT_HERE = ("groups", "cases")
_MOST = 5


def verify_samples(tasks: Path, samples: tuple[Path, ...], *, as_json: bool, **options: Any) -> None:
    """Run every sample against its task's tests, and report pass@k."""
    from kofn.checkpoint.progress import Progress
    from kofn.checkpoint.samples import judge, write
    from kofn.errors import WorldError

    if given := [name for name in _NOT_HERE if options[name]] or (
        ["checkpoint"] if options["checkpoint"] != "last" else []
    ):
        raise click.UsageError(f"--{given[0].removesuffix('s')} is for problems with checkpoints, not for data sets")
    if options["repeat"] > 1:
        raise click.UsageError("--repeat is for problems with checkpoints: give more samples")
    sandbox = sandbox_of(options)
    stem = tasks.name.partition(".")[0]
    out = options["out"] or Path("runs") / f"verify-{stem}"
    try:
        with engine_of(options) as engine, Progress() as progress:
            judged = judge(
                tasks,
                samples,
                seconds=options["timeout"],
                aggregate=options["aggregate"],
                engine=engine,
                sandbox=sandbox,
                out=out,
                on_total=progress.on_total,
                on_case=progress.on_case,
            )
    except KeyboardInterrupt:
        click.echo(f"what is finished is kept in {out}: the same command goes on", err=True)
        raise
    run = write(judged, out, aggregate=options["aggregate"], policy=options["policy"], tags=options["tags"])
    _show(judged, run, out, as_json)
    if judged.n_broken:
        first = next(ran.reason for ran in judged.ran if ran.passed is None)
        raise WorldError(f"the harness failed on {judged.n_broken:,}: {first}; the same command runs them again")


def _show(judged: Judged, run: Run, out: Path, as_json: bool) -> None:
    assert run.result is not None
    if as_json:
        import orjson

        click.echo(orjson.dumps(run.result.to_dict(), option=orjson.OPT_INDENT_2))
        return
    from kofn.cli.looks import style
    from kofn.present import as_text, safe

    click.echo(as_text(run.result, style))
    if reasons := judged.reasons():
        told = ", ".join(f"{reason} ({n:,})" for reason, n in reasons[:_MOST])
        more = f" and {len(reasons) - _MOST:,} other reasons" if len(reasons) > _MOST else ""
        click.echo(safe(f"not passed  {told}{more}"))
    click.echo(safe(f"run in {out}; open {out / 'report.html'}"))
