"""`kofn plan [RUN|FILE]`: how many cases, repeats and labels a question needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from kofn import analysis, runs, stats
from kofn.cli.colors import style
from kofn.cli.label_options import labels_of
from kofn.core.document import grid_lines
from kofn.core.escape import escape_controls
from kofn.errors import InputError

if TYPE_CHECKING:
    from kofn.analysis.plan import Plan, PlanQuestion, UnitPrices
    from kofn.scoring.grade import Graded

_WIDTH = 100


@click.command("plan")
@click.argument("source", metavar="[RUN|FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--width", type=float, metavar="W", help="Full width of the interval that is wanted.")
@click.option("--difference", type=float, metavar="D", help="The difference between two systems that is to be found.")
@click.option("--power", default=0.8, show_default=True, type=float, help="With what chance it is found.")
@click.option("--level", default=0.95, show_default=True, type=float, help="Level of the interval.")
@click.option("--against", type=click.Path(path_type=Path), metavar="RUN|FILE",
              help="A pilot of the other system: the difference is paired by case.")  # fmt: skip
@click.option("--correlation", default=0.0, type=float, metavar="R",
              help="Without --against: how alike both systems find the cases hard (default 0, cautious).")  # fmt: skip
@click.option("--metric", metavar="M", help="The metric of the pilot (default: the first).")
@click.option("--p", "share", type=float, metavar="P", help="Instead of a pilot: the share that is expected.")
@click.option("--between", type=float, metavar="V", help="Instead of a pilot: variance between cases (with "
              "--difference: of the expected differences).")  # fmt: skip
@click.option("--within", type=float, metavar="V", help="And within a case, from repeat to repeat, of one system.")
@click.option("--cost-per-candidate", "candidate", type=float, metavar="DOLLARS", help="Default: the pilot's mean.")
@click.option("--cost-per-case", "case", type=float, metavar="DOLLARS", help="Such as writing it.")
@click.option("--cost-per-label", "label", type=float, metavar="DOLLARS", help="A person's verdict.")
@click.option("--labels", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="People's and the judge's verdicts: plan the corrected rate of a judge.")  # fmt: skip
@click.option("--max-cases", type=click.IntRange(min=2), metavar="N", help="There are no more cases than this.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    source: Path | None,
    width: float | None,
    difference: float | None,
    power: float,
    level: float,
    against: Path | None,
    correlation: float,
    metric: str | None,
    share: float | None,
    between: float | None,
    within: float | None,
    candidate: float | None,
    case: float | None,
    label: float | None,
    labels: Path | None,
    max_cases: int | None,
    as_json: bool,
) -> None:
    """How many cases and repeats a question needs: from a pilot, or from variances that are given.

    The question is an interval's width or a difference between two systems. More repeats only shrink what varies within
    a case; the table shows the mixes of cases and repeats that answer it, and the cheapest.
    """
    question = analysis.PlanQuestion(width=width, difference=difference, power=power, level=level)
    _check_given(source, share, between, within, against, labels, difference, correlation)
    pilot, beware = (None, ()) if source is None else _pilot(source, metric)
    variances = _variances(pilot, against, metric, share, between, within, question, correlation)
    prices = analysis.UnitPrices(case=case, candidate=_price(pilot, candidate), label=label)
    if labels is not None:
        assert pilot is not None
        found = _with_labels(pilot, labels, question, prices)
    else:
        found = analysis.make_plan(
            question, variances, prices, systems=1 if difference is None else 2, most_cases=max_cases
        )
    _show(replace(found, notes=(*found.notes, *beware)), as_json)


def _check_given(
    source: Path | None,
    share: float | None,
    between: float | None,
    within: float | None,
    against: Path | None,
    labels: Path | None,
    difference: float | None,
    correlation: float,
) -> None:
    """Options that belong together, or exclude each other."""
    given = [source is not None, share is not None, between is not None]
    if sum(given) != 1:
        raise click.UsageError("plan from a pilot (RUN or FILE), from --p, or from --between and --within: give one")
    if within is not None and between is None:
        raise click.UsageError("--within goes with --between")
    for name, value in (("--against", against), ("--labels", labels)):
        if value is not None and source is None:
            raise click.UsageError(f"{name} goes with a pilot: give RUN or FILE too")
    if against is not None and difference is None:
        raise click.UsageError("--against is for a difference: give --difference too")
    if correlation and (difference is None or against is not None or between is not None):
        raise click.UsageError("--correlation goes with --difference and a single pilot or --p")


def _pilot(path: Path, metric: str | None) -> tuple[Graded, tuple[str, ...]]:
    """The pilot's graded candidates, and what of it a plan does not use."""
    where = runs.load_graded(path)
    units = where.units()
    beware = []
    if units["clusters"] is not None:
        beware.append("the pilot's cases come in clusters, and are planned for as if they were apart: take more")
    if units["weights"] is not None:
        beware.append("the pilot's cases have weights, which the plan does not use")
    if where.options.use == "list":
        beware.append("the pilot's sets are ranked lists: places are no repeats, and this plan counts them as such")
    return where.metric(metric), tuple(beware)


def _variances(
    pilot: Graded | None,
    against: Path | None,
    metric: str | None,
    share: float | None,
    between: float | None,
    within: float | None,
    question: PlanQuestion,
    correlation: float,
) -> analysis.Variances:
    paired = question.difference is not None
    if between is not None:
        if min(between, within or 0.0) < 0:
            raise InputError("--between and --within are variances: expected 0 or more")
        both = None if within is None else within * (2 if paired else 1)
        return analysis.Variances(between=between, within=both)
    if pilot is not None and against is not None:
        return analysis.paired_variances(pilot.sets, _pilot(against, metric or pilot.metric)[0].sets)
    one = (
        analysis.share_variances(share)
        if share is not None
        else None
        if pilot is None
        else analysis.pilot_variances(pilot.sets)
    )
    assert one is not None
    return analysis.alike_variances(one, correlation) if paired else one


def _price(pilot: Graded | None, given: float | None) -> float | None:
    return given if given is not None or pilot is None else analysis.candidate_cost(pilot.sets)


def _with_labels(pilot: Graded, path: Path, question: PlanQuestion, prices: UnitPrices) -> Plan:
    """The pilot's values are a judge's verdicts; the labels say how often it is right."""
    import numpy as np

    from kofn.core.candidate_sets import NOT_GRADED

    labels = labels_of(path, pilot, candidates=False)
    passes = np.where(pilot.sets.passes == NOT_GRADED, np.nan, pilot.sets.passes).astype(np.float64)
    verdicts = analysis.pilot_variances(analysis.with_values(pilot.sets, passes))
    human = np.asarray(labels.human, dtype=float)
    rates = stats.corrected_curve.rates_of(human, labels.judge, labels.weights)
    found = analysis.plan_with_labels(question, verdicts, rates, len(human), prices)
    return replace(found, notes=(*found.notes, *labels.notes))


def _show(found: Plan, as_json: bool) -> None:
    if as_json:
        click.echo(runs.to_json(found.to_dict()))
        return

    lines = [*analysis.plan_assumptions(found)]
    lines += ["", *grid_lines(analysis.plan_grid(found), style), ""] if found.mixes else [""]
    lines += [style(line, "strong") for line in wrap(analysis.plan_sentence(found) + ".", _WIDTH)]
    lines += [f"{style('note', 'dim')}  " + "\n      ".join(wrap(escape_controls(n), _WIDTH - 6)) for n in found.notes]
    click.echo("\n".join(lines))
