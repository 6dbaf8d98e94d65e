"""How the pictures of docs/statistics look: Vega-Lite in, an SVG that follows light and dark by itself.

Colours are variables that a style inside the SVG defines, twice. A browser shows an image in the scheme of the page
around it, so one file does for both.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

LIGHT = "--ink:#1a2026;--muted:#59636d;--line:#e1e4df;--good:#0b6b66;--bad:#b83a12;--third:#3a5a9b"
DARK = "--ink:#e7ebee;--muted:#a3aeb8;--line:#303941;--good:#5cc9bf;--bad:#ff9068;--third:#9db8f5"
STYLE = f"<style>svg{{{LIGHT}}}@media (prefers-color-scheme: dark){{svg{{{DARK}}}}}</style>"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
GOOD, BAD, THIRD, MUTED, INK = (f"var(--{name})" for name in ("good", "bad", "third", "muted", "ink"))

CONFIG: Spec = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--line)",
        "gridColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelColor": MUTED,
        "labelFontSize": 12,
        "titleColor": MUTED,
        "titleFontSize": 12.5,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 5,
    },
    "title": {"color": INK, "fontSize": 14, "fontWeight": 600, "anchor": "start", "offset": 12},
    "text": {"fontSize": 12.5},
}


def line(
    rows: Rows, x: str, y: str, color: str, *, dash: bool = False, width: float = 2.4, curve: str = "linear"
) -> Spec:
    """One line through rows."""
    mark = {"type": "line", "color": color, "strokeWidth": width, "interpolate": curve, "clip": True}
    return _layer(rows, mark | ({"strokeDash": [5, 4]} if dash else {}), x, y)


def dots(rows: Rows, x: str, y: str, color: str, *, size: int = 46) -> Spec:
    return _layer(rows, {"type": "point", "filled": True, "size": size, "color": color, "opacity": 1}, x, y)


def band(rows: Rows, x: str, low: str, high: str, color: str) -> Spec:
    """The area between two columns."""
    layer = _layer(rows, {"type": "area", "color": color, "opacity": 0.16}, x, low)
    layer["encoding"]["y2"] = {"field": high}
    return layer


def bars(rows: Rows, x: str, low: str, high: str, color: str, *, width: float = 1.8) -> Spec:
    """Upright intervals."""
    layer = _layer(rows, {"type": "rule", "color": color, "strokeWidth": width}, x, low)
    layer["encoding"]["y2"] = {"field": high}
    return layer


def level(value: float, *, axis: str = "y", color: str = MUTED) -> Spec:
    """A dashed line across, at a value."""
    mark = {"type": "rule", "color": color, "strokeDash": [2, 3], "strokeWidth": 1.4}
    return {
        "data": {"values": [{"at": value}]},
        "mark": mark,
        "encoding": {axis: {"field": "at", "type": "quantitative"}},
    }


def words(x: float, y: float, text: str, color: str, *, align: str = "left", dx: int = 6, dy: int = 0) -> Spec:
    """A label in the picture, in the colour of what it names."""
    mark = {"type": "text", "align": align, "dx": dx, "dy": dy, "color": color, "fontWeight": 600, "baseline": "middle"}
    data = {"values": [{"x": x, "y": y, "text": text.split("\n")}]}
    encoding = {c: {"field": c, "type": "quantitative"} for c in ("x", "y")}
    return {"data": data, "mark": mark, "encoding": encoding | {"text": {"field": "text", "type": "nominal"}}}


def _layer(rows: Rows, mark: Spec, x: str, y: str) -> Spec:
    encoding = {"x": {"field": x, "type": "quantitative"}, "y": {"field": y, "type": "quantitative"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def panel(
    title: str,
    layers: list[Spec],
    *,
    x: str,
    y: str,
    across: tuple[float, float],
    up: tuple[float, float] = (0, 1),
    size: tuple[int, int] = (560, 290),
    **axes: Spec,
) -> Spec:
    """Layers on one pair of axes; `axes` may change `x_axis`, `y_axis`, `x_scale` and `y_scale`."""
    scales = {
        "x": {
            "scale": {"domain": list(across), "nice": False, **axes.get("x_scale", {})},
            "axis": {"title": x, "grid": False, **axes.get("x_axis", {})},
        },
        "y": {
            "scale": {"domain": list(up), "nice": False, **axes.get("y_scale", {})},
            "axis": {"title": y, "tickCount": 5, "domain": False, "ticks": False, **axes.get("y_axis", {})},
        },
    }
    for layer in layers:
        for channel, given in layer["encoding"].items():
            if channel in scales:
                given |= scales[channel]
    return {"title": title, "width": size[0], "height": size[1], "layer": layers}


def picture(*panels: Spec, right: int = 12) -> Spec:
    """Panels side by side; `right` is room for a system whose letters are wider, where labels end there."""
    body: Spec = {"hconcat": list(panels), "spacing": 34} if len(panels) > 1 else dict(panels[0])
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "padding": {"left": 6, "top": 6, "bottom": 6, "right": right},
        "autosize": "pad",
        "config": CONFIG,
        **body,
    }


def seal(spec: Spec) -> str:
    """What tells whether an SVG shows these numbers."""
    return sha256(json.dumps(_rounded(spec), sort_keys=True).encode()).hexdigest()[:16]


def _rounded(thing: Any) -> Any:
    """Numbers to four digits, so that another machine's last bits do not matter."""
    if isinstance(thing, dict):
        return {key: _rounded(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_rounded(value) for value in thing]
    return float(f"{thing:.4g}") if isinstance(thing, float) else thing


def svg(spec: Spec, label: str) -> str:
    """The picture with its style, a label for those who cannot see it, and its seal; free in width."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(_rounded(spec))
    head = re.match(r"<svg[^>]*>", drawn)
    assert head is not None
    opened = re.sub(r' (?:width|height|class)="[^"]*"', "", head[0])[:-1]
    title = f"<title>{label}</title><!-- {seal(spec)} -->"
    return f'{opened} role="img">{title}{STYLE}{drawn[head.end() :]}\n'
