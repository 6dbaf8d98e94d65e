"""Two runs in the viewer: the numbers of `kofn compare`, and the cases that changed with both sides."""

from __future__ import annotations

import html
import json
import random
import re
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from tests.sealing import reseal
from tests.viewer.runs import EVIL, write
from tests.viewer.serving import ask, open_in, served
from tests.waiting import LONGEST, wait_until

import kofn
from kofn.cli.analysis_verbs import compare_command as command
from kofn.core.format import format_signed
from kofn.errors import InputError
from kofn.runs import AttributeResult, CorrectnessResults, VerifierReport
from kofn.viewer import compare_data
from kofn.viewer.caches import BackgroundCache
from kofn.viewer.compare_page import PAGE

NUMBERS = ("mean", "majority", "any_pass")


def rows(right, n=160, k=4, evil="", seed=0):
    rng = random.Random(seed)
    return [
        {"id": f"q{i:03}{evil if i == 1 else ''}", "input": f"What is 2 + 2, the {i}th time?{evil}", "reference": "4",
         "kind": f"k{i % 3}", "serial": f"s{i}",
         "outputs": [f"{evil}I say {4 if rng.random() < right else 5}." for _ in range(k)]}
        for i in range(n)
    ]  # fmt: skip


def program(folder, passing, groups=("core",)):
    """A run of a program: cases that pass or not, no candidates."""
    when = datetime(2026, 3, 1, tzinfo=UTC)
    results = CorrectnessResults(problem_name="wc", name="c", timestamp=when)
    for group in groups:
        reports = [
            VerifierReport(
                id=f"case{i}",
                group=group,
                type="Core",
                timestamp=when,
                results={"status": AttributeResult(is_correct=True), "output": AttributeResult(is_correct=ok)},
            )
            for i, ok in enumerate(passing)
        ]
        results.add_group_report(group, "Core", 1.0, reports)
    results.save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "old", rows(0.25, seed=1), aggregate=NUMBERS)
    write(root / "models" / "new", rows(0.5, n=158, seed=2), aggregate=NUMBERS)
    write(root / "evil one", rows(0.2, n=40, evil=EVIL, seed=3), aggregate=NUMBERS, task="evil")
    write(root / "evil two", rows(0.6, n=40, evil=EVIL, seed=4), aggregate=NUMBERS, task="evil")
    write(root / "other", [{"id": f"z{i}", "pass": True} for i in range(9)], aggregate=["mean"], task="other")
    program(root / "wc1", [True] * 12 + [False] * 8, groups=("core", "more"))
    program(root / "wc2", [False] * 4 + [True] * 16, groups=("core", "more"))
    return root


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


@pytest.fixture
def on(browser, base):
    pages = []

    def open_page(path, **more):
        pages.append(open_in(browser, base, path, **more))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()


def by_command(folder, *options, a="old", b="models/new"):
    done = CliRunner().invoke(command, [str(folder / a), str(folder / b), *options, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def plain(text):
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", text)).split())


def differences(text):
    """(number, segment, difference, p after Holm) of every row of the tables."""
    found = []
    for table in re.findall(r'<table class="forest">.*?</table>', text, re.DOTALL):
        for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", table, re.DOTALL):
            cells = [plain(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
            at = next(i for i, cell in enumerate(cells) if "[" in cell)
            found.append((cells[0], cells[1] if at == 4 else "", re.sub("[▲▼ ]", "", cells[at].partition("[")[0])))
    return found


def changed(text):
    return [html.unescape(c) for c in re.findall(r'<summary><span class="id code"><bdi>(.*?)</bdi>', text)]


def compare_url(*more, a="old", b="models/new"):
    return "/compare?" + "&".join([f"a={quote(a)}", f"b={quote(b)}", *more])


# --- the numbers


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ([], []),
        (["by=kind"], ["--by", "kind"]),
        (["number=any_pass", "number=pass@2,+mean"], ["-a", "any_pass", "-a", "pass@2", "-a", "mean"]),
        (["top_k=2", "number=any_pass"], ["--top-k", "2", "-a", "any_pass"]),
        (["verdict=mean+%3E%3D+0.75"], ["--verdict", "mean >= 0.75"]),
        (["metric=numeric"], ["--metric", "numeric"]),
    ],
)
def test_the_page_has_the_numbers_of_the_command(base, folder, query, options):
    answer = ask(base, compare_url(*query))
    data = by_command(folder, *options)
    assert answer.status == 200
    expected = [
        (c["aggregator"], (c["segment"] or "").partition("=")[2], format_signed(c["difference"]))
        for c in data["comparisons"]
    ]
    assert differences(answer.text) == expected
    assert changed(answer.text) == [c["case"] for c in data["changed"]][:PAGE]
    assert f"{len(data['changed']):,} case" in plain(answer.text)


def test_runs_are_named_in_both_ways_and_the_first_is_the_baseline(base):
    texts = [
        ask(base, path).text
        for path in ("/compare?run=old&run=models/new", compare_url(), "/compare?b=models/new&run=old")
    ]
    assert all("models/new against old" in plain(text) for text in texts)
    assert texts[0] == texts[1] == texts[2]


def test_three_runs_stand_in_one_table_and_each_pair_leads_to_its_cases(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "runs")
    kofn.score(rows(0.5, seed=9), out=tmp_path / "runs" / "third", aggregate=NUMBERS)
    query = "run=old&run=models/new&run=third"
    with served(tmp_path / "runs") as base:
        answer = ask(base, f"/compare?{query}")
        text = plain(answer.text)
        assert answer.status == 200
        assert "over 158 shared cases: old 0." in text
        assert "third" in re.search(r"third [01]\.\d{3}\. .*?third (is|does not)", text)[0]
        assert len(differences(answer.text)) == 2 * len(differences(ask(base, compare_url()).text))
        [first, second] = re.findall(r'<li><a href="([^"]+)#changes">', answer.text)
        assert changed(ask(base, html.unescape(first)).text) == changed(ask(base, compare_url()).text)
        assert "third against old" in plain(ask(base, html.unescape(second)).text)
        every = ask(base, f"/compare?{query}&pairs=all").text
        assert len(re.findall(r'<li><a href="([^"]+)#changes">', every)) == 3


def test_the_two_can_be_swapped_and_everything_else_stays(base):
    text = ask(base, compare_url("by=kind", "number=mean", "way=up")).text
    to = html.unescape(re.search(r'<a href="([^"]+)"[^>]*>Swap', text)[1])
    other = ask(base, to).text
    assert "old against models/new" in plain(other)
    turned = [
        (n, s, "0.000" if d == "0.000" else ("-" if d[0] == "+" else "+") + d[1:]) for n, s, d in differences(text)
    ]
    assert differences(other) == turned
    assert changed(other) == changed(text)


def test_cases_of_one_run_only_are_named(base):
    assert "2 cases only in old, not in models/new q158 , q159" in plain(ask(base, compare_url()).text)


# --- what changed


def test_changed_cases_come_in_pages_and_every_one_once(base, folder):
    every = [c["case"] for c in by_command(folder)["changed"]]
    assert len(every) > PAGE
    pages = [changed(ask(base, compare_url(f"page={i}")).text) for i in range(1, -(-len(every) // PAGE) + 1)]
    assert [len(p) for p in pages[:-1]] == [PAGE] * (len(pages) - 1)
    assert [case for page in pages for case in page] == every
    assert changed(ask(base, compare_url("page=999")).text) == pages[-1]


def test_changed_cases_are_found_by_way_and_by_words(base, folder):
    found = by_command(folder)["changed"]
    down = [c["case"] for c in found if c["passed_a"]]
    assert 0 < len(down) < len(found)
    assert changed(ask(base, compare_url("way=down")).text) == down
    assert changed(ask(base, compare_url("way=down", f"q={down[0].upper()}")).text) == down[:1]
    by_input = [c["case"] for c in found if "the 11th" in c["input"].lower()]
    assert changed(ask(base, compare_url("q=The+11TH")).text) == by_input
    assert "No case that changed fits" in ask(base, compare_url("q=nowhere")).text


def test_a_changed_case_leads_to_its_page_in_both_runs(base, folder):
    text = ask(base, compare_url()).text
    part = re.search(r'<details class="change".*?</details>', text, re.DOTALL)[0]
    case = changed(text)[0]
    links = [html.unescape(link) for link in re.findall(r'<a href="([^"]+)"', part)]
    assert [link.partition("/-/")[0] for link in links] == ["/run/old", "/run/models/new"]
    for link, verdict in zip(links, re.search(r"(pass|fail) → (pass|fail)", part).groups(), strict=True):
        page = ask(base, link)
        assert page.status == 200
        assert f"<bdi>{case}</bdi></h1>" in page.text
        assert verdict in ("pass", "fail")


def body_of(base, text, at=0):
    return ask(base, html.unescape(re.findall(r'data-from="([^"]+)"', text)[at])).json()


def test_a_case_unfolds_to_the_candidates_of_the_files(base, folder):
    text, changes = ask(base, compare_url()).text, by_command(folder)["changed"]
    for at in (0, 7, PAGE - 1):
        body = body_of(base, text, at)
        assert body["names"] == ["old", "models/new"]
        assert (body["input"], body["reference"]) == (changes[at]["input"], changes[at]["reference"])
        for side, expected in zip(body["sides"], (changes[at]["a"], changes[at]["b"]), strict=True):
            assert [(c["text"], c["answer"], c["pass"]) for c in side] == [
                (c["text"], c["answer"], int(c["passed"])) for c in expected
            ]


def test_the_first_candidates_alone_are_shown_where_only_they_are_compared(base):
    text = ask(base, compare_url("top_k=2")).text
    assert [len(side) for side in body_of(base, text)["sides"]] == [2, 2]
    strips = re.findall(r'<span class="strip" aria-hidden="true">(.*?)</span>', text)
    assert {strip.count("<i ") for strip in strips} == {2}


def test_many_candidates_are_cut_and_said(base, monkeypatch):
    monkeypatch.setattr(compare_data, "MAX_EXCERPTS", 3)
    body = body_of(base, ask(base, compare_url()).text)
    assert [len(side) for side in body["sides"]] == [3, 3]
    assert body["left"] == [1, 1]


@pytest.mark.parametrize(
    "query", ["rows=0,9999", "rows=-1,0", "rows=x", "", "rows=0,0&b=..%2Fold", "rows=0,0&b=%2e%2e/%2e%2e/etc", "a=old"]
)
def test_what_is_not_there_is_not_shown(base, query):
    start = "/compare/case?a=old&b=models/new&" if not query.startswith("a=") else "/compare/case?"
    assert ask(base, start + query).status == 404


@pytest.mark.parametrize("name", ["../x", "%2e%2e/old", "/etc", "nothing", "models", "old%00"])
def test_only_runs_of_the_folder_are_compared(base, name):
    assert ask(base, f"/compare?a=old&b={name}").status == 404


# --- programs


def test_runs_of_programs_are_compared_by_what_passes(base):
    text = ask(base, compare_url(a="wc1", b="wc2")).text
    assert ("mean", "", "+0.200") in differences(text)
    assert "16 pass in wc2 and not in wc1, 8 the other way round" in plain(text)
    assert changed(text)[0] == "core / case0"
    assert body_of(base, text)["sides"][1] == [
        {"k": 1, "text": "✓ status\n✗ output", "answer": None, "pass": 0, "span": None}
    ]
    link = html.unescape(re.search(r'change-links">[^<]*<a href="([^"]+)"', text)[1])
    assert "<bdi>case0</bdi></h1>" in ask(base, link).text
    assert len(differences(ask(base, compare_url("by=group", a="wc1", b="wc2")).text)) == 6


def test_a_program_and_a_model_have_no_number_in_common(base):
    answer = ask(base, compare_url(a="wc1", b="old"))
    assert answer.status == 422
    assert "no case id" in answer.text


# --- what is refused


def test_nothing_is_imported_because_an_address_names_it(base, tmp_path, monkeypatch):
    (tmp_path / "kofn_compare_trap.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    for query in ("number=kofn_compare_trap:x", "verdict=kofn_compare_trap:x", "verdict=kofn_compare_trap:x+>=+1"):
        answer = ask(base, compare_url(query))
        assert answer.status == 422
        assert "not from an address" in answer.text
    assert ask(base, compare_url("metric=kofn_compare_trap:x")).status == 422
    assert ask(base, compare_url("by=kofn_compare_trap:x")).status == 422
    assert "kofn_compare_trap" not in sys.modules


@pytest.mark.parametrize("query", ["", "&top_k=2"])
def test_nothing_is_imported_because_a_run_names_it(folder, tmp_path, monkeypatch, query):
    (tmp_path / "kofn_run_trap.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("old", "models/new"):
        shutil.copytree(folder / name, tmp_path / "runs" / name)
        path = tmp_path / "runs" / name / "run.json"
        path.write_text(re.sub(r'"(majority|any_pass)"', r'"kofn_run_trap:\1"', path.read_text()))
        reseal(path)
    with served(tmp_path / "runs") as base:
        answer = ask(base, compare_url() + query)
    assert answer.status == 200
    assert ("kofn_run_trap:majority" in answer.text) == (not query)
    assert "kofn_run_trap" not in sys.modules


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("number=nonsense", "unknown aggregator"),
        ("by=serial", "160 values"),
        ("by=nonsense", "unknown field"),
        ("metric=nonsense", "unknown metric"),
        ("verdict=mean+%3E%3D", "mean &gt;="),
        ("&".join(f"number=pass@{i}" for i in range(1, 30)), "at most 24"),
        ("&".join(["x=1"] * 200), "more than 100 things"),
        ("&".join(["run=old"] * 7), "9 runs"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_line(base, query, why):
    answer = ask(base, compare_url(query))
    assert answer.status == 422
    assert why in answer.text


@pytest.mark.parametrize(
    "query", ["page=x", "page=-1", "top_k=0", "top_k=x", "way=sideways", "q=%ff%fe", "number=", "by="]
)
def test_nonsense_in_the_address_is_no_error(base, query):
    assert ask(base, compare_url(query)).status == 200


def test_runs_that_share_no_case_are_said(base):
    answer = ask(base, compare_url(a="old", b="other"))
    assert answer.status == 422
    assert "share no case id" in answer.text


def test_runs_that_are_too_large_for_a_page_are_not_read(base, monkeypatch):
    monkeypatch.setattr(compare_data, "MAX_CASES", 159)
    monkeypatch.setattr("kofn.viewer.caches.load_run", lambda *_, **__: pytest.fail("read"))
    answer = ask(base, compare_url("top_k=3"))
    assert answer.status == 422
    assert "old: 160 cases: at most 159 are compared on a page" in answer.text


# --- which runs


def test_without_two_runs_the_page_offers_two_lists(base):
    text = ask(base, "/compare").text
    assert re.findall(r'<select name="(\w)"', text) == ["a", "b"]
    for name in ("old", "models/new", "wc1"):
        assert text.count(f'<option value="{name}"') == 2


def test_runs_of_the_same_task_come_first(base):
    text = ask(base, "/compare?run=evil+one").text
    second = text.partition('<select name="b"')[2].partition("</select>")[0]
    assert re.findall(r'<optgroup label="(\w+)"', second)[0] == "evil"
    assert '<option value="evil one"' not in second
    assert '<option value="evil one" selected' in text


def test_a_run_is_not_compared_with_itself(base):
    text = ask(base, "/compare?run=old&run=old/").text
    assert "one and the same run" in text
    assert '<select name="b"' in text


def test_a_run_that_is_not_finished_or_cannot_be_read_is_not_offered(folder, tmp_path):
    for name in ("old", "evil one"):
        shutil.copytree(folder / name, tmp_path / name)
    (tmp_path / "old" / "run.json").write_text("{")
    (tmp_path / "going").mkdir()
    (tmp_path / "going" / "store.sqlite").write_bytes(b"")
    with served(tmp_path) as base:
        text = ask(base, "/compare").text
        assert "There is one run in this folder" in text
        assert ask(base, "/compare?a=old&b=evil+one").status == 422
        assert ask(base, "/compare?a=going&b=evil+one").status == 404


def test_names_that_an_address_could_misread_are_compared(folder, tmp_path):
    odd = "b ü&a=x%20+#?"
    shutil.copytree(folder / "old", tmp_path / "a")
    shutil.copytree(folder / "models" / "new", tmp_path / odd)
    with served(tmp_path) as base:
        answer = ask(base, f"/compare?a=a&b={quote(odd)}")
        assert answer.status == 200
        assert len(body_of(base, answer.text)["sides"]) == 2
        to = html.unescape(re.search(r'<a href="([^"]+)"[^>]*>Swap', answer.text)[1])
        assert ask(base, to).status == 200


# --- kept


def test_a_comparison_is_made_once_until_a_file_changes(folder, tmp_path, monkeypatch):
    for name in ("old", "models/new"):
        shutil.copytree(folder / name, tmp_path / name)
    made = []
    real = compare_data.compare_systems
    monkeypatch.setattr(compare_data, "compare_systems", lambda *given, **more: made.append(1) or real(*given, **more))
    with served(tmp_path) as base:
        for query in ("page=1", "page=2", "way=up", "q=the"):
            assert ask(base, compare_url(query)).status == 200
        assert len(made) == 1
        ask(base, compare_url("by=kind"))
        assert len(made) == 2
        path = tmp_path / "old" / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
        assert ask(base, compare_url()).status == 200
        assert len(made) == 3


def test_a_page_that_takes_long_comes_by_itself(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "runs")
    real, go_on = compare_data.compare_views, threading.Event()
    monkeypatch.setattr(compare_data, "compare_views", lambda *given: go_on.wait(LONGEST) and real(*given))
    monkeypatch.setattr(BackgroundCache.get, "__defaults__", (0.1,))
    with served(tmp_path / "runs") as base:
        first = ask(base, compare_url())
        assert (first.status, first.headers["refresh"]) == (202, "1")
        assert "old and models/new: the page comes by itself" in first.text
        go_on.set()
        answers = []
        wait_until(lambda: answers.append(ask(base, compare_url())) or answers[-1].status != 202)
        answer = answers[-1]
        assert answer.status == 200
        assert differences(answer.text)


def test_what_several_ask_for_at_once_is_made_once_and_a_failure_is_not_kept():
    kept, made = BackgroundCache(max_values=2, max_size=9, size=lambda _: 1), []

    def make():
        made.append(1)
        time.sleep(0.2)
        return "x"

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: kept.get("key", make), range(8))) == {"x"}
    assert len(made) == 1
    with pytest.raises(InputError, match="no"):
        kept.get("other", lambda: (_ for _ in ()).throw(InputError("no")))
    assert kept.get("other", lambda: "y") == "y"


# --- in a browser


def test_a_page_that_takes_long_is_there_without_a_click(browser, folder, monkeypatch):
    real, go_on = compare_data.compare_views, threading.Event()
    monkeypatch.setattr(compare_data, "compare_views", lambda *given: go_on.wait(LONGEST) and real(*given))
    monkeypatch.setattr(BackgroundCache.get, "__defaults__", (0.1,))
    with served(folder) as base:
        tab = open_in(browser, base, compare_url())
        assert tab.text("h1") == "Comparing …"
        go_on.set()
        tab.page.wait_for_selector("table.forest")
        tab.context.close()


def test_a_case_unfolds_with_both_sides_and_nothing_runs(on):
    tab = on(compare_url(a="evil one", b="evil two"))
    first = tab.page.locator("details.change").first
    first.locator("summary").click()
    first.locator(".side").nth(1).wait_for()
    assert first.locator("article.candidate").count() == 8
    assert EVIL[:40] in first.locator(".side .text").first.inner_text()
    assert first.locator("mark").first.inner_text() in ("4", "5")
    assert tab.page.evaluate("window.pwned") is None
    with tab.page.expect_navigation():
        first.locator(".side h3 a").nth(1).click()
    assert tab.page.url.partition("/-/")[0].endswith("/run/evil%20two")
    tab.clean()


def test_what_is_asked_for_stands_in_the_address_and_empty_fields_do_not(on):
    tab = on(compare_url())
    tab.page.get_by_text("Other numbers, segments").click()
    tab.page.get_by_label("mean", exact=True).check()
    tab.page.get_by_label("by segment").select_option("kind")
    with tab.page.expect_navigation():
        tab.page.get_by_role("button", name="Compare").click()
    assert tab.page.url.partition("?")[2] == "a=old&b=models%2Fnew&number=mean&by=kind"
    with tab.page.expect_navigation():
        tab.page.get_by_label("which way").select_option("up")
    assert "number=mean&by=kind" in tab.page.url
    assert "way=up" in tab.page.url
    tab.clean()


def test_two_runs_are_chosen_and_those_of_the_same_task_are_first(on):
    tab = on("/compare")
    tab.page.get_by_label("a, the baseline").select_option("evil one")
    second = tab.page.locator("select[name=b]")
    assert second.locator("optgroup").first.get_attribute("label") == "evil"
    second.select_option("evil two")
    with tab.page.expect_navigation():
        tab.page.get_by_role("button", name="Compare").click()
    assert "evil two against evil one" in tab.text("h1")
    tab.clean()


@pytest.mark.browser
def test_two_runs_that_are_ticked_in_the_list_are_compared(on):
    tab = on("/")
    tab.page.locator("input[name=run][value=old]").check()
    tab.page.locator("input[name=run][value='models/new']").check()
    with tab.page.expect_navigation():
        tab.page.locator("#compare").click()
    assert "against" in tab.text("h1")


@pytest.mark.parametrize("path", [compare_url("by=kind", a="evil one", b="evil two"), "/compare"])
def test_nothing_is_wider_than_a_phone(on, path):
    tab = on(path, width=390, scheme="dark")
    if "?" in path:
        tab.page.locator("details.change summary").first.click()
        tab.page.locator(".side").nth(1).wait_for()
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.clean()
