"""The page of a comparison in Chromium: it opens from disk, unfolds what changed, and hostile text stays text."""

from __future__ import annotations

from dataclasses import replace

import kofn
from kofn.analysis.compare.systems import ComparisonOptions, Side, compare_systems
from kofn.core.warnings import CodedWarning
from kofn.render.comparison_html import comparison_page

EVIL = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>"


def found():
    rows = [
        [
            {"id": f"q{i}" if i else EVIL, "input": f"How many? {EVIL}", "reference": "1", "kind": f"k{i % 2}",
             "outputs": [f"{EVIL} 𝟙 so it is {int((i + j) % 5 < k)}." for j in range(3)]}
            for i in range(40)
        ]
        for k in (1, 4)
    ]  # fmt: skip
    sides = [
        Side(name=name, result=kofn.score(one, extract="number", metric="numeric", everything=True))
        for name, one in zip(("a", EVIL), rows, strict=True)
    ]
    return compare_systems(sides, ComparisonOptions(by=("kind",)))


def open_page(visit, tmp_path, **more):
    path = tmp_path / "page.html"
    path.write_text(comparison_page(found()))
    return visit(path, **more).when_ready()


def test_warnings_have_their_codes(visit, tmp_path):
    warnings = (CodedWarning.of("few-cases", n=2), CodedWarning.of("nothing-graded").about(EVIL))
    report = replace(found(), warnings=warnings)
    (tmp_path / "page.html").write_text(comparison_page(report))
    items = visit(tmp_path / "page.html").page.locator("#warnings li")
    assert items.evaluate_all("all => all.map(li => li.dataset.code)") == ["few-cases", "nothing-graded"]
    assert items.all_text_contents() == list(map(str, warnings))


def test_a_case_unfolds_with_both_sides_and_nothing_runs(visit, tmp_path):
    tab = open_page(visit, tmp_path)
    first = tab.page.locator("details.change").first
    first.locator("summary").click()
    first.locator(".side").nth(1).wait_for()
    assert first.locator(".side").count() == 2
    assert first.locator("article.candidate").count() == 6
    assert first.locator("mark").first.inner_text() in ("0", "1")
    assert EVIL in first.locator(".side .text").first.inner_text()
    assert tab.page.evaluate("window.pwned") is None
    tab.clean()


def test_the_list_is_filtered_by_way_and_by_word(visit, tmp_path):
    tab = open_page(visit, tmp_path)
    total = tab.page.locator("details.change").count()
    tab.page.select_option("#way", "down")
    assert tab.page.locator("details.change:visible").count() == 0
    tab.page.select_option("#way", "up")
    assert tab.page.locator("details.change:visible").count() == total == 16
    tab.page.fill("#query", "q1")
    assert 0 < tab.page.locator("details.change:visible").count() < total
    assert "of 16 shown" in tab.text("#count")


def test_nothing_is_wider_than_a_small_screen_or_drawn_outside_its_cell(visit, tmp_path):
    tab = open_page(visit, tmp_path, width=420)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    outside = """() => [...document.querySelectorAll('.span b')].filter(b => {
        const [dot, box] = [b.getBoundingClientRect(), b.parentElement.getBoundingClientRect()];
        return dot.left < box.left - 7 || dot.right > box.right + 7;
    }).length"""
    assert tab.page.evaluate(outside) == 0
