"""`kofn compare A B`: runs, files, extractors, metrics or selectors compared, paired by case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import api, render
from kofn.api.options import CompareKeywords
from kofn.cli.verb_options import api_options, leave_if_dipping, output_options, strict_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.cli.verb_options import OutputTarget

_SEVERAL = ("--extractors", "--metrics", "--selectors")


class _Several(click.Command):
    """A command some of whose options take all that follows, up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(args: Sequence[str]) -> list[str]:
    """`--selectors a b` as click reads it.

    >>> spread(["run", "--selectors", "a", "b", "--json"])
    ['run', '--selectors', 'a', '--selectors', 'b', '--json']
    """
    out: list[str] = []
    option, taken = "", 0
    for i, arg in enumerate(args):
        if arg == "--":
            return [*out, *args[i:]]
        if arg.startswith("-") and arg != "-":
            option, taken = (arg, 0) if arg in _SEVERAL else ("", 0)
        elif option:
            out += [option] if taken else []
            taken += 1
        out.append(arg)
    return out


@click.command("compare", cls=_Several)
@click.argument("paths", metavar="A [B]...", nargs=-1, type=click.Path(path_type=Path))
@api_options(CompareKeywords)
@click.option("--changed", default=3, show_default=True, type=click.IntRange(min=0), metavar="N",
              help="Show so many cases that changed, each way.")  # fmt: skip
@strict_option
@output_options("latex", short=("json", "markdown", "latex"), page=True)
def command(paths: tuple[Path, ...], changed: int, strict: bool, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Compare systems, ways to grade, or selectors, case by case.

    A, B, ... are run directories or files of outputs of the same cases; the first is the baseline. With --extractors or
    --metrics the outputs of one file are graded in several ways, with --selectors candidates of one are picked in
    several ways. Names that follow these three options go on to the next option, so give the file first.
    """
    found = api.compare(*paths, **asked)
    if output.form == "latex":
        output.write(render.comparison_latex(found))
    else:
        output.show(found, width=(60, 120), changed=changed)
    output.write_page(lambda: render.comparison_page(found))
    leave_if_dipping(found, strict)
