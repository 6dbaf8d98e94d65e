"""`kofn curve RUN|FILE`: best of n, the cost of each further candidate, and the n to choose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import api, render
from kofn.api.options import CurveKeywords
from kofn.cli.verb_options import api_options, leave_if_dipping, output_options

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget


@click.command("curve")
@click.argument("source", metavar="RUN|FILE", type=click.Path(path_type=Path))
@api_options(CurveKeywords)
@click.option("--strict", is_flag=True, help="Exit 1 where the selector and the metric are the same judge or score.")
@output_options(page=True)
def command(source: Path, strict: bool, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Best of n: what k candidates reach and cost, and how many to ask for.

    RUN is a directory of `kofn run` or `kofn score --out`, FILE outputs as `kofn score` reads them. any@k is unbiased
    and over cases; beside it stand what independent tries would give, the vote, and the selector's pick.
    """
    found = api.curve(source, **asked)
    output.show(found, width=(60, 120))
    output.write_page(lambda: render.curve_page(found))
    leave_if_dipping(found, strict)
