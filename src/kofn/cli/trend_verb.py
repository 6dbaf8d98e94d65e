"""`kofn trend DIR...`: the runs of a task over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import api, render
from kofn.api.options import TrendKeywords
from kofn.cli.verb_options import api_options, output_options
from kofn.core.escape import escape_controls

if TYPE_CHECKING:
    from kofn.analysis.trend import Trend
    from kofn.cli.verb_options import OutputTarget

_NAMED = 20  # runs left out that are named; the others are counted


@click.command("trend")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@api_options(TrendKeywords)
@output_options(page=True)
def command(directories: tuple[Path, ...], output: OutputTarget, asked: dict[str, Any]) -> None:
    """Follow runs of the same task over time, and tell changes from noise.

    DIR is a run directory or a directory that holds some, at any depth. Every run is compared, case by case, with the
    one before it: ▲ and ▼ mark changes that are real, · those that chance alone would do.
    """
    found = api.trend(*directories, **asked)
    _name_left_out(found)
    output.show(found, width=(60, 130))
    output.write_page(lambda: render.trend_page(found))


def _name_left_out(found: Trend) -> None:
    for one in found.left_out[:_NAMED]:
        click.echo(f"kofn: left out: {escape_controls(one.reason)}", err=True)
    if (n := len(found.left_out)) > 1:
        more = f", {n - _NAMED:,} of them not named" if n > _NAMED else ""
        click.echo(f"kofn: {n:,} runs left out{more}", err=True)
