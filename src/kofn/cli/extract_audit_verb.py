"""`kofn extract-audit FILE|RUN...`: several extractors on the same outputs, and the score each would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kofn import api, render
from kofn.api.options import AuditKeywords
from kofn.cli.verb_options import api_options, output_options

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget


@click.command("extract-audit")
@click.argument("files", metavar="FILE|RUN...", nargs=-1, required=True)
@api_options(AuditKeywords)
@click.option("--show", default=5, show_default=True, type=click.IntRange(min=0), metavar="N",
              help="Show so many outputs that are read differently.")  # fmt: skip
@output_options(page=True)
def command(files: tuple[str, ...], show: int, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Compare extractors on the same outputs: where they disagree, what each misses, the score each would give.

    Errors of extraction are often larger than the difference between two models. With --model a language model reads
    every output as well, and calls go through the limits and the store of every other call.
    """
    found = api.audit(*files, **asked)
    output.show(found, most=show)
    output.write_page(lambda: render.audit_page(found))
