"""`--sink`, of the verbs that write or show a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.sinks import Address

sink_option = click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="SINK",
    help="Also send the run: mlflow:URI, wandb:PROJECT, wandb:ENTITY/PROJECT; repeatable.",
)


def opened(sinks: Sequence[str]) -> list[Address]:
    """The sinks that were asked for. A mistake in one, or a package that is not there, is told before any work."""
    if not sinks:
        return []
    from kofn.sinks import Address

    found = [Address.parse(text) for text in sinks]
    for one in found:
        one.check()
    return found


def send_to(sinks: Sequence[Address], directory: Path) -> None:
    """Send a run directory to each. One that fails does not keep it from the others; at the end that is exit code 3."""
    if not sinks:
        return
    from kofn.errors import WorldError
    from kofn.present import safe
    from kofn.report.run import load_run
    from kofn.sinks import send

    run, failed = load_run(directory), []
    for sink in sinks:
        try:
            click.echo(safe(send(run, sink)), err=True)
        except WorldError as problem:
            failed.append(str(problem))
    if failed:
        raise WorldError("; ".join(failed))
