"""Builds the charts of a run: what is drawn, a label that says it, and the same as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kofn.aggregators.votes import Majority, any_agree, graded_votes, output_counts, tally_votes
from kofn.analysis.pass_curve import best_of_n
from kofn.core.escape import show_hidden
from kofn.core.format import format_interval, format_level, format_number, format_significant
from kofn.core.table import case_codes, case_numbers
from kofn.render.plot import (
    Area,
    BarMark,
    Bars,
    Dot,
    Dots,
    Guide,
    Line,
    Plot,
    RowLabels,
    Tip,
    candidates_axis,
    count_axis,
    names_axis,
    near_axis,
    number_axis,
    svg,
    vega_lite,
    with_whole,
)
from kofn.render.run_summary import equal_notes
from kofn.runs.manifest import generation_of
from kofn.scoring.result import distinct_estimates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl
    from markupsafe import Markup

    from kofn.analysis.pass_curve import Curve, CurvePoint
    from kofn.core.candidate_sets import CandidateSets, Floats
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.render.plot import Layer, Spec
    from kofn.runs.record import Run
    from kofn.scoring.result import ScoredResult

ROW = 26  # pixels a row of a forest plot
_LONGEST_LABEL = 60
_MOST_ROWS = 600  # of a table
_MOST_SEGMENTS = 40  # drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with its alternatives: a label that says the main numbers, and the data as a table.

    keys     (name, colour, line, dashed or swatch) of what is drawn, for the legend
    """

    id: str
    title: str
    label: str
    plot: Plot
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    keys: tuple[tuple[str, str, str], ...] = ()
    numbers_from: int = 1  # the first column of the table that holds numbers

    def svg(self) -> Markup:
        """The chart as an SVG element."""
        return svg(self.plot, self.label)

    def spec(self) -> Spec:
        """The chart as a Vega-Lite specification."""
        return vega_lite(self.plot, self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Counts of values in bins, `edges` one longer than `counts`; `beyond` values above the last edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    beyond: int = 0
    median: float = 0.0
    p95: float = 0.0
    largest: float = 0.0
    unit: str = ""


def _value(value: float | None) -> str:
    return format_number(value, none="–")


def _ends(e: Estimate | CurvePoint) -> str:
    return format_interval(e.low, e.high, none="–")


def forest_chart(chart_id: str, title: str, estimates: Sequence[Estimate]) -> Chart:
    """A row an estimate: its point and its interval on one scale, which is 0 to 1 for shares."""
    labels = short_labels([e.aggregator for e in estimates])
    level = format_level(estimates[0].level)
    said = "; ".join(f"{e.aggregator} {_value(e.point)} {_ends(e)}" for e in estimates[:12])
    names = [labels[e.aggregator] for e in estimates]
    return Chart(
        id=chart_id,
        title=title,
        label=show_hidden(f"Estimates with {level} intervals: {said}"),
        plot=_forest_plot(names, estimates, _forest_layers(list(zip(names, estimates, strict=True)), names)),
        header=("aggregator", "value", f"{level} interval", "cases", "missing", "interval by"),
        rows=tuple((*_estimate_cells(e), e.method) for e in estimates),
    )


def _estimate_cells(e: Estimate) -> tuple[str, ...]:
    return e.aggregator, _value(e.point), _ends(e), f"{e.n:,}", f"{e.n_missing:,}"


def segment_chart(
    chart_id: str, title: str, estimates: Sequence[Estimate], whole: Mapping[str, Estimate], headline: str
) -> Chart:
    """One aggregator within each segment of a field, the reader's choice of it.

    `whole` are the estimates over all cases by aggregator, drawn as a line, and `headline` the aggregator shown first.
    """
    names = list(dict.fromkeys(e.aggregator for e in estimates))
    words = {name: show_hidden(name) for name in names}
    chosen = headline if headline in names else names[0]
    every = list(dict.fromkeys(_segment(e) for e in estimates))
    labels = short_labels(every[:_MOST_SEGMENTS])
    drawn = [e for e in estimates if _segment(e) in labels]
    rows = list(labels.values())
    overall = {name: e.point for name, e in whole.items() if e.point is not None}
    layers: list[Layer] = []
    for name in names:
        if name in overall:
            layers.append(Guide(value=overall[name], colour="var(--muted)", dash="dashed", shown=words[name]))
        named = [(labels[_segment(e)], e) for e in drawn if e.aggregator == name]
        layers += _forest_layers(named, rows, words[name])
    now = [e for e in drawn if e.aggregator == chosen]
    said = "; ".join(f"{labels[_segment(e)]} {_value(e.point)} {_ends(e)}" for e in now[:12])
    by = next(iter(short_labels([(estimates[0].segment or "").partition("=")[0]]).values()))
    return Chart(
        id=chart_id,
        title=title[:_LONGEST_LABEL],
        label=f"{words[chosen]} by {by}: {said}",
        plot=_forest_plot(rows, [*drawn, *whole.values()], layers, tuple(words.values()), words[chosen]),
        header=(by, "aggregator", "value", "interval", "cases", "missing"),
        rows=tuple((_segment(e)[:200], *_estimate_cells(e)) for e in estimates[:_MOST_ROWS]),
        note=f"{len(every) - len(labels):,} further segments are not drawn." if len(every) > len(labels) else "",
        keys=(("over all cases", "var(--muted)", "dashed"),) if overall else (),
        numbers_from=2,
    )


def short_labels(names: Sequence[str]) -> dict[str, str]:
    """Names as an axis can show them: every character visible, at most 60 of them, no two alike.

    >>> short_labels(["a", "b" * 70, "b" * 71])["b" * 71][-6:]
    'bb… #3'
    """
    out: dict[str, str] = {}
    for i, name in enumerate(names):
        label = show_hidden(name[:_LONGEST_LABEL]) + ("…" if len(name) > _LONGEST_LABEL else "")
        # two names may be alike once they are cut or escaped; Vega-Lite would draw them in one row
        out[name] = f"{label} #{i + 1}" if label in out.values() else label
    return out


def _segment(e: Estimate) -> str:
    return (e.segment or "").partition("=")[2]


def _forest_layers(named: Sequence[tuple[str, Estimate]], rows: Sequence[str], shown: str = "") -> list[Layer]:
    """The dots of some rows with their intervals, and the numbers to the right of them."""
    dots = [
        Dot(
            x=e.point,
            y=rows.index(name),
            size=5,
            ends=None if e.low is None or e.high is None else (e.low, e.high),
            tip=Tip(
                headline=name,
                pairs=(
                    ("value", _value(e.point)),
                    ("interval", _ends(e)),
                    ("cases", f"{e.n:,}" + (f" ({e.n_missing:,} missing)" if e.n_missing else "")),
                    ("interval by", e.method),
                ),
            ),
        )
        for name, e in named
        if e.point is not None
    ]
    words = tuple((rows.index(name), _value(e.point), "" if e.low is None else _ends(e)) for name, e in named)
    return [Dots(dots=tuple(dots), colour="var(--accent)", shown=shown), RowLabels(rows=words, shown=shown)]


def _forest_plot(
    rows: Sequence[str],
    estimates: Sequence[Estimate],
    layers: Sequence[Layer],
    choices: tuple[str, ...] = (),
    chosen: str = "",
) -> Plot:
    """Rows on one scale around the values, which can be switched to 0 to 1, or further where the values go."""
    ends = [x for e in estimates for x in (e.low, e.point, e.high) if x is not None]
    return Plot(
        x=near_axis(ends),
        y=names_axis(rows),
        layers=tuple(layers),
        height=ROW * len(rows),
        choices=choices,
        chosen=chosen,
        look="forest-plot",
    )


def best_of_n_chart(chart_id: str, curve: Curve, level: float) -> Chart:
    """What k candidates reach: any of them passing, their vote, and what independent tries would give."""
    points = curve.points
    votes = {p.k: p for p in curve.majority}
    last = points[-1]
    said = f"One candidate passes {_value(points[0].point)}, at least one of {last.k} {_value(last.point)}"
    if last.independent is not None:
        said += f", and {_value(last.independent)} if tries were independent"
    if last.k in votes:
        said += f"; the vote of {last.k} is right in {_value(votes[last.k].point)}"
    picks = {p.k: p for p in curve.selected}
    if last.k in picks:
        said += f"; what {curve.selector} picks of {last.k} passes {_value(picks[last.k].point)}"
    voted, picked = bool(curve.majority), f"what {curve.selector} picks passes"
    independent = [(p.k, p.independent) for p in points if p.independent is not None]
    keys = [("any of k passes", "var(--accent)", "line")]
    keys += [(picked, "var(--mark-line)", "line")] if picks else []
    keys += [("the vote of k is right", "var(--second)", "line")] if voted else []
    keys += [("if tries were independent", "var(--muted)", "dashed")] if independent else []
    layers = [
        Line(points=tuple(independent), colour="var(--muted)", width=1.5, dash="dashed"),
        *curve_layers([(p.k, p.low, p.point, p.high) for p in curve.majority], "the vote is right", "var(--second)"),
        *curve_layers([(p.k, p.low, p.point, p.high) for p in curve.selected], picked, "var(--mark-line)"),
        *curve_layers([(p.k, p.low, p.point, p.high) for p in points], "at least one passes", "var(--accent)"),
    ]
    ends = [
        v
        for p in (*points, *curve.majority, *curve.selected)
        for v in (p.low, p.high, p.point, p.independent)
        if v is not None
    ]
    # tenths around all that is drawn; int() truncates towards 0, and 0.999999 leaves 0.3 at 0.3 in spite of rounding
    y = with_whole(number_axis(max(0.0, int(min(ends) * 10) / 10), min(1.0, int(max(ends) * 10 + 0.999999) / 10)))
    notes = [f"Bands are {format_level(level)} intervals.", *(["Tied answers share the vote."] if voted else [])]
    notes += [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in map(str, curve.notes)]
    columns = [(name, of_k) for name, of_k in (("pick of k", picks), ("vote of k", votes)) if of_k]
    header = ("k", "any of k", "interval", *(h for name, _ in columns for h in (name, "interval")), "if independent")
    return Chart(
        id=chart_id,
        title="Best of n",
        label=show_hidden(said),
        plot=Plot(x=candidates_axis(last.k), y=y, layers=tuple(layers)),
        header=header,
        rows=tuple(_curve_cells(p, [of_k for _, of_k in columns]) for p in points),
        note=" ".join(notes),
        keys=tuple(keys),
        numbers_from=0,
    )


def _curve_cells(p: CurvePoint, others: Sequence[Mapping[int, CurvePoint]]) -> tuple[str, ...]:
    found = [of_k.get(p.k) for of_k in others]
    cells = [text for one in found for text in ((_value(one.point), _ends(one)) if one else ("–", "–"))]
    return (str(p.k), _value(p.point), _ends(p), *cells, _value(p.independent))


def curve_layers(
    points: Sequence[tuple[int, float | None, float | None, float | None]],
    what: str,
    colour: str,
    *,
    dotted: bool = False,
    none: str = "–",
) -> list[Layer]:
    """A curve with its band and dots, of (k, low, value, high).

    `dotted` where it is extrapolated, from a first dot that is drawn already; `none` stands for no interval.
    """
    dash, opacity = ("dotted", 0.06) if dotted else ("", 0.14)
    dots = []
    for k, low, value, high in points:
        if value is not None:
            interval = format_interval(low, high, none=none)
            tip = Tip(headline=what, pairs=(("k", str(k)), ("value", f"{value:.3f}"), ("interval", interval)))
            dots.append(Dot(x=k, y=value, tip=tip))
    bands = tuple((k, low, high) for k, low, _, high in points if low is not None and high is not None)
    return [
        Area(points=bands, colour=colour, opacity=opacity),
        Line(points=tuple((dot.x, dot.y) for dot in dots), colour=colour, dash=dash),
        Dots(dots=tuple(dots[1:] if dotted else dots), colour=colour, hollow=dotted),
    ]


def passing_chart(chart_id: str, names: Sequence[str], counts: Sequence[int], what: str) -> Chart:
    """How many cases have 0, 1, ..., n passing candidates. The first bar is none, the last is all."""
    total = sum(counts)
    last = len(counts) - 1
    kinds = ["none pass" if i == 0 else "all pass" if i == last else "some pass" for i in range(len(counts))]
    colours = {"none pass": "var(--fail)", "some pass": "var(--some)", "all pass": "var(--pass)"}
    shares = [f"{100 * n / total:.1f}%" if total else "–" for n in counts]
    bars: dict[str, list[BarMark]] = {kind: [] for kind in colours}
    for i, (kind, n) in enumerate(zip(kinds, counts, strict=True)):
        tip = Tip(headline=kind, pairs=((what, names[i]), ("cases", f"{n:,}"), ("share", shares[i])))
        bars[kind].append(step_bar(i, (0, n), tip, label=f"{n:,}" if len(counts) <= 17 else ""))
    some = total - counts[0] - counts[-1] if last else 0
    return Chart(
        id=chart_id,
        title="How many of n pass",
        label=f"Of {total:,} cases, no candidate passes in {counts[0]:,}, some in {some:,}, all in {counts[-1]:,}",
        plot=Plot(
            x=names_axis(names, what),
            y=count_axis(max(counts, default=0)),
            layers=tuple(Bars(bars=tuple(bars[kind]), colour=colour) for kind, colour in colours.items()),
            top=22,
        ),
        header=(what, "cases", "share"),
        rows=tuple((name, f"{n:,}", share) for name, n, share in zip(names, counts, shares, strict=True)),
        keys=tuple((kind, colour, "swatch") for kind, colour in colours.items()),
        numbers_from=0,
    )


def step_bar(at: int, ends: tuple[float, float], tip: Tip, label: str = "", key: str = "") -> BarMark:
    """A bar of a category."""
    return BarMark(left=at - 0.43, right=at + 0.43, low=ends[0], high=ends[1], tip=tip, label=label, key=key)


def vote_strength_chart(
    chart_id: str, names: Sequence[str], right: Sequence[int], wrong: Sequence[int], what: str
) -> Chart:
    """Cases by how many candidates are behind the leading answer, and whether that answer is right."""
    stacks = (
        ("right", "var(--pass)", [(0, r) for r in right]),
        ("wrong", "var(--fail)", [(r, r + w) for r, w in zip(right, wrong, strict=True)]),
    )
    layers = []
    for kind, colour, ends in stacks:
        bars = []
        for i, (low, high) in enumerate(ends):
            if high > low:
                tip = Tip(headline=f"vote {kind}", pairs=((what, names[i]), ("cases", f"{high - low:,}")))
                bars.append(step_bar(i, (low, high), tip))
        layers.append(Bars(bars=tuple(bars), colour=colour))
    shares = [f"{100 * r / (r + w):.0f}%" if r + w else "–" for r, w in zip(right, wrong, strict=True)]
    said = "; ".join(f"{name}: {share}" for name, share in zip(names, shares, strict=True) if share != "–")
    return Chart(
        id=chart_id,
        title="Strength of the vote",
        label=f"The vote is right in {sum(right):,} cases and wrong in {sum(wrong):,}. Right by {what}: {said}",
        plot=Plot(
            x=names_axis(names, what),
            y=count_axis(max(map(sum, zip(right, wrong, strict=True)), default=0)),
            layers=tuple(layers),
            top=22,  # as the chart beside it
        ),
        header=(what, "vote right", "vote wrong", "right"),
        rows=tuple(
            (name, f"{r:,}", f"{w:,}", share) for name, r, w, share in zip(names, right, wrong, shares, strict=True)
        ),
        keys=(("vote right", "var(--pass)", "swatch"), ("vote wrong", "var(--fail)", "swatch")),
        numbers_from=0,
    )


def distribution_chart(chart_id: str, title: str, bins: Bins, what: str) -> Chart:
    """Counts of a quantity such as seconds, in bins."""
    bars, rows = [], []
    for (low, high), n in zip(pairwise(bins.edges), bins.counts, strict=True):
        rows.append((f"{_short(low)}–{_short(high)}{bins.unit}", f"{n:,}"))
        tip = Tip(headline=rows[-1][0], pairs=(("count", rows[-1][1]),))
        bars.append(BarMark(left=low, right=high, low=0, high=n, tip=tip))
    numbers = (
        f"median {_short(bins.median)}{bins.unit}, 95% below {_short(bins.p95)}{bins.unit}, "
        f"largest {_short(bins.largest)}{bins.unit}"
    )
    beyond = f" {bins.beyond:,} beyond the last bar." if bins.beyond else ""
    return Chart(
        id=chart_id,
        title=title,
        label=f"{title}: {numbers}",
        plot=Plot(
            x=number_axis(bins.edges[0], bins.edges[-1], title=what, grid=False),
            y=count_axis(max(bins.counts, default=0)),
            layers=(Bars(bars=tuple(bars), colour="var(--accent)"),),
            height=150,
        ),
        header=(what, "count"),
        rows=tuple(rows),
        note=f"{numbers[:1].upper()}{numbers[1:]}.{beyond}",
    )


def _short(value: float) -> str:
    """Three significant digits.

    >>> _short(0.0123456), _short(1234.5), _short(0), _short(0.0000188)
    ('0.0123', '1,230', '0', '0.0000188')
    """
    return format_significant(value, 3)


_BINS = 24  # of a histogram


def overall_estimates(result: ScoredResult) -> list[Estimate]:
    """The estimates over all cases."""
    return [e for e in result.estimates if e.segment is None]


def headline_aggregator(run: Run) -> str:
    """The aggregator of the headline."""
    return e.aggregator if (e := run.headline.estimate) is not None else ""


def is_share(e: Estimate) -> bool:
    """Whether it can stand on a line from 0 to 1."""
    return all(x is None or 0 <= x <= 1 for x in (e.low, e.point, e.high))


def forest_charts(result: ScoredResult) -> list[Chart]:
    """One a metric; where a metric has shares and other numbers, one of each: they have no common scale."""
    out: list[Chart] = []
    distinct, equals = distinct_estimates(result)
    overall = [e for e in distinct if e.segment is None]
    metrics = list(dict.fromkeys(e.metric for e in overall))
    for metric in metrics:
        of_metric = [e for e in overall if e.metric == metric]
        for shares in (True, False):
            part = [e for e in of_metric if is_share(e) is shares]
            if part:
                out.append(forest_chart(f"estimates-{len(out)}", metric if len(metrics) > 1 else "", part))
    note = "; ".join(text for _, text in equal_notes(equals))
    return [*out[:-1], replace(out[-1], note=note)] if note else out


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
        out.append(segment_chart(f"segments-{len(out)}", title, estimates, whole, headline_aggregator(run)))
    return out


def set_charts(run: Run, result: ScoredResult) -> list[Chart]:
    """What there is to draw about candidate sets: the best-of-n curve, how many of n pass, the strength of the vote."""
    sets = result.scored[0].sets
    if not result.scored[0].metric or not len(sets) or int(sets.sizes.max()) < 2:
        return []
    made = generation_of(run.manifest)
    first = made.adaptive.get("first") if made is not None and made.adaptive else None
    plain = sets if first is None else sets.truncate(first)  # what every case got, whatever it said
    weights = case_numbers(result.table, result.understood.get("weight"))
    clusters = case_codes(result.table, result.understood.get("cluster"))
    # a score that also grades would pick its own favourites
    pickers = [name for name in plain.selectors if name != result.scored[0].metric]
    selector = pickers[0] if len(pickers) == 1 else ""
    curve = best_of_n(plain, run.options, weights=weights, clusters=clusters, selector=selector)
    if not any_agree(plain):  # free texts, say: a vote of answers that are all different says nothing
        curve = replace(curve, majority=(), notes=tuple(n for n in curve.notes if n.code != "no-vote-curve"))
    drawn = best_of_n_chart("curve", curve, run.options.level) if len(curve.points) > 1 else None
    return [chart for chart in (drawn, _passing_chart(plain), _vote_chart(result, sets)) if chart is not None]


def _passing_chart(sets: CandidateSets) -> Chart | None:
    """0..n of n where graded sets have one size of at most 40, else by tenths."""
    graded, passing = sets.counts
    known = graded > 0
    sizes = np.unique(graded[known])
    if len(sizes) == 1 and sizes[0] <= 40:
        n = int(sizes[0])
        counts = np.bincount(passing[known], minlength=n + 1).tolist()
        return passing_chart("passing", [str(i) for i in range(n + 1)], counts, f"candidates passing, of {n}")
    if not len(sizes):
        return None
    share = passing[known] / graded[known]
    # none and all have bars of their own
    inner = np.histogram(share[(share > 0) & (share < 1)], bins=10, range=(0, 1))[0].tolist()
    names = ["none", *(f"≤{10 * (i + 1)}%" for i in range(9)), "<100%", "all"]
    counts = [int((share == 0).sum()), *inner, int((share == 1).sum())]
    return passing_chart("passing", names, counts, "candidates passing")


def _vote_chart(result: ScoredResult, sets: CandidateSets) -> Chart | None:
    """Where answers are right or wrong: how many candidates are behind the leading one."""
    if not sets.zero_one or not any_agree(sets):
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
        names, what = [f"≤{10 * (k + 1)}%" for k in range(10)], "candidates behind the leading answer"
    is_right = right[known] >= 0.5
    counts = [np.bincount(bins[is_right == flag], minlength=bars).tolist() for flag in (True, False)]
    return vote_strength_chart("votes", names, counts[0], counts[1], what)


def spending_charts(run: Run, scores: pl.DataFrame) -> list[Chart]:
    """Cost and time: a candidate's where there are candidates, else a case's."""
    columns: list[tuple[str, str, Floats | None, str]] = []
    if run.result is None:
        columns.append(("duration", "Seconds per case", scores["duration"].to_numpy(), " s"))
    else:
        sets = run.result.scored[0].sets
        columns.append(("cost", "Cost of a candidate", sets.costs, ""))
        columns.append(("seconds", "Seconds a candidate", sets.seconds, " s"))
        columns.append(("tokens", "Tokens a candidate", candidate_tokens(run.result.table), ""))
    out = []
    for chart_id, title, values, unit in columns:
        if values is not None and (found := bin_values(values, unit)) is not None:
            what = {"cost": "cost", "tokens": "tokens"}.get(chart_id, "seconds")
            out.append(distribution_chart(f"spent-{chart_id}", title, found, what))
    return out


def candidate_tokens(table: Table) -> Floats | None:
    """The tokens of every candidate, NaN where they are not known; None where none has any."""
    rows = table.candidates
    return rows["tokens"].cast(float).fill_null(np.nan).to_numpy() if "tokens" in rows.columns else None


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
