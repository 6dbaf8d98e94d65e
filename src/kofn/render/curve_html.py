"""A best-of-n curve as an HTML page: curves with bands, cost and time, segments side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.analysis.curve_report import REACHES
from kofn.core.escape import show_hidden
from kofn.core.format import (
    format_count,
    format_dollars,
    format_level,
    format_number,
    format_rate,
    format_seconds,
)
from kofn.render.charts import Chart, curve_layers, step_bar
from kofn.render.curve_text import axis_range, cost_rows, curve_cells, interval_of, segment_rows, selection_rows
from kofn.render.page import Stat, html_page
from kofn.render.plot import (
    Bars,
    Dot,
    Dots,
    Guide,
    Line,
    Plot,
    Tip,
    candidates_axis,
    names_axis,
    number_axis,
    with_whole,
)
from kofn.render.report_html import checklist_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.analysis.best_of import BestOf, BestOfRow
    from kofn.analysis.curve_report import BestOfReport, SegmentCurve
    from kofn.render.plot import Layer

MOST_SEGMENTS = 24  # drawn; the table has them all
LOOKS = {  # colour and words of every curve
    "any": ("var(--accent)", "any of k passes"),
    "selected": ("var(--mark-line)", "the selector's pick passes"),
    "majority": ("var(--second)", "the vote of k is right"),
    "corrected": ("var(--fail)", "any of k passes, corrected for the judge's errors"),
}


def curve_page(found: BestOfReport) -> str:
    """The whole page, in one file that needs no network."""
    header, rows = curve_cells(found.table, found.level)
    return html_page(
        "curve.html.j2",
        {
            "main": main_chart(found.table, found.level, [_chosen_guide(found.choice.n)]),
            "spending": _spending_charts(found),
            "segments": [
                _segment_chart(f"segment-{i}", one, found) for i, one in enumerate(found.segments[:MOST_SEGMENTS])
            ],
            "name": found.name,
            "head": _head(found),
            "stats": _stats(found),
            "header": header,
            "rows": [
                (row, of.extrapolated, of.k == found.choice.n) for row, of in zip(rows, found.table.rows, strict=True)
            ],
            "facts": [*cost_rows(found.table), *selection_rows(found)],
            "notes": tuple(map(str, found.table.notes)),
            "checklist": checklist_rows(found.checklist),
            "warnings": [(str(w), w.code) for w in found.warnings],
            "by_segment": segment_rows(found),
            "n_hidden": max(0, len(found.segments) - MOST_SEGMENTS),
            "split": found.split,
        },
        title=f"{show_hidden(found.name)} – best of {found.table.measured[-1].k} · kofn",
    )


def _head(found: BestOfReport) -> dict[str, str]:
    n, table = found.choice.n, found.table
    what = f"{format_count(table.n_cases, 'case')}, metric {found.metric}"
    by = "" if found.selector is None else f", selector {found.selector.name}"
    return {
        "word": format_number(table.measured[-1].value(table.measure)) if n is None else f"n = {n}",
        "kind": "",
        "reason": show_hidden(found.headline.text),
        "what": show_hidden(f"{what}{by}"),
    }


def _stats(found: BestOfReport) -> list[Stat]:
    first, last = found.table.measured[0], found.table.measured[-1]
    shown = [("one candidate", first, "any"), (f"any of {last.k}", last, "any")]
    third = {"corrected": "any of {}, corrected", "selected": "pick of {}", "majority": "vote of {}"}
    shown += [(name.format(last.k), last, f) for f, name in third.items() if getattr(last, f) is not None][:1]
    stats = [Stat(name, format_number(getattr(row, field)), interval_of(row, field)) for name, row, field in shown]
    return [*stats, Stat("if independent", format_number(last.independent), f"any of {last.k}")]


# the curves


def main_chart(table: BestOf, level: float, guides: Sequence[Layer] = ()) -> Chart:
    """All curves with their bands; what independence would give is dashed, what is extrapolated dotted."""
    first, last = table.measured[0], table.measured[-1]
    there = [name for name in LOOKS if any(getattr(row, name) is not None for row in table.measured)]
    said = f"One candidate passes {format_number(first.any)}, at least one of {last.k} {format_number(last.any)}"
    said += f", and {format_number(last.independent)} if tries were independent"
    keys = [(LOOKS[name][1], LOOKS[name][0], "line") for name in there]
    keys.append(("any of k, if tries were independent", "var(--muted)", "dashed"))
    if table.model is not None:
        keys.append(("any of k, extrapolated", "var(--accent)", "dotted"))
    header, rows = curve_cells(table, level)
    beyond = "" if table.model is None else " What lies beyond the last measured k is extrapolated and drawn dotted."
    return Chart(
        id="curve",
        title="",
        label=show_hidden(said),
        plot=_main_plot(table, there, guides),
        header=header,
        rows=tuple(rows),
        note=f"Bands are {format_level(level)} intervals over cases; each dot shows its own.{beyond}",
        keys=tuple(keys),
        numbers_from=0,
    )


def _measured_layers(rows: Sequence[BestOfRow], name: str, *, dotted: bool = False) -> list[Layer]:
    """The curve of one measure: band, line and dots."""
    colour, what = LOOKS[name]
    fields = [f"{name}_low", name, f"{name}_high"]
    points = [(row.k, *(getattr(row, f) for f in fields)) for row in rows]
    return curve_layers(points, f"{what}, extrapolated" if dotted else what, colour, dotted=dotted, none="-")


def _main_plot(table: BestOf, there: Sequence[str], guides: Sequence[Layer]) -> Plot:
    layers: list[Layer] = [*guides, _independent(table.rows)]
    beyond = [row for row in table.rows if row.extrapolated]
    if beyond:
        # from the last measured point, so that the dotted line joins the solid one
        layers += _measured_layers([table.measured[-1], *beyond], "any", dotted=True)
    # the most important last, on top
    for name in reversed(there):
        banded = name in ("any", "corrected", table.measure)  # a fog of bands would hide them all
        layers += _measured_layers(table.measured, name)[0 if banded else 1 :]
    x, y = candidates_axis(table.rows[-1].k), with_whole(number_axis(*axis_range(_ends(table.rows, there))))
    return Plot(x=x, y=y, layers=tuple(layers), height=340, look="tall")


def _ends(rows: Sequence[BestOfRow], there: Sequence[str]) -> list[float]:
    fields = [f"{name}{end}" for name in there for end in ("", "_low", "_high")]
    return [v for row in rows for f in (*fields, "independent") if (v := getattr(row, f)) is not None]


def _independent(rows: Sequence[BestOfRow]) -> Line:
    values = tuple((float(row.k), row.independent) for row in rows if row.independent is not None)
    return Line(points=values, colour="var(--muted)", width=1.5, dash="dashed")


def _chosen_guide(chosen: int | None) -> Guide:
    return Guide(value=chosen, colour="var(--strong-line)")


# what candidates add and cost


def _spending_charts(found: BestOfReport) -> list[Chart]:
    """What each candidate adds, and the measure against money (tokens where no cost is known) and against time."""
    table = found.table
    out = [_gains(found)] if len(table.measured) > 1 else []
    if table.cost is not None:
        out.append(_spending_chart("cost", "Value and cost", "cost of a case", found, format_dollars))
    elif table.tokens is not None:
        out.append(_spending_chart("tokens", "Value and tokens", "tokens per case", found, lambda n: f"{n:,.0f}"))
    if table.measured[0].seconds is not None:
        axis = "seconds, asked side by side"
        out.append(_spending_chart("seconds", "Value and time", axis, found, format_seconds))
    return out


def _gains(found: BestOfReport) -> Chart:
    """A bar a candidate: what it adds; as a line what it would have to add for its cost."""
    table, min_gain = found.table, found.bounds.gain
    rows = [row for row in table.measured if row.gain is not None]
    # a gain per dollar times the dollars of a candidate: what a candidate has to add
    bar = None if min_gain is None or not table.cost else min_gain * table.cost
    keys = [("worth it", "var(--accent)", "swatch"), ("not", "var(--some)", "swatch")] if found.choice.n else []
    if min_gain is not None and bar is not None:
        keys.append((f"{format_rate(min_gain)} a dollar", "var(--fail)", "dashed"))
    per = {"dollars": "gain a dollar", "tokens": "gain a token", "candidates": "gain a candidate"}[table.unit]
    return Chart(
        id="gains",
        title="What each further candidate adds",
        label=gains_label(rows),
        plot=gains_plot(rows, found.choice.n or 0, bar),
        header=("candidate", "adds", per),
        rows=tuple((str(row.k), format_number(row.gain), format_rate(row.gain_per_cost or 0.0)) for row in rows),
        keys=tuple(keys),
        numbers_from=0,
    )


def gains_label(rows: Sequence[BestOfRow]) -> str:
    """What each candidate adds, in words."""
    return "; ".join(f"number {row.k} adds {format_number(row.gain)}" for row in rows[:12])


def gains_plot(rows: Sequence[BestOfRow], chosen: int, bar: float | None, colour: str = "var(--accent)") -> Plot:
    """A bar a candidate, those up to the chosen n in `colour`; `bar` is what one would have to add."""
    gains = [row.gain or 0.0 for row in rows]
    y = number_axis(min(0.0, 1.1 * min(gains)), max(1.1 * max(gains), 1e-6), most=4)
    bars = [
        step_bar(i, (0, gain), Tip(headline=f"candidate {row.k}", pairs=(("adds", f"{gain:.4f}"),)), key=str(row.k))
        for i, (row, gain) in enumerate(zip(rows, gains, strict=True))
    ]
    kept = sum(row.k <= chosen for row in rows)
    layers: tuple[Layer, ...] = (
        Bars(bars=tuple(bars[:kept]), colour=colour),
        Bars(bars=tuple(bars[kept:]), colour="var(--some)"),
        Guide(axis="y", value=bar, colour="var(--fail)", dash="dashed", name="least"),
    )
    return Plot(x=names_axis([str(row.k) for row in rows], "candidate number"), y=y, layers=layers, height=190)


def _spending_chart(
    chart_id: str, title: str, axis: str, found: BestOfReport, format_spent: Callable[[float], str]
) -> Chart:
    """The measure against what k candidates take, the field that `chart_id` names; each dot is a k."""
    measure = found.table.measure
    there = [(row, at, value) for row in found.table.measured
             if (at := getattr(row, chart_id)) is not None and (value := row.value(measure)) is not None]  # fmt: skip
    dots = tuple(
        Dot(
            x=at,
            y=value,
            size=7 if row.k == found.choice.n else 4,
            label=str(row.k) if len(there) <= 16 else "",
            tip=Tip(headline=f"k = {row.k}", pairs=(("value", format_number(value)), (axis, format_spent(at)))),
        )
        for row, at, value in there
    )
    said = "; ".join(f"{row.k} candidates {format_number(v)} for {format_spent(at)}" for row, at, v in there[:12])
    colour = LOOKS[measure][0]
    line = Line(points=tuple((dot.x, dot.y) for dot in dots), colour=colour, width=2)
    most = max(dot.x for dot in dots) or 1.0
    return Chart(
        id=chart_id,
        title=title,
        label=show_hidden(f"{title}: {said}"),
        plot=Plot(
            x=number_axis(0, most, title=axis, most=4, unit="$" if chart_id == "cost" else "", grid=False),
            y=with_whole(number_axis(*axis_range([dot.y for dot in dots]))),
            layers=(line, Dots(dots=dots, colour=colour)),
            height=190,
            top=24,
        ),
        header=("k", "value", axis),
        rows=tuple((str(row.k), format_number(value), format_spent(at)) for row, at, value in there),
        keys=((f"{REACHES[measure]}; the number is k", colour, "line"),),
        numbers_from=0,
    )


# segments


def _segment_chart(chart_id: str, one: SegmentCurve, found: BestOfReport) -> Chart:
    """The curve of a segment, on the scale of all of them, beside the one over all cases."""
    measure = found.table.measure
    tables = [found.table, *(s.table for s in found.segments)]
    drawn = [v for t in tables for v in _ends(t.measured, [measure])]
    # one scale for all small charts, or they could not be compared
    largest = max(t.measured[-1].k for t in tables)
    overall = [(float(row.k), v) for row in found.table.measured if (v := row.value(measure)) is not None]
    layers = [
        _chosen_guide(one.choice.n),
        Line(points=tuple(overall), colour="var(--muted)", width=1.5),
        _independent(one.table.measured),
        *_measured_layers(one.table.measured, measure),
    ]
    first, last = one.table.measured[0], one.table.measured[-1]
    ends = [format_number(row.value(measure)) for row in (first, last)]
    chosen = "" if one.choice.n is None else f", n = {one.choice.n}"
    header, rows = curve_cells(one.table, found.level)
    return Chart(
        id=chart_id,
        title=show_hidden(f"{one.by} = {(one.table.segment or '')[:60]}"),
        label=show_hidden(f"{one.table.segment}: {ends[0]} with one, {ends[1]} with {last.k}"),
        plot=Plot(
            x=candidates_axis(largest, ""),
            y=with_whole(number_axis(*axis_range(drawn))),
            layers=tuple(layers),
            height=150,
        ),
        header=header,
        rows=tuple(rows),
        note=f"{format_count(one.table.n_cases, 'case')}{chosen}",
        numbers_from=0,
    )
