"""`kofn curve RUN|FILE`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kofn.best_of import Asked
    from kofn.evaluate import Options
    from kofn.opened import Opened
    from kofn.report.curve import Found
    from kofn.scoring import Scored
    from kofn.selectors import Selector

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

    from kofn.checklist import check_use
    from kofn.choices import Wanted
    from kofn.errors import InputError
    from kofn.opened import opened
    from kofn.report.curve import found_of

    if sequential and latency is None:
        raise click.UsageError("--sequential says how --max-latency is counted: give --max-latency too")
    if html is not None and not html.parent.is_dir():
        raise InputError(f"{html}: there is no directory {html.parent}: give the name of a file to write")
    wanted = Wanted(gain=gain, latency=latency, budget=budget, sequential=sequential)
    where = opened(source, replace(_options(by, split_text, interval, level, seed), use=check_use(use)))
    scored = _passing_from(where.metric(metric), threshold)
    asked = _asked(where, scored, selector_text, measure, extend, cost, labels)
    found = found_of(
        where.name,
        scored,
        where.table,
        where.options,
        asked,
        wanted,
        judges=where.result.judges,
        units=where.units(),
    )
    carried = [w for w in where.result.warnings if "--threshold" in w and threshold is None]
    found = replace(found, warnings=(*found.warnings, *carried)).checked(where.result.checklist)
    _show(found, as_json)
    if html is not None:
        from kofn.cli.pages import write_page
        from kofn.report.curve_page import page

        write_page(page(found), html)
    if strict and found.double_dipping:
        sys.exit(1)  # click would return the code to `main` instead, which is about errors


def _options(by: tuple[str, ...], split_text: str | None, interval: str, level: float, seed: int) -> Options:
    from kofn.evaluate import Options
    from kofn.splits import Split
    from kofn.stats.estimate import check_interval
    from kofn.stats.intervals import check_level

    check_level(level)
    check_interval(interval)
    split = None if split_text is None else Split.parse(split_text)
    return Options(by=by, split=split, interval=interval, level=level, seed=seed)


def _passing_from(scored: Scored, threshold: float | None) -> Scored:
    """The same grades with another threshold, where one is given."""
    from dataclasses import replace

    return scored if threshold is None else replace(scored, sets=scored.sets.passing_from(threshold))


def _asked(
    where: Opened,
    scored: Scored,
    selector_text: str | None,
    measure: str | None,
    extend: int | None,
    cost: float | None,
    labels: Path | None,
) -> Asked:
    from kofn.best_of import Asked
    from kofn.cli.labelled import labels_of
    from kofn.errors import InputError
    from kofn.report.curve import default_measure

    if cost is not None and not cost > 0:
        raise InputError(f"--cost-per-candidate {cost:g}: expected a number above 0")
    selector = _selector(scored, selector_text)
    wanted = measure or default_measure(where.options)
    if measure is None and wanted == "selected" and selector is None:
        wanted = "any"
    return Asked(
        measure=wanted,
        selector=selector,
        extend=extend,
        cost=cost,
        labels=None if labels is None else labels_of(labels, scored),
    )


def _selector(scored: Scored, text: str | None) -> Selector | None:
    from kofn.report.curve import only_selector
    from kofn.selectorfile import selector_of

    return only_selector(scored) if text is None else selector_of(text)


def _show(found: Found, as_json: bool) -> None:
    if as_json:
        from kofn.report.files import to_json

        click.echo(to_json(found.to_dict()))
        return
    import shutil

    from kofn.cli.looks import style
    from kofn.report.curve_text import as_text

    wide = shutil.get_terminal_size((_WIDEST, 24)).columns if sys.stdout.isatty() else _WIDEST
    click.echo(as_text(found, style, width=max(_NARROWEST, min(_WIDEST, wide))))
