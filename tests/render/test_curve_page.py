"""The page of `kofn curve` in a browser: its charts are drawn, nothing leaves the disk, it fits a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kofn.cli.analysis_verbs import curve_command as command

ARITHMETIC = Path(__file__).parents[2] / "examples" / "arithmetic.jsonl"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("curve") / "page.html"
    options = ["--by", "kind", "--extend", "10", "--min-gain-per-dollar", "3000", "--selector", "length"]
    done = CliRunner().invoke(command, [str(ARITHMETIC), "--html", str(path), *options])
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_every_chart_is_drawn_and_nothing_leaves_the_disk(page, visit, width, scheme):
    tab = visit(page, width=width, scheme=scheme)
    tab.wait_for_selector("html[data-drawn]")
    assert tab.eval_on_selector_all("[data-chart] .plot > svg", "all => all.length") == 6  # one, three, two segments
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.text(".verdict") == "n = 3"
    tab.clean()


def test_what_is_extrapolated_is_drawn_apart(page, visit):
    tab = visit(page)
    tab.wait_for_selector("html[data-drawn]")
    dashes = tab.eval_on_selector_all(
        "[data-chart=curve] svg path", "all => all.map(p => p.getAttribute('stroke-dasharray'))"
    )
    assert dashes.count("1.5 4") == 1
    assert "extrapolated" in tab.text("figure[data-chart=curve] .legend")
