"""`kofn compare A B`: runs, files, extractors, metrics or selectors compared, paired by case."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import render, runs
from kofn.cli.colors import style
from kofn.cli.compare_inputs import found_of
from kofn.cli.page_output import write_page
from kofn.cli.strict_option import leave_if_dipping
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.analysis.compare.differences import ComparisonReport

_WIDEST, _NARROWEST = 120, 60
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
@click.option("--aggregate", "-a", multiple=True, metavar="A",
              help="The numbers to compare, such as any_pass or pass@5; repeatable (default: all that both show)."
              )  # fmt: skip
@click.option("--metric", "metric", multiple=True, metavar="M",
              help="Of these metrics; repeatable (default: those all have).")  # fmt: skip
@click.option("--by", multiple=True, metavar="FIELD", help="Also within each value of this field; repeatable.")
@click.option("--split", metavar="PART[:SHARE[:SEED]]", help="Only the design or the test part of the cases.")
@click.option("--top-k", type=click.IntRange(min=1), help="Keep the first K candidates of each set.")
@click.option("--all-pairs", is_flag=True, help="Compare every two, not each with the first.")
@click.option("--verdict", metavar="V", help="What says whether a case passes, such as majority or 'mean >= 0.8'.")
@click.option("--changed", default=3, show_default=True, type=click.IntRange(min=0), metavar="N",
              help="Show so many cases that changed, each way.")  # fmt: skip
@click.option(
    "--extractors", multiple=True, metavar="E...", help="Grade the same outputs with each of these extractors."
)
@click.option("--metrics", multiple=True, metavar="M...", help="Grade the same outputs with each of these metrics.")
@click.option("--selectors", multiple=True, metavar="S...",
              help="Pick from the same candidates by each of these: a YAML file, a column, a metric, vote, length, "
              "first, random, module:function.")  # fmt: skip
@click.option("--evaluator", metavar="M", help="The metric that grades what selectors pick (default: the first).")
@click.option("--strict", is_flag=True, help="Exit with 1 where a selector is graded by itself (double-dipping).")
@click.option("--extract", metavar="E", help="Grade again, with this extractor of answers.")
@click.option("--threshold", type=float, help="A value passes from here on, where outputs are graded (default 1.0).")
@click.option("--cluster", metavar="FIELD", help="Resample groups of cases that belong together.")
@click.option("--weight", metavar="FIELD", help="Weight of each case.")
@click.option("--field", "field_options", multiple=True, metavar="ROLE=NAME", help="A field's name in these files.")
@click.option("--alpha", default=0.05, show_default=True, type=float, help="A difference holds with p below this.")
@click.option("--level", default=0.95, show_default=True, type=float, help="Level of the intervals.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of whatever is drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table for a pull request.")
@click.option("--latex", "as_latex", is_flag=True, help="Print a table for a paper (booktabs).")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page.")
def command(
    paths: tuple[Path, ...],
    changed: int,
    strict: bool,
    as_json: bool,
    as_markdown: bool,
    as_latex: bool,
    html: Path | None,
    **asked: Any,
) -> None:
    """Compare systems, ways to grade, or selectors, case by case.

    A, B, ... are run directories or files of outputs of the same cases; the first is the baseline. With --extractors or
    --metrics the outputs of one file are graded in several ways, with --selectors candidates of one are picked in
    several ways. Names that follow these three options go on to the next option, so give the file first.
    """
    if sum((as_json, as_markdown, as_latex)) > 1:
        raise click.UsageError("--json, --markdown and --latex are three forms of one output: give one")
    if html is not None:
        _check_place(html)
    found = found_of(paths, **asked)
    _show(found, changed, as_json=as_json, as_markdown=as_markdown, as_latex=as_latex)
    if html is not None:
        write_page(render.comparison_page(found), html)
    leave_if_dipping(found, strict)


def _show(found: ComparisonReport, changed: int, *, as_json: bool, as_markdown: bool, as_latex: bool) -> None:
    if as_json:
        click.echo(runs.to_json(found.to_dict()))
        return
    if as_markdown or as_latex:
        click.echo(render.comparison_latex(found) if as_latex else render.comparison_markdown(found))
        return
    import shutil

    wide = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    click.echo(render.format_comparison(found, style, width=max(_NARROWEST, min(_WIDEST, wide)), changed=changed))


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}: give the name of a file to write")
