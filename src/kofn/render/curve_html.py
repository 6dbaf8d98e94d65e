"""A best-of-n curve as an HTML page: curves with bands, cost and time, segments side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kofn.analysis.best_of.choose_n import REACHES
from kofn.core.escape import show_hidden
from kofn.core.format import (
    format_count,
    format_dollars,
    format_interval,
    format_level,
    format_number,
    format_rate,
    format_seconds,
)
from kofn.render.charts import Chart
from kofn.render.curve_text import axis_range, cost_rows, curve_cells, selection_rows
from kofn.render.page import environment, html_document
from kofn.render.page_payload import checklist_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.analysis.best_of.best_of import BestOf, BestOfRow
    from kofn.analysis.best_of.report import BestOfReport, SegmentCurve

    Spec = dict[str, Any]

MOST_SEGMENTS = 24  # drawn; the table has them all
LOOKS = {  # colour and words of every curve
    "any": ("var(--accent)", "any of k passes"),
    "selected": ("var(--mark-line)", "the selector's pick passes"),
    "majority": ("var(--second)", "the vote of k is right"),
    "corrected": ("var(--fail)", "any of k passes, corrected for the judge's errors"),
}


def curve_page(found: BestOfReport) -> str:
    """The whole page, in one file that needs no network."""
    main = main_chart("curve", found.table, found.level, found.choice.n)
    spending = _spending_charts(found)
    segments = [_segment_chart(f"segment-{i}", one, found) for i, one in enumerate(found.segments[:MOST_SEGMENTS])]
    header, rows = curve_cells(found.table, found.level)
    body = (
        environment()
        .get_template("curve.html.j2")
        .render(
            main=main,
            spending=spending,
            segments=segments,
            name=found.name,
            head=_head(found),
            stats=_stats(found),
            header=header,
            rows=[
                (row, row[0].startswith("~"), of.k == found.choice.n)
                for row, of in zip(rows, found.table.rows, strict=True)
            ],
            facts=[*cost_rows(found.table), *selection_rows(found)],
            notes=found.table.notes,
            checklist=checklist_rows(found.checklist),
            warnings=tuple(map(str, found.warnings)),
            by_segment=_segment_rows(found),
            n_hidden=max(0, len(found.segments) - MOST_SEGMENTS),
            split=found.split,
        )
    )
    return html_document(
        title=f"{show_hidden(found.name)} – best of {found.table.measured[-1].k} · kofn",
        body=Markup(body),  # noqa: S704 - the template escapes
        charts={chart.id: {**chart.spec, "description": chart.label} for chart in (main, *spending, *segments)},
    )


def _head(found: BestOfReport) -> dict[str, str]:
    n, table = found.choice.n, found.table
    what = f"{format_count(table.n_cases, 'case')}, metric {found.metric}"
    by = "" if found.selector is None else f", selector {found.selector.name}"
    return {
        "word": "No n chosen" if n is None else f"n = {n}",
        "kind": "passed" if n is not None else "",
        "reason": show_hidden(f"{found.choice.reason[:1].upper()}{found.choice.reason[1:]}."),
        "what": show_hidden(f"{what}{by}"),
    }


def _stats(found: BestOfReport) -> list[dict[str, str]]:
    first, last = found.table.measured[0], found.table.measured[-1]
    out = [_stat("one candidate", first, "any"), _stat(f"any of {last.k}", last, "any")]
    if last.corrected is not None:
        out.append(_stat(f"any of {last.k}, corrected", last, "corrected"))
    elif last.selected is not None:
        out.append(_stat(f"pick of {last.k}", last, "selected"))
    elif last.majority is not None:
        out.append(_stat(f"vote of {last.k}", last, "majority"))
    return [*out, {"name": "if independent", "value": format_number(last.independent), "detail": f"any of {last.k}"}]


def _stat(name: str, row: BestOfRow, field: str) -> dict[str, str]:
    ends = format_interval(getattr(row, f"{field}_low"), getattr(row, f"{field}_high"))
    return {"name": name, "value": format_number(getattr(row, field)), "detail": ends}


def _segment_rows(found: BestOfReport) -> list[dict[str, str]]:
    measure, out = found.table.measure, []
    for one in found.segments:
        first, last = one.table.measured[0], one.table.measured[-1]
        out.append(
            {
                "name": f"{one.by} = {one.table.segment}",
                "few": "few cases" if one.few else "",
                "cases": f"{one.table.n_cases:,}",
                "first": format_number(first.value(measure)),
                "last": format_number(last.value(measure)),
                "k": str(last.k),
                "interval": format_interval(getattr(last, f"{measure}_low"), getattr(last, f"{measure}_high")),
                "independent": format_number(last.independent),
                "choose": "–" if one.choice.n is None else str(one.choice.n),
            }
        )
    return out


# the curves


def main_chart(chart_id: str, table: BestOf, level: float, chosen: int | None) -> Chart:
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
        id=chart_id,
        title="",
        label=show_hidden(said),
        spec=_main_spec(table, there, chosen),
        header=header,
        rows=tuple(rows),
        note=f"Bands are {format_level(level)} intervals over cases; each dot shows its own.{beyond}",
        keys=tuple(keys),
        wide=True,
        numbers_from=0,
    )


def _points(rows: Sequence[BestOfRow], name: str) -> list[Spec]:
    what = LOOKS[name][1]
    return [
        {
            "k": row.k,
            "point": getattr(row, name),
            "low": getattr(row, f"{name}_low"),
            "high": getattr(row, f"{name}_high"),
            "what": f"{what}, extrapolated" if row.extrapolated else what,
            "interval": format_interval(getattr(row, f"{name}_low"), getattr(row, f"{name}_high")),
        }
        for row in rows
        if getattr(row, name) is not None
    ]


def _main_spec(table: BestOf, there: Sequence[str], chosen: int | None) -> Spec:
    x, y = _axes(table.rows, _ends(table.rows, there))
    layers: list[Spec] = []
    if chosen is not None:
        layers.append(_chosen_rule(chosen, x))
    layers.append(_independent(table.rows, x, y))
    beyond = [row for row in table.rows if row.extrapolated]
    if beyond:
        # from the last measured point, so that the dotted line joins the solid one
        layers += _layers(_points([table.measured[-1], *beyond], "any"), x, y, LOOKS["any"][0], dotted=True)
    # the most important last, on top
    for name in reversed(there):
        banded = name in ("any", "corrected", table.measure)  # a fog of bands would hide them all
        layers += _layers(_points(table.measured, name), x, y, LOOKS[name][0])[0 if banded else 1 :]
    return {"width": "container", "height": 360, "layer": layers, "usermeta": {"narrow": {"height": 260}}}


def _ends(rows: Sequence[BestOfRow], there: Sequence[str]) -> list[float]:
    fields = [f"{name}{end}" for name in there for end in ("", "_low", "_high")]
    return [v for row in rows for f in (*fields, "independent") if (v := getattr(row, f)) is not None]


def _axes(rows: Sequence[BestOfRow], ends: Sequence[float], *, title: str | None = "candidates k") -> tuple[Spec, Spec]:
    largest = rows[-1].k
    x: Spec = {"field": "k", "type": "quantitative", "title": title}
    if largest > 16:
        # powers of 2 on a log scale, and the end; one too near to the end would overlap it
        ticks = [*(2**i for i in range(14) if 2**i <= largest / 1.2), largest]
        x |= {"scale": {"type": "log", "base": 2, "nice": False, "domain": [1, largest]}}
        x["axis"] = {"values": ticks, "format": "d", "grid": False}
    else:
        x |= {"scale": {"domain": [1, max(2, largest)], "nice": False}}
        x["axis"] = {"values": list(range(1, largest + 1)), "format": "d", "grid": False}
    scale = {"domain": list(axis_range(ends)), "nice": False, "zero": False}
    y = {"field": "point", "type": "quantitative", "title": None, "scale": scale, "axis": {"tickCount": 5}}
    return x, y


def _layers(rows: list[Spec], x: Spec, y: Spec, colour: str, *, dotted: bool = False) -> list[Spec]:
    """Band, line and dots; of what is extrapolated dots are hollow and the line is dotted."""
    data, dash = {"values": rows}, {"strokeDash": [1.5, 4], "strokeCap": "round"} if dotted else {}
    dot: Spec = {"type": "point", "filled": True, "size": 60, "opacity": 1, "strokeWidth": 1.5}
    dot |= {"fill": "var(--paper)", "stroke": colour} if dotted else {"fill": colour, "stroke": "var(--paper)"}
    tooltip = [
        {"field": "what", "title": " "},
        {"field": "k", "title": "k"},
        {"field": "point", "title": "value", "format": ".3f"},
        {"field": "interval", "title": "interval"},
    ]
    return [
        {
            "data": data,
            "mark": {"type": "area", "fill": colour, "opacity": 0.06 if dotted else 0.13},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": data,
            "mark": {"type": "line", "stroke": colour, "strokeWidth": 2.25, **dash},
            "encoding": {"x": x, "y": y},
        },
        {
            # the first dotted point is the last measured one, which has its dot
            "data": {"values": rows[1:] if dotted else rows},
            "mark": dot,
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        },
    ]


def _independent(rows: Sequence[BestOfRow], x: Spec, y: Spec) -> Spec:
    values = [{"k": row.k, "point": row.independent} for row in rows if row.independent is not None]
    return {
        "data": {"values": values},
        "mark": {"type": "line", "stroke": "var(--muted)", "strokeDash": [5, 4], "strokeWidth": 1.5},
        "encoding": {"x": x, "y": y},
    }


def _chosen_rule(chosen: int, x: Spec) -> Spec:
    return {
        "data": {"values": [{"k": chosen}]},
        "mark": {"type": "rule", "stroke": "var(--strong-line)", "strokeWidth": 1.5},
        "encoding": {"x": x},
    }


# what candidates add and cost


def _spending_charts(found: BestOfReport) -> list[Chart]:
    table, out = found.table, []
    if len(table.measured) > 1:
        out.append(_gains(found))
    if table.cost is not None:
        out.append(
            _spending_chart("cost", "Value and cost", "cost of a case", found, lambda row: row.cost, format_dollars)
        )
    elif table.tokens is not None:
        out.append(
            _spending_chart("tokens", "Value and tokens", "tokens a case", found, lambda row: row.tokens, _format_whole)
        )
    if table.measured[0].seconds is not None:
        out.append(
            _spending_chart(
                "seconds",
                "Value and time",
                "seconds, asked side by side",
                found,
                lambda row: row.seconds,
                format_seconds,
            )
        )
    return out


def _format_whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


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
        label="; ".join(f"number {row.k} adds {format_number(row.gain)}" for row in rows[:12]),
        spec={"width": "container", "height": 220, "layer": _gain_layers(rows, found.choice.n or 0, bar)},
        header=("candidate", "adds", per),
        rows=tuple((str(row.k), format_number(row.gain), format_rate(row.gain_per_cost or 0.0)) for row in rows),
        keys=tuple(keys),
        numbers_from=0,
    )


def _gain_layers(rows: Sequence[BestOfRow], chosen: int, bar: float | None) -> list[Spec]:
    values = [{"k": str(row.k), "gain": row.gain, "kept": row.k <= chosen} for row in rows]
    x: Spec = {"field": "k", "type": "ordinal", "sort": None, "title": "candidate number"}
    x["axis"] = {"labelAngle": 0, "grid": False, "labelOverlap": True}
    y = {"field": "gain", "type": "quantitative", "title": None, "axis": {"tickCount": 4, "format": ".3~f"}}
    colour = {"condition": {"test": "datum.kept", "value": "var(--accent)"}, "value": "var(--some)"}
    tooltip = [{"field": "k", "title": "candidate"}, {"field": "gain", "title": "adds", "format": ".4f"}]
    bars: Spec = {
        "data": {"values": values},
        "mark": {"type": "bar", "cornerRadiusEnd": 2},
        "encoding": {"x": x, "y": y, "fill": colour, "tooltip": tooltip},
    }
    line: Spec = {
        "data": {"values": [{"gain": bar}]},
        "mark": {"type": "rule", "stroke": "var(--fail)", "strokeDash": [5, 4], "strokeWidth": 1.5},
        "encoding": {"y": y},
    }
    return [bars] if bar is None else [bars, line]


def _spending_chart(
    chart_id: str,
    title: str,
    axis: str,
    found: BestOfReport,
    spent: Callable[[BestOfRow], float | None],
    format_spent: Callable[[float | None], str],
) -> Chart:
    """The measure against what k candidates take; each dot is a k."""
    measure = found.table.measure
    there = [(row, at, value) for row in found.table.measured
             if (at := spent(row)) is not None and (value := row.value(measure)) is not None]  # fmt: skip
    values: list[Spec] = [
        {"x": at, "point": value, "k": row.k, "spent": format_spent(at), "chosen": row.k == found.choice.n}
        for row, at, value in there
    ]
    said = "; ".join(f"{v['k']} candidates {format_number(v['point'])} for {v['spent']}" for v in values[:12])
    colour = LOOKS[measure][0]
    return Chart(
        id=chart_id,
        title=title,
        label=show_hidden(f"{title}: {said}"),
        spec=_spending_spec(values, axis, "$,~r" if chart_id == "cost" else ",~r", colour),
        header=("k", "value", axis),
        rows=tuple((str(v["k"]), format_number(v["point"]), str(v["spent"])) for v in values),
        keys=((f"{REACHES[measure]}; the number is k", colour, "line"),),
        numbers_from=0,
    )


def _spending_spec(values: list[Spec], axis: str, form: str, colour: str) -> Spec:
    x: Spec = {"field": "x", "type": "quantitative", "title": axis, "scale": {"zero": True, "nice": True}}
    x["axis"] = {"tickCount": 4, "grid": False, "format": form}
    scale = {"domain": list(axis_range([v["point"] for v in values])), "nice": False, "zero": False}
    y: Spec = {"field": "point", "type": "quantitative", "title": None, "scale": scale, "axis": {"tickCount": 4}}
    tooltip = [
        {"field": "k", "title": "k"},
        {"field": "point", "title": "value", "format": ".3f"},
        {"field": "spent", "title": axis},
    ]
    size = {"condition": {"test": "datum.chosen", "value": 150}, "value": 55}
    dot = {"type": "point", "filled": True, "fill": colour, "stroke": "var(--paper)", "strokeWidth": 1.5, "opacity": 1}
    text = {"type": "text", "dy": -12, "fill": "var(--muted)"}
    layers: list[Spec] = [
        {"mark": {"type": "line", "stroke": colour, "strokeWidth": 2}, "encoding": {"x": x, "y": y}},
        {"mark": dot, "encoding": {"x": x, "y": y, "tooltip": tooltip, "size": size}},
    ]
    if len(values) <= 16:
        layers.append({"mark": text, "encoding": {"x": x, "y": y, "text": {"field": "k"}}})
    return {
        "width": "container",
        "height": 220,
        "data": {"values": values},
        "layer": layers,
        "padding": {"left": 5, "top": 16, "right": 14, "bottom": 5},
    }


# segments


def _segment_chart(chart_id: str, one: SegmentCurve, found: BestOfReport) -> Chart:
    """The curve of a segment, on the scale of all of them, beside the one over all cases."""
    measure = found.table.measure
    tables = [found.table, *(s.table for s in found.segments)]
    drawn = [v for t in tables for v in _ends(t.measured, [measure])]
    # one scale for all small charts, or they could not be compared
    longest = max((t.measured for t in tables), key=lambda rows: rows[-1].k)
    x, y = _axes(longest, drawn, title=None)
    overall = {
        "data": {"values": _points(found.table.measured, measure)},
        "mark": {"type": "line", "stroke": "var(--muted)", "strokeWidth": 1.5},
        "encoding": {"x": x, "y": y},
    }
    layers = [
        overall,
        _independent(one.table.measured, x, y),
        *_layers(_points(one.table.measured, measure), x, y, LOOKS[measure][0]),
    ]
    if one.choice.n is not None:
        layers.insert(0, _chosen_rule(one.choice.n, x))
    first, last = one.table.measured[0], one.table.measured[-1]
    ends = [format_number(row.value(measure)) for row in (first, last)]
    chosen = "" if one.choice.n is None else f", n = {one.choice.n}"
    header, rows = curve_cells(one.table, found.level)
    return Chart(
        id=chart_id,
        title=show_hidden(f"{one.by} = {(one.table.segment or '')[:60]}"),
        label=show_hidden(f"{one.table.segment}: {ends[0]} with one, {ends[1]} with {last.k}"),
        spec={"width": "container", "height": 170, "layer": layers},
        header=header,
        rows=tuple(rows),
        note=f"{format_count(one.table.n_cases, 'case')}{chosen}",
        keys=(),
        numbers_from=0,
    )
