"""A trend as a page: the series with intervals and real changes, the runs as a table, the cases through time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from kofn.diagnose import counted
from kofn.report.findings import number
from kofn.report.html import document, environment, json_text, source
from kofn.report.trend import FROM_REPORTS, verdict
from kofn.report.trend_text import (
    across_text,
    between,
    cases_text,
    chance,
    changes_text,
    mark,
    money,
    of_level,
    signed,
    spread_text,
    times,
    took,
    what,
)
from kofn.report.visible import visible
from kofn.trends import flaky

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.report.past import Past
    from kofn.report.trend import Followed, TaskTrend, Trend
    from kofn.trends import Change, History

    Spec = dict[str, Any]

MOST_ROWS = 30  # runs in the table; beyond, the newest and every real change
MOST_FOLDED = 500  # further ones that can be unfolded
MOST_CASES = 200  # rows of the heat map
MOST_COLUMNS = 120  # its columns; beyond, neighbouring runs share one
MOST_DOTS = 150  # runs that get a dot in the chart; beyond, only real changes do
STRIP = 20  # newest runs of a flaky case that are drawn one by one
MOST_SIZES = 24  # real changes whose size is written beside them
MOST_BARS = 40  # runs whose interval is drawn as a bar too
LEVELS = 5  # shades of a cell that several runs share
FAILS = "color-mix(in oklab, var(--fail) 62%, var(--paper))"  # a field of cells, so calmer than a mark
TOLD = [
    {"field": "run", "title": " "},
    {"field": "when", "title": "made"},
    {"field": "value", "title": "value"},
    {"field": "change", "title": "change"},
]
COLOURS = {"better": "var(--pass)", "worse": "var(--fail)", "higher": "var(--second)", "lower": "var(--second)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Which cases pass in which runs, drawn as one path a shade.

    shades   (CSS colour, SVG path) of the cells
    lines    the path that parts them
    tip      JSON of what a pointer shows: names of cases and columns, and the share that passes of each cell
    """

    label: str
    width: int
    height: int
    row: int
    names: tuple[str, ...]
    shades: tuple[tuple[str, str], ...]
    lines: str
    ends: tuple[str, str]
    fails: str
    note: str
    tip: str
    table: tuple[tuple[str, str, str], ...]


class Links(NamedTuple):
    """Where a run is shown, and a case of it; for pages that lead there."""

    run: Callable[[Past], str]
    case: Callable[[Past, str], str]


def page(found: Trend) -> str:
    """The whole page, in one file that needs no network."""
    data = page_data(found)
    body = environment().get_template("trend.html.j2").render(**data)
    return document(
        title=title(found),
        body=Markup(body),  # noqa: S704 - the template escapes
        charts=charts_of(data),
        scripts=[source("trend.js")],
    )


def page_data(found: Trend, links: Links | None = None) -> dict[str, Any]:
    """What trend.html.j2 shows."""
    return {
        "tasks": [_task(part, i, links) for i, part in enumerate(found.tasks)],
        "n_runs": sum(len(p.runs) for p in found.tasks),
        "left_out": [visible(one.reason) for one in found.left_out],
        "alpha": f"{found.alpha:g}",
    }


def charts_of(data: Mapping[str, Any]) -> dict[str, Spec]:
    """The charts of a page's data by their names."""
    return {s["id"]: s["spec"] for t in data["tasks"] for s in t["series"] if s["spec"]}


def title(found: Trend) -> str:
    """What the page is of."""
    names = [visible(part.task) or "(no name)" for part in found.tasks]
    runs = sum(len(p.runs) for p in found.tasks)
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}: {runs:,} runs"


def _task(part: TaskTrend, at: int, links: Links | None) -> dict[str, Any]:
    first, last = part.runs[0].when, part.runs[-1].when
    days = list(dict.fromkeys(f"{when:%Y-%m-%d}" for when in (first, last)))
    return {
        "id": f"task-{at}",
        "name": visible(part.task) or "(no name)",
        "days": " to ".join(days),
        "n_runs": len(part.runs),
        "head": _head(part),
        "stats": _stats(part),
        "series": [_series(part, f, f"series-{at}-{i}", links) for i, f in enumerate(part.followed)],
        "cases": visible(cases_text(part)),
        "across": visible(across_text(part)),
        "counts": part.counts,
        "flaky": [_flaky_row(part, h, links) for h in flaky(part.cases)],
        "heat": heat_map(part.runs, part.cases),
    }


def _head(part: TaskTrend) -> dict[str, str]:
    """The newest against the oldest, in a word and a line."""
    f = part.followed[0]
    change = f.series.overall
    if change is None:
        word = "One run" if len(part.runs) == 1 else "Nothing to compare"
        return {"kind": "", "mark": "", "word": word, "reason": visible(what(f)), "more": ""}
    c = change.comparison
    word = verdict(change, f.higher_is_better)
    shown = {"noise": "First to last: no real change", "other cases": "Other cases"}.get(word, word.capitalize())
    ends = f"{part.runs[change.against].name} to {f.series.points[_last(f)].name}"
    reason = f"{signed(c.difference)} {between(c.low, c.high)} in {f.name}, p {chance(c.p)}, {c.n:,} cases"
    return {
        "kind": {"better": "passed", "worse": "failed"}.get(word, ""),
        "mark": mark(change) if change.real else "",
        "word": shown,
        "reason": visible(f"{reason}, from {ends}" if c.n else f"from {ends}, which share no case"),
        "more": _real_words(f),
    }


def _real_words(f: Followed) -> str:
    """How many changes are real, for the head of the page."""
    known = [c for c in f.series.changes if c is not None and c.comparison.n]
    real = sum(c.real for c in known)
    if not known:
        return ""
    if not real:
        return f"No change from one run to the next is real ({len(known):,} tested)."
    return f"{real:,} of {counted(len(known), 'change')} from one run to the next {'is' if real == 1 else 'are'} real."


def _last(f: Followed) -> int:
    return max(i for i, p in enumerate(f.series.points) if p.estimate.point is not None)


def _stats(part: TaskTrend) -> list[dict[str, str]]:
    """The newest value, how far runs lie apart, and the means over all runs."""
    f = part.followed[0]
    stats = []
    if f.series.spread is not None:
        e, s = f.series.points[_last(f)].estimate, f.series.spread
        stats.append({"name": f"{visible(f.name)}, newest", "value": number(e.point), "detail": between(e.low, e.high)})
        if s.sd is not None:
            alone = "" if s.noise is None else f"noise alone {number(s.noise)}"
            stats.append({"name": "spread (sd)", "value": number(s.sd), "detail": alone})
    if f.name != "pass_rate":
        stats.append(
            {"name": "mean pass rate", "value": number(part.pass_rate), "detail": counted(len(part.runs), "run")}
        )
    elif f.series.spread is not None:
        stats.append({"name": "mean", "value": number(f.series.spread.mean), "detail": counted(len(part.runs), "run")})
    stats += [{"name": "mean time", "value": took(part.seconds), "detail": ""}] if part.seconds is not None else []
    stats += [{"name": "mean cost", "value": money(part.cost), "detail": ""}] if part.cost is not None else []
    return stats[:4]


def _series(part: TaskTrend, f: Followed, name: str, links: Links | None) -> dict[str, Any]:
    known = [p.estimate.point for p in f.series.points if p.estimate.point is not None]
    marks = {(verdict(c, f.higher_is_better), mark(c)) for c in f.series.changes if c is not None and c.real}
    shown, folded = _places(f)
    return {
        "id": name,
        "title": visible(f.name),
        "what": visible(what(f).partition(": ")[2] if f.name in FROM_REPORTS else what(f)),
        "spec": chart_spec(part, f, links) if len(known) > 1 else None,
        "keys": [(f"real change, {w}", colour, m) for w, colour in COLOURS.items() for m in "▲▼" if (w, m) in marks],
        "level": of_level(f.level),
        "rows": _rows(part.runs, f, shown, links),
        "folded": _rows(part.runs, f, folded[-MOST_FOLDED:], links),
        "n_folded": len(folded),
        "has_cost": any(r.cost is not None for r in part.runs),
        "has_time": any(r.seconds is not None for r in part.runs),
        "spread": visible(spread_text(f.series.spread, f.series.alpha)) if f.series.spread and len(known) > 1 else "",
        "changes": visible(changes_text(f)) if len(known) > 1 else "",
    }


def _places(f: Followed) -> tuple[list[int], list[int]]:
    """Which runs the table shows, the newest and every real change, and which it folds away."""
    n = len(f.series.points)
    shown = [i for i in range(n) if i >= n - MOST_ROWS or ((c := f.series.changes[i]) is not None and c.real)]
    return shown, sorted(set(range(n)) - set(shown))


def _rows(runs: Sequence[Past], f: Followed, places: Sequence[int], links: Links | None) -> list[dict[str, Any]]:
    when = times(runs)
    return [_row(runs, f, i, when[i]) | {"to": links and links.run(runs[i])} for i in places]


def _row(runs: Sequence[Past], f: Followed, at: int, when: str) -> dict[str, Any]:
    run, e, change = runs[at], f.series.points[at].estimate, f.series.changes[at]
    c = change.comparison if change is not None else None
    word = verdict(change, f.higher_is_better) if change is not None else ""
    return {
        "run": visible(run.name) or "(no name)",
        "when": when,
        "value": number(e.point),
        "interval": between(e.low, e.high),
        "mark": mark(change),
        "word": word,
        "colour": COLOURS.get(word, ""),
        "difference": signed(c.difference) if c is not None and c.n else "",
        "ends": between(c.low, c.high) if c is not None and c.n else "",
        "p": chance(change.p_holm) if change is not None and c is not None and c.n else "",
        "n": f"{c.n:,}" if c is not None else "",
        "passed": f"{run.n_passed:,} / {len(run.cases):,}",
        "share": run.n_passed / max(1, len(run.cases)),
        "cases": len(run.cases),
        "cost": money(run.cost),
        "time": took(run.seconds),
        "notes": visible("; ".join(f.notes[at])),
    }


def _flaky_row(part: TaskTrend, h: History, links: Links | None) -> dict[str, Any]:
    newest = next((r for r in reversed(part.runs) if r.verdict_of(h.case) is not None), None)
    return {
        "case": visible(h.case) or '""',
        "to": links.case(newest, h.case) if links and newest else None,
        "flips": f"{h.flips:,}",
        "passes": f"{h.passes:,} / {h.runs:,}",
        "share": h.passes / h.runs,
        "strip": _strip([r.verdict_of(h.case) for r in part.runs[-STRIP:]]),
    }


def _strip(verdicts: Sequence[bool | None]) -> list[str]:
    return ["sx" if v is None else "s1" if v else "s0" for v in verdicts]


# the chart


def chart_spec(part: TaskTrend, f: Followed, links: Links | None = None) -> Spec:
    """Runs from left to right: the interval as a band, values as a line, real changes as triangles with their size."""
    rows = _chart_rows(part, f)
    told: Spec = {"tooltip": TOLD}
    if links is not None:
        rows = [{**row, "href": links.run(run)} for row, run in zip(rows, part.runs, strict=True)]
        told["href"] = {"field": "href", "type": "nominal"}
    ends = [r[key] for r in rows for key in ("low", "point", "high") if r[key] is not None]
    y: Spec = {
        "field": "point",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": _domain(ends), "nice": False, "zero": False},
        "axis": {"tickCount": 5},
    }
    return {
        "description": visible(_said(part, f)),
        "width": "container",
        "height": 300,
        "padding": {"left": 4, "top": 22, "bottom": 4, "right": 18},
        "data": {"values": rows},
        "layer": _layers(len(rows), y, _x(part.runs, 8), told),
        "usermeta": {
            "narrow": {
                "height": 240,
                "padding": {"left": 0, "top": 20, "bottom": 4, "right": 10},
                "layer": _layers(len(rows), y, _x(part.runs, 3), told),
            }
        },
    }


def _said(part: TaskTrend, f: Followed) -> str:
    known = [p for p in f.series.points if p.estimate.point is not None]
    first, last = known[0], known[-1]
    said = (
        f"{f.name} over {len(part.runs):,} runs, from {number(first.estimate.point)} to {number(last.estimate.point)}"
    )
    real = [
        f"{p.name} {signed(c.comparison.difference)} ({verdict(c, f.higher_is_better)})"
        for p, c in zip(f.series.points, f.series.changes, strict=True)
        if c is not None and c.real
    ]
    return f"{said}. Real changes: {'; '.join(real[:12]) or 'none'}. The table below has the numbers."


def _chart_rows(part: TaskTrend, f: Followed) -> list[Spec]:
    rows, stretch = [], 0
    for i, (run, when) in enumerate(zip(part.runs, times(part.runs), strict=True)):
        e, change = f.series.points[i].estimate, f.series.changes[i]
        stretch += change is not None and not change.comparison.n  # no line across other cases
        word = verdict(change, f.higher_is_better) if change is not None else ""
        rows.append(
            {
                "at": i,
                "run": visible(run.name),
                "when": when,
                "point": e.point,
                "low": e.low,
                "high": e.high,
                "value": f"{number(e.point)} {between(e.low, e.high)}",
                "change": _change_words(change, word),
                "real": word if change is not None and change.real else "",
                "up": change is not None and change.sign > 0,
                "size": signed(change.comparison.difference) if change is not None else "",
                "stretch": stretch,
            }
        )
    return rows if sum(row["real"] != "" for row in rows) <= MOST_SIZES else [{**row, "size": ""} for row in rows]


def _change_words(change: Change | None, word: str) -> str:
    if change is None:
        return "–"
    return word if not change.comparison.n else f"{signed(change.comparison.difference)}, {word}"


def _domain(ends: Sequence[float]) -> list[float]:
    """A little more than the intervals need; shares stay within 0 and 1."""
    low, high = min(ends), max(ends)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    share = low >= 0 and high <= 1
    return [max(0.0, low - room) if share else low - room, min(1.0, high + room) if share else high + room]


def _x(runs: Sequence[Past], most: int) -> Spec:
    """Runs at equal distances, the days of some under the axis."""
    n = len(runs)
    step = max(1, -(-n // most))
    ticks = list(range(0, n, step))
    one_day = len({r.when.date() for r in runs}) == 1
    labels = {str(i): f"{runs[i].when:%H:%M}" if one_day else f"{runs[i].when:%Y-%m-%d}" for i in ticks}
    return {
        "field": "at",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [-0.5, n - 0.5] if n < 12 else [0, n - 1], "nice": False, "zero": False},
        "axis": {
            "values": ticks,
            "labelExpr": f"({json_text(labels)})[datum.value]",
            "grid": False,
            "labelOverlap": "greedy",
        },
    }


def _layers(n: int, y: Spec, x: Spec, told: Spec) -> list[Spec]:
    """`told` is what a point says and where it leads."""
    by = {"field": "stretch", "type": "nominal"}
    noise: list[Spec] = [{"filter": "datum.real === ''"}]
    dot = {"type": "point", "filled": True, "fill": "var(--accent)", "stroke": "var(--paper)", "strokeWidth": 1.5}
    return [
        {
            "mark": {"type": "area", "fill": "var(--accent)", "opacity": 0.14},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "detail": by},
        },
        {
            "mark": {"type": "rule", "stroke": "var(--accent)", "opacity": 0.35 if n <= MOST_BARS else 0},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "line", "stroke": "var(--accent)", "strokeWidth": 2.25},
            "encoding": {"x": x, "y": y, "detail": by},
        },
        {
            "transform": noise,
            "mark": {**dot, "size": 60, "opacity": 1 if n <= MOST_DOTS else 0},
            "encoding": {"x": x, "y": y, **told},
        },
        *(layer for word, colour in COLOURS.items() for layer in _real_layers(word, colour, x, y, told)),
    ]


def _real_layers(word: str, colour: str, x: Spec, y: Spec, told: Spec) -> list[Spec]:
    """A triangle at each real change, with how large it is."""
    of_word: list[Spec] = [{"filter": f"datum.real === '{word}'"}]
    layers: list[Spec] = []
    for up in (True, False):
        kept = [*of_word, {"filter": f"datum.up === {'true' if up else 'false'}"}]
        shape = "triangle-up" if up else "triangle-down"
        mark_spec: Spec = {"type": "point", "filled": True, "shape": shape, "size": 190, "opacity": 1, "fill": colour}
        layers.append(
            {
                "transform": kept,
                "mark": {**mark_spec, "stroke": "var(--paper)", "strokeWidth": 1.5},
                "encoding": {"x": x, "y": y, **told},
            }
        )
        layers.append(
            {
                "transform": kept,
                "mark": {"type": "text", "dy": -16 if up else 20, "fill": colour, "fontWeight": 600},
                "encoding": {"x": x, "y": y, "text": {"field": "size"}},
            }
        )
    return layers


# the cases through time


def heat_map(runs: Sequence[Past], histories: Sequence[History]) -> Heat | None:
    """A row a case, a column a run; None where nothing was verified.

    Of more than `MOST_CASES` those that flip most. Cases that pass more often come first.
    """
    known = [h for h in histories if h.runs]
    if not known or len(runs) < 2:
        return None
    picked = sorted(known, key=lambda h: (-h.flips, abs(h.passes / h.runs - 0.5)))[:MOST_CASES]
    rows = sorted(picked, key=lambda h: (-h.passes / h.runs, h.flips, h.case))
    step = -(-len(runs) // MOST_COLUMNS)
    spans = [range(i, min(i + step, len(runs))) for i in range(0, len(runs), step)]
    cells = _cells(runs, [h.case for h in rows], spans)
    dates = times(runs)
    columns = [_span_name(runs, dates, span) for span in spans]
    said = "" if len(picked) == len(known) else f"The {len(picked):,} cases that flip most, of {len(known):,}. "
    wide = f"Each column is {step} runs. " if step > 1 else ""
    row = max(5, min(16, 520 // len(rows)))
    return Heat(
        label=f"{len(rows):,} cases through {len(runs):,} runs, from those that pass most to those that fail most",
        width=len(spans),
        height=len(rows),
        row=row,
        names=tuple(visible(h.case)[:60] for h in rows) if row >= 13 else (),
        shades=_shades(cells),
        lines=_lines(len(spans), len(rows), row),
        ends=(dates[0], dates[-1]),
        fails=FAILS,
        note=f"{said}{wide}Cases that pass most often are at the top.",
        tip=json_text({"cases": [visible(h.case)[:80] for h in rows], "runs": columns, "cells": cells}),
        table=tuple((visible(h.case) or '""', f"{h.passes:,} / {h.runs:,}", f"{h.flips:,}") for h in rows),
    )


def _lines(width: int, height: int, row: int) -> str:
    """What parts the cells: lines between rows where these are high enough, between columns where they are few."""
    between_rows = [f"M0 {y}h{width}" for y in range(1, height)] if row >= 7 else []
    between_columns = [f"M{x} 0v{height}" for x in range(1, width)] if width <= 60 else []
    return "".join([*between_rows, *between_columns])


def _span_name(runs: Sequence[Past], dates: Sequence[str], span: range) -> str:
    first, last = span[0], span[-1]
    if len(span) == 1:
        return visible(runs[first].name if runs[first].name == dates[first] else f"{runs[first].name}, {dates[first]}")
    return visible(f"{runs[first].name} to {runs[last].name}")


def _cells(runs: Sequence[Past], cases: Sequence[str], spans: Sequence[range]) -> list[list[float | None]]:
    """The share of each column's runs in which each case passes; None where none of them verified it."""
    table = {case: [[0, 0] for _ in spans] for case in cases}
    for at, span in enumerate(spans):
        for run in (runs[i] for i in span):
            for case, passed in zip(run.cases, run.verdicts, strict=True):
                if passed is not None and case in table:
                    cell = table[case][at]
                    cell[0] += passed
                    cell[1] += 1
    return [[round(p / n, 3) if n else None for p, n in table[case]] for case in cases]


def _shades(cells: Sequence[Sequence[float | None]]) -> tuple[tuple[str, str], ...]:
    """One path a shade: unit squares, neighbours of a row that look alike drawn as one."""
    paths: dict[int, list[str]] = {}
    for y, row in enumerate(cells):
        shades = [None if v is None else round(v * (LEVELS - 1)) for v in row]
        x = 0
        while x < len(shades):
            end = next((i for i in range(x, len(shades)) if shades[i] != shades[x]), len(shades))
            if (shade := shades[x]) is not None:
                paths.setdefault(shade, []).append(f"M{x} {y}h{end - x}v1h{x - end}z")
            x = end
    return tuple((_colour(shade), "".join(path)) for shade, path in sorted(paths.items()))


def _colour(shade: int) -> str:
    return "var(--pass)" if shade == LEVELS - 1 else f"color-mix(in oklab, var(--pass) {25 * shade}%, {FAILS})"
