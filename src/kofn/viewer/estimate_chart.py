"""The chart of a running estimate: the value over the cases done until then, with its interval as a band."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING

from kofn.core.escape import show_hidden
from kofn.core.format import format_duration, format_interval
from kofn.render.charts import Chart
from kofn.render.plot import Area, Axis, Dot, Dots, Line, Plot, Tip, number_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.generate.progress_file import ProgressPoint, ProgressRecord

MAX_ROWS = 12  # of the table
MAX_VALUE = 1e15  # kofn writes no larger ones; they would not fit the labels


def estimate_chart(live: ProgressRecord) -> Chart | None:
    """The first estimate over the cases done; None before there are two points of it."""
    known = [p for p in live.history if p.point is not None and all(abs(v or 0) < MAX_VALUE for v in p)]
    if len(known) < 2 or not live.estimates:
        return None
    most = max(live.cases_total, known[-1].n, 1)
    first, last = known[0], known[-1]
    values = [(p.n, p.point) for p in known if p.point is not None]
    band = [(p.n, p.low, p.high) for p in known if p.low is not None and p.high is not None]
    name = show_hidden(live.estimates[0].aggregator)
    dot = Dot(x=last.n, y=values[-1][1], tip=Tip(headline=name, pairs=(("so far", _summary(last)),)))
    half = [(most // 2, f"{most // 2:,}")] if most > 1 else []
    return Chart(
        id="running",
        title=f"{name}, {'as it narrows' if band else 'so far'}",
        label=f"{name} over the cases done: {_summary(first)}, {_summary(last)}",
        plot=Plot(
            x=Axis(domain=(0, most), ticks=((0, "0"), *half, (most, f"{most:,}")), title="cases", grid=False),
            y=number_axis(*domain([v for p in known for v in (p.point, p.low, p.high) if v is not None])),
            layers=(
                Area(points=tuple(band), colour="var(--accent)", opacity=0.16),
                Line(points=tuple(values), colour="var(--accent)", width=2),
                Dots(dots=(dot,), colour="var(--accent)"),
            ),
            height=180,
        ),
        header=("cases", name, "interval", "after"),
        rows=tuple(_row(p) for p in _sample(known)),
        note=f"The line is the estimate over the cases done until then{'; the band is its interval' if band else ''}.",
        numbers_from=0,
    )


def domain(values: Sequence[float]) -> tuple[float, float]:
    """The scale: 0 to 1 for shares, else round numbers around the values.

    >>> domain([0.2, 0.7]), domain([3.1, 4.2]), domain([5.0, 5.0])
    ((0.0, 1.0), (3.0, 5.0), (4.0, 6.0))
    """
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    step = 10.0 ** floor(log10(high - low)) if high > low else 1.0
    low, high = floor(low / step) * step, ceil(high / step) * step
    return (low, high) if high > low else (low - step, high + step)


def _summary(point: ProgressPoint) -> str:
    interval = format_interval(point.low, point.high, none="")
    return f"{point.point:.3f}{interval and f' {interval}'} after {point.n:,}"


def _row(point: ProgressPoint) -> tuple[str, str, str, str]:
    interval = format_interval(point.low, point.high, none="–")
    return f"{point.n:,}", f"{point.point:.3f}", interval, format_duration(point.seconds)


def _sample(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """At most `MAX_ROWS` points, evenly spaced, with the first and the last."""
    if len(points) <= MAX_ROWS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MAX_ROWS - 1))] for i in range(MAX_ROWS)]
