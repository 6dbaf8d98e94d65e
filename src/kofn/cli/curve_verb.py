"""`kofn curve RUN|FILE`: best of n, the cost of each further candidate, and the n to choose."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kofn import analysis, render, runs, scoring, stats
from kofn.cli.colors import style
from kofn.cli.label_options import labels_of
from kofn.cli.page_output import write_page
from kofn.core.warnings import with_code
from kofn.errors import InputError

if TYPE_CHECKING:
    from kofn.analysis.best_of.report import BestOfReport
    from kofn.analysis.selectors import Selector
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.grade import Graded

_WIDEST, _NARROWEST = 120, 60


@click.command("curve")
@click.argument("source", metavar="RUN|FILE", type=click.Path(path_type=Path))
@click.option("--metric", metavar="M", help="The metric whose passes count (default: the first).")
@click.option("--selector", "selector_text", metavar="S", help="What picks one of k: a column of scores, vote, length, "
              "first, random, module:function, or a YAML file (default: the only column of scores).")  # fmt: skip
@click.option("--measure", type=click.Choice(["any", "selected", "majority"]),
              help="Whose gain counts (default: as the run is used, else any).")  # fmt: skip
@click.option("--min-gain-per-dollar", "gain", type=float, metavar="X", help="A candidate must add so much a dollar.")
@click.option("--max-latency", "latency", type=float, metavar="SECONDS", help="All n answers within this time.")
@click.option("--sequential", is_flag=True, help="Candidates are asked one after the other, not side by side.")
@click.option("--budget", type=float, metavar="DOLLARS", help="Most that the candidates of one case may cost.")
@click.option("--cost-per-candidate", "cost", type=float, metavar="DOLLARS", help="Where the outputs carry no cost.")
@click.option("--extend", type=click.IntRange(min=1), metavar="K", help="Extrapolate to K candidates (beta-binomial).")
@click.option("--labels", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="People's and the judge's verdicts on candidates: adds the corrected curve.")  # fmt: skip
@click.option("--by", multiple=True, metavar="FIELD", help="Also within each value of this field; repeatable.")
@click.option("--split", "split_text", metavar="PART", help="Only design or test cases: PART[:SHARE[:SEED]].")
@click.option("--interval", default="auto", show_default=True, metavar="I", help="Interval of the values.")
@click.option("--level", default=0.95, show_default=True, type=float, help="Level of the intervals.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of what is drawn.")
@click.option("--threshold", type=float, help="A value passes from here on (default: as graded, or 1.0).")
@click.option("--use", metavar="USE", help="How outputs are used: any, vote, select, list or all; says which measure "
              "counts.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--html", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page."
)
@click.option("--strict", is_flag=True, help="Exit 1 where the selector and the metric are the same judge or score.")
def command(
    source: Path,
    metric: str | None,
    selector_text: str | None,
    measure: str | None,
    gain: float | None,
    latency: float | None,
    sequential: bool,
    budget: float | None,
    cost: float | None,
    extend: int | None,
    labels: Path | None,
    by: tuple[str, ...],
    split_text: str | None,
    interval: str,
    level: float,
    seed: int,
    threshold: float | None,
    use: str | None,
    as_json: bool,
    html: Path | None,
    strict: bool,
) -> None:
    """Best of n: what k candidates reach and cost, and how many to ask for.

    RUN is a directory of `kofn run` or `kofn score --out`, FILE outputs as `kofn score` reads them. any@k is unbiased
    and over cases; beside it stand what independent tries would give, the vote, and the selector's pick.
    """
    from dataclasses import replace

    if sequential and latency is None:
        raise click.UsageError("--sequential says how --max-latency is counted: give --max-latency too")
    if html is not None and not html.parent.is_dir():
        raise InputError(f"{html}: there is no directory {html.parent}: give the name of a file to write")
    wanted = analysis.SpendingBounds(gain=gain, latency=latency, budget=budget, sequential=sequential)
    where = runs.load_graded(source, replace(_options(by, split_text, interval, level, seed), use=use))
    scored = _passing_from(where.metric(metric), threshold)
    asked = _best_of_options(where, scored, selector_text, measure, extend, cost, labels)
    found = analysis.best_of_report(
        where.name,
        scored,
        where.table,
        where.options,
        asked,
        wanted,
        judges=where.result.judges,
        units=where.units(),
    )
    carried = with_code(where.result.warnings, "no-threshold") if threshold is None else ()
    found = replace(found, warnings=(*found.warnings, *carried)).with_checklist(where.result.checklist)
    _show(found, as_json)
    if html is not None:
        write_page(render.curve_page(found), html)
    if strict and found.double_dipping:
        sys.exit(1)  # click would return the code to `main` instead, which is about errors


def _options(
    by: tuple[str, ...], split_text: str | None, interval: str, level: float, seed: int
) -> scoring.GradingConfig:
    stats.check_level(level)
    stats.check_interval(interval)
    split = None if split_text is None else scoring.Split.parse(split_text)
    return scoring.GradingConfig(by=by, split=split, interval=interval, level=level, seed=seed)


def _passing_from(scored: Graded, threshold: float | None) -> Graded:
    """The same grades with another threshold, where one is given."""
    from dataclasses import replace

    return scored if threshold is None else replace(scored, sets=scored.sets.passing_from(threshold))


def _best_of_options(
    where: GradedCandidates,
    scored: Graded,
    selector_text: str | None,
    measure: str | None,
    extend: int | None,
    cost: float | None,
    labels: Path | None,
) -> analysis.BestOfOptions:
    if cost is not None and not cost > 0:
        raise InputError(f"--cost-per-candidate {cost:g}: expected a number above 0")
    selector = _selector(scored, selector_text)
    wanted = measure or analysis.default_measure(where.options)
    if measure is None and wanted == "selected" and selector is None:
        wanted = "any"
    return analysis.BestOfOptions(
        measure=wanted,
        selector=selector,
        extend=extend,
        cost=cost,
        labels=None if labels is None else labels_of(labels, scored),
    )


def _selector(scored: Graded, text: str | None) -> Selector | None:
    return analysis.only_selector(scored) if text is None else analysis.load_selector(text)


def _show(found: BestOfReport, as_json: bool) -> None:
    if as_json:
        click.echo(runs.to_json(found.to_dict()))
        return
    import shutil

    wide = shutil.get_terminal_size((_WIDEST, 24)).columns if sys.stdout.isatty() else _WIDEST
    click.echo(render.format_curve(found, style, width=max(_NARROWEST, min(_WIDEST, wide))))
