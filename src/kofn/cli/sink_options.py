"""Option `--sink` of the verbs that write or show a run: sends it to MLflow or Weights & Biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kofn import runs
from kofn.core.escape import escape_controls
from kofn.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.integrations.sinks import SinkAddress

sink_option = click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="SINK",
    help="Also send the run: mlflow:URI, wandb:PROJECT, wandb:ENTITY/PROJECT; repeatable.",
)


def parse_sinks(sinks: Sequence[str]) -> list[SinkAddress]:
    """The sinks that were asked for. A mistake in one, or a package that is not there, is told before any work."""
    if not sinks:
        return []
    from kofn.integrations.sinks import SinkAddress

    found = [SinkAddress.parse(text) for text in sinks]
    for one in found:
        one.check()
    return found


def send_to(sinks: Sequence[SinkAddress], directory: Path) -> None:
    """Send a run directory to each. One that fails does not keep it from the others; at the end that is exit code 3."""
    if not sinks:
        return
    from kofn.integrations.sinks import send_run

    run, failed = runs.load_run(directory), []
    for sink in sinks:
        try:
            click.echo(escape_controls(send_run(run, sink)), err=True)
        except WorldError as problem:
            failed.append(str(problem))
    if failed:
        raise WorldError("; ".join(failed))
