"""The extraction audit of a run in the viewer: bounded on large runs; nothing can hang it."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from html import unescape
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from tests.viewer.runs import EVIL, small_rows, write
from tests.viewer.serving import ask, open_in, served
from tests.waiting import wait_until

from kofn.analysis.extraction_audit import audit_extractors
from kofn.errors import InputError
from kofn.runs.record import load_run, restore_table
from kofn.scoring.configuration import GradingConfig
from kofn.viewer import audit_page
from kofn.viewer.audit_page import STORED, AuditQuery, SampleSize, audit_in_process, available_extractors, sample_of
from kofn.viewer.run_view import RunView

NAMES = ["number", "number_anchor", "number_simple"]
SLOW = "(a+)+$"


def rows(n=40):
    """Outputs that extractors read differently: a number behind the answer, no number, a letter."""
    rng = random.Random(4)
    texts = ["The answer is {}.", "Answer: {} (x = 1)", "2 + 2 = {}", "no idea", "{} or so, 3 times", "B, that is {}"]
    return [
        {
            "id": f"q{i:02d}",
            "reference": "4",
            "outputs": [rng.choice(texts).format(rng.choice([4, 4, 7])) for _ in range(3)],
        }
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "sums", rows())
    write(root / "evil", small_rows(8, evil=EVIL))
    write(root / "labels", [{"id": "a", "outputs": [{"passed": True}, {"passed": False}]}], aggregate=("any_pass",))
    letters = [
        {"id": f"c{i}", "choices": ["London", "Paris"], "reference": "B", "outputs": ["It is B", "A or B", "Paris"]}
        for i in range(5)
    ]
    write(root / "letters", letters)
    slow = [{"id": "s", "reference": "4", "outputs": ["a" * 60 + "! 4", "4"]}]
    write(root / "slow", slow)
    many = [{"id": "m", "reference": "4", "outputs": ["Answer: 4 (x = 1)"] * 130}]
    write(root / "many", many, aggregate=("mean",))
    return root


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


def page_of(base, run, **query):
    """The page once its audit is done."""
    path = f"/run/{run}/-/audit" + (f"?{urlencode(query, doseq=True)}" if query else "")

    def done():
        found = ask(base, path)
        if 'id="going"' not in found.text:
            return found
        assert found.headers["refresh"] == "2"
        return None

    return wait_until(done, path)


def text_of(page):
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())


# --- the numbers


def test_the_numbers_are_those_of_the_audit(base, folder):
    result = load_run(folder / "sums").result
    expected = audit_extractors(restore_table(result), NAMES, GradingConfig(metrics=("numeric",)))
    said = text_of(page_of(base, "sums"))
    assert f"they disagree on {len(expected.disagreements)} outputs" in said
    assert f"on {expected.n_verdicts} of them the verdict depends" in said
    for a in NAMES:
        mean = expected.estimates[a][0]
        assert (
            f"{expected.n_failed[a]} {expected.n_failed[a] / expected.n:.1%} {mean.point:.3f} [{mean.low:.3f}" in said
        )
        assert " ".join([a, *(f"{expected.agreement[a][b]:.1%}" for b in NAMES)]) in said


@pytest.mark.long
def test_chosen_extractors_and_a_pattern_are_compared(base):
    said = text_of(page_of(base, "sums", extract=["number", "last_line"], pattern=r"answer is (\d+)"))
    assert "3 extractors" in said
    assert r"pattern('answer is (\\d+)')" in said
    whole = text_of(page_of(base, "sums", extract="number", pattern="[0-9]"))
    assert "pattern('[0-9]', group=0)" in whole
    ticked = re.findall(r'value="(\w+)" checked', page_of(base, "sums", extract=["boxed", "text"]).text)
    assert ticked == ["boxed", "text"]


def test_letters_know_their_options(base):
    said = text_of(page_of(base, "letters"))
    assert "graded by choice" in said
    assert re.search(r"letter \(chosen\) 5 33.3%", said)  # "A or B" is no single answer


def test_a_way_of_reading_that_is_not_ours_is_shown_as_it_was_stored(folder, tmp_path, monkeypatch):
    run = load_run(folder / "sums", texts=False)
    extraction = {**run.result.extraction, "extractor": "os:system"}
    one = RunView("sums", replace(run, result=replace(run.result, extraction=extraction)))
    monkeypatch.setattr("os.system", lambda _: pytest.fail("what a run names was called"))
    assert "os:system" not in available_extractors(one)
    found = audit_page.audit_of(one, AuditQuery(), 30)
    assert found.names == (*NAMES, STORED)
    assert found.agreement["number"][STORED] == 1.0


# --- the outputs


def test_outputs_are_paged_and_lead_to_their_case(base, folder):
    first = page_of(base, "sums", extract=["number", "text"])
    links = [unescape(link) for link in re.findall(r'href="([^"]*/-/case\?[^"]*)"', first.text)]
    assert len(links) == 20
    assert ask(base, links[0].partition("#")[0]).status == 200
    case = re.search(r"id=(\w+)", links[0])[1]
    assert case in ask(base, links[0].partition("#")[0]).text
    second = page_of(base, "sums", extract=["number", "text"], page=2)
    assert set(re.findall(r'href="([^"]*/-/case\?[^"]*)"', second.text)).isdisjoint(
        re.findall(r'href="([^"]*/-/case\?[^"]*)"', first.text)
    )


def test_only_those_on_which_a_verdict_hangs(base):
    last = page_of(base, "sums", extract=["number", "number_simple"], page=99)
    only = page_of(base, "sums", extract=["number", "number_simple"], only="verdicts")
    assert only.text.count('class="change"') == only.text.count("verdict differs") > 0
    assert last.text.count('class="change"') > last.text.count("verdict differs")


def test_a_candidate_far_down_is_linked_where_it_is_shown(base):
    page = page_of(base, "many", extract=["number", "number_simple"], page=6)
    links = [unescape(link) for link in re.findall(r'href="([^"]*/-/case\?[^"]*)"', page.text)]
    far = [link for link in links if link.endswith("#candidate-101")]
    assert len(far) == 1
    assert 'id="candidate-101"' in ask(base, far[0].partition("#")[0]).text


# --- what is refused, and what is bounded


@pytest.mark.parametrize(
    ("run", "query", "words"),
    [
        ("sums", "extract=os:system", "unknown extractor 'os:system'"),
        ("sums", "extract=pattern('(a)')", "unknown extractor"),
        ("sums", "pattern=(", "is no regular expression"),
        ("sums", "pattern=" + "a" * 501, "501 characters are too many"),
        ("labels", "", "no texts: nothing to extract from"),
    ],
)
def test_what_cannot_be_done_is_one_line(base, run, query, words):
    refused = ask(base, f"/run/{run}/-/audit?{quote(query, safe='=&')}")
    assert (refused.status, words in unescape(refused.text)) == (422, True)


@pytest.mark.long
def test_a_pattern_without_end_is_ended_and_the_viewer_goes_on(folder, monkeypatch):
    monkeypatch.setattr(audit_page, "TIME_LIMIT", 1.5)
    with served(folder) as base:
        assert 'id="going"' in ask(base, f"/run/slow/-/audit?extract=number&pattern={quote(SLOW)}").text
        assert ask(base, "/run/sums").status == 200
        ended = page_of(base, "slow", extract="number", pattern=SLOW)
        assert ended.status == 422
        assert "more than 1.5 s on these outputs" in ended.text


@pytest.mark.long
def test_an_audit_apart_is_the_same(folder):
    table = restore_table(load_run(folder / "sums").result)
    given = (table, NAMES, GradingConfig(metrics=("numeric",)), {})
    assert audit_in_process(*given).to_dict() == audit_extractors(*given[:3]).to_dict()
    with pytest.raises(InputError, match="unknown extractor"):
        audit_in_process(table, ["nobody"], GradingConfig(), {})


def test_of_many_cases_a_sample_is_read_and_the_page_says_so(folder, monkeypatch):
    sizes = {2_000: SampleSize(10, 1_000, 10**6), 10_000: SampleSize(20, 1_000, 10**6)}
    monkeypatch.setattr(audit_page, "SAMPLE_SIZES", sizes)
    with served(folder) as base:
        page = page_of(base, "sums")
        assert "Looked at: 10 of 40 cases, drawn with seed 0." in text_of(page)
        more = unescape(re.search(r'href="([^"]*cases=10000[^"]*)"', page.text)[1])
        assert "Looked at: 20 of 40 cases" in text_of(ask(base, more))
        other = unescape(re.search(r'href="([^"]*seed=1[^"]*)"', page.text)[1])
        assert "drawn with seed 1" in text_of(ask(base, other))


@pytest.mark.parametrize(
    ("level", "cases"),
    [(SampleSize(10, 10**6, 10**9), 10), (SampleSize(10, 12, 10**9), 4), (SampleSize(40, 10**6, 1), 1)],
)
def test_a_sample_ends_with_its_cases_its_outputs_or_its_bytes(folder, level, cases):
    run = load_run(folder / "sums", texts=False)
    whole = load_run(folder / "sums").result.table
    table = sample_of(RunView("sums", run), level, 0)
    assert table.n_cases == cases
    at = np.flatnonzero(np.isin(whole.cases["case_id"].to_numpy(), table.cases["case_id"].to_numpy()))
    rows = np.concatenate([np.arange(whole.offsets[i], whole.offsets[i + 1]) for i in at])
    assert table.candidates["text"].to_list() == whole.candidates["text"].gather(rows).to_list()
    assert sample_of(RunView("sums", run), level, 0).cases.equals(table.cases)


def test_an_audit_is_made_once_and_few_are_kept(folder, monkeypatch):
    one = RunView("sums", load_run(folder / "sums", texts=False))
    asks = [AuditQuery(names=("number", "text"), seed=seed) for seed in range(audit_page.MAX_KEPT + 3)]
    found = [audit_page.audit_of(one, ask, 30) for ask in asks]
    assert audit_page.audit_of(one, asks[-1]) is found[-1]
    assert len(audit_page._JOBS[one]) <= audit_page.MAX_KEPT
    monkeypatch.setattr(audit_page, "MAX_WAITING", 0)
    with pytest.raises(InputError, match="too many audits at once"):
        audit_page.audit_of(one, AuditQuery(seed=99))


# --- in a browser


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_hostile_outputs_stay_text_and_the_page_fits(browser, base, width, scheme):
    page_of(base, "evil")
    page = open_in(browser, base, "/run/evil/-/audit", width=width, scheme=scheme)
    assert page.evaluate("window.pwned") is None
    assert "</script><script>window.pwned=1" in page.text(".change .text")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.eval_on_selector_all(".change mark", "all => all.length") > 0
    page.clean()
    page.context.close()


def test_ticking_and_comparing_is_an_address_of_its_own(browser, base):
    page = open_in(browser, base, "/run/sums/-/audit")
    for name in NAMES[1:]:
        page.uncheck(f'input[value="{name}"]')
    page.check('input[value="last_line"]')
    page.fill("#pattern", r"is (\d)")
    page.press("#pattern", "Enter")
    page.wait_for_selector("#agreement")
    assert "extract=number&extract=last_line&pattern=is" in page.url
    assert page.is_checked('input[value="last_line"]')
    assert not page.is_checked('input[value="number_simple"]')
    page.click(".change a >> nth=0")
    page.wait_for_selector("h1.page-title")
    assert re.search(r"/-/case\?id=q\d\d&row=\d+#candidate-\d", page.url)
    page.clean()
    page.context.close()
