"""Chooses the charts of a run and computes what they draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.aggregators.votes import Majority, graded_votes, output_counts, tally_votes
from kofn.analysis.pass_curve import best_of_n
from kofn.core.table import case_codes, case_numbers
from kofn.render import charts
from kofn.render.charts import Bins, SegmentEstimates
from kofn.runs.manifest import generation_of
from kofn.scoring.policy import Requirement

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kofn.core.candidate_sets import CandidateSets, Floats
    from kofn.core.types import Estimate
    from kofn.render.charts import Chart
    from kofn.runs.record import Run
    from kofn.scoring.result import ScoredResult

_BINS = 24  # of a histogram


def overall_estimates(result: ScoredResult) -> list[Estimate]:
    """The estimates over all cases."""
    return [e for e in result.estimates if e.segment is None]


def headline_aggregator(run: Run) -> str:
    """The aggregator that says whether a case passes, else the first there is."""
    names = [] if run.result is None else [e.aggregator for e in overall_estimates(run.result)]
    rule = run.evaluation.verdict
    name = Requirement.of_verdict(rule).name if rule is not None and any(sign in rule for sign in "<>") else rule
    return name if name in names else names[0] if names else ""


def is_share(e: Estimate) -> bool:
    """Whether it can stand on a line from 0 to 1."""
    return all(x is None or 0 <= x <= 1 for x in (e.low, e.point, e.high))


def forest_charts(result: ScoredResult) -> list[Chart]:
    """One a metric; where a metric has shares and other numbers, one of each: they have no common scale."""
    out: list[Chart] = []
    metrics = list(dict.fromkeys(e.metric for e in overall_estimates(result)))
    for metric in metrics:
        of_metric = [e for e in overall_estimates(result) if e.metric == metric]
        for shares in (True, False):
            part = [e for e in of_metric if is_share(e) is shares]
            if part:
                out.append(charts.forest_chart(f"estimates-{len(out)}", metric if len(metrics) > 1 else "", part))
    return out


def segment_charts(run: Run, result: ScoredResult) -> list[Chart]:
    """One a metric and field that the run was sliced by."""
    found: dict[tuple[str, str], list[Estimate]] = {}
    for e in result.estimates:
        if e.segment is not None:
            found.setdefault((e.metric, e.segment.partition("=")[0]), []).append(e)
    several = len({metric for metric, _ in found}) > 1
    out: list[Chart] = []
    for (metric, by), estimates in found.items():
        whole = {e.aggregator: e for e in overall_estimates(result) if e.metric == metric}
        title = f"{metric}, by {by}" if several else f"By {by}"
        part = SegmentEstimates(
            by=by, title=title, estimates=tuple(estimates), overall=whole, headline=headline_aggregator(run)
        )
        out.append(charts.segment_chart(f"segments-{len(out)}", part))
    return out


def set_charts(run: Run, result: ScoredResult) -> list[Chart]:
    """What there is to draw about candidate sets: the best-of-n curve, how many of n pass, the strength of the vote."""
    sets = result.scored[0].sets
    if not result.scored[0].metric or not len(sets) or int(sets.sizes.max()) < 2:
        return []
    made = generation_of(run.manifest)
    first = made.adaptive.get("first") if made is not None and made.adaptive else None
    plain = sets if first is None else sets.truncate(first)  # what every case got, whatever it said
    found = [_curve_chart(run, result, plain), _passing_chart(plain), _vote_chart(result, sets)]
    return [chart for chart in found if chart is not None]


def _curve_chart(run: Run, result: ScoredResult, sets: CandidateSets) -> Chart | None:
    table, understood = result.table, result.understood
    curve = best_of_n(
        sets,
        run.options,
        weights=case_numbers(table, understood.get("weight")),
        clusters=case_codes(table, understood.get("cluster")),
    )
    return charts.best_of_n_chart("curve", curve, run.options.level) if len(curve.points) > 1 else None


def _passing_chart(sets: CandidateSets) -> Chart | None:
    """0..n of n where graded sets have one size of at most 40, else by tenths."""
    graded, passing = sets.counts
    known = graded > 0
    sizes = np.unique(graded[known])
    if len(sizes) == 1 and sizes[0] <= 40:
        n = int(sizes[0])
        counts = np.bincount(passing[known], minlength=n + 1).tolist()
        return charts.passing_chart("passing", [str(i) for i in range(n + 1)], counts, f"candidates passing, of {n}")
    if not len(sizes):
        return None
    share = passing[known] / graded[known]
    # none and all have bars of their own
    inner = np.histogram(share[(share > 0) & (share < 1)], bins=10, range=(0, 1))[0].tolist()
    names = ["none", *(f"≤{10 * (i + 1)} %" for i in range(9)), "<100 %", "all"]
    return charts.passing_chart(
        "passing", names, [int((share == 0).sum()), *inner, int((share == 1).sum())], "candidates passing"
    )


def _vote_chart(result: ScoredResult, sets: CandidateSets) -> Chart | None:
    """Where answers are right or wrong: how many candidates are behind the leading one."""
    if sets.answers is None or not sets.zero_one:
        return None

    stored = result.case_values.get((result.scored[0].metric, "majority"))
    right = Majority()(sets) if stored is None else stored
    leading, size = tally_votes(graded_votes(sets)).first, output_counts(sets)
    known = ~np.isnan(size) & ~np.isnan(right) & (leading > 0)
    if not known.any():
        return None
    n = int(size[known][0])
    if n <= 20 and bool((size[known] == n).all()):
        bins, bars = leading[known].astype(int) - 1, n
        names, what = [str(k + 1) for k in range(n)], f"candidates behind the leading answer, of {n}"
    else:
        # 1e-9: 0.3 * 10 may be a little above 3, and belongs to the third bin
        bins, bars = np.ceil(leading[known] / size[known] * 10 - 1e-9).astype(int) - 1, 10
        names, what = [f"≤{10 * (k + 1)} %" for k in range(10)], "candidates behind the leading answer"
    is_right = right[known] >= 0.5
    counts = [np.bincount(bins[is_right == flag], minlength=bars).tolist() for flag in (True, False)]
    return charts.vote_strength_chart("votes", names, counts[0], counts[1], what)


def spending_charts(run: Run, scores: pl.DataFrame) -> list[Chart]:
    """Cost and time: a candidate's where there are candidates, else a case's."""
    if run.result is None:
        durations = scores["duration"].to_numpy()
        return _distributions([("duration", "Seconds a case", durations, " s")] if durations.any() else [])
    sets = run.result.scored[0].sets
    tokens = run.result.table.candidates
    columns = [
        ("cost", "Cost of a candidate", sets.costs, ""),
        ("seconds", "Seconds a candidate", sets.seconds, " s"),
        ("tokens", "Tokens a candidate", _column(tokens, "tokens"), ""),
    ]
    return _distributions([c for c in columns if c[2] is not None])


def _column(frame: pl.DataFrame | None, name: str) -> Floats | None:
    if frame is None or name not in frame.columns:
        return None
    return frame[name].cast(float).fill_null(np.nan).to_numpy()


def _distributions(columns: Sequence[tuple[str, str, Any, str]]) -> list[Chart]:
    out = []
    for chart_id, title, values, unit in columns:
        found = bin_values(values, unit)
        if found is not None:
            what = {"cost": "cost", "tokens": "tokens"}.get(chart_id, "seconds")
            out.append(charts.distribution_chart(f"spent-{chart_id}", title, found, what))
    return out


def bin_values(values: Floats, unit: str = "") -> Bins | None:
    """Values in 24 equal bins from 0; a long tail, the last half percent, is counted and not drawn.

    >>> bin_values(np.array([1.0, 2.0, np.nan])).counts[-1]
    1
    """
    known = values[np.isfinite(values)]
    if not len(known) or float(known.min()) == float(known.max()):
        return None
    low = min(0.0, float(known.min()))
    high = float(known.max())
    near = float(np.quantile(known, 0.995))
    # only a tail far out is cut; otherwise the axis ends at the largest value
    if high > 3 * near > 0:
        high = near
    counts, edges = np.histogram(known, bins=_BINS, range=(low, high))
    return Bins(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        beyond=int((known > high).sum()),
        median=float(np.median(known)),
        p95=float(np.quantile(known, 0.95)),
        largest=float(known.max()),
        unit=unit,
    )
