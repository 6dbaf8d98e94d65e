"""`kofn trend DIR...`: the runs of a task over time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kofn import analysis, render, runs
from kofn.cli.colors import style
from kofn.core.escape import escape_controls
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from kofn.analysis.trend.trend import Trend

_WIDEST, _NARROWEST = 130, 60
_NAMED = 20  # runs left out that are named; the others are counted


@click.command("trend")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--task", metavar="NAME", help="Only the runs of this task.")
@click.option("--aggregate", "-a", multiple=True, metavar="A",
              help="The number to follow: a stored aggregator, pass_rate or score; repeatable (default: the verdict's "
              "where all runs have the same, else pass_rate).")  # fmt: skip
@click.option("--metric", metavar="M", help="The metric of the aggregator (default: a run's first).")
@click.option("--alpha", default=0.05, show_default=True, type=float, help="A change is real with p below this.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N runs of each task.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page.")
def command(
    directories: tuple[Path, ...],
    task: str | None,
    aggregate: tuple[str, ...],
    metric: str | None,
    alpha: float,
    last: int | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Follow runs of the same task over time, and tell changes from noise.

    DIR is a run directory or a directory that holds some, at any depth. Every run is compared, case by case, with the
    one before it: ▲ and ▼ mark changes that are real, · those that chance alone would do.
    """
    if not 0 < alpha < 1:
        raise click.UsageError(f"--alpha {alpha:g}: expected a number between 0 and 1")
    found = analysis.load_trend(directories, task=task, aggregate=aggregate, metric=metric, alpha=alpha, last=last)
    _name_left_out(found)
    if as_json:
        click.echo(runs.to_json(found.to_dict()))
    else:
        _show(found)
    if html is not None:
        _write(found, html)


def _name_left_out(found: Trend) -> None:
    for one in found.left_out[:_NAMED]:
        click.echo(f"kofn: left out: {escape_controls(one.reason)}", err=True)
    if (n := len(found.left_out)) > 1:
        more = f", {n - _NAMED:,} of them not named" if n > _NAMED else ""
        click.echo(f"kofn: {n:,} runs left out{more}", err=True)


def _show(found: Trend) -> None:
    import shutil

    wide = shutil.get_terminal_size((_WIDEST, 24)).columns if sys.stdout.isatty() else _WIDEST
    click.echo(render.format_trend(found, style, width=max(_NARROWEST, min(_WIDEST, wide))))


def _write(found: Trend, path: Path) -> None:
    """The page, whole or not at all."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}: give the name of a file to write")
    data = render.trend_page(found).encode()
    try:
        runs.write_atomically(path, lambda partial: partial.write_bytes(data))
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    click.echo(f"page written to {path}", err=True)
