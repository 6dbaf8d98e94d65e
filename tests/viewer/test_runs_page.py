"""The list of runs: searched, sorted, paged; what cannot be read has a line that says so."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from tests.sealing import reseal
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import ask, open_in, served

from kofn.viewer.run_folder import RunFolder
from kofn.viewer.run_list import RunList


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "alpha", small_rows(6))
    write(root / "beta", small_rows(12), aggregate=["any_pass", "mean"])
    manifest = json.loads((root / "beta" / "run.json").read_text())
    (root / "beta" / "run.json").write_text(json.dumps({**manifest, "created": "2099-01-01T00:00:00+00:00"}))
    reseal(root / "beta" / "run.json")
    write(root / "gamma", [{"id": i, "pass": True} for i in range(40)], task="easy", aggregate=["mean"])
    shutil.copytree(root / "alpha", root / "torn")
    (root / "torn" / "evaluation.json").write_text('{"schema_version": 2, "problem_name": "x"')
    shutil.copytree(root / "alpha", root / "foreign")
    (root / "foreign" / "evaluation.json").write_text("[]")
    shutil.copytree(root / "alpha", root / "newer")
    body = json.loads((root / "newer" / "evaluation.json").read_text())
    (root / "newer" / "evaluation.json").write_text(json.dumps({**body, "schema_version": 9}))
    shutil.copytree(root / "alpha", root / "odd")
    (root / "odd" / "evaluation.json").write_text(json.dumps({**body, "policies": 3}))
    (root / "notes").mkdir()
    (root / "notes" / "readme.txt").write_text("nothing")
    return root


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


def names(text):
    return re.findall(r'<tr data-name="([^"]*)"', text)


def test_every_run_has_a_line_with_its_headline_and_verdict(base):
    text = ask(base, "/").text
    assert set(names(text)) == {"alpha", "beta", "gamma", "torn", "foreign", "newer", "odd"}
    row = text[text.index('data-name="gamma"') :].partition("</tr>")[0]
    assert "<b>1.000</b>" in row
    assert "mean [0.912, 1.000]" in row
    assert ">easy<" in row
    assert ">finished<" in row
    assert ">40<" in row


@pytest.mark.parametrize(("name", "why"), [
    ("torn", "not JSON"), ("foreign", "expected a JSON object"), ("newer", "schema version 9, expected 3"),
    ("odd", "not as kofn writes it"),
])  # fmt: skip
def test_a_run_that_cannot_be_read_says_why_among_good_ones(base, name, why):
    text = ask(base, "/").text
    row = text[text.index(f'data-name="{name}"') :].partition("</tr>")[0]
    assert ">unreadable<" in row
    assert why in row
    assert ask(base, f"/run/{name}").status == 422


def test_words_and_choices_leave_some(base):
    assert names(ask(base, "/?q=GAM").text) == ["gamma"]
    assert names(ask(base, "/?task=easy").text) == ["gamma"]
    assert set(names(ask(base, "/?status=unreadable").text)) == {"torn", "foreign", "newer", "odd"}
    assert names(ask(base, "/?q=nothing+like+it").text) == []


def test_lines_are_sorted_by_what_is_asked_and_what_has_no_value_comes_last(base):
    down = names(ask(base, "/?sort=cases").text)
    up = names(ask(base, "/?sort=cases&up=1").text)
    assert down[:3] == ["gamma", "beta", "alpha"]
    assert up[:3] == ["alpha", "beta", "gamma"]
    assert set(down[3:]) == set(up[3:]) == {"torn", "foreign", "newer", "odd"}
    assert names(ask(base, "/?sort=nonsense").text)


@pytest.mark.parametrize("query", ["page=0", "page=-1", "page=99999999999999999999", "page=x", "sort=%00", "q=%ff%fe"])
def test_nonsense_in_the_address_is_no_error(base, query):
    assert ask(base, f"/?{query}").status == 200


def test_a_line_is_made_again_only_when_its_files_change(folder, monkeypatch):
    from kofn.viewer import run_list

    made = []
    real = run_list.read_line
    monkeypatch.setattr(run_list, "read_line", lambda found: made.append(found.name) or real(found))
    kept = RunList(RunFolder(folder))
    kept.lines()
    assert len(made) == 7
    kept.lines()
    assert len(made) == 7
    body = json.loads((folder / "gamma" / "evaluation.json").read_text())
    (folder / "gamma" / "evaluation.json").write_text(json.dumps(body, indent=4))
    try:
        kept.lines()
        assert made[7:] == ["gamma"]
    finally:
        (folder / "gamma" / "evaluation.json").write_text(json.dumps(body, indent=2))


def test_an_empty_folder_says_how_to_make_a_run(tmp_path):
    with served(tmp_path) as found:
        text = ask(found, "/").text
    assert "There is no run in this folder" in text
    assert "kofn score FILE --out DIR" in text


def test_many_runs_are_paged(tmp_path):
    write(tmp_path / "run000", small_rows(3))
    for i in range(1, 130):
        shutil.copytree(tmp_path / "run000", tmp_path / f"run{i:03d}")
    with served(tmp_path) as found:
        first, second = (names(ask(found, f"/?sort=name&up=1&page={page}").text) for page in (1, 2))
        beyond = names(ask(found, "/?sort=name&up=1&page=77").text)
    assert first == [f"run{i:03d}" for i in range(100)]
    assert second == beyond == [f"run{i:03d}" for i in range(100, 130)]


def test_ticked_runs_go_to_the_comparison(browser, base):
    tab = open_in(browser, base, "/?sort=name")
    button = tab.page.locator("#compare")
    assert not button.is_visible()
    tab.page.check('input[value="beta"]')
    assert button.is_disabled()
    assert tab.text("#ticked").startswith("1 run selected")
    tab.page.check('input[value="alpha"]')
    tab.page.check('input[value="gamma"]')
    assert (tab.text("#ticked"), button.is_enabled()) == ("3 runs selected", True)
    box = button.bounding_box()
    assert 0 < box["y"] < 900 - box["height"]  # in view, wherever the ticks are
    tab.page.uncheck('input[value="gamma"]')
    assert tab.page.locator('input[value="torn"]').is_disabled()
    button.click()
    tab.page.wait_for_url("**/compare?run=alpha&run=beta")  # the older one first, whatever was ticked first
    tab.clean()
    tab.page.context.close()


def test_typing_narrows_the_list_at_once_and_keeps_what_is_ticked(browser, base):
    tab = open_in(browser, base, "/")
    tab.page.check('input[value="gamma"]')
    tab.page.fill("input[name=q]", "gam")
    tab.page.wait_for_url("**/?q=gam")
    assert tab.page.locator("#table tbody tr").count() == 1
    assert tab.page.is_checked('input[value="gamma"]')
    assert tab.page.evaluate("document.activeElement.name") == "q"
    tab.page.fill("input[name=q]", "nothing like it")
    tab.page.wait_for_selector(".empty")
    tab.page.fill("input[name=q]", "")
    tab.page.wait_for_selector('tr[data-name="alpha"]')
    assert tab.page.url == f"{base}/"
    tab.clean()
    tab.page.context.close()


def test_a_choice_asks_at_once_and_keys_walk_the_table(browser, base):
    tab = open_in(browser, base, "/")
    tab.page.select_option("select[name=task]", "easy")
    tab.page.wait_for_url("**/?task=easy")
    assert tab.page.locator("#table tbody tr").count() == 1
    tab.page.keyboard.press("j")
    assert tab.page.evaluate("document.activeElement.textContent") == "gamma"
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.name") == "q"
    tab.clean()
    tab.page.context.close()


@pytest.mark.browser
def test_a_theme_is_kept_from_page_to_page(browser, base):
    tab = open_in(browser, base, "/", scheme="light")
    try:
        tab.page.select_option("[data-theme-choice]", "dark")
        tab.page.goto(f"{base}/compare", wait_until="commit")
        tab.page.wait_for_selector("html[data-ready]")
        assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert tab.messages == []
    finally:
        tab.page.context.close()


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_nothing_is_wider_than_the_screen(browser, base, width):
    tab = open_in(browser, base, "/", width=width)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    tab.page.context.close()
