"""A trend as an HTML page: chart, table of runs, and a heat map of cases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.analysis.series import most_flaky
from kofn.analysis.trend import FROM_REPORTS, change_verdict
from kofn.core.escape import escape_json, show_hidden
from kofn.core.format import (
    format_cost,
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_p,
    format_signed,
)
from kofn.render.charts import Chart
from kofn.render.page import Stat, html_page
from kofn.render.plot import Area, Axis, Dot, Dots, Line, Plot, Tip, Whiskers, number_axis, with_whole
from kofn.render.trend_text import (
    across_text,
    cases_text,
    change_mark,
    changes_text,
    describe_metric,
    interval_heading,
    run_times,
    spread_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.analysis.series import CaseHistory
    from kofn.analysis.trend import MetricTrend, TaskTrend, Trend
    from kofn.render.plot import Layer
    from kofn.runs.index import StoredRun

MOST_ROWS = 30  # runs in the table; beyond, the newest and every real change
MOST_FOLDED = 500  # further ones that can be unfolded
MOST_CASES = 200  # rows of the heat map
MOST_COLUMNS = 120  # its columns; beyond, neighbouring runs share one
MOST_DOTS = 150  # runs that get a dot in the chart; beyond, only real changes do
STRIP = 20  # newest runs of a flaky case that are drawn one by one
MOST_SIZES = 24  # real changes whose size is written beside them
MOST_TICKS = 8  # labels under the chart
MOST_BARS = 40  # runs whose interval is drawn as a bar too
LEVELS = 5  # shades of a cell that several runs share
FAILS = "color-mix(in oklab, var(--fail) 62%, var(--paper))"  # a field of cells, so calmer than a mark
COLOURS = {"better": "var(--pass)", "worse": "var(--fail)", "higher": "var(--second)", "lower": "var(--second)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
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


class TrendLinks(NamedTuple):
    """Where a run is shown, and a case of it; for pages that lead there."""

    run: Callable[[StoredRun], str]
    case: Callable[[StoredRun, str], str]


def trend_page(found: Trend) -> str:
    """The whole page, in one file that needs no network."""
    return html_page("trend.html.j2", trend_data(found), title=trend_title(found), scripts=["trend.js"])


def trend_data(found: Trend, links: TrendLinks | None = None) -> dict[str, Any]:
    """What trend.html.j2 shows."""
    return {
        "tasks": [_task(part, i, links) for i, part in enumerate(found.tasks)],
        "n_runs": sum(len(p.runs) for p in found.tasks),
        "left_out": [show_hidden(one.reason) for one in found.left_out],
        "alpha": f"{found.alpha:g}",
    }


def trend_title(found: Trend) -> str:
    """What the page is of."""
    names = [show_hidden(part.title) or "(no name)" for part in found.tasks]
    runs = sum(len(p.runs) for p in found.tasks)
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}: {runs:,} runs"


def _task(part: TaskTrend, at: int, links: TrendLinks | None) -> dict[str, Any]:
    first, last = part.runs[0].when, part.runs[-1].when
    days = list(dict.fromkeys(f"{when:%Y-%m-%d}" for when in (first, last)))
    return {
        "id": f"task-{at}",
        "name": show_hidden(part.title) or "(no name)",
        "days": " to ".join(days),
        "n_runs": len(part.runs),
        "head": _head(part),
        "stats": _stats(part),
        "series": [_series(part, f, f"series-{at}-{i}", links) for i, f in enumerate(part.metrics)],
        "cases": show_hidden(cases_text(part)),
        "across": show_hidden(across_text(part)),
        "counts": part.counts,
        "flaky": [_flaky_row(part, h, links) for h in most_flaky(part.cases)],
        "heat": heat_map(part.runs, part.cases),
    }


def _head(part: TaskTrend) -> dict[str, str]:
    """The newest against the oldest in figures, and the headline."""
    f, reason = part.metrics[0], show_hidden(part.headline.text)
    change = f.series.overall
    if change is None or not change.comparison.n:
        values = [p.estimate.point for p in f.series.points if p.estimate.point is not None]
        word = format_number(values[-1]) if values else "No value"
        return {"kind": "", "mark": "", "word": word, "reason": reason, "more": ""}
    word = change_verdict(change, f.higher_is_better)
    return {
        "kind": {"better": "passed", "worse": "failed"}.get(word, ""),
        "mark": change_mark(change) if change.real else "",
        "word": "Too few cases" if word == "too few cases" else format_signed(change.comparison.difference),
        "reason": reason,
        "more": _real_changes_text(f),
    }


def _real_changes_text(f: MetricTrend) -> str:
    """How many changes are real, for the head of the page."""
    known = [c for c in f.series.changes if c is not None and c.comparison.n]
    real = sum(c.real for c in known)
    if not known:
        return ""
    if not real:
        return f"No change from one run to the next is significant ({len(known):,} tested)."
    changes = format_count(len(known), "change")
    return f"{real:,} of {changes} from one run to the next {'is' if real == 1 else 'are'} significant."


def _last(f: MetricTrend) -> int:
    return max(i for i, p in enumerate(f.series.points) if p.estimate.point is not None)


def _stats(part: TaskTrend) -> list[Stat]:
    """The newest value, how far runs lie apart, and the means over all runs."""
    f, stats, runs = part.metrics[0], [], format_count(len(part.runs), "run")
    s = f.series.spread
    if s is not None:
        e = f.series.points[_last(f)].estimate
        name = f"{show_hidden(f.name)}, newest"
        stats.append(Stat(name, format_number(e.point), format_interval(e.low, e.high)))
        if s.sd is not None:
            alone = "" if s.noise is None else f"noise alone {format_number(s.noise)}"
            stats.append(Stat("spread (sd)", format_number(s.sd), alone))
    if f.name != "pass_rate":
        stats.append(Stat("mean pass rate", format_number(part.pass_rate), runs))
    elif s is not None:
        stats.append(Stat("mean", format_number(s.mean), runs))
    stats += [Stat("mean time", format_duration(part.seconds))] if part.seconds is not None else []
    stats += [Stat("mean cost", format_cost(part.cost))] if part.cost is not None else []
    return stats[:4]


def _series(part: TaskTrend, f: MetricTrend, name: str, links: TrendLinks | None) -> dict[str, Any]:
    known = [p.estimate.point for p in f.series.points if p.estimate.point is not None]
    marks = {(_word(f, i), change_mark(c)) for i, c in enumerate(f.series.changes) if c is not None and c.real}
    n, drawn, when = len(f.series.points), len(known) > 1, run_times(part.runs)
    # the newest and every real change; the others are folded away
    listed = [i for i in range(n) if i >= n - MOST_ROWS or ((c := f.series.changes[i]) is not None and c.real)]
    folded = sorted(set(range(n)) - set(listed))
    return {
        "id": name,
        "title": show_hidden(f.name),
        "what": show_hidden(describe_metric(f).partition(": ")[2] if f.name in FROM_REPORTS else describe_metric(f)),
        "chart": series_chart(name, part, f, links) if drawn else None,
        "keys": [
            (f"significant change, {w}", colour, m) for w, colour in COLOURS.items() for m in "▲▼" if (w, m) in marks
        ],
        "level": interval_heading(f.level),
        "rows": [_row(part.runs, f, i, when[i], links) for i in listed],
        "folded": [_row(part.runs, f, i, when[i], links) for i in folded[-MOST_FOLDED:]],
        "n_folded": len(folded),
        "has_cost": any(r.cost is not None for r in part.runs),
        "has_time": any(r.seconds is not None for r in part.runs),
        "spread": show_hidden(spread_text(f.series.spread, f.series.alpha)) if f.series.spread and drawn else "",
        "changes": show_hidden(changes_text(f)) if drawn else "",
    }


def _row(runs: Sequence[StoredRun], f: MetricTrend, at: int, when: str, links: TrendLinks | None) -> dict[str, Any]:
    run, e, change, word = runs[at], f.series.points[at].estimate, f.series.changes[at], _word(f, at)
    c = change.comparison if change is not None else None
    return {
        "run": show_hidden(run.name) or "(no name)",
        "to": links and links.run(run),
        "when": when,
        "value": format_number(e.point),
        "interval": format_interval(e.low, e.high),
        "mark": change_mark(change),
        "word": word,
        "colour": COLOURS.get(word, ""),
        "difference": format_signed(c.difference) if c is not None and c.n else "",
        "ends": format_interval(c.low, c.high) if c is not None and c.n else "",
        "p": format_p(change.p_holm) if change is not None and c is not None and c.n else "",
        "n": f"{c.n:,}" if c is not None else "",
        "passed": f"{run.n_passed:,} / {len(run.cases):,}",
        "share": run.n_passed / max(1, len(run.cases)),
        "cases": len(run.cases),
        "cost": format_cost(run.cost),
        "time": format_duration(run.seconds),
        "notes": show_hidden("; ".join(f.notes[at])),
    }


def _flaky_row(part: TaskTrend, h: CaseHistory, links: TrendLinks | None) -> dict[str, Any]:
    newest = next((r for r in reversed(part.runs) if r.verdict_of(h.case) is not None), None)
    return {
        "case": show_hidden(h.case) or '""',
        "to": links.case(newest, h.case) if links and newest else None,
        "flips": f"{h.flips:,}",
        "passes": f"{h.passes:,} / {h.runs:,}",
        "share": h.passes / h.runs,
        "strip": [{True: "s1", False: "s0", None: "sx"}[r.verdict_of(h.case)] for r in part.runs[-STRIP:]],
    }


# the chart


def series_chart(chart_id: str, part: TaskTrend, f: MetricTrend, links: TrendLinks | None = None) -> Chart:
    """Runs from left to right: the interval as a band, values as a line, real changes as triangles with their size."""
    estimates = [p.estimate for p in f.series.points]
    ends = [v for e in estimates for v in (e.low, e.point, e.high) if v is not None]
    low, high = min(ends), max(ends)
    # a little more than the intervals need; `or`: one value alone still needs a scale around it
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    share = low >= 0 and high <= 1
    y = number_axis(max(0.0, low - room) if share else low - room, min(1.0, high + room) if share else high + room)
    y = with_whole(y) if share else y
    return Chart(
        id=chart_id,
        title=show_hidden(f.name),
        label=show_hidden(_chart_description(part, f)),
        plot=Plot(x=_x(part.runs), y=y, layers=tuple(_layers(part, f, links)), height=280, top=26, look="tall"),
        header=(),
        rows=(),
    )


def _chart_description(part: TaskTrend, f: MetricTrend) -> str:
    known = [p for p in f.series.points if p.estimate.point is not None]
    first, last = known[0], known[-1]
    ends = [format_number(point.estimate.point) for point in (first, last)]
    said = f"{f.name} over {len(part.runs):,} runs, from {ends[0]} to {ends[1]}"
    real = [
        f"{p.name} {format_signed(c.comparison.difference)} ({_word(f, i)})"
        for i, (p, c) in enumerate(zip(f.series.points, f.series.changes, strict=True))
        if c is not None and c.real
    ]
    return f"{said}. Real changes: {'; '.join(real[:12]) or 'none'}. The table below has the numbers."


def _layers(part: TaskTrend, f: MetricTrend, links: TrendLinks | None) -> list[Layer]:
    points, changes = f.series.points, f.series.changes
    real = [c is not None and c.real for c in changes]
    # no line from run to run where they share no case
    breaks = [i for i, c in enumerate(changes) if c is not None and not c.comparison.n]
    parts = [range(low, high) for low, high in zip([0, *breaks], [*breaks, len(points)], strict=True)]
    ends = {i: (i, e.low, e.high) for i, e in enumerate(p.estimate for p in points)
            if e.low is not None and e.high is not None}  # fmt: skip
    values = {i: (i, p.estimate.point) for i, p in enumerate(points) if p.estimate.point is not None}
    areas = [tuple(ends[i] for i in at if i in ends) for at in parts]
    layers: list[Layer] = [Area(points=points, colour="var(--accent)") for points in areas]
    if len(points) <= MOST_BARS:
        layers.append(Whiskers(points=tuple(ends.values()), colour="var(--accent)"))
    layers += [Line(points=tuple(values[i] for i in at if i in values), colour="var(--accent)") for at in parts]
    dots = _dots(part, f, links)
    shown = [dots[i] for i in values if not real[i]] if len(points) <= MOST_DOTS else []
    layers.append(Dots(dots=tuple(shown), colour="var(--accent)"))
    looks = {i: (_word(f, i), change_mark(changes[i])) for i in values if real[i]}
    for word, colour in COLOURS.items():
        for mark in "▲▼":
            of_word = tuple(dots[i] for i, look in looks.items() if look == (word, mark))
            layers.append(Dots(dots=of_word, colour=colour))
    return layers


def _word(f: MetricTrend, at: int) -> str:
    """What the change to a run is called: better, worse, noise, ..."""
    change = f.series.changes[at]
    return change_verdict(change, f.higher_is_better) if change is not None else ""


def _dots(part: TaskTrend, f: MetricTrend, links: TrendLinks | None) -> dict[int, Dot]:
    """The point of each run; a real change is a triangle, its size beside it unless there are too many."""
    sized = sum(c is not None and c.real for c in f.series.changes) <= MOST_SIZES
    out = {}
    for i, (run, when) in enumerate(zip(part.runs, run_times(part.runs), strict=True)):
        e, change = f.series.points[i].estimate, f.series.changes[i]
        if e.point is None:
            continue
        size = format_signed(change.comparison.difference) if change is not None and change.comparison.n else ""
        pairs = (
            ("made", when),
            ("value", f"{format_number(e.point)} {format_interval(e.low, e.high)}"),
            ("change", ", ".join(filter(None, [size, _word(f, i)])) or "–"),
        )
        tip = Tip(headline=show_hidden(run.name), pairs=pairs)
        dot = Dot(x=i, y=e.point, tip=tip, href=links.run(run) if links else "")
        if change is not None and change.real:
            dot = replace(dot, shape="up" if change.sign > 0 else "down", label=size if sized else "")
        out[i] = dot
    return out


def _x(runs: Sequence[StoredRun]) -> Axis:
    """Runs at equal distances, the days of some under the axis."""
    n = len(runs)
    one_day = len({r.when.date() for r in runs}) == 1
    # rounded up: at most so many ticks
    ticks = range(0, n, max(1, -(-n // MOST_TICKS)))
    return Axis(
        domain=(-0.5, n - 0.5) if n < 12 else (0, n - 1),
        ticks=tuple((i, f"{runs[i].when:%H:%M}" if one_day else f"{runs[i].when:%Y-%m-%d}") for i in ticks),
        grid=False,
    )


# the cases through time


def heat_map(runs: Sequence[StoredRun], histories: Sequence[CaseHistory]) -> HeatMap | None:
    """A row a case, a column a run; None where nothing was verified.

    Of more than `MOST_CASES` those that flip most. Cases that pass more often come first.
    """
    known = [h for h in histories if h.runs]
    if not known or len(runs) < 2:
        return None
    # those that flip most; of equals those nearest to one half
    picked = sorted(known, key=lambda h: (-h.flips, abs(h.passes / h.runs - 0.5)))[:MOST_CASES]
    rows = sorted(picked, key=lambda h: (-h.passes / h.runs, h.flips, h.case))
    step = -(-len(runs) // MOST_COLUMNS)
    spans = [range(i, min(i + step, len(runs))) for i in range(0, len(runs), step)]
    cells = _cells(runs, [h.case for h in rows], spans)
    dates = run_times(runs)
    columns = [_span_name(runs, dates, span) for span in spans]
    said = "" if len(picked) == len(known) else f"The {len(picked):,} cases that flip most, of {len(known):,}. "
    wide = f"Each column is {step} runs. " if step > 1 else ""
    # pixels: the map is at most 520 high, and a row never below 5
    row = max(5, min(16, 520 // len(rows)))
    # lines between rows where these are high enough, between columns where they are few
    lines = "".join(f"M0 {y}h{len(spans)}" for y in range(1, len(rows))) if row >= 7 else ""
    lines += "".join(f"M{x} 0v{len(rows)}" for x in range(1, len(spans))) if len(spans) <= 60 else ""
    return HeatMap(
        label=f"{len(rows):,} cases through {len(runs):,} runs, from those that pass most to those that fail most",
        width=len(spans),
        height=len(rows),
        row=row,
        names=tuple(show_hidden(h.case)[:60] for h in rows) if row >= 13 else (),
        shades=_shades(cells),
        lines=lines,
        ends=(dates[0], dates[-1]),
        fails=FAILS,
        note=f"{said}{wide}Cases that pass most often are at the top.",
        tip=escape_json({"cases": [show_hidden(h.case)[:80] for h in rows], "runs": columns, "cells": cells}),
        table=tuple((show_hidden(h.case) or '""', f"{h.passes:,} / {h.runs:,}", f"{h.flips:,}") for h in rows),
    )


def _span_name(runs: Sequence[StoredRun], dates: Sequence[str], span: range) -> str:
    first, last = runs[span[0]].name, runs[span[-1]].name
    if len(span) > 1:
        return show_hidden(f"{first} to {last}")
    return show_hidden(first if first == dates[span[0]] else f"{first}, {dates[span[0]]}")


def _cells(runs: Sequence[StoredRun], cases: Sequence[str], spans: Sequence[range]) -> list[list[float | None]]:
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
        # rounded to five shades first: equal neighbours become one rectangle
        shades = [None if v is None else round(v * (LEVELS - 1)) for v in row]
        x = 0
        while x < len(shades):
            end = next((i for i in range(x, len(shades)) if shades[i] != shades[x]), len(shades))
            if (shade := shades[x]) is not None:
                paths.setdefault(shade, []).append(f"M{x} {y}h{end - x}v1h{x - end}z")
            x = end
    return tuple(
        (
            "var(--pass)" if shade == LEVELS - 1 else f"color-mix(in oklab, var(--pass) {25 * shade}%, {FAILS})",
            "".join(path),
        )
        for shade, path in sorted(paths.items())
    )
