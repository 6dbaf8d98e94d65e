"""Programs against checkpoints: groups, what is wrong, how it was run, what is flaky, and ways between submissions."""

from __future__ import annotations

import re
import shutil

import polars as pl
import pytest
from tests.browsing import browser  # noqa: F401 - a fixture
from tests.sealing import reseal
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import ask, open_in, served

from kofn.analysis.trend import load_trend
from kofn.problems import load_problem
from kofn.problems.verification import VerifyOptions, verify
from kofn.problems.verification_runs import write_runs as write_runs
from kofn.runs.record import load_run
from kofn.sandbox.drivers import find_sandbox
from kofn.viewer import program_runs
from kofn.viewer.server import Viewer

# it counts how often it was run with a word: programs that run without a sandbox can
PROGRAM = """
import os, sys, time
word, turns = sys.argv[1], {turns!r}
with open(os.path.join(turns, word + {name!r}), "a") as file:
    file.write("x")
    times = file.tell()
if word == "slow":
    time.sleep(30)
if word == "evil":
    print("</div><script>window.pwned = 1</script>\\u202e")
    sys.exit("<img src=x onerror='window.pwned = 2'>")
wrong = {flaky} and (word == "coin" and times % 2 == 0 or word == "late" and times > 3)
print("tails" if wrong else word)
"""
CONFIG = """
name: coin
entry: python main.py
checkpoints:
  basics: {groups: {core: {type: Core, weight: 2}, more: {type: Functionality}}}
  later: {groups: {new: {type: Core}}}
"""
CASES = {
    "basics/core": ["always", "coin", "late"],
    "basics/more": ["slow", "evil"],
    "later/new": ["always"],
}


def case_of(word):
    rest = "\n  timeout: 0.3" if word == "slow" else ""
    return f"- id: {word}\n  args: [{word}]\n  expected: {{output: {word}, status_code: 0}}{rest}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two submissions at two checkpoints, three times each; and one of them twice more, in runs of its own."""
    root = tmp_path_factory.mktemp("work")
    for name, words in CASES.items():
        (root / "coin" / name).mkdir(parents=True)
        (root / "coin" / name / "cases.yaml").write_text("".join(map(case_of, words)))
    (root / "coin" / "config.yaml").write_text(CONFIG)
    (root / "turns").mkdir()
    for name in ("flaky", "steady"):
        (root / name).mkdir()
        code = PROGRAM.format(turns=str(root / "turns"), name=name, flaky=name == "flaky")
        (root / name / "main.py").write_text(code)
    problem, box = load_problem(root / "coin"), find_sandbox(unsafe=True)
    for out, names, repeat in (("first", ("flaky", "steady"), 3), ("again", ("flaky",), 1), ("third", ("flaky",), 1)):
        chosen = problem.select_checkpoints("all" if repeat > 1 else "basics")
        target = root / "runs" / out
        found = verify(
            problem,
            [root / name for name in names],
            chosen,
            options=VerifyOptions(repeat=repeat, workers=1),
            sandbox=box,
            out=target,
        )
        options = {"checkpoint": "all", "policy": "core-cases", "repeat": repeat}
        write_runs(found, target, options)
    write(root / "runs" / "set", small_rows(6), task="sums")
    return root / "runs"


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


def row_of(text, case):
    """The row of a case in the table of cases."""
    cases = text[text.index('id="cases"') :]
    return next(plain(row) for row in cases.split("<tr>")[1:] if f"<bdi>{case}</bdi>" in row)


def test_groups_have_their_type_and_weight_and_lead_to_their_cases(base):
    text = ask(base, "/run/first/flaky/basics").text
    groups = text[text.index('id="groups"') : text.index('id="executed"')]
    assert "core Core 2 0.833 2 / 3" in plain(groups)
    link = re.search(r'href="([^"]*group=more[^"]*)"', groups)[1].removesuffix("#cases")
    assert "2 of 5 cases" in ask(base, link).text


def test_a_case_says_in_the_table_what_is_wrong_first(base):
    text = ask(base, "/run/first/flaky/basics").text
    assert "output: -coin" in row_of(text, "coin")
    assert "took longer than 0.3 s" in row_of(text, "slow")
    assert "(and 1 more)" in row_of(text, "evil")
    assert "output" not in row_of(text, "always")


def test_failing_cases_come_first_unless_the_order_of_the_run_is_asked_for(base, folder):
    def order(query):
        text = ask(base, f"/run/first/flaky/basics{query}").text
        return re.findall(r'class="c-id"><a [^>]*><bdi>(\w+)<', text)

    assert order("") == ["coin", "slow", "evil", "always", "late"]
    assert order("?sort=order") == ["always", "coin", "late", "slow", "evil"]
    took = pl.read_parquet(folder / "first" / "flaky" / "basics" / "reports.parquet").sort("duration", descending=True)
    assert order("?sort=seconds&down=1") == took["id"].to_list()


def test_flaky_cases_are_found_within_a_run_and_over_runs_of_the_same_program(base, folder):
    text = plain(ask(base, "/run/first/flaky/basics").text)
    assert "3 times in this run and in 3 runs of the same program in this folder" in text
    assert "coin core 2 of 3 times 1 of 3" in text  # two of its times passed; one of the runs did
    assert "late core – 1 of 3" in text
    assert "no case passed at some times" in plain(ask(base, "/run/first/steady/basics").text)
    assert "Flaky" not in ask(base, "/run/first/set").text
    page_text = ask(base, "/run/first/flaky/basics?show=flaky").text
    assert "1 of 5 cases" in page_text
    assert "1 of 5 cases" in ask(base, "/run/first/flaky/basics?show=stopped").text
    assert "passes only sometimes" not in ask(base, "/run/again/flaky/basics").text


def test_another_version_of_the_program_is_not_called_flaky(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "runs")
    changed = tmp_path / "runs" / "again" / "flaky" / "basics" / "run.json"
    text = changed.read_text()
    digest = load_run(changed.parent).manifest["sources"][0]["sha256"]
    changed.write_text(text.replace(digest, "0" * 64))
    reseal(changed)
    viewer = Viewer(tmp_path / "runs")
    one = viewer.runs.get("first/flaky/basics")
    assert program_runs.same_program(viewer, one) == ["third/flaky/basics"]
    assert {row["id"]: row["runs"] for row in program_runs.flaky_cases(viewer, one)["rows"]}["coin"] == "1 of 2"


def test_a_run_that_is_damaged_or_gone_is_left_out_of_the_history(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "runs")
    viewer = Viewer(tmp_path / "runs")
    one = viewer.runs.get("first/flaky/basics")
    viewer.recent.lines()
    shutil.rmtree(tmp_path / "runs" / "again")
    (tmp_path / "runs" / "third" / "flaky" / "basics" / "evaluation.json").write_text("{")
    found = program_runs.flaky_cases(viewer, one)
    assert [(row["id"], row["times"], row["runs"]) for row in found["rows"]] == [("coin", "2 of 3", None)]


def test_the_run_says_how_programs_were_run(base):
    text = plain(ask(base, "/run/first/flaky/basics").text)
    for words in (
        "entry cli python main.py",
        "sandbox none (--unsafe)",
        "every case was run 3 times",
        "checkpoint version 1",
    ):
        assert words in text, words


def test_a_case_shows_every_time_it_was_executed(base):
    text = ask(base, "/run/first/flaky/basics/-/case?id=coin").text
    assert "Every time it was run" in text
    times = [plain(part) for part in text.split('id="time-')[1:]]
    assert [("pass" in t, "tails" in t) for t in times] == [(True, False), (False, True), (True, False)]
    assert all("exit status 0" in t and "took" in t for t in times)
    diff = text[text.index("diff") :]
    assert '<span class="minus" dir="auto">-coin</span>' in diff
    assert '<span class="at" dir="auto">--- expected</span>' in diff
    assert "took longer than 0.3 s" in ask(base, "/run/first/flaky/basics/-/case?id=slow").text
    assert "How it was run" in ask(base, "/run/again/flaky/basics/-/case?id=coin").text


def test_a_run_without_its_executions_still_shows_how_a_case_was_run(folder, tmp_path):
    shutil.copytree(folder / "first" / "flaky" / "basics", tmp_path / "a")
    for damage in ("gone", "torn"):
        if damage == "gone":
            (tmp_path / "a" / "executions.parquet").unlink()
        else:
            (tmp_path / "a" / "executions.parquet").write_bytes(b"PAR1")
        with served(tmp_path) as base:
            answer = ask(base, "/run/a/-/case?id=evil")
            assert answer.status == (200 if damage == "gone" else 422)
            assert damage == "torn" or "exit status" in answer.text


def test_a_set_leads_to_the_run_of_each_submission_and_back(base):
    text = ask(base, "/run/first/set").text
    part = text[text.index('id="submissions"') :].partition("</section>")[0]
    assert re.findall(r'href="(/run/[^"]*)"', part) == [
        "/run/first/flaky/basics", "/run/first/flaky/later", "/run/first/steady/basics", "/run/first/steady/later",
    ]  # fmt: skip
    assert "flaky not passed 0.556 passed 1.000 steady passed 0.667 passed 1.000" in plain(part)
    case = ask(base, "/run/first/set/-/case?id=coin/later").text
    assert re.findall(r'href="(/run/first/\w+/later)">run of', case) == [
        "/run/first/flaky/later",
        "/run/first/steady/later",
    ]
    own = ask(base, "/run/first/flaky/later").text
    assert 'href="/run/first/set">Set of submissions' in own
    assert 'href="/run/first/flaky/basics">Checkpoint basics' in own


def test_a_run_that_happens_to_be_called_set_is_no_set_of_submissions(base):
    answer = ask(base, "/run/set")
    assert answer.status == 200
    assert 'id="submissions"' not in answer.text


def test_a_submission_that_is_not_in_the_folder_is_not_linked_to(folder):
    with served(folder / "first" / "set") as base:
        assert 'id="submissions"' not in ask(base, "/run/").text
    with served(folder / "first") as base:
        assert 'href="/run/steady/later"' in ask(base, "/run/set").text
    with served(folder / "first" / "flaky" / "basics") as base:
        assert ask(base, "/run/").status == 200


def test_runs_of_programs_have_a_trend(folder):
    found = {one.task: one for one in load_trend([folder / "again", folder / "third"]).tasks}
    assert len(found["coin, basics"].runs) == 2
    assert found["coin, basics"].counts["pass_in_some"] == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_hostile_output_stays_text(browser, base, scheme):  # noqa: F811 - the fixture
    for path in ("/run/first/flaky/basics", "/run/first/flaky/basics/-/case?id=evil", "/run/first/set"):
        page = open_in(browser, base, path, width=390, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.evaluate("window.pwned") is None
        page.clean()
        page.context.close()


def test_keys_move_through_failing_cases(browser, base):  # noqa: F811 - the fixture
    page = open_in(browser, base, "/run/first/flaky/basics")
    page.click("tr:has-text('output: -coin')")
    page.wait_for_url("**/case?*id=coin*")
    page.keyboard.press("j")
    page.wait_for_url("**/case?*id=slow*")
    assert "took longer" in page.text("main")
    page.keyboard.press("Escape")
    page.wait_for_url("**/basics#cases")
    page.context.close()
