"""What axe finds on every page of the viewer, light and dark, wide and narrow: nothing serious."""

from __future__ import annotations

from importlib.resources import files

import pytest
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import open_in, served

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")
PAGES = [
    "/",
    "/?q=nothing+like+it",
    "/run/one",
    "/run/one?show=tied",
    "/run/one/-/case?id=q01",
    "/run/one/-/case?id=q01&against=1",
    "/run/one/-/best",
    "/run/one/-/audit",
    "/run/one/-/labels",
    "/run/one/-/export",
    "/compare",
    "/compare?run=one&run=two",
    "/trend",
    "/trend?task=sums",
    "/nothing",
    "/run/none",
]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "one", small_rows(24), by=["kind"])
    write(root / "two", small_rows(18), by=["kind"])
    with served(root) as address:
        yield address


@pytest.mark.browser(quick=1)
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), pytest.param(390, "dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(browser, base, path, width, scheme):
    tab = open_in(browser, base, path, width=width, scheme=scheme)
    try:
        if tab.page.query_selector("#set-charts[data-from]"):
            tab.page.wait_for_selector("html[data-loaded]")
        tab.page.evaluate(AXE)
        found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            (one["id"], one["help"], [node["html"][:160] for node in one["nodes"][:3]])
            for one in found["violations"]
            if one["impact"] in SERIOUS
        ]
        assert serious == []
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.requests == []
    finally:
        tab.page.context.close()
