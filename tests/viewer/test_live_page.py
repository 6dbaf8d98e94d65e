"""Pages of runs that are going on, in a browser: they follow by themselves until the run is finished."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from tests.browsing import browser, new_context  # noqa: F401 - a fixture
from tests.viewer.progress import estimate, in_progress, left_by_a_dead_process
from tests.viewer.runs import EVIL, small_rows, write
from tests.viewer.serving import ask, open_in, served
from tests.waiting import LONGEST, wait_until

from kofn.generate.progress_file import read_progress
from kofn.viewer.event_streams import EventStreams

# it answers as many cases as a file says
SLOW = """
import asyncio
from pathlib import Path

async def answer(prompt, seed, case_id):
    while int(case_id[1:]) >= int(Path("let").read_text() or 0):
        await asyncio.sleep(0.05)
    a, _, b = prompt.partition(" + ")
    return f"It is {int(a) + int(b.rstrip(' =')) + hash((seed, case_id)) % 3 // 2}"
"""


@pytest.fixture
def open_page(browser, tmp_path):  # noqa: F811 - the fixture
    """opened(path): a page of the viewer of tmp_path."""
    with ExitStack() as kept:
        base = kept.enter_context(served(tmp_path))

        def visit(path, **more):
            found = open_in(browser, base, path, **more)
            kept.callback(found.context.close)
            return found

        visit.base = base
        yield visit


@pytest.fixture
def slow(tmp_path):
    """slow(n): the process of a run of 32 cases that does n of them, and more when slow.let(n) says so."""
    work = tmp_path.parent / f"{tmp_path.name}-work"
    work.mkdir()
    (work / "slow.py").write_text(SLOW)
    records = [{"id": f"q{i}", "question": f"{i} + {i}", "answer": str(2 * i)} for i in range(32)]
    (work / "sums.jsonl").write_text("\n".join(json.dumps(r) for r in records))
    stage = "{name: answer, prompt: '{question} ='}"
    (work / "sums.yaml").write_text(f"name: sums\ndataset: sums.jsonl\nextract: number\nstages:\n  - {stage}\n")
    made = []

    def let(n):
        (work / "let.new").write_text(str(n))
        (work / "let.new").replace(work / "let")

    def start(n):
        let(n)
        command = [sys.executable, "-m", "kofn", "run", "sums.yaml", "-m", "fake:slow:answer", "-r", "2"]
        process = subprocess.Popen(
            [*command, "--out", str(tmp_path / "slow")],
            cwd=work,
            env={**os.environ, "PYTHONPATH": str(work)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        made.append(process)

        def has_done_them():
            assert process.poll() is None, process.stderr.read()
            live = read_progress(tmp_path / "slow")
            return live is not None and live.pid == process.pid and live.cases_done >= n

        wait_until(has_done_them, f"{n} cases")
        return process

    start.let = let
    yield start
    for process in made:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_run_is_followed_until_it_is_finished_and_then_shown(open_page, slow):
    process = slow(16)
    page = open_page("/run/slow")
    assert page.text("[data-why]") == "16 of 32 cases"
    assert "Running" in page.text(".live-word")
    assert page.text("h1") == "sums · run slow · fake:slow:answer"
    page.evaluate("window.same = true")
    slow.let(24)
    page.wait_for_function("() => document.querySelector('[data-why]').textContent === '24 of 32 cases'")
    assert page.evaluate("window.same")  # in place, not by a reload
    assert page.title().startswith("75% · sums")
    slow.let(32)
    page.wait_for_selector(".verdict")
    assert process.wait(LONGEST) == 0
    assert "32 cases x 2 candidates" in page.text(".reason.headline")
    assert not page.query_selector("#live")
    page.clean()


def test_a_run_that_is_killed_is_said_and_goes_on_when_it_is_started_again(open_page, slow):
    process = slow(8)
    page = open_page("/run/slow")
    process.kill()
    process.wait()
    page.wait_for_selector(".live.is-stopped")
    assert "Stopped" in page.text(".live-word")
    assert "run the same command again to go on" in page.text("[data-why]")
    assert "When it stopped" in page.text(".live-parts")
    slow(16)
    page.wait_for_selector(".live.is-running")
    assert "there already" in page.text(".facts")
    slow.let(32)
    page.wait_for_selector(".verdict")
    page.clean()


@pytest.mark.browser
def test_the_page_shows_estimates_that_narrow_money_and_errors(open_page, tmp_path):
    more = {"cost": 0.0123, "unpriced": 2, "tokens_in": 1200, "tokens_out": 800, "errors": 3, "retries": 4, "reused": 1}
    with in_progress(tmp_path / "a", **more) as tell:
        for n, width in ((5, 0.4), (6, 0.3), (7, 0.2)):
            tell(done=n, cases_done=n, estimates=(estimate(0.5, 0.5 - width, 0.5 + width, n),))
        page = open_page("/run/a")
        facts = dict(row.split("\n")[::2] if row.count("\n") > 1 else row.split("\n") for row in _facts(page))
        assert facts["cost"] == "$0.0123+"
        assert facts["tokens"] == "2.0k"
        assert (facts["errors"], facts["retries"], facts["there already"]) == ("3", "4", "1")
        assert "[0.300, 0.700] 7 cases" in page.text(".stats")
        assert page.eval_on_selector("figure .plot > svg", "n => n.getAttribute('aria-label')").endswith(
            "[0.300, 0.700] after 7"
        )
        page.click("summary")
        tell(done=9, cases_done=9, estimates=(estimate(0.5, 0.45, 0.55, 9),))
        page.wait_for_function("() => document.querySelector('.stats').textContent.includes('[0.450, 0.550]')")
        assert page.eval_on_selector("figure details", "n => n.open")  # what was unfolded stays so
        assert page.text("figure tbody tr:last-child td") == "0.500"
        assert page.locator("figure .save").count() == 1
        assert page.locator("figure .save-table").count() == 1
        page.clean()


def _facts(page):
    return page.eval_on_selector_all(".facts dl > div", "rows => rows.map(row => row.innerText)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_on_a_phone(open_page, tmp_path, scheme):
    with in_progress(tmp_path / ("a" * 120), task="t" * 200) as tell:
        for n in (5, 6, 7):
            tell(done=n, cases_done=n, estimates=tuple(estimate(0.5, 0.1, 0.9, n) for _ in range(3)))
        for path in (f"/run/{'a' * 120}", "/"):
            page = open_page(path, width=390, scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_words_stay_words(open_page, tmp_path):
    left_by_a_dead_process(tmp_path / "a", task=EVIL, model=EVIL, state="stopped", reason=EVIL)
    for path in ("/run/a", "/"):
        page = open_page(path)
        page.wait_for_timeout(300)
        assert page.evaluate("window.pwned") is None
        assert "<img src=x" in page.text("main")
        page.clean()


def test_without_script_the_page_says_as_much_and_asks_again(browser, tmp_path):  # noqa: F811 - the fixture
    with served(tmp_path) as base, in_progress(tmp_path / "a", estimates=(estimate(0.5, 0.2, 0.8),)):
        assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in ask(base, "/run/a").text
        assert '<meta http-equiv="refresh"' in ask(base, "/").text
        context = new_context(browser, java_script_enabled=False)
        page = context.new_page()
        page.goto(f"{base}/run/a")
        assert "3 of 10 cases" in page.inner_text("main")
        assert "0.500" in page.inner_text(".stats")
        context.close()


def test_the_list_follows_in_place_and_keeps_ticks_and_focus(open_page, tmp_path):
    write(tmp_path / "one", small_rows(6))
    write(tmp_path / "two", small_rows(6))
    with in_progress(tmp_path / "a") as tell:
        page = open_page("/")
        page.check("tr[data-name=one] input")
        page.focus("tr[data-name=two] th a")
        page.evaluate("window.same = true")
        assert "1 going on" in page.text(".count")
        tell(done=8, cases_done=8, estimates=(estimate(0.5, 0.25, 0.75),))
        page.wait_for_function("() => document.querySelector('tr[data-name=a]').textContent.includes('8 of 10 cases')")
        assert "0.500" in page.text("tr[data-name=a]")
        write(tmp_path / "three", small_rows(6))
        page.wait_for_selector("tr[data-name=three]")
        assert page.is_checked("tr[data-name=one] input")
        assert page.evaluate("document.activeElement.closest('tr').dataset.name") == "two"
        assert page.evaluate("window.same")
    page.wait_for_selector("tr[data-name=a].is-stopped")
    assert "going on" not in page.text(".count")
    page.clean()


def test_a_run_that_is_being_judged_says_so_above_its_results(open_page, tmp_path):
    path = write(tmp_path / "a", small_rows(6))
    os.utime(path / "run.json", (0, 0))
    with in_progress(path / "judging", kind="judge"):
        page = open_page("/run/a")
        assert "Being judged" in page.text("#live")
        assert "3 of 10 outputs" in page.text("[data-why]")
        assert "verdicts" in page.text("#live")
        assert page.query_selector(".verdict")
    (path / "run.json").touch()
    page.wait_for_selector("#live", state="detached")
    page.clean()


def test_a_verification_is_shown_beside_its_runs_and_leads_to_them(open_page, tmp_path):
    write(tmp_path / "verify-x" / "right" / "totals", small_rows(6))
    with in_progress(tmp_path / "verify-x", kind="verify", keep=False):
        text = ask(open_page.base, "/").text
        assert 'data-name="verify-x"' in text
        assert 'data-name="verify-x/right/totals"' in text
        page = open_page("/run/verify-x")
        assert "Being verified" in page.text("#live")
    page.wait_for_url("**/?q=verify-x")
    assert page.eval_on_selector_all("tbody tr", "rows => rows.map(r => r.dataset.name)") == ["verify-x/right/totals"]
    page.clean()


def test_a_stream_that_is_refused_is_asked_for_again_and_the_page_is_fresh_meanwhile(browser, tmp_path):  # noqa: F811
    with served(tmp_path, streams=EventStreams(max_streams=0)) as base, in_progress(tmp_path / "a") as tell:
        page = open_in(browser, base, "/run/a")
        tell(done=7, cases_done=7)
        page.evaluate("window.dispatchEvent(new Event('pageshow'))")
        page.wait_for_function("() => document.querySelector('[data-why]').textContent.includes('7 of 10')")
        page.context.close()
