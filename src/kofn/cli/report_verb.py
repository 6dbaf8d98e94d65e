"""`kofn report RUN`: shows a stored run again, or writes it as HTML, CSV, JSON or Markdown."""

# without `from __future__ import annotations`: all that annotations name is imported anyway
from pathlib import Path
from typing import Any

import click

from kofn import render, runs
from kofn.api.options import OUTPUT
from kofn.cli.verb_options import (
    OutputTarget,
    VerbCommand,
    checklist_layout,
    checklist_option,
    leave_if_dipping,
    output_options,
    parse_sinks,
    send_to,
    sink_option,
    strict_option,
    verb_option,
    write_file,
)


@click.command("report", cls=VerbCommand)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@verb_option("--detailed", is_flag=True, group=OUTPUT,
             help="Show failing cases with diffs, segments and the slowest cases too")  # fmt: skip
@verb_option("--limit", type=click.IntRange(min=0), metavar="N", group=OUTPUT,
             help="Number of failing cases (default: 20 if --detailed, else 10)")  # fmt: skip
@verb_option("--html", is_flag=True, group=OUTPUT, help="Write the page again: RUN/report.html, or -o FILE")
@strict_option
@checklist_option
@sink_option
@output_options("html", short=("csv", "json", "markdown"))
def report_command(
    run: Path, detailed: bool, limit: int | None, html: bool, strict: bool, sinks: tuple[str, ...], output: OutputTarget
) -> None:
    """Show a run again: whether it passed and why, its groups and its estimates.

    RUN is a directory that `kofn score --out` or `CorrectnessResults.save` wrote. Without a form the summary is
    printed; as CSV there is one row per case and attribute. The exit code is 0 whether or not the run passed;
    `kofn check` is the gate.
    """
    if html and output.form == "table":
        output.form = "html"
    _check(output, limit, html=html, detailed=detailed)
    targets = parse_sinks(sinks)
    output.what = "report"

    loaded = runs.load_run(run)
    page = run / runs.files.PAGE
    if output.form == "html" and not output.named:
        write_file(page, render.report_page(loaded), "report", own=True)
    elif output.form == "html":
        output.write(render.report_page(loaded))
    elif output.form == "csv":
        output.write(runs.flat_frame(loaded.reports).write_csv())
    elif output.form == "json":
        output.write(render.run_summary.run_dict(loaded, detailed=detailed))
    else:
        layout: dict[str, Any] = {} if limit is None else {"limit": limit}
        if output.form == "markdown":
            output.write(render.run_markdown.run_markdown(loaded, detailed=detailed, **layout, **checklist_layout()))
        else:
            output.show(loaded, width=(80, 100), detailed=detailed, **layout)
    if html and output.form != "html":
        write_file(page, render.report_page(loaded), "report", own=True)
    send_to(targets, run)
    leave_if_dipping(loaded.result, strict)


def _check(output: OutputTarget, limit: int | None, *, html: bool, detailed: bool) -> None:
    """Refuse what cannot be meant, before anything is read."""
    if output.named and html and output.form != "html":
        raise click.UsageError(f"-o FILE takes one form: --html and {output.form} are two")
    if detailed and output.form in ("html", "csv"):
        raise click.UsageError(
            f"--detailed is for the terminal, --json and --markdown: --{output.form} has all there is"
        )
    if limit is not None and not (output.form == "markdown" or (detailed and output.form == "table")):
        raise click.UsageError("--limit says how many failing cases --detailed or --markdown shows: give one of them")
