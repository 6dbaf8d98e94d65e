"""Builds charts as Vega-Lite specifications: plain data in, plain dicts out.

Colours are variables of the style sheet (`var(--pass)`), so that a chart follows light, dark and print by itself. The
look of axes and text is set once, in page.js. `usermeta.narrow` holds what a specification changes on a narrow screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, log10
from typing import TYPE_CHECKING, Any

from kofn.core.escape import show_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.analysis.best_of.pass_curve import Curve, CurvePoint
    from kofn.core.types import Estimate

Spec = dict[str, Any]
ROW = 26  # pixels a row of a forest plot
_LONGEST_LABEL = 60
_MOST_ROWS = 600  # of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with its alternatives: a label that says the main numbers, and the data as a table.

    keys     (name, colour, line, dashed or swatch) of what is drawn, for the legend
    choices  values of the parameter `shown` that a reader may pick from
    """

    id: str
    title: str
    label: str
    spec: Spec
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    keys: tuple[tuple[str, str, str], ...] = ()
    choices: tuple[str, ...] = ()
    chosen: str = ""
    wide: bool = False
    numbers_from: int = 1  # the first column of the table that holds numbers

    @property
    def height(self) -> int:
        """About the room it will take, so that the page does not jump when it is drawn."""
        return int(self.spec["height"]) + (30 if self.wide else 50)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEstimates:
    """The estimates within each value of one field, and those over all cases by aggregator."""

    by: str
    title: str
    estimates: tuple[Estimate, ...]
    overall: Mapping[str, Estimate] = field(default_factory=dict)
    headline: str = ""


def format_number(value: float | None) -> str:
    """Three decimals; a dash for none.

    >>> format_number(0.48349), format_number(None), format_number(12.5)
    ('0.483', '–', '12.500')
    """
    return "–" if value is None else f"{value:.3f}"


def format_interval(e: Estimate | CurvePoint) -> str:
    """The ends in brackets, or a dash."""
    return "–" if e.low is None or e.high is None else f"[{e.low:.3f}, {e.high:.3f}]"


def forest_chart(chart_id: str, title: str, estimates: Sequence[Estimate]) -> Chart:
    """A row an estimate: its point and its interval on one scale, which is 0 to 1 for shares."""
    labels = short_labels([e.aggregator for e in estimates])
    rows = [_estimate_row(e, labels[e.aggregator]) for e in estimates]
    level = f"{100 * estimates[0].level:g} %"
    said = "; ".join(f"{e.aggregator} {format_number(e.point)} {format_interval(e)}" for e in estimates[:12])
    return Chart(
        id=chart_id,
        title=title,
        label=show_hidden(f"Estimates with {level} intervals: {said}"),
        spec=_forest_spec(rows, _domain(estimates)),
        header=("aggregator", "value", f"{level} interval", "cases", "missing", "interval by"),
        rows=tuple(
            (e.aggregator, format_number(e.point), format_interval(e), f"{e.n:,}", f"{e.n_missing:,}", e.method)
            for e in estimates
        ),
        wide=True,
    )


def segment_chart(chart_id: str, part: SegmentEstimates, most: int = 40) -> Chart:
    """One aggregator within each segment, the reader's choice of it; the value over all cases as a line."""
    names = list(dict.fromkeys(e.aggregator for e in part.estimates))
    chosen = part.headline if part.headline in names else names[0]
    every = list(dict.fromkeys(_segment(e) for e in part.estimates))
    labels = short_labels(every[:most])
    drawn = [e for e in part.estimates if _segment(e) in labels]
    rows = [_estimate_row(e, labels[_segment(e)]) | {"shown": e.aggregator} for e in drawn]
    overall = [{"shown": a, "overall": e.point} for a, e in part.overall.items() if e.point is not None]
    spec = _forest_spec(rows, _domain([*drawn, *part.overall.values()]), overall)
    # a Vega parameter that the page sets from its selection: one chart for all aggregators
    spec["params"].append({"name": "shown", "value": chosen})
    now = [e for e in drawn if e.aggregator == chosen]
    said = "; ".join(f"{labels[_segment(e)]} {format_number(e.point)} {format_interval(e)}" for e in now[:12])
    by = next(iter(short_labels([part.by]).values()))
    return Chart(
        id=chart_id,
        title=part.title[:_LONGEST_LABEL],
        label=f"{show_hidden(chosen)} by {by}: {said}",
        spec=spec,
        header=(by, "aggregator", "value", "interval", "cases", "missing"),
        rows=tuple(
            (
                _segment(e)[:200],
                e.aggregator,
                format_number(e.point),
                format_interval(e),
                f"{e.n:,}",
                f"{e.n_missing:,}",
            )
            for e in part.estimates[:_MOST_ROWS]
        ),
        note=f"{len(every) - len(labels):,} further segments are not drawn." if len(every) > len(labels) else "",
        keys=(("over all cases", "var(--muted)", "dashed"),) if overall else (),
        choices=tuple(names),
        chosen=chosen,
        wide=True,
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
        # two names may be alike once they are cut or escaped; Vega would draw them in one row
        out[name] = f"{label} #{i + 1}" if label in out.values() else label
    return out


def _segment(e: Estimate) -> str:
    return (e.segment or "").partition("=")[2]


def _estimate_row(e: Estimate, name: str) -> dict[str, Any]:
    short = format_number(e.point)
    return {
        "name": name,
        "point": e.point,
        "low": e.low,
        "high": e.high,
        "short": short,
        "label": short if e.low is None else f"{short}  {format_interval(e)}",
        "interval": format_interval(e),
        "cases": f"{e.n:,}" + (f" ({e.n_missing:,} missing)" if e.n_missing else ""),
        "method": e.method,
    }


def _domain(estimates: Sequence[Estimate]) -> list[float]:
    """0 to 1, or further where the values go."""
    ends = [x for e in estimates for x in (e.low, e.point, e.high) if x is not None]
    return [min([0.0, *ends]), max([1.0, *ends])]


def _forest_spec(rows: list[Spec], domain: list[float], overall: list[Spec] | None = None) -> Spec:
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 200, "grid": False}}
    tooltip = [
        {"field": "name", "title": " "},
        {"field": "short", "title": "value"},
        {"field": "interval", "title": "interval"},
        {"field": "cases", "title": "cases"},
        {"field": "method", "title": "interval by"},
    ]
    x = {
        "field": "point",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": domain, "nice": False, "zero": False},
        "axis": {"tickCount": 5},
    }
    chosen = [{"filter": "datum.shown === shown"}] if overall is not None else []
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 2.5, "stroke": "var(--accent)", "strokeCap": "round"},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "tooltip": tooltip},
        },
        {
            "mark": {
                "type": "point",
                "filled": True,
                "size": 85,
                "fill": "var(--accent)",
                "stroke": "var(--paper)",
                "strokeWidth": 1.5,
                "opacity": 1,
            },
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 12, "fill": "var(--ink)"},
            "encoding": {
                "x": {"value": "width"},
                "y": y,
                # `narrow` is set by page.js: the interval is left out where there is no room
                "text": {"condition": {"test": "narrow", "field": "short"}, "field": "label"},
            },
        },
    ]
    for layer in layers:
        layer["transform"] = chosen
    if overall:
        # first, and so below the points
        layers.insert(
            0,
            {
                "data": {"values": overall},
                "transform": chosen,
                "mark": {"type": "rule", "strokeDash": [4, 4], "stroke": "var(--muted)"},
                "encoding": {"x": {**x, "field": "overall"}},
            },
        )
    return {
        "width": "container",
        "height": ROW * len({row["name"] for row in rows}),
        "padding": {"left": 0, "top": 4, "bottom": 4, "right": 2},
        "params": [{"name": "narrow", "value": False}],
        "data": {"values": rows},
        "layer": layers,
    }


def best_of_n_chart(chart_id: str, curve: Curve, level: float) -> Chart:
    """What k candidates reach: any of them passing, their vote, and what independent tries would give."""
    points = curve.points
    votes = {p.k: p for p in curve.majority}
    rows = [_curve_row(p, "at least one passes") | {"independent": p.independent} for p in points]
    voted = [_curve_row(p, "the vote is right") for p in curve.majority]
    last = points[-1]
    said = (
        f"One candidate passes {format_number(points[0].point)}, at least one of {last.k} {format_number(last.point)}"
    )
    if last.independent is not None:
        said += f", and {format_number(last.independent)} if tries were independent"
    if last.k in votes:
        said += f"; the vote of {last.k} is right in {format_number(votes[last.k].point)}"
    dashed = any(p.independent is not None for p in points)
    keys = [("any of k passes", "var(--accent)", "line")]
    keys += [("the vote of k is right", "var(--second)", "line")] if voted else []
    keys += [("if tries were independent", "var(--muted)", "dashed")] if dashed else []
    header = ("k", "any of k", "interval", *(["vote of k", "interval"] if voted else []), "if independent")
    return Chart(
        id=chart_id,
        title="Best of n",
        label=show_hidden(said),
        spec=_curve_spec(rows, voted),
        header=header,
        rows=tuple(_curve_cells(p, votes, bool(voted)) for p in points),
        note=" ".join(
            [
                f"Bands are {100 * level:g} % intervals.",
                *(["Tied answers share the vote."] if voted else []),
                *(_sentence(n) for n in curve.notes),
            ]
        ),
        keys=tuple(keys),
        numbers_from=0,
    )


def _curve_cells(p: CurvePoint, votes: Mapping[int, CurvePoint], voted: bool) -> tuple[str, ...]:
    vote = votes.get(p.k)
    of_vote = (format_number(vote.point), format_interval(vote)) if vote else ("–", "–")
    return (
        str(p.k),
        format_number(p.point),
        format_interval(p),
        *(of_vote if voted else ()),
        format_number(p.independent),
    )


def _curve_row(p: CurvePoint, what: str) -> Spec:
    return {"k": p.k, "point": p.point, "low": p.low, "high": p.high, "what": what, "interval": format_interval(p)}


def _curve_spec(rows: list[Spec], voted: list[Spec]) -> Spec:
    largest = rows[-1]["k"]
    ends = [
        r[key] for r in (*rows, *voted) for key in ("low", "high", "point", "independent") if r.get(key) is not None
    ]
    x: Spec = {"field": "k", "type": "quantitative", "title": "candidates k", "axis": {"grid": False}}
    # as in `k_ladder`: further k are in equal ratios, which a log scale draws at equal distances
    if largest > 16:
        ticks = [2**i for i in range(12) if 2**i <= largest]
        x |= {
            "scale": {"type": "log", "base": 2, "nice": False},
            "axis": {"values": ticks, "format": "d", "grid": False},
        }
    else:
        x |= {"scale": {"domain": [1, max(2, largest)], "nice": False}}
        x["axis"] = {"values": list(range(1, largest + 1)), "format": "d", "grid": False}
    y = {
        "field": "point",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [max(0.0, _floor(min(ends))), min(1.0, _ceil(max(ends)))], "nice": False, "zero": False},
        "axis": {"tickCount": 5},
    }
    tooltip = [
        {"field": "what", "title": " "},
        {"field": "k", "title": "k"},
        {"field": "point", "title": "value", "format": ".3f"},
        {"field": "interval", "title": "interval"},
    ]
    return {
        "width": "container",
        "height": 250,
        "layer": [
            *_curve_layers(rows, x, y, tooltip, "var(--accent)"),
            *(_curve_layers(voted, x, y, tooltip, "var(--second)") if voted else []),
            {
                "data": {"values": rows},
                "mark": {"type": "line", "stroke": "var(--muted)", "strokeDash": [5, 4], "strokeWidth": 1.5},
                "encoding": {"x": x, "y": {**y, "field": "independent"}},
            },
        ],
    }


def _curve_layers(rows: list[Spec], x: Spec, y: Spec, tooltip: list[Spec], colour: str) -> list[Spec]:
    data = {"values": rows}
    dot = {"type": "point", "filled": True, "size": 55, "fill": colour, "opacity": 1, "stroke": "var(--paper)"}
    return [
        {
            "data": data,
            "mark": {"type": "area", "fill": colour, "opacity": 0.14},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": data,
            "mark": {"type": "line", "stroke": colour, "strokeWidth": 2.25},
            "encoding": {"x": x, "y": y},
        },
        {"data": data, "mark": {**dot, "strokeWidth": 1}, "encoding": {"x": x, "y": y, "tooltip": tooltip}},
    ]


def _floor(value: float) -> float:
    return int(value * 10) / 10


def _ceil(value: float) -> float:
    # int() truncates towards 0, hence the signs; 0.999999 leaves 0.3 at 0.3 in spite of rounding
    return -int(-value * 10 - 0.999999) / 10


def _count_axis(most: int) -> Spec:
    """An axis of counts up to `most`: whole numbers, each once.

    >>> _count_axis(2)
    {'values': [0, 1, 2], 'format': ',d'}
    """
    ticks: Spec = {"values": list(range(most + 1))} if most <= 4 else {"tickCount": 4, "tickMinStep": 1}
    return {**ticks, "format": ",d"}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def passing_chart(chart_id: str, names: Sequence[str], counts: Sequence[int], what: str) -> Chart:
    """How many cases have 0, 1, ..., n passing candidates. The first bar is none, the last is all."""
    total = sum(counts)
    last = len(counts) - 1
    kinds = ["none pass" if i == 0 else "all pass" if i == last else "some pass" for i in range(len(counts))]
    colours = {"none pass": "var(--fail)", "some pass": "var(--some)", "all pass": "var(--pass)"}
    rows: list[Spec] = [
        {"name": name, "count": n, "kind": kind, "share": f"{100 * n / total:.1f} %" if total else "–"}
        for name, n, kind in zip(names, counts, kinds, strict=True)
    ]
    x = _step_scale(names, what)
    y = {
        "field": "count",
        "type": "quantitative",
        "title": None,
        "axis": _count_axis(max(counts, default=0)),
    }
    tooltip = [
        {"field": "kind", "title": " "},
        {"field": "name", "title": what},
        {"field": "count", "title": "cases", "format": ","},
        {"field": "share", "title": "share"},
    ]
    bars = [
        {
            # a layer per kind: its colour is a CSS variable, set on the mark itself
            "transform": [{"filter": f"datum.kind === '{kind}'"}],
            "mark": {"type": "bar", "fill": colour, "cornerRadiusEnd": 2},
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        }
        for kind, colour in colours.items()
        if kind in kinds
    ]
    above: Spec = {
        "mark": {"type": "text", "dy": -7, "fill": "var(--ink)"},
        "encoding": {"x": x, "y": y, "text": {"field": "count", "format": ","}},
    }
    some = total - counts[0] - counts[-1] if last else 0
    return Chart(
        id=chart_id,
        title="How many of n pass",
        label=f"Of {total:,} cases, no candidate passes in {counts[0]:,}, some in {some:,}, all in {counts[-1]:,}",
        spec={
            "width": "container",
            "height": 250,
            "data": {"values": rows},
            "layer": [*bars, *([above] if len(counts) <= 17 else [])],
        },
        header=(what, "cases", "share"),
        rows=tuple((r["name"], f"{r['count']:,}", r["share"]) for r in rows),
        keys=tuple((kind, colour, "swatch") for kind, colour in colours.items()),
        numbers_from=0,
    )


def _step_scale(names: Sequence[str], what: str) -> Spec:
    """A scale of named steps, in their order whatever is drawn."""
    return {
        "field": "name",
        "type": "ordinal",
        "sort": None,
        "scale": {"domain": list(names)},
        "title": what,
        "axis": {"labelAngle": 0, "grid": False, "labelOverlap": True},
    }


def vote_strength_chart(
    chart_id: str, names: Sequence[str], right: Sequence[int], wrong: Sequence[int], what: str
) -> Chart:
    """Cases by how many candidates are behind the leading answer, and whether that answer is right."""
    rows = []
    for name, r, w in zip(names, right, wrong, strict=True):
        rows.append({"name": name, "low": 0, "high": r, "count": r, "kind": "right"})
        rows.append({"name": name, "low": r, "high": r + w, "count": w, "kind": "wrong"})
    colours = {"right": "var(--pass)", "wrong": "var(--fail)"}
    x = _step_scale(names, what)
    y = {
        "field": "low",
        "type": "quantitative",
        "title": None,
        "axis": _count_axis(max(map(sum, zip(right, wrong, strict=True)), default=0)),
    }
    tooltip = [
        {"field": "kind", "title": "the vote is"},
        {"field": "name", "title": what},
        {"field": "count", "title": "cases", "format": ","},
    ]
    bars = [
        {
            "transform": [{"filter": f"datum.kind === '{kind}' && datum.count > 0"}],
            "mark": {"type": "bar", "fill": colour, "stroke": "var(--paper)", "strokeWidth": 1},
            "encoding": {"x": x, "y": y, "y2": {"field": "high"}, "tooltip": tooltip},
        }
        for kind, colour in colours.items()
        if any(row["count"] for row in rows if row["kind"] == kind)
    ]
    shares = [f"{100 * r / (r + w):.0f} %" if r + w else "–" for r, w in zip(right, wrong, strict=True)]
    said = "; ".join(f"{name}: {share}" for name, share in zip(names, shares, strict=True) if share != "–")
    return Chart(
        id=chart_id,
        title="Strength of the vote",
        label=f"The vote is right in {sum(right):,} cases and wrong in {sum(wrong):,}. Right by {what}: {said}",
        spec={"width": "container", "height": 250, "data": {"values": rows}, "layer": bars},
        header=(what, "vote right", "vote wrong", "right"),
        rows=tuple(
            (name, f"{r:,}", f"{w:,}", share) for name, r, w, share in zip(names, right, wrong, shares, strict=True)
        ),
        keys=(("vote right", "var(--pass)", "swatch"), ("vote wrong", "var(--fail)", "swatch")),
        numbers_from=0,
    )


def distribution_chart(chart_id: str, title: str, bins: Bins, what: str) -> Chart:
    """Counts of a quantity such as seconds, in bins."""
    pairs = list(zip(bins.edges[:-1], bins.edges[1:], bins.counts, strict=True))
    names = [f"{_short(low)}–{_short(high)}{bins.unit}" for low, high, _ in pairs]
    rows = [{"from": a, "to": b, "count": n, "name": name} for (a, b, n), name in zip(pairs, names, strict=True)]
    x = {
        "field": "from",
        "type": "quantitative",
        "title": what,
        "scale": {"domain": [bins.edges[0], bins.edges[-1]], "nice": False, "zero": False},
        "axis": {"tickCount": 5, "grid": False, "format": ",~r"},
    }
    y = {
        "field": "count",
        "type": "quantitative",
        "title": None,
        "axis": _count_axis(max(bins.counts, default=0)),
    }
    numbers = (
        f"median {_short(bins.median)}{bins.unit}, 95 % below {_short(bins.p95)}{bins.unit}, "
        f"largest {_short(bins.largest)}{bins.unit}"
    )
    beyond = f" {bins.beyond:,} beyond the last bar." if bins.beyond else ""
    return Chart(
        id=chart_id,
        title=title,
        label=f"{title}: {numbers}",
        spec={
            "width": "container",
            "height": 150,
            "data": {"values": rows},
            "mark": {"type": "rect", "fill": "var(--accent)", "stroke": "var(--paper)", "strokeWidth": 1},
            "encoding": {
                "x": x,
                "x2": {"field": "to"},
                "y": y,
                "y2": {"datum": 0},
                "tooltip": [{"field": "name", "title": what}, {"field": "count", "title": "count", "format": ","}],
            },
        },
        header=(what, "count"),
        rows=tuple((name, f"{n:,}") for name, (_, _, n) in zip(names, pairs, strict=True)),
        note=f"{numbers[:1].upper()}{numbers[1:]}.{beyond}",
    )


def _short(value: float) -> str:
    """Three significant digits.

    >>> _short(0.0123456), _short(1234.5), _short(0), _short(0.0000188)
    ('0.0123', '1,230', '0', '0.0000188')
    """
    return format_significant(value, 3)


def format_significant(value: float, digits: int) -> str:
    """A number to so many digits, without an exponent where people can read it.

    >>> format_significant(9.6743e-05, 4), format_significant(12345.6, 4)
    ('0.00009674', '12,350')
    >>> format_significant(1.5e-12, 3), format_significant(4.8, 4)
    ('1.5e-12', '4.8')
    """
    if value == 0 or not 1e-8 < abs(value) < 1e15:
        return f"{value:.{digits}g}"
    # decimals that give so many significant digits; negative for large numbers, which round() takes
    decimals = digits - 1 - floor(log10(abs(value)))
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if decimals > 0 else text
