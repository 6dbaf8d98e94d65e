"""A chart of a running estimate and its interval, drawn as SVG by a template, so that it needs no script."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from kofn.core.format import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.generate.progress_file import ProgressPoint, ProgressRecord

SIZE = 1000  # units of the drawing, both ways; the browser stretches it
MAX_ROWS = 12  # of the table
MAX_VALUE = 1e15  # kofn writes no larger ones; they would not fit the labels


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateChart:
    """What the template draws. Lengths are of `SIZE`; `ticks` and `steps` are (place in percent, words)."""

    name: str
    label: str
    band: str
    line: str
    at: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]
    steps: tuple[tuple[float, str], ...]
    rows: tuple[tuple[str, str, str, str], ...]


def estimate_chart(live: ProgressRecord) -> EstimateChart | None:
    """The first estimate over the cases done; None before there are two points of it."""
    known = [p for p in live.history if p.point is not None and all(abs(v or 0) < MAX_VALUE for v in p)]
    if len(known) < 2 or not live.estimates:
        return None
    low, high = domain([v for p in known for v in (p.point, p.low, p.high) if v is not None])
    most = max(live.cases_total, known[-1].n, 1)

    def at(n: int, value: float) -> tuple[float, float]:
        return round(SIZE * n / most, 1), round(SIZE * (high - value) / (high - low), 1)

    first, last = known[0], known[-1]
    banded = [p for p in known if p.low is not None and p.high is not None]
    name = live.estimates[0].aggregator
    return EstimateChart(
        name=name,
        label=f"{name} over the cases done: {_summary(first)}, {_summary(last)}",
        band=_path([*(at(p.n, p.low or 0.0) for p in banded), *(at(p.n, p.high or 0.0) for p in reversed(banded))]),
        line=_path([at(p.n, p.point or 0.0) for p in known]),
        at=at(last.n, last.point or 0.0),
        ticks=tuple((100 * i / 4, _tick_text(high - (high - low) * i / 4, high - low)) for i in range(5)),
        steps=((0.0, "0"), (50.0, f"{most // 2:,}"), (100.0, f"{most:,} cases")),
        rows=tuple(_row(p) for p in _sample(known)),
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


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points) if points else ""


def _tick_text(value: float, width: float) -> str:
    return f"{value:.2f}" if width <= 2 else f"{value:,.4g}"


def _summary(point: ProgressPoint) -> str:
    interval = "" if point.low is None or point.high is None else f" [{point.low:.3f}, {point.high:.3f}]"
    return f"{point.point:.3f}{interval} after {point.n:,}"


def _row(point: ProgressPoint) -> tuple[str, str, str, str]:
    interval = "–" if point.low is None or point.high is None else f"[{point.low:.3f}, {point.high:.3f}]"
    return f"{point.n:,}", f"{point.point:.3f}", interval, format_duration(point.seconds)


def _sample(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """At most `MAX_ROWS` points, evenly spaced, with the first and the last."""
    if len(points) <= MAX_ROWS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MAX_ROWS - 1))] for i in range(MAX_ROWS)]
