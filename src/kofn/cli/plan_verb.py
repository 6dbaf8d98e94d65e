"""`kofn plan [RUN|FILE]`: how many cases, repeats and labels a question needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import api
from kofn.api.options import PlanKeywords
from kofn.cli.verb_options import api_options, output_options

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget


@click.command("plan")
@click.argument("source", metavar="[RUN|FILE]", required=False, type=click.Path(path_type=Path))
@api_options(PlanKeywords)
@output_options()
def command(source: Path | None, output: OutputTarget, asked: dict[str, Any]) -> None:
    """How many cases and repeats a question needs: from a pilot, or from variances that are given.

    The question is an interval's width or a difference between two systems. More repeats only shrink what varies within
    a case; the table shows the mixes of cases and repeats that answer it, and the cheapest.
    """
    output.show(api.plan(source, **asked))
