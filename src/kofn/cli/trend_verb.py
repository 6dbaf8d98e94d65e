"""`kofn trend DIR...`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kofn.report.trend import Trend

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
    from kofn.report.trend import trend

    if not 0 < alpha < 1:
        raise click.UsageError(f"--alpha {alpha:g}: expected a number between 0 and 1")
    found = trend(directories, task=task, aggregate=aggregate, metric=metric, alpha=alpha, last=last)
    _name_left_out(found)
    if as_json:
        from kofn.report.files import to_json

        click.echo(to_json(found.to_dict()))
    else:
        _show(found)
    if html is not None:
        _write(found, html)


def _name_left_out(found: Trend) -> None:
    from kofn.present import safe

    for one in found.left_out[:_NAMED]:
        click.echo(f"kofn: left out: {safe(one.reason)}", err=True)
    if (n := len(found.left_out)) > 1:
        more = f", {n - _NAMED:,} of them not named" if n > _NAMED else ""
        click.echo(f"kofn: {n:,} runs left out{more}", err=True)


def _show(found: Trend) -> None:
    import shutil

    from kofn.cli.looks import style
    from kofn.report.trend_text import as_text

    wide = shutil.get_terminal_size((_WIDEST, 24)).columns if sys.stdout.isatty() else _WIDEST
    click.echo(as_text(found, style, width=max(_NARROWEST, min(_WIDEST, wide))))


def _write(found: Trend, path: Path) -> None:
    """The page, whole or not at all."""
    from kofn.errors import InputError, WorldError
    from kofn.report.files import atomic
    from kofn.report.trend_page import page

    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}: give the name of a file to write")
    data = page(found).encode()
    try:
        atomic(path, lambda partial: partial.write_bytes(data))
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    click.echo(f"page written to {path}", err=True)
