"""Draws charts as SVG that stretches with the page and needs no script, and exports them as Vega-Lite.

A `Plot` is two axes and layers of marks in the units of the data. Its SVG has percentages for places and pixels for
text, so a browser fits it to any width; colours are variables of the style sheet (`var(--pass)`), so it follows light,
dark and print. Marks with a tooltip can be reached by keyboard; without a script their `<title>` is the tooltip.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import ceil, floor, log, log10
from typing import TYPE_CHECKING, Any

from kofn.core.escape import html_element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

Spec = dict[str, Any]
Attributes = dict[str, str | float | None]

FONT_SIZE = 12.5
LIGHT = {  # the variables of page.css that plots use, in light mode: outside a page nothing defines them
    "var(--paper)": "#fcfcfa",
    "var(--ink)": "#1a2026",
    "var(--muted)": "#59636d",
    "var(--line)": "#e1e4df",
    "var(--strong-line)": "#c6cbc5",
    "var(--accent)": "#0b6b66",
    "var(--second)": "#3a4550",
    "var(--pass)": "#0b6b66",
    "var(--some)": "#57a09b",
    "var(--fail)": "#b83a12",
    "var(--mark-line)": "#b98900",
}
DASHES = {"": "", "dashed": "5 4", "dotted": "1.5 4"}
_SHAPES = {"up": "M0-8L8 6H-8z", "down": "M0 8L8-6H-8z"}
_SIDES = {"left": ("end", -9, -7), "right": ("start", 9, 4), "above": ("middle", 0, -11)}  # anchor, dx, dy
# classes of labels by the width from which a plot shows them, and the pixels there are then
_TIERS = (("broad", 830), ("wide", 450), ("", 230))
_NAME_SHOWN = 30  # characters of a category
_NAME_SHOWN_NARROW = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A scale with its ticks. `names`: the ticks are categories at 0, 1, 2, ..., the first on top.

    `whole` is the scale that a reader may switch to, where this one shows the part in which the data are.
    """

    domain: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    log: bool = False
    names: bool = False
    grid: bool = True
    whole: Axis | None = None

    def share(self, value: float) -> float:
        """Where a value stands, from 0 to 1.

        >>> Axis(domain=(1, 16), ticks=(), log=True).share(4)
        0.5
        """
        low, high = self.domain
        if self.log:
            return log(value / low) / log(high / low)
        return (value - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """What a mark says: a headline and (name, value) pairs."""

    headline: str
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A band between two curves."""

    points: tuple[tuple[float, float, float], ...]  # x, low, high
    colour: str
    opacity: float = 0.14


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve; `dash` is "", dashed or dotted."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 2.25
    dash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whiskers:
    """Intervals as thin vertical lines."""

    points: tuple[tuple[float, float, float], ...]  # x, low, high
    colour: str
    opacity: float = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A point; `shape` is circle, up or down. `ends`: a horizontal interval through it."""

    x: float
    y: float
    tip: Tip
    size: float = 4.0
    shape: str = "circle"
    href: str = ""
    ends: tuple[float, float] | None = None
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Points of one colour."""

    dots: tuple[Dot, ...]
    colour: str
    hollow: bool = False
    shown: str = ""  # the choice of `Plot.choices` with which it is shown; "" for all


@dataclass(frozen=True, slots=True, kw_only=True)
class BarMark:
    """A rectangle from `low` to `high`. `label` is written above it, `key` names it for scripts."""

    left: float
    right: float
    low: float
    high: float
    tip: Tip
    label: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars of one colour."""

    bars: tuple[BarMark, ...]
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A line across the plot at a value of one axis, with a label on top. Hidden where the value is None or outside.

    name   what a script that moves it looks for
    row    how many rows of text above the plot its label stands
    """

    value: float | None
    colour: str
    axis: str = "x"
    width: float = 1.5
    dash: str = ""
    label: str = ""
    name: str = ""
    row: int = 0
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMark:
    """A text at a point; `side` is where it stands: left, right or above."""

    x: float
    y: float
    text: str
    colour: str = "var(--muted)"
    side: str = "above"
    italic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLabels:
    """Texts to the right of the rows of a forest plot: (row, text, what a wide plot adds)."""

    rows: tuple[tuple[float, str, str], ...]
    shown: str = ""


Layer = Area | Line | Whiskers | Dots | Bars | Guide | TextMark | RowLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Two axes and layers, the first at the bottom. `choices` are the values of `shown` that a reader picks from."""

    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    height: int = 250
    top: int = 10
    choices: tuple[str, ...] = ()
    chosen: str = ""
    look: str = ""  # a class of the style sheet

    @property
    def zoomed(self) -> str:
        """Which axis can be switched to its whole scale: x, y or none."""
        return "x" if self.x.whole is not None else "y" if self.y.whole is not None else ""

    @property
    def whole_words(self) -> str:
        """The ends of the whole scale, as a switch names them."""
        axis = self.x.whole or self.y.whole
        return "" if axis is None else "from {:g} to {:.3g}".format(*axis.domain)


# --- axes


def round_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most about so many round numbers between two ends.

    >>> round_ticks(-0.12, 0.31), round_ticks(-3, 1), round_ticks(0, 7, 4)
    ([-0.1, 0.0, 0.1, 0.2, 0.3], [-3.0, -2.0, -1.0, 0.0, 1.0], [0.0, 2.0, 4.0, 6.0])
    """
    rough = (high - low) / most
    size = 10.0 ** floor(log10(rough))
    # 0.999: a step that rounding left just short still counts
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999)
    return [round(i * step, 12) + 0.0 for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def number_axis(low: float, high: float, *, title: str = "", most: int = 5, unit: str = "", grid: bool = True) -> Axis:
    """An axis of numbers between two ends.

    >>> number_axis(0, 1, most=4).ticks
    ((0.0, '0.00'), (0.25, '0.25'), (0.5, '0.50'), (0.75, '0.75'), (1.0, '1.00'))
    """
    ticks = round_ticks(low, high, most)
    digits = max((len(f"{t:.12f}".rstrip("0").partition(".")[2]) for t in ticks), default=0)
    huge = max(abs(low), abs(high)) >= 1e7
    labels = [f"{t:.3g}" if huge or (not t and digits > 2) else f"{t:,.{digits}f}" for t in ticks]
    return Axis(
        domain=(low, high),
        ticks=tuple((t, f"{unit}{text}") for t, text in zip(ticks, labels, strict=True)),
        title=title,
        grid=grid,
    )


def near_axis(values: Sequence[float], *, low: float = 0.0, high: float = 1.0, most: int = 5) -> Axis:
    """An axis around values, with a switch to one that also spans `low` to `high`; that one alone where it is as good.

    >>> near_axis([0.84, 0.95]).domain, near_axis([0.84, 0.95]).whole.domain, near_axis([0.1, 0.9]).domain
    ((0.825, 0.975), (0.0, 1.0), (0.0, 1.0))
    """
    ends = min(values, default=low), max(values, default=high)
    whole = number_axis(min(low, ends[0]), max(high, ends[1]), most=most)
    room = max(0.08 * (ends[1] - ends[0]), 0.01 * (whole.domain[1] - whole.domain[0]))
    around = max(whole.domain[0], ends[0] - room), min(whole.domain[1], ends[1] + room)
    ticks = round_ticks(*around, most)
    # out to halves of a step, so that the ends are round
    step = (ticks[1] - ticks[0]) / 2 if len(ticks) > 1 else around[1] - around[0]
    near = (
        max(whole.domain[0], round(floor(around[0] / step + 1e-9) * step, 12)),
        min(whole.domain[1], round(ceil(around[1] / step - 1e-9) * step, 12)),
    )
    if near[1] - near[0] > 0.7 * (whole.domain[1] - whole.domain[0]):
        return whole
    return replace(number_axis(*near, most=most), whole=whole)


def with_whole(axis: Axis, low: float = 0.0, high: float = 1.0) -> Axis:
    """An axis with a switch to one that also spans `low` to `high`, where that is longer.

    >>> with_whole(number_axis(0.5, 0.8)).whole.domain, with_whole(number_axis(0, 0.98)).whole
    ((0.0, 1.0), None)
    """
    ends = min(low, axis.domain[0]), max(high, axis.domain[1])
    if axis.domain[1] - axis.domain[0] > 0.8 * (ends[1] - ends[0]):
        return axis
    return replace(axis, whole=number_axis(*ends, title=axis.title, grid=axis.grid))


def count_axis(most: int) -> Axis:
    """An axis of counts from 0: whole numbers, each once.

    >>> [label for _, label in count_axis(2).ticks], [label for _, label in count_axis(1234).ticks]
    (['0', '1', '2'], ['0', '500', '1,000'])
    """
    ticks = list(range(most + 1)) if most <= 4 else [int(t) for t in round_ticks(0, most, 4) if t == int(t)]
    return Axis(domain=(0, max(1, most)), ticks=tuple((t, f"{t:,}") for t in ticks))


def names_axis(names: Sequence[str], title: str = "") -> Axis:
    """An axis of categories, each a step wide."""
    return Axis(
        domain=(-0.5, max(0.5, len(names) - 0.5)), ticks=tuple(enumerate(names)), title=title, names=True, grid=False
    )


def candidates_axis(largest: int, title: str = "candidates k") -> Axis:
    """The axis of k: every k up to 16, beyond that powers of 2 at equal distances.

    >>> [label for _, label in candidates_axis(40).ticks]
    ['1', '2', '4', '8', '16', '32', '40']
    """
    if largest <= 16:
        ticks = range(1, largest + 1)
        return Axis(domain=(1, max(2, largest)), ticks=tuple((k, str(k)) for k in ticks), title=title, grid=False)
    # one too near to the end would overlap it
    powers = [2**i for i in range(20) if 2**i <= largest / 1.2]
    return Axis(
        domain=(1, largest), ticks=tuple((k, str(k)) for k in (*powers, largest)), title=title, log=True, grid=False
    )


# --- SVG


def svg(plot: Plot, label: str) -> Markup:
    """The plot as an `<svg>` element; `label` says its main numbers to those who cannot see it."""
    drawing = _Drawing(plot)
    content = list(drawing.axes())
    if plot.zoomed:
        content += drawing.switched_axes()
        moving = [layer for layer in plot.layers if _moves(layer, plot.zoomed)]
        content.append(drawing.scaled([part for layer in moving for part in drawing.layer(layer)]))
        still = [layer for layer in plot.layers if not _moves(layer, plot.zoomed)]
    else:
        still = list(plot.layers)
    content += [part for layer in still for part in drawing.layer(layer)]
    top = max([plot.top, *(18 * g.row + 24 for g in plot.layers if isinstance(g, Guide) and g.label)])
    bottom = 12 if not plot.x.ticks else 28 if not plot.x.title else 48
    left, left_narrow = (_left_padding(plot, length) for length in (_NAME_SHOWN, _NAME_SHOWN_NARROW))
    right, right_narrow = _right_padding(plot)
    sizes = {"l": left, "r": right, "ln": left_narrow, "rn": right_narrow, "t": top, "b": bottom}
    sizes["h"] = plot.height + top + bottom
    return html_element(
        "svg",
        *content,
        class_=plot.look or None,
        # `img` would hide the marks inside it from screen readers
        role="graphics-document" if drawing.n_marks else "img",
        aria_label=label,
        font_size=FONT_SIZE,
        style=";".join(f"--{name}:{pixels}px" for name, pixels in sizes.items()),
        data_scales=json.dumps({"x": [*plot.x.domain, plot.x.log], "y": [*plot.y.domain, plot.y.log]}),
    )


def sparkline(values: Sequence[float | None], label: str) -> Markup:
    """Values as a small line from the lowest to the highest, the last as a dot; a gap where there is none.

    >>> "circle" in sparkline([0.1, 0.5, None, 0.9], "from 0.1 to 0.9")
    True
    """
    known = [(i, value) for i, value in enumerate(values) if value is not None]
    low, high = min(value for _, value in known), max(value for _, value in known)
    # values all alike are drawn at half height
    y = Axis(domain=(low, high) if high > low else (low - 1, low + 1), ticks=())
    plot = Plot(x=Axis(domain=(0, max(1, len(values) - 1)), ticks=()), y=y, layers=())
    gaps = [i for i, value in enumerate(values) if value is None]
    parts = [[p for p in known if a < p[0] < b] for a, b in zip([-1, *gaps], [*gaps, len(values)], strict=True)]
    drawing = _Drawing(plot)
    lines = [drawing.line(Line(points=tuple(part), colour="var(--accent)", width=1.5)) for part in parts if part]
    dot = html_element("circle", cx=drawing.x(known[-1][0]), cy=drawing.y(known[-1][1]), r=2.5, fill="var(--accent)")
    return html_element("svg", *lines, dot, class_="sparkline", role="img", aria_label=label)


def _percent(share: float) -> str:
    """
    >>> _percent(0.5), _percent(1 / 3)
    ('50%', '33.33%')
    """
    return f"{round(100 * share, 2) + 0.0:g}%"


def _text_width(text: str) -> float:
    """About so many pixels: letters of East Asia are twice as wide."""
    return sum(12.5 if ord(c) >= 0x2E80 else 6.9 for c in text)


def _moves(layer: Layer, zoomed: str) -> bool:
    """Whether a layer goes with an axis that is switched: not what stands beside the plot or crosses the other one."""
    return not isinstance(layer, RowLabels) and not (isinstance(layer, Guide) and layer.axis != zoomed)


def _left_padding(plot: Plot, length: int) -> int:
    """Pixels to the left: for the labels of the vertical axis, names cut to a length, and for half of one below it."""
    ticks = [*plot.y.ticks, *(plot.y.whole.ticks if plot.y.whole else ())]
    labels = [_shorten(label, length) if plot.y.names else label for _, label in ticks]
    at_start = plot.x.ticks and plot.x.share(plot.x.ticks[0][0]) < 0.1
    half = _text_width(plot.x.ticks[0][1]) / 2 + 2 if at_start else 0
    return round(max(half, *(_text_width(label) + 12 for label in labels), 12))


def _right_padding(plot: Plot) -> tuple[int, int]:
    """Pixels to the right: for the labels of rows, or for half a label of the horizontal axis."""
    rows = [row for layer in plot.layers if isinstance(layer, RowLabels) for row in layer.rows]
    if rows:
        wide = max(_text_width(f"{text}  {more}" if more else text) for _, text, more in rows)
        return round(wide + 18), round(max(_text_width(text) for _, text, _ in rows) + 18)
    at_end = plot.x.ticks and plot.x.share(plot.x.ticks[-1][0]) > 0.9
    right = max(10, round(_text_width(plot.x.ticks[-1][1]) / 2 + 2)) if at_end else 10
    return right, right


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _label_classes(labels: Sequence[str]) -> list[str | None]:
    """The class of each label, by the width from which it is shown so that none overlaps the next; None for never.

    >>> _label_classes(["2026-01-01"] * 12)[:5]
    ['', None, 'broad', None, 'wide']
    """
    needed = len(labels) * (max(map(_text_width, labels), default=0.0) + 12)
    classes: list[str | None] = [None] * len(labels)
    step = 1
    for name, room in _TIERS:
        # multiples of the step before: what a narrow plot shows a wide one shows too
        step *= max(1, ceil(needed / room / step))
        for i in range(0, len(labels), step):
            classes[i] = name
    return classes


class _Drawing:
    """Draws the parts of one plot; `n_marks` counts those that can take the focus."""

    def __init__(self, plot: Plot) -> None:
        self.plot = plot
        self.n_marks = 0

    def x(self, value: float) -> str:
        """Where a value of the horizontal axis stands."""
        return _percent(self.plot.x.share(value))

    def y(self, value: float) -> str:
        """Where a value of the vertical axis stands; names go from top to bottom."""
        share = self.plot.y.share(value)
        return _percent(share if self.plot.y.names else 1 - share)

    def axes(self) -> Iterator[Markup]:
        """Grid, labels and titles of both axes; those of an axis that can be switched are named `near`."""
        zoomed = self.plot.zoomed
        for axis, parts in self.axis_parts():
            yield from (html_element("g", *parts, data_axis="near"),) if axis == zoomed else parts

    def switched_axes(self) -> list[Markup]:
        """What takes the place of the zoomed axis when a reader switches to its whole scale."""
        plot, zoomed = self.plot, self.plot.zoomed
        whole = replace(plot, **{zoomed: getattr(plot, zoomed).whole})
        parts = [one for axis, parts in _Drawing(whole).axis_parts() if axis == zoomed for one in parts]
        return [html_element("g", *parts, data_axis="whole", hidden="")]

    def scaled(self, parts: Sequence[Markup]) -> Markup:
        """What moves with the zoomed axis, in a box of its own: a script gives it the place that `data-whole` says."""
        axis = getattr(self.plot, self.plot.zoomed)
        low, high = (axis.whole.share(end) for end in axis.domain)
        place = (low, high - low) if self.plot.zoomed == "x" else (1 - high, high - low)
        whole = " ".join(map(_percent, place))
        return html_element("svg", *parts, overflow="visible", data_zoom=self.plot.zoomed, data_whole=whole)

    def axis_parts(self) -> Iterator[tuple[str, list[Markup]]]:
        """Grids of x and y, then their labels and titles, each with the name of its axis."""
        x, y = self.plot.x, self.plot.y
        upright = [html_element("line", x1=self.x(v), x2=self.x(v), y2="100%") for v, _ in x.ticks]
        level = [html_element("line", x2="100%", y1=self.y(v), y2=self.y(v)) for v, _ in y.ticks]
        for name, axis, lines in (("x", x, upright), ("y", y, level)):
            if axis.grid:
                yield name, [html_element("g", *lines, stroke="var(--line)")]
        classes = _label_classes([label for _, label in x.ticks])
        labels = [
            html_element("text", label, x=self.x(v), y="100%", dy=20, class_=kind or None)
            for (v, label), kind in zip(x.ticks, classes, strict=True)
            if kind is not None
        ]
        if x.title:
            labels.append(html_element("text", x.title, x="50%", y="100%", dy=41))
        yield "x", [html_element("g", *labels, text_anchor="middle", fill="var(--muted)")]
        labels = [
            html_element("text", *(_row_name(label) if y.names else [label]), y=self.y(v), dx=-9, dy=".34em")
            for v, label in y.ticks
        ]
        yield "y", [html_element("g", *labels, text_anchor="end", fill="var(--ink)" if y.names else "var(--muted)")]

    def layer(self, layer: Layer) -> Iterator[Markup]:
        """The elements of a layer."""
        match layer:
            case Area(points=points) if points:
                there = [(x, high) for x, _, high in points] + [(x, low) for x, low, _ in reversed(points)]
                yield self.path(there, "z", fill=layer.colour, fill_opacity=layer.opacity)
            case Line(points=points) if points:
                yield self.line(layer)
            case Whiskers():
                lines = [
                    html_element("line", x1=self.x(x), x2=self.x(x), y1=self.y(low), y2=self.y(high))
                    for x, low, high in layer.points
                ]
                yield html_element("g", *lines, stroke=layer.colour, stroke_opacity=layer.opacity)
            case Dots(dots=dots) if dots:
                yield from self.dots(layer)
            case Bars(bars=bars) if bars:
                yield html_element("g", *(self.bar(bar) for bar in bars), class_="bars", fill=layer.colour)
                tops = [((bar.left + bar.right) / 2, bar.high, bar.label, -6) for bar in bars]
                yield from self.texts(tops, fill="var(--ink)")
            case Guide():
                yield from self.guide(layer)
            case TextMark():
                anchor, dx, dy = _SIDES[layer.side]
                slant = "italic" if layer.italic else None
                at: Attributes = {"x": self.x(layer.x), "y": self.y(layer.y), "dx": dx, "dy": dy}
                yield html_element("text", layer.text, **at, text_anchor=anchor, fill=layer.colour, font_style=slant)
            case RowLabels():
                rows = []
                for y, text, more in layer.rows:
                    words = [text, *_only_wide(more and f"\u00a0 {more}")]
                    rows.append(html_element("text", *words, x="100%", y=self.y(y), dx=12, dy=".34em"))
                yield html_element("g", *rows, class_="row-labels", fill="var(--ink)", **self.shown(layer.shown))
            case _:
                return

    def shown(self, choice: str) -> Attributes:
        """The attributes of a layer that belongs to one choice."""
        return {"data_shown": choice or None, "hidden": None if choice in ("", self.plot.chosen) else ""}

    def focusable(self, *, hidden: bool = False) -> Attributes:
        """The attributes of a mark: the first can take the focus, arrow keys lead from it to the others."""
        self.n_marks += not hidden
        return {"tabindex": 0 if self.n_marks == 1 and not hidden else -1, "role": "graphics-symbol"}

    def path(self, points: Sequence[tuple[float, float]], end: str = "", **look: str | float | None) -> Markup:
        """A path in thousandths of the plot, both ways: paths know no percentages."""
        x, y = self.plot.x, self.plot.y
        steps = [f"{round(1000 * x.share(a), 1):g} {round(1000 - 1000 * y.share(b), 1):g}" for a, b in points]
        drawn = html_element("path", d=f"M{'L'.join(steps)}{end}", vector_effect="non-scaling-stroke", **look)
        return html_element("svg", drawn, viewBox="0 0 1000 1000", preserveAspectRatio="none", overflow="visible")

    def line(self, layer: Line) -> Markup:
        """A curve; one of a single point is a round spot."""
        return self.path(
            layer.points,
            "h0" if len(layer.points) == 1 else "",
            fill="none",
            stroke=layer.colour,
            stroke_width=layer.width,
            stroke_dasharray=DASHES[layer.dash] or None,
            stroke_linejoin="round",
            stroke_linecap="round",
        )

    def texts(self, places: Sequence[tuple[float, float, str, float]], **look: str | float | None) -> Iterator[Markup]:
        """Texts above points: (x, y, text, pixels below)."""
        texts = [html_element("text", text, x=self.x(x), y=self.y(y), dy=dy) for x, y, text, dy in places if text]
        if texts:
            yield html_element("g", *texts, text_anchor="middle", aria_hidden="true", **look)

    def dots(self, layer: Dots) -> Iterator[Markup]:
        """The points of a layer, and their labels."""
        hidden = layer.shown not in ("", self.plot.chosen)
        marks = [self.dot(dot, hidden=hidden) for dot in layer.dots]
        fill, stroke = ("var(--paper)", layer.colour) if layer.hollow else (layer.colour, "var(--paper)")
        yield html_element(
            "g", *marks, class_="dots", fill=fill, stroke=stroke, stroke_width=1.5, **self.shown(layer.shown)
        )
        strong = any(dot.shape != "circle" for dot in layer.dots)
        places = [(dot.x, dot.y, dot.label, 22 if dot.shape == "down" else -12) for dot in layer.dots]
        weight = "600" if strong else None
        yield from self.texts(places, fill=layer.colour if strong else "var(--muted)", font_weight=weight)

    def dot(self, dot: Dot, *, hidden: bool) -> Markup:
        """One point; where it is a link that takes the focus."""
        x, y = self.x(dot.x), self.y(dot.y)
        self.n_marks += bool(dot.href)
        own: Attributes = {"role": "graphics-symbol"} if dot.href else self.focusable(hidden=hidden)
        if dot.shape in _SHAPES:
            shape = html_element("path", d=_SHAPES[dot.shape])
            mark = html_element("svg", _title(dot.tip), shape, x=x, y=y, overflow="visible", **own)
        elif dot.ends is not None:
            low, high = map(self.x, dot.ends)
            rule = html_element("line", x1=low, x2=high, y1=y, y2=y)
            circle = html_element("circle", cx=x, cy=y, r=dot.size)
            mark = html_element("g", _title(dot.tip), rule, circle, **own)
        else:
            mark = html_element("circle", _title(dot.tip), cx=x, cy=y, r=dot.size, **own)
        return html_element("a", mark, href=dot.href) if dot.href else mark

    def bar(self, bar: BarMark) -> Markup:
        """One rectangle."""
        left, right = self.plot.x.share(bar.left), self.plot.x.share(bar.right)
        top, bottom = (1 - self.plot.y.share(end) for end in (max(bar.low, bar.high), min(bar.low, bar.high)))
        place = {"x": left, "y": top, "width": right - left, "height": bottom - top}
        given = {name: _percent(share) for name, share in place.items()}
        return html_element("rect", _title(bar.tip), **given, rx=1.5, data_key=bar.key or None, **self.focusable())

    def guide(self, guide: Guide) -> Iterator[Markup]:
        """A line across the plot; one that a script moves is there even while it is hidden."""
        axis = self.plot.x if guide.axis == "x" else self.plot.y
        low, high = axis.domain
        there = guide.value is not None and low <= guide.value <= high
        if not there and not guide.name:
            return
        share = axis.share(guide.value) if guide.value is not None and there else 0.0
        if guide.axis == "y":
            at = _percent(1 - share)
            place: Attributes = {"x2": "100%", "y1": at, "y2": at}
        else:
            at = _percent(share)
            place = {"x1": at, "x2": at, "y1": -18 * guide.row - 20 if guide.label else 0, "y2": "100%"}
        dashes = DASHES[guide.dash] or None
        look: Attributes = {"stroke": guide.colour, "stroke_width": guide.width, "stroke_dasharray": dashes}
        parts = [html_element("line", **place, **look)]
        if guide.label:
            # in the right part it stands left of its line, or it would leave the plot
            anchor, dx = ("end", -5) if share > 0.6 else ("start", 5)
            words: Attributes = {"text_anchor": anchor, "fill": guide.colour, "font_weight": "600"}
            parts.append(html_element("text", guide.label, x=at, y=-18 * guide.row - 8, dx=dx, **words))
        attributes = self.shown(guide.shown) | ({} if there else {"hidden": ""})
        yield html_element("g", *parts, data_guide=guide.name or None, **attributes)


def _row_name(name: str) -> list[Markup | str]:
    """A category, whose end only a wide plot shows."""
    name = _shorten(name, _NAME_SHOWN)
    if len(name) <= _NAME_SHOWN_NARROW:
        return [name]
    cut = _NAME_SHOWN_NARROW - 1
    return [name[:cut], *_only_wide(name[cut:]), html_element("tspan", "…", class_="narrow")]


def _only_wide(text: str) -> list[Markup]:
    return [html_element("tspan", text, class_="wide")] if text else []


def _title(tip: Tip) -> Markup:
    return html_element("title", "\n".join([tip.headline, *(f"{name}: {value}" for name, value in tip.pairs)]))


# --- Vega-Lite


def vega_lite(plot: Plot, description: str) -> Spec:
    """The plot as a Vega-Lite specification with data and colours, for other programs."""
    spec: Spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "description": description,
        "width": "container",
        "height": plot.height,
    }
    if plot.choices:
        bind = {"input": "select", "options": list(plot.choices)}
        spec["params"] = [{"name": "shown", "value": plot.chosen, "bind": bind}]
    return {**spec, "layer": [part for layer in plot.layers for part in _layer_specs(plot, layer)]}


def _channel(axis: Axis, name: str) -> Spec:
    """An encoding of x or y."""
    if axis.names:
        kind = "ordinal"
        look: Spec = {"labelAngle": 0, "grid": False}
        scale: Spec = {"domain": [label for _, label in axis.ticks]}
    else:
        kind, look = "quantitative", {"values": [value for value, _ in axis.ticks], "grid": axis.grid}
        if not all(label.lstrip("-").replace(",", "").replace(".", "", 1).isdigit() for _, label in axis.ticks):
            # an expression: a table of our own, for ticks that are dates or money
            names = {f"{value:g}": label for value, label in axis.ticks}
            look["labelExpr"] = f"({json.dumps(names)})[datum.value]"
        scale = {"domain": list(axis.domain), "nice": False}
        scale |= {"type": "log", "base": 2} if axis.log else {"zero": False}
    return {"field": name, "type": kind, "title": axis.title or None, "scale": scale, "axis": look}


def _place(axis: Axis, value: float) -> float | str:
    """A value of an axis as the specification's data has it."""
    return axis.ticks[round(value)][1] if axis.names else value


def _mark(kind: str, **look: Any) -> Spec:
    """A mark, its colours those of light mode."""
    dash = look.pop("dash", "")
    dashes = {"strokeDash": [float(part) for part in DASHES[dash].split()]} if dash else {}
    return {"type": kind, **{name: LIGHT.get(str(value), value) for name, value in look.items()}, **dashes}


def _layer_specs(plot: Plot, layer: Layer) -> Iterator[Spec]:
    x, y = _channel(plot.x, "x"), _channel(plot.y, "y")

    def spec(rows: list[Spec], mark: Spec, **encoding: Any) -> Spec:
        shown = getattr(layer, "shown", "")
        only = {"transform": [{"filter": f"shown === {json.dumps(shown)}"}]} if shown else {}
        return {"data": {"values": rows}, **only, "mark": mark, "encoding": encoding}

    match layer:
        case Area(points=points) | Whiskers(points=points) if points:
            rows: list[Spec] = [{"x": at, "low": low, "high": high} for at, low, high in points]
            colour = {"fill" if isinstance(layer, Area) else "stroke": layer.colour}
            mark = _mark("area" if isinstance(layer, Area) else "rule", opacity=layer.opacity, **colour)
            yield spec(rows, mark, x=x, y={**y, "field": "low"}, y2={"field": "high"})
        case Line(points=points) if points:
            mark = _mark("line", stroke=layer.colour, strokeWidth=layer.width, dash=layer.dash)
            yield spec([{"x": a, "y": b} for a, b in points], mark, x=x, y=y)
        case Dots(dots=dots) if dots:
            rows = []
            for dot in dots:
                row: Spec = {"x": _place(plot.x, dot.x), "y": _place(plot.y, dot.y)}
                row |= {"low": dot.ends[0], "high": dot.ends[1]} if dot.ends else {}
                rows.append({**row, "label": dot.label, **_tip_row(dot.tip)})
            tooltip = _tooltip(dots[0].tip)
            if ranged := [row for row in rows if "low" in row]:
                mark = _mark("rule", stroke=layer.colour, strokeWidth=2.5)
                yield spec(ranged, mark, x={**x, "field": "low"}, x2={"field": "high"}, y=y, tooltip=tooltip)
            shape = {"circle": "circle", "up": "triangle-up", "down": "triangle-down"}[dots[0].shape]
            fill, stroke = ("var(--paper)", layer.colour) if layer.hollow else (layer.colour, "var(--paper)")
            mark = _mark("point", filled=True, shape=shape, size=round(3.14 * dots[0].size ** 2), opacity=1)
            yield spec(rows, {**mark, **_mark("point", fill=fill, stroke=stroke)}, x=x, y=y, tooltip=tooltip)
            if labelled := [row for row in rows if row["label"]]:
                mark = _mark("text", dy=-12, fill="var(--muted)")
                yield spec(labelled, mark, x=x, y=y, text={"field": "label"})
        case Bars(bars=bars) if bars:
            sides = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
            sides |= {} if plot.x.names else {"x2": {"field": "x2"}}
            mark = _mark("bar" if plot.x.names else "rect", fill=layer.colour)
            rows = []
            for bar in bars:
                middle = (bar.left + bar.right) / 2
                row = {"x": _place(plot.x, middle)} if plot.x.names else {"x": bar.left, "x2": bar.right}
                rows.append({**row, "low": bar.low, "high": bar.high, **_tip_row(bar.tip)})
            yield spec(rows, mark, x=x, **sides, tooltip=_tooltip(bars[0].tip))
        case Guide(value=value) if value is not None:
            mark = _mark("rule", stroke=layer.colour, strokeWidth=layer.width, dash=layer.dash)
            yield spec([{layer.axis: value}], mark, **({"x": x} if layer.axis == "x" else {"y": y}))
        case TextMark():
            at: Spec = {"x": layer.x, "y": layer.y, "text": layer.text}
            yield spec([at], _mark("text", dy=-10, fill=layer.colour), x=x, y=y, text={"field": "text"})
        case RowLabels(rows=labels):
            texts: list[Spec] = [
                {"y": _place(plot.y, at), "text": f"{text}  {more}".rstrip()} for at, text, more in labels
            ]
            mark = _mark("text", align="left", dx=12, fill="var(--ink)")
            yield spec(texts, mark, x={"value": "width"}, y=y, text={"field": "text"})
        case _:
            return


def _tip_row(tip: Tip) -> Spec:
    return {"mark": tip.headline, **{f"tip{i}": value for i, (_, value) in enumerate(tip.pairs)}}


def _tooltip(tip: Tip) -> list[Spec]:
    names = [{"field": f"tip{i}", "title": name} for i, (name, _) in enumerate(tip.pairs)]
    return [{"field": "mark", "title": " "}, *names]
