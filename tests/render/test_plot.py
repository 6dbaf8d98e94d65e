"""Plots: every mark stands where its value is, nothing becomes markup, and the specification says the same."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.render.page import read_template
from kofn.render.plot import (
    LIGHT,
    Area,
    BarMark,
    Bars,
    Dot,
    Dots,
    Guide,
    Line,
    Plot,
    RowLabels,
    TextMark,
    Tip,
    Whiskers,
    candidates_axis,
    count_axis,
    names_axis,
    near_axis,
    number_axis,
    round_ticks,
    sparkline,
    svg,
    vega_lite,
)

SHARES = st.floats(0, 1)
TEXTS = st.text(alphabet=st.sampled_from("a<>&\"'/= -{}日é"), max_size=40)


def drawn(plot, label="a label"):
    """The SVG as XML: what a saved file must be too."""
    return ET.fromstring(str(svg(plot, label)))  # noqa: S314 - our own


def curve(values):
    dots = tuple(Dot(x=k + 1, y=v, tip=Tip(headline="c", pairs=(("value", f"{v:.3f}"),))) for k, v in enumerate(values))
    points = tuple((dot.x, dot.y) for dot in dots)
    layers = (
        Area(points=tuple((x, 0, y) for x, y in points), colour="var(--accent)"),
        Whiskers(points=tuple((x, y / 2, y) for x, y in points), colour="var(--accent)"),
        Line(points=points, colour="var(--accent)", dash="dotted"),
        Dots(dots=dots, colour="var(--accent)"),
        Guide(value=1, colour="var(--ink)", label="n = 1", name="at"),
        Guide(value=0.5, axis="y", colour="var(--fail)", dash="dashed", name="least"),
        TextMark(x=1, y=values[0], text="first", side="left"),
    )
    return Plot(x=candidates_axis(len(values)), y=number_axis(0, 1), layers=layers)


def bars(counts, names=None):
    made = [BarMark(left=i - 0.4, right=i + 0.4, low=0, high=n, tip=Tip(headline="b")) for i, n in enumerate(counts)]
    names = names or [str(i) for i in range(len(counts))]
    return Plot(x=names_axis(names), y=count_axis(max(counts)), layers=(Bars(bars=tuple(made), colour="var(--pass)"),))


@given(st.lists(SHARES, min_size=2, max_size=40))
def test_every_dot_stands_where_its_value_is(values):
    circles = drawn(curve(values)).findall(".//circle")
    assert len(circles) == len(values)
    for circle, value in zip(circles, values, strict=True):
        assert float(circle.get("cy").rstrip("%")) == pytest.approx(100 * (1 - value), abs=0.006)
    across = [float(circle.get("cx").rstrip("%")) for circle in circles]
    assert across[0] == 0
    assert across[-1] == 100
    assert across == sorted(across)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30).filter(any))
def test_bars_are_as_high_as_their_counts(counts):
    highest = max(counts)
    for rect, n in zip(drawn(bars(counts)).findall(".//rect"), counts, strict=True):
        assert float(rect.get("height").rstrip("%")) == pytest.approx(100 * n / highest, abs=0.006)


@given(TEXTS, TEXTS, TEXTS)
def test_texts_stay_texts(name, headline, label):
    tip = Tip(headline=headline, pairs=((name, label),))
    dot = Dot(x=0.5, y=0, tip=tip, href=f"/run?{name}", ends=(0.2, 0.8), label=label)
    layers = (Dots(dots=(dot,), colour="var(--accent)", shown=name), RowLabels(rows=((0, label, name),), shown=name))
    plot = Plot(x=number_axis(0, 1, title=label), y=names_axis([name]), layers=layers, choices=(name,), chosen=name)
    root = drawn(plot, label)
    assert root.get("aria-label") == label
    assert root.find(".//title").text == f"{headline}\n{name}: {label}"
    assert {e.tag for e in root.iter()} <= {"svg", "g", "a", "line", "text", "tspan", "title", "circle"}


@given(st.lists(SHARES, min_size=2, max_size=20))
def test_only_the_first_mark_is_a_stop_of_tab(values):
    stops = [mark.get("tabindex") for mark in drawn(curve(values)).iter() if mark.get("tabindex")]
    assert stops == ["0"] + ["-1"] * (len(values) - 1)


def test_marks_of_a_choice_that_is_not_shown_take_no_focus():
    dots = {name: (Dot(x=0.5, y=0, tip=Tip(headline=name)),) for name in "ab"}
    layers = tuple(Dots(dots=dots[name], colour="var(--accent)", shown=name) for name in "ab")
    plot = Plot(x=number_axis(0, 1), y=names_axis(["r"]), layers=layers, choices=("a", "b"), chosen="b")
    groups = drawn_html(plot)
    assert re.findall(r'data-shown="(.)"( hidden="")?><circle[^>]*tabindex="(-?\d)"', groups) == [
        ("a", ' hidden=""', "-1"),
        ("b", "", "0"),
    ]


def drawn_html(plot):
    return str(svg(plot, ""))


def test_a_plot_without_marks_is_an_image_and_one_with_marks_is_not():
    assert drawn(Plot(x=number_axis(0, 1), y=number_axis(0, 1), layers=())).get("role") == "img"
    assert drawn(curve([0.1, 0.2])).get("role") == "graphics-document"


def test_a_guide_outside_the_plot_is_hidden_or_absent():
    for name, count in (("", 0), ("at", 1)):
        plot = Plot(x=candidates_axis(4), y=number_axis(0, 1), layers=(Guide(value=9, colour="var(--ink)", name=name),))
        assert drawn_html(plot).count(" hidden") == count


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_within_the_axis_and_few(low, length, most):
    high = low + length
    if high - low < 1e-6 * abs(low):
        return
    ticks = round_ticks(low, high, most)
    assert len(ticks) <= most + 2
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    labels = [label for _, label in number_axis(low, high, most=most).ticks]
    assert len(set(labels)) == len(labels)


@given(
    st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=50).filter(lambda vs: any(v is not None for v in vs))
)
def test_a_sparkline_has_a_part_per_stretch_and_a_dot_at_the_end(values):
    root = ET.fromstring(str(sparkline(values, "words")))  # noqa: S314 - our own
    stretches = "".join("." if v is None else "x" for v in values).split(".")
    assert len(root.findall(".//path")) == sum(map(bool, stretches))
    assert len(root.findall("circle")) == 1


def test_specifications_are_valid_vega_lite_with_colours_of_their_own():
    import vl_convert

    for plot in (curve([0.1, 0.5, 0.9]), curve([0.5] * 40), bars([3, 0, 9])):
        spec = vega_lite(plot, "words")
        assert vl_convert.vegalite_to_vega({**spec, "width": 300})["marks"]
        assert "var(" not in json.dumps(spec)
        assert "<svg" in vl_convert.vegalite_to_svg({**spec, "width": 300})


def test_the_colours_of_specifications_are_those_of_the_style_sheet():
    css = read_template("page.css")
    for name, colour in LIGHT.items():
        assert f"{name[4:-1]}: {colour};" in css


def test_a_zoomed_axis_holds_its_values_and_its_whole_scale_holds_it():
    for values in ([0.84, 0.95], [0.0, 0.02], [1.0, 1.0], [0.999, 1.0], [5.7, 6.4], [-2.0, -1.9], [0.2, 0.9], []):
        axis = near_axis(values)
        whole = axis.whole or axis
        assert all(axis.domain[0] <= value <= axis.domain[1] for value in values)
        assert whole.domain[0] <= axis.domain[0] < axis.domain[1] <= whole.domain[1]
        assert whole.domain[0] <= 0
        assert whole.domain[1] >= 1


def test_what_is_zoomed_stands_on_the_whole_scale_where_it_would_without():
    axis = near_axis([0.8, 0.9])
    plot = Plot(x=axis, y=names_axis(["a"]), layers=(Dots(dots=(Dot(x=0.85, y=0, tip=Tip(headline="")),), colour=""),))
    markup = str(svg(plot, ""))
    start, width = (float(part.rstrip("%")) for part in re.search('data-whole="([^"]+)"', markup)[1].split())
    inside = float(re.search('<circle cx="([0-9.]+)%', markup)[1])
    assert start + width * inside / 100 == pytest.approx(85, abs=0.02)
    # the grid and the labels of the zoomed axis, and both of the whole one in its place
    assert markup.count('data-axis="near"') == 2
    assert markup.count('data-axis="whole" hidden') == 1
