"""`kofn check, compare, curve, extract-audit, plan, trend`: what graded outputs and stored runs say."""

# without `from __future__ import annotations`: all that annotations name is imported anyway
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kofn import api, render
from kofn.api.options import (
    GRADING,
    OUTPUT,
    AuditKeywords,
    CheckKeywords,
    CompareKeywords,
    CurveKeywords,
    PlanKeywords,
    TrendKeywords,
)
from kofn.cli.verb_options import (
    PATH,
    OutputTarget,
    VerbCommand,
    api_options,
    checklist_option,
    leave_if_dipping,
    output_options,
    tell,
    verb_option,
)
from kofn.core.escape import escape_controls


@click.command("check", cls=VerbCommand)
@click.argument("run", type=PATH)
@api_options(CheckKeywords)
@output_options()
def check_command(run: Path, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Check a run against requirements: exit 0 when all are met, 1 when one is not.

    RUN is a directory of `kofn score --out` or of an evaluation of programs, or a file of outputs to score first. The
    outcome is recorded in the run (checks.json), and shown in its report and in the viewer.
    """
    report = api.check(run, **asked, on_note=tell)
    try:
        output.show(report)
    except BrokenPipeError:  # whoever closed the pipe early must not change the exit code of a check
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0 if report.passed else 1)  # click would return the code to `main` instead, which is about errors


_SEVERAL = ("--extractors", "--metrics", "--selectors")


class _Several(VerbCommand):
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
@click.argument("paths", metavar="A [B]...", nargs=-1, type=PATH)
@api_options(CompareKeywords)
@verb_option("--changed", default=3, type=click.IntRange(min=0), metavar="N", group=OUTPUT,
             help="Number of changed cases to show, each way (default: 3)")  # fmt: skip
@verb_option("--strict", is_flag=True, group=GRADING,
             help="Exit with 1 on double-dipping, 2 where too few cases are shared")  # fmt: skip
@output_options("latex", short=("json", "markdown", "latex"), page=True)
def compare_command(
    paths: tuple[Path, ...], changed: int, strict: bool, output: OutputTarget, asked: dict[str, Any]
) -> None:
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
    if strict and found.too_few:
        click.echo(f"kofn: --strict: {escape_controls(found.headline.text)}", err=True)
        sys.exit(2)


@click.command("curve", cls=VerbCommand)
@click.argument("source", metavar="RUN|FILE", type=PATH)
@api_options(CurveKeywords)
@checklist_option
@verb_option("--strict", is_flag=True, group=GRADING, help="Exit with 1 where selector and metric are the same")
@output_options(page=True)
def curve_command(source: Path, strict: bool, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Best of n: what k candidates reach and cost, and how many to ask for.

    RUN is a directory of `kofn run` or `kofn score --out`, FILE outputs as `kofn score` reads them. any@k is unbiased
    and over cases; beside it stand what independent tries would give, the vote, and the selector's pick.
    """
    found = api.curve(source, **asked)
    output.show(found, width=(60, 120))
    output.write_page(lambda: render.curve_page(found))
    leave_if_dipping(found, strict)


@click.command("extract-audit", cls=VerbCommand)
@click.argument("files", metavar="FILE|RUN...", nargs=-1, required=True)
@api_options(AuditKeywords)
@verb_option("--show", default=5, type=click.IntRange(min=0), metavar="N", group=OUTPUT,
             help="Number of outputs to show that extractors read differently (default: 5)")  # fmt: skip
@output_options(page=True)
def extract_audit_command(files: tuple[str, ...], show: int, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Compare extractors on the same outputs: where they disagree, what each misses, the score each would give.

    Errors of extraction are often larger than the difference between two models. With --model a language model reads
    every output as well, and calls go through the limits and the store of every other call.
    """
    found = api.audit(*files, **asked)
    output.show(found, most=show)
    output.write_page(lambda: render.audit_page(found))


@click.command("plan", cls=VerbCommand)
@click.argument("source", metavar="[RUN|FILE]", required=False, type=PATH)
@api_options(PlanKeywords)
@output_options()
def plan_command(source: Path | None, output: OutputTarget, asked: dict[str, Any]) -> None:
    """How many cases and repeats a question needs: from a pilot, or from variances that are given.

    The question is an interval's width or a difference between two systems. More repeats only shrink what varies within
    a case; the table shows the mixes of cases and repeats that answer it, and the cheapest.
    """
    output.show(api.plan(source, **asked))


@click.command("trend", cls=VerbCommand)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=PATH)
@api_options(TrendKeywords)
@output_options(page=True)
def trend_command(directories: tuple[Path, ...], output: OutputTarget, asked: dict[str, Any]) -> None:
    """Follow runs of the same task over time, and tell changes from noise.

    DIR is a run directory or a directory that holds some, at any depth. Every run is compared, case by case, with the
    one before it: ▲ and ▼ mark changes that are real, · those that chance alone would do.
    """
    found = api.trend(*directories, **asked)
    for one in found.left_out[:_NAMED]:
        click.echo(f"kofn: left out: {escape_controls(one.reason)}", err=True)
    if (n := len(found.left_out)) > 1:
        more = f", {n - _NAMED:,} of them not named" if n > _NAMED else ""
        click.echo(f"kofn: {n:,} runs left out{more}", err=True)
    output.show(found, width=(60, 130))
    output.write_page(lambda: render.trend_page(found))


_NAMED = 20  # runs left out that are named; the others are counted
