"""Charts of the best-of-n page, with the values of its sliders as Vega signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.render.curve_html import LOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.analysis.best_of.best_of import BestOf

    Spec = dict[str, Any]

MIN_DISTANCE = 0.05  # curves that are closer have no words between them
LINE_HEIGHT = 16  # pixels from the words of a mark to those of the next


def curve_chart(spec: Spec, table: BestOf) -> Spec:
    """The curves with a line at the recommended n (signal `best`, 0 for none) and one at the selected n (`at`)."""
    layers = spec["layer"]
    x = layers[0]["encoding"]["x"]
    last = table.rows[-1].k
    marks = [
        *_mark("best", "var(--accent)", "'recommended: ' + best", 0, x, last),
        *_mark("at", "var(--ink)", "'n = ' + at", LINE_HEIGHT, x, last, unless="at == best"),
    ]
    params = [{"name": "best", "value": 0}, {"name": "at", "value": last}]
    return {**spec, "params": params, "layer": [*marks, *layers, *_independent_label(table, x, layers)]}


def _mark(signal: str, colour: str, words: str, dy: int, x: Spec, last: int, *, unless: str = "false") -> list[Spec]:
    data: Spec = {
        "data": {"values": [{}]},
        "transform": [
            {"calculate": signal, "as": "k"},
            {"filter": f"datum.k > 0 && !({unless})"},
            {"calculate": words, "as": "words"},
        ],
    }
    # words in the right part of the plot stand left of their line, or they would leave it
    on_right = f"{signal} > {0.6 * last:g}"
    text = {
        "type": "text",
        "align": {"expr": f"{on_right} ? 'right' : 'left'"},
        "dx": {"expr": f"{on_right} ? -5 : 5"},
        "dy": dy - 2 * LINE_HEIGHT + 6,
        "fill": colour,
        "fontWeight": 600,
    }
    rule = {"type": "rule", "stroke": colour, "strokeWidth": 2 if signal == "best" else 1.25}
    return [
        {**data, "mark": rule, "encoding": {"x": x, "y": {"value": dy - 2 * LINE_HEIGHT}, "y2": {"value": "height"}}},
        {**data, "mark": text, "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "words"}}},
    ]


def _independent_label(table: BestOf, x: Spec, layers: Sequence[Spec]) -> list[Spec]:
    """A label on the curve of independent tries, since it is not an estimate."""
    row = table.rows[min(2, len(table.rows) - 1)]
    if row.independent is None or row.any is None or row.independent - row.any < MIN_DISTANCE:
        return []
    y = next(layer["encoding"]["y"] for layer in layers if layer["encoding"].get("y", {}).get("field") == "point")
    mark = {"type": "text", "align": "right", "dx": -8, "dy": -6, "fill": "var(--muted)", "fontStyle": "italic"}
    return [
        {
            "data": {"values": [{"k": row.k, "point": row.independent, "words": "if independent"}]},
            "mark": mark,
            "encoding": {"x": x, "y": y, "text": {"field": "words"}},
        }
    ]


def gains_chart(table: BestOf) -> Spec:
    """One bar per candidate: what it adds to the measure. Signal `least` is what it would have to add, or 0."""
    rows = [row for row in table.rows if row.gain is not None]
    values = [{"k": row.k, "candidate": str(row.k), "gain": row.gain} for row in rows]
    most = max((row.gain or 0.0 for row in rows), default=0.0)
    low = min((row.gain or 0.0 for row in rows), default=0.0)
    x: Spec = {"field": "candidate", "type": "ordinal", "sort": None, "title": "candidate number"}
    x["axis"] = {"labelAngle": 0, "grid": False, "labelOverlap": True}
    y: Spec = {"field": "gain", "type": "quantitative", "title": None, "axis": {"tickCount": 4, "format": ".3~f"}}
    y["scale"] = {"domain": [min(0.0, low * 1.1), max(most * 1.1, 1e-6)], "nice": False}
    colour = {"condition": {"test": "datum.k <= best", "value": LOOKS[table.measure][0]}, "value": "var(--some)"}
    tooltip = [{"field": "candidate"}, {"field": "gain", "title": "adds", "format": ".4f"}]
    return {
        "width": "container",
        "height": 190,
        "description": "; ".join(f"number {row.k} adds {row.gain:.3f}" for row in rows[:12]),
        "params": [{"name": "best", "value": 0}, {"name": "least", "value": 0}],
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {"x": x, "y": y, "fill": colour, "tooltip": tooltip},
            },
            {
                "data": {"values": [{}]},
                "transform": [{"calculate": "least", "as": "gain"}, {"filter": "datum.gain > 0"}],
                "mark": {
                    "type": "rule",
                    "clip": True,
                    "stroke": "var(--fail)",
                    "strokeDash": [5, 4],
                    "strokeWidth": 1.5,
                },
                "encoding": {"y": y},
            },
        ],
    }
