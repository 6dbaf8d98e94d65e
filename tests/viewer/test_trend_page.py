"""Runs over time in the viewer: tasks, one task with its chart, what was left out and why, each run read once."""

from __future__ import annotations

import html
import json
import os
import random
import re
import shutil
from datetime import UTC, datetime, timedelta

import pytest
from tests.sealing import reseal
from tests.viewer.runs import EVIL, write
from tests.viewer.serving import ask, open_in, served

from kofn.analysis.trend import load_trend
from kofn.core.format import format_signed
from kofn.runs import AttributeResult, CorrectnessResults, VerifierReport
from kofn.viewer import trend_data

WHEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(right, n=60, seed=0):
    rng = random.Random(seed)
    return [
        {"id": f"q{i:02}", "input": f"the {i}th", "reference": "4",
         "outputs": [f"It is {4 if rng.random() < right else 5}." for _ in range(3)]}
        for i in range(n)
    ]  # fmt: skip


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    if path.name == "run.json":
        reseal(path)


def scored(folder, right, day, **more):
    """A run of a day."""
    write(folder, rows(right, seed=day), aggregate=["mean", "majority"], **more)
    change(folder / "run.json", created=(WHEN + timedelta(days=day)).isoformat())
    return folder


def program(folder, passing, *, task="wc", when=WHEN, groups=("core",), **more):
    results = CorrectnessResults(problem_name=task, name="c", timestamp=when, **more)
    for group in groups:
        reports = [
            VerifierReport(
                id=f"case{i}",
                group=group,
                type="Core",
                timestamp=when,
                results={"out": AttributeResult(is_correct=ok)},
            )
            for i, ok in enumerate(passing)
        ]
        results.add_group_report(group, "Core", 1.0, reports)
    results.save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six days of a task with a fall on the fourth; programs; a task of hostile names; and what cannot be read."""
    root = tmp_path_factory.mktemp("runs")
    for day in range(6):
        scored(root / "days" / f"day{day}", 0.85 if day < 3 else 0.3, day)
    for i in range(4):
        passing = [(i + j) % 4 > 0 for j in range(12)]
        program(root / f"wc{i}", passing, when=WHEN - timedelta(days=9 - i), groups=("core", "more"))
    for i in range(3):
        program(root / f"<img src=x onerror=alert({i})>", [i < 2] * 12, task=EVIL, when=WHEN - timedelta(days=99 - i))
    shutil.copytree(root / "days" / "day0", root / "torn")
    (root / "torn" / "evaluation.json").write_text('{"schema_version": 2, "problem_name": "sums"')
    shutil.copytree(root / "days" / "day0", root / "short")
    (root / "short" / "cases.parquet").write_bytes(b"PAR1")
    program(root / "broken", [True], infrastructure_failure="no disk")
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


def plain(text):
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", text)).split())


def table(text, label="Runs as a table"):
    """The rows of the table of runs as their cells."""
    found = text[text.index(f'aria-label="{label}"') :].partition("</table>")[0]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr>.*?</tr>", found)]
    return [[plain(cell) for cell in row] for row in cells][1:]


def left_out(text):
    part = text.partition('id="h-left"')[2].partition("</section>")[0]
    return [plain(line) for line in re.findall(r"<li>(.*?)</li>", part, re.DOTALL)]


# --- the tasks


def test_tasks_are_listed_with_their_runs_those_with_new_runs_first(base):
    text = ask(base, "/trend").text
    found = re.findall(r'<tr><th scope="row">(.*?)</tr>', text, re.DOTALL)
    assert [plain(row).split()[:2] for row in found[:2]] == [["sums", "7"], ["wc", "5"]]  # damaged files come out later
    assert len(found) == 3
    assert 'href="/trend?task=sums"' in found[0]
    assert 'href="/run/days/day5"' in found[0]
    assert re.search(r'<svg class="sparkline" role="img" aria-label="\d runs, from 0.\d+ to 0.\d+">', found[0])


def test_tasks_are_found_by_words(base):
    assert plain(ask(base, "/trend?q=SUM").text).count("1 of 3 tasks") == 1
    assert "No task fits" in ask(base, "/trend?q=nothing").text


def test_a_run_that_cannot_be_read_is_named_with_the_reason(base):
    assert [line.partition(":")[0] for line in left_out(ask(base, "/trend").text)] == ["torn"]
    assert "not JSON" in left_out(ask(base, "/trend").text)[0]


def test_an_empty_folder_says_what_writes_runs(tmp_path):
    with served(tmp_path) as base:
        assert "kofn run TASK" in ask(base, "/trend").text


# --- one task


def test_the_page_has_the_numbers_of_the_command_and_marks_the_day_of_the_fall(base, folder):
    text = ask(base, "/trend?task=sums").text
    part = load_trend([folder / "days"]).tasks[0]
    f = part.metrics[0]
    tab = table(text)
    assert [row[0].split()[0] for row in tab] == [f"days/day{i}" for i in range(6)]
    assert [row[1] for row in tab] == [f"{p.estimate.point:.3f}" for p in f.series.points]
    assert [row[4] for row in tab[1:]] == [format_signed(c.comparison.difference) for c in f.series.changes[1:]]
    assert ["worse" in row[3] for row in tab] == [i == 3 for i in range(6)]


def test_every_row_and_point_leads_to_its_run(base):
    text = ask(base, "/trend?task=sums").text
    links = [html.unescape(link) for link in re.findall(r'<th scope="row"><a href="(/run/[^"]+)"', text)]
    assert links == [f"/run/days/day{i}" for i in range(6)]
    points = [html.unescape(link) for link in re.findall(r'<a href="(/run/[^"]+)"><(?:circle|svg)', text)]
    assert sorted(points) == links  # real changes are drawn last
    assert all(ask(base, link).status == 200 for link in links)


def test_the_sizes_of_many_real_changes_are_not_written_over_each_other(base, monkeypatch):
    def sizes():
        text = ask(base, "/trend?task=sums").text
        assert text.count('overflow="visible" role="graphics-symbol">') == 1  # the triangle
        return re.findall(r'<g text-anchor="middle" aria-hidden="true"[^>]*font-weight="600"><text[^>]*>([^<]*)<', text)

    (size,) = sizes()
    assert size.startswith("-0.")
    monkeypatch.setattr("kofn.render.trend_html.MOST_SIZES", 0)
    assert sizes() == []


def test_a_flaky_case_leads_to_its_page_in_the_newest_run(base):
    text = ask(base, "/trend?task=sums").text
    part = text[text.index("Flaky cases") :]
    case, link = re.search(r'<th scope="row" class="code"><a href="([^"]+)"><bdi>(.*?)</bdi>', part).groups()[::-1]
    answer = ask(base, html.unescape(link))
    assert link.startswith("/run/days/day5/-/case")
    assert f"<bdi>{case}</bdi></h1>" in answer.text


def test_cases_of_one_id_in_two_groups_lead_to_the_run(base):
    text = ask(base, "/trend?task=wc").text
    part = text[text.index("Flaky cases") :]
    assert re.search(r'<th scope="row" class="code"><a href="/run/wc3"><bdi>core / case', part)


@pytest.mark.parametrize(("query", "title"), [
    ("number=mean", "mean"), ("number=score", "score"), ("number=pass_rate", "pass_rate"),
    ("metric=numeric", "majority"),
])  # fmt: skip
def test_another_number_is_followed_where_it_is_asked_for(base, folder, query, title):
    text = ask(base, f"/trend?task=sums&{query}").text
    assert re.search(r'<h2 id="h-series-0-0">(.*?)</h2>', text)[1] == title
    assert f'<option value="{title}" selected' in text
    if title == "mean":
        points = load_trend([folder / "days"], aggregate=["mean"]).tasks[0].metrics[0].series.points
        assert [row[1] for row in table(text)] == [f"{p.estimate.point:.3f}" for p in points]


def test_two_numbers_have_a_chart_each(base):
    text = ask(base, "/trend?task=sums&number=mean&number=score").text
    assert re.findall(r'<h2 id="h-series-0-\d">(.*?)</h2>', text) == ["mean", "score"]
    assert text.count('<figure class="chart" data-chart=') == 2


def test_what_cannot_be_followed_is_left_out_with_the_reason(base):
    reasons = left_out(ask(base, "/trend?task=sums").text)
    assert [reason.partition(":")[0] for reason in reasons] == ["short/cases.parquet", "torn"]
    assert "Parquet" in reasons[0]
    reasons = left_out(ask(base, "/trend?task=wc").text)
    assert reasons[0] == "broken: the harness failed: no disk"


def test_a_task_none_of_whose_runs_can_be_followed_says_why(tmp_path):
    program(tmp_path / "a", [True], infrastructure_failure="no disk")
    with served(tmp_path) as base:
        answer = ask(base, "/trend?task=wc")
    assert answer.status == 422
    assert "a: the harness failed: no disk" in answer.text


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/trend?task=nothing", 404, "no finished run"),
        ("/trend?task=", 404, "no finished run"),
        ("/trend?task=sums&number=nonsense", 422, "unknown aggregator"),
        ("/trend?task=sums&number=os:system", 422, "unknown aggregator"),
        ("/trend?task=sums&metric=nonsense", 422, "unknown metric"),
        ("/trend?task=sums&" + "x=1&" * 60, 422, "more than 50"),
        ("/trend?task=sums&last=x&page=y", 200, "sums"),
        ("/trend?page=99999999999&q=%ff", 200, "0 of 3 tasks"),
        ("/trend?task=sums&last=0", 200, "sums"),
    ],
)
def test_what_is_not_there_is_said_and_nonsense_is_passed_over(base, path, status, why):
    answer = ask(base, path)
    assert answer.status == status
    assert why in answer.text


def test_one_run_is_no_error(base):
    answer = ask(base, "/trend?task=sums&last=1")
    assert answer.status == 200
    assert "one run, so nothing to compare" in answer.text
    assert "The newest 1 of 7 runs" in plain(answer.text)


def test_a_name_that_is_no_text_is_left_out(tmp_path):
    for i in range(2):
        program(tmp_path / f"r{i}", [True, False], when=WHEN + timedelta(days=i))
    shutil.copytree(tmp_path / "r1", tmp_path / os.fsdecode(b"\xff"))
    with served(tmp_path) as base:
        answer = ask(base, "/trend?task=wc")
    assert answer.status == 200
    assert "no Unicode text" in left_out(answer.text)[0]


# --- many runs


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Thirty runs, of which a page takes ten."""
    monkeypatch.setattr(trend_data, "NEWEST", 10)
    for i in range(30):
        program(tmp_path / f"r{i:02}", [(i * j) % 3 > 0 for j in range(8)], when=WHEN + timedelta(hours=i))
    return tmp_path


@pytest.fixture
def loaded(monkeypatch):
    """The names of the runs that were read, in order."""
    names = []
    real = trend_data.load_completed
    monkeypatch.setattr(trend_data, "load_completed", lambda path: names.append(path.name) or real(path))
    return names


def test_the_newest_runs_are_read_and_the_others_are_a_link_away(many, loaded):
    with served(many) as base:
        text = ask(base, "/trend?task=wc").text
        assert loaded == [f"r{i}" for i in range(20, 30)]
        assert "The newest 10 of 30 runs: show all" in plain(text)
        more = re.search(r'show <a href="([^"]+)">all', text)[1]
        text = ask(base, html.unescape(more)).text
        assert sorted(loaded) == [f"r{i:02}" for i in range(30)]
    assert len(table(text)) == 30


def test_a_run_is_read_once_until_its_files_change(many, loaded):
    with served(many) as base:
        ask(base, "/trend?task=wc")
        loaded.clear()
        assert [ask(base, f"/trend?task=wc{q}").status for q in ("", "&number=score", "&last=10")] == [200] * 3
        assert loaded == []
        program(many / "r25", [True] * 8, when=WHEN + timedelta(hours=25))
        text = ask(base, "/trend?task=wc").text
        assert loaded == ["r25"]
    assert next(row for row in table(text) if row[0].startswith("r25"))[1] == "1.000"


def test_a_new_run_is_seen_and_a_deleted_one_is_gone(many, loaded):
    with served(many) as base:
        ask(base, "/trend?task=wc")
        loaded.clear()
        program(many / "r30", [True] * 8, when=WHEN + timedelta(hours=30))
        shutil.rmtree(many / "r29")
        names = [row[0].split()[0] for row in table(ask(base, "/trend?task=wc").text)]
    assert loaded == ["r30"]
    assert names[-2:] == ["r28", "r30"]


def test_runs_that_are_too_large_together_are_counted(many, monkeypatch):
    monkeypatch.setattr(trend_data, "MAX_CASES", 8 * 20)
    monkeypatch.setattr(trend_data, "CASES", 8 * 5)
    with served(many) as base:
        assert "The newest 5 of 30 runs" in plain(ask(base, "/trend?task=wc").text)
        text = plain(ask(base, "/trend?task=wc&last=30").text)
    assert "The newest 20 of 30 runs; more do not fit one page" in text


# --- in a browser


def test_a_point_of_the_chart_leads_to_its_run(on):
    tab = on("/trend?task=sums").when_ready()
    with tab.page.expect_navigation():
        tab.page.locator("[data-chart] .plot .dots circle").first.click()
    assert re.search(r"/run/days/day\d$", tab.page.url)
    tab.clean()


def test_another_number_is_chosen_without_a_button(on):
    tab = on("/trend?task=sums").when_ready()
    with tab.page.expect_navigation():
        tab.page.locator("select[name=number]").select_option("mean")
    tab.when_ready()
    assert tab.page.url.endswith("/trend?task=sums&number=mean")
    assert tab.page.locator("[data-chart] .plot > svg").count() == 1
    tab.clean()


def test_hostile_names_stay_text(on):
    tab = on("/trend")
    with tab.page.expect_navigation():
        tab.page.locator("#table tbody th a").last.click()
    tab.when_ready()
    assert "<img src=x onerror=alert(0)>" in tab.text("main")
    assert tab.page.evaluate("window.pwned") is None
    tab.clean()


@pytest.mark.parametrize("path", ["/trend", "/trend?task=sums", "/trend?task=wc"])
def test_nothing_is_wider_than_a_phone(on, path):
    tab = on(path, width=390, scheme="dark").when_ready()
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.clean()
