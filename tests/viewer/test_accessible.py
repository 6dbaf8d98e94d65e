"""What axe finds on every page of the viewer, light and dark, wide and narrow: nothing serious."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import ask, open_in, served

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
    "/run/one/-/labels?sheet=candidates-4",
    "/run/one/-/labels?sheet=candidates-4&at=2",
    "/run/one/-/labels?sheet=candidates-4&confusion=1",
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
        label(address, root / "one")
        yield address


def label(address, run):
    """A sheet that two annotators have labelled."""
    kind = {"Origin": address, "Content_Type": "application/x-www-form-urlencoded"}
    ask(address, "/run/one/-/labels", "POST", b"of=candidates&n=4", **kind)
    rows = [json.loads(line) for line in (run / "labels-candidates-4.jsonl").read_text().splitlines()]
    for name, humans in (("Anna", (1, 0, 1, 0)), ("Ben", (1, 0, 0, 0))):
        labels = [
            {"row": i, "id": row["id"], "index": row["index"], "human": human}
            for i, (row, human) in enumerate(zip(rows, humans, strict=True))
        ]
        body = json.dumps({"sheet": "candidates-4", "by": name, "labels": labels}).encode()
        kind = {"Origin": address, "Content_Type": "application/json"}
        assert ask(address, "/run/one/-/labels", "POST", body, **kind).status == 200


@pytest.mark.browser(quick=1)
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), pytest.param(390, "dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(browser, base, path, width, scheme):
    annotator = None if path.endswith("at=2") else "Anna"  # without a name there is the dialog that asks for it
    tab = open_in(browser, base, path, width=width, scheme=scheme, annotator=annotator)
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
