"""Results in a notebook: each as HTML that is whole, escaped, and draws its intervals where they are."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import kofn
from kofn.cli import kofn as command
from kofn.core.document import MOST_ROWS, Document, Grid, as_html, interval_cells

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = "<script>alert('x')</script>\u202e\x1b[31m&\"'"
VOID = {"br", "line"}


class Reader(HTMLParser):
    """The tags still open, the text, and what scripts or handlers there are."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.tags, self.handlers = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, _):
        self.tags.append(tag)

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def read(thing):
    """The parsed HTML of a result; it must be whole, and run nothing."""
    found = Reader(thing._repr_html_() if hasattr(thing, "_repr_html_") else thing)
    assert found.open == []
    assert found.handlers == []
    assert not {"script", "iframe", "img", "link", "a"} & set(found.tags)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("arithmetic", "arithmetic-b"):
        more = ["--group", "kind", "--verdict", "majority", "--out", str(folder / name)]
        assert CliRunner().invoke(command, ["score", str(EXAMPLES / f"{name}.jsonl"), *more]).exit_code == 0
    return folder


def test_a_result_shows_its_numbers_and_draws_its_intervals_where_they_are():
    result = kofn.score(EXAMPLES / "arithmetic.jsonl", by="kind", aggregate=["any_pass", "mean"])
    found = read(result)
    assert found.tags.count("table") == 2
    assert found.tags.count("svg") == len(result.estimates)
    assert "0.850" in found.text
    assert "[0.739, 0.919]" in found.text
    e = result.get("any_pass")
    places = [f'x1="{100 * x:.1f}"' for x in (e.low, e.point)] + [f'x2="{100 * e.high:.1f}"']
    assert all(place in result._repr_html_() for place in places)


def test_every_result_that_people_hold_is_whole_html(runs):
    a, b = runs / "arithmetic", runs / "arithmetic-b"
    run = read(kofn.load_run(a))
    assert "✗ NOT PASSED: core-cases: 37 of 60 core cases pass" in run.text
    assert {"one step", "two steps", "cases"} <= set(run.text)
    curve = read(kofn.curve(EXAMPLES / "arithmetic.jsonl", by="kind"))
    assert {"maj@k", "by segment"} <= set(curve.text)
    assert curve.tags.count("svg") == 5
    compared = read(kofn.compare(a, b, by="kind"))
    assert {"arithmetic-b against arithmetic: 60 cases in both", "▲ better", "by kind"} <= set(compared.text)
    selectors = read(kofn.compare(EXAMPLES / "arithmetic.jsonl", selectors=["first", "vote"]))
    assert {"selector", "oracle", "headroom"} <= set(selectors.text)
    plan = read(kofn.plan(EXAMPLES / "arithmetic.jsonl", width=0.05))
    assert {"repeats", "◂ cheapest"} <= set(plan.text)
    calibration = read(kofn.calibrate(EXAMPLES / "labels.csv", apply=EXAMPLES / "judged.jsonl"))
    assert {"judge passes", "sensitivity", "corrected with labels", "0.579"} <= set(calibration.text)


@pytest.mark.parametrize("by", ["country", None])
def test_whatever_came_from_a_file_is_escaped_and_seen(by, tmp_path):
    rows = [
        {"id": f"{HOSTILE}{i}", "country": HOSTILE, "output": "4", "reference": "4", "cost": 0.1, "seconds": 1}
        for i in range(3)
        for _ in range(2)
    ]
    path, other = tmp_path / "hostile.jsonl", tmp_path / "other.jsonl"
    for place in (path, other):
        place.write_text("\n".join(map(json.dumps, rows)))
    result = kofn.score(path, by=by or ())
    curve = kofn.curve(path, by=by)
    compared = kofn.compare(path, other, by=by)
    for thing in (result, curve, compared):
        text = "".join(read(thing).text)
        assert "\u202e" not in text
        assert "\x1b" not in text
    if by:
        assert "<script>alert('x')</script>\\u202e" in "".join(read(result).text)


def test_a_very_long_table_is_cut_and_says_so():
    grid = Grid("", ("n",), tuple((f"{i}",) for i in range(MOST_ROWS + 7)), (True,))
    found = read(as_html(Document(("x",), (grid,), (), ())))
    assert found.tags.count("tr") == MOST_ROWS + 1
    assert "and 7 more" in found.text


def test_a_drawing_clips_at_the_ends_of_its_axis_and_a_difference_has_a_line_at_none():
    bar = interval_cells(-0.5, 0.1, 2.0, (0.0, 1.0), width=11)
    assert (str(bar), bar.places, bar.rule) == ("─●─────────", (0.0, 0.1, 1.0), None)
    assert interval_cells(None, 0.1, None, (-0.2, 0.2)).rule == 0.5


@pytest.mark.parametrize(("scheme", "paper", "ink"), [("light", "#fff", "#111"), ("dark", "#111", "#eee")])
def test_a_browser_draws_it_in_the_colours_of_its_page(scheme, paper, ink, visit, tmp_path):
    html = kofn.score(EXAMPLES / "arithmetic.jsonl", aggregate=["mean"])._repr_html_()
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="background:{paper};color:{ink}">{html}')
    tab = visit(page, scheme=scheme)
    tab.wait_for_selector(".kofn svg")
    colours = tab.eval_on_selector_all(
        ".kofn td, .kofn svg line", "parts => parts.map(p => getComputedStyle(p).color + getComputedStyle(p).stroke)"
    )
    expected = "rgb(17, 17, 17)" if ink == "#111" else "rgb(238, 238, 238)"
    assert all(re.match(re.escape(expected), colour) for colour in colours)
    box = tab.eval_on_selector(".kofn svg", "drawing => drawing.getBoundingClientRect().toJSON()")
    assert box["width"] > 100
    assert 8 < box["height"] < 30
    tab.clean()
