"""`kofn report RUN`: every form, on runs of candidates and of programs, and on text that means harm."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kofn as kofn_api
from kofn.cli.report_verb import report_command as command
from kofn.core.document import display_width
from kofn.core.escape import code_block, code_span, escape_controls, escape_markdown, escape_prose, markdown_table
from kofn.core.format import format_duration, format_part
from kofn.render.run_markdown import run_markdown
from kofn.render.run_summary import GroupSummary, cut_diff, failing_of, listed_groups
from kofn.render.run_text import format_run
from kofn.render.text_layout import shorten, wrap_columns
from kofn.runs import AttributeResult, CorrectnessResults, Run, VerifierReport, load_run
from kofn.runs.case_reports import case_scores

ROOT = Path(__file__).parents[2]
WHEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVIL = "a|b`c``<script>alert(1)</script>\x1b[31m\u202eRED\r\n@all #1 **x** [l](http://e) \\| \\"
NAMES = st.text(alphabet=st.sampled_from("a|\\`<>&*_\n\r\t \x1b\u202e日\u0301-#@[]~$1"), max_size=30) | st.text(
    max_size=30
)


def kofn(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "kofn", *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False
    )


def report(*args):
    """What the command prints, in this process."""
    done = CliRunner().invoke(command, [str(a) for a in args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def case(name, group="lines", kind="Core", *, seconds=0.0, fields=None, **attributes):
    return VerifierReport(
        id=name, group=group, type=kind, timestamp=WHEN, duration=seconds, results=attributes, case=fields or {}
    )


def right(**more):
    return AttributeResult(is_correct=True, **more)


def wrong(**more):
    return AttributeResult(is_correct=False, **more)


def evaluation(**more):
    return CorrectnessResults(**{"problem_name": "wc", "name": "checkpoint_2", "timestamp": WHEN, **more})


def one_group(*cases, group="lines", kind="Core", **more):
    found = evaluation(**more)
    found.add_group_report(group, kind, sum(c.duration for c in cases), cases)
    return found


def saved(results, directory):
    results.save(directory)
    return directory


def in_memory(results):
    return Run(
        name="r",
        evaluation=results.model_copy(update={"reports": []}),
        reports=results.to_polars(),
        manifest={},
        result=None,
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program's checkpoint: a group of every mark."""
    found = evaluation(problem_version=3, version=2)
    diff = "--- expected\n+++ actual\n@@ -1 +1 @@\n-2\n+3\n"
    cases = [
        case("empty", seconds=0.2, stdout=right(), code=right(weight=0.5)),
        case("two", seconds=1.05, fields={"args": ["-l"]}, stdout=wrong(expected="2\n", actual="3\n", diff=diff),
             code=right(weight=0.5)),
    ]  # fmt: skip
    found.add_group_report("lines", "Core", 1.25, cases, weight=2)
    found.add_group_report("errors", "Error", 0.01, [case("no file", "errors", "Error", seconds=0.01, stderr=right())])
    old = case("flags", "old", "Regression", stdout=AttributeResult(is_correct=None))
    found.add_group_report("old", "Regression", 0, [old])
    found.add_group_report("none", "Functionality", 0, [])
    return saved(found, tmp_path_factory.mktemp("runs") / "program")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A run of candidates, by the real command."""
    out = tmp_path_factory.mktemp("runs") / "texts"
    source = ROOT / "examples" / "arithmetic.jsonl"
    done = kofn("score", source, "--by", "kind", "--group", "kind", "--group-type", "two steps=Functionality",
                "--verdict", "majority", "--out", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run whose every text would like to be more than text."""
    diff = f"-{EVIL}\n```\n~~~~\n`````\n+{'y' * 5000}\n" + "z\n" * 100
    results = one_group(
        case(EVIL, EVIL, fields={"input": EVIL * 10}, **{EVIL: wrong(expected=EVIL, actual={EVIL: EVIL}, diff=diff)}),
        case("", EVIL, **{"": wrong(diff="\x1b]0;owned\x07")}),
        case("日本" * 40, EVIL, **{f"a{i}": wrong(expected=["日本" * 300]) for i in range(9)}),
        group=EVIL,
        problem_name=EVIL,
        name=EVIL,
    )
    return saved(results, tmp_path_factory.mktemp("runs") / "hostile")


SUMMARY = """\
✗ NOT PASSED, incomplete  core-cases: 1 of 2 core cases pass

task        wc, version 3
run         checkpoint_2, version 2, 2026-03-01 12:00:00 UTC
passed      2 of 4 cases (50.0%)
by type     Core 1 of 2, Regression 0 of 1, Error 1 of 1
incomplete  1 of 4 cases unverified
score       0.778
time        1.26 s total, 315 ms per case

   group   type           weight  score  passed  unverified
✗  lines   Core                2  0.667     1/2           0  ██████████··········
✓  errors  Error               1  1.000     1/1           0  ████████████████████
?  old     Regression          1      -     0/1           1  ····················
-  none    Functionality       1      -     0/0           0  ····················
"""
FILES = """
files       {path}: evaluation.json, reports.parquet
"""
MORE = """\
more        --detailed shows what failed; --html, --csv, --json and --markdown are other forms
"""
DETAILS = """
failing cases: 1 of 4

✗ two  lines (Core), score 0.333, 1 of 2 attributes wrong, 1.05 s
  given       args=["-l"]
  ✗ stdout
    expected    "2\\n"
    actual      "3\\n"
    diff        --- expected
                +++ actual
                @@ -1 +1 @@
                -2
                +3

failures by type       Core 1
failures by attribute  stdout 1
unverified cases       1: flags

slowest cases
   case     group     time
✗  two      lines   1.05 s
✓  empty    lines   200 ms
✓  no file  errors   10 ms
"""


def test_the_summary_of_a_small_run_is_this(program, monkeypatch):
    monkeypatch.chdir(program.parent)
    assert report("program").stdout == SUMMARY + FILES.format(path="program") + MORE


def test_the_detailed_form_of_a_small_run_is_this(program, monkeypatch):
    monkeypatch.chdir(program.parent)
    assert report("program", "--detailed").stdout == SUMMARY + DETAILS + FILES.format(path="program")


def test_a_run_of_candidates_shows_groups_estimates_cost_and_warnings(texts):
    output = report(texts).stdout
    headline = "mean 0.487 [0.410, 0.563], 60 cases x 5 candidates, metric numeric\n"
    assert output.startswith(f"{headline}✗ NOT PASSED  core-cases: 24 of 30 core cases pass\n")
    assert "cases       37 of 60 cases pass (61.7%), each where majority >= 1" in output
    assert re.search(r"^✗  one step +Core +1  0\.800 +24/30  █{16}·{4}$", output, re.MULTILINE)
    assert re.search(r"^cost +0\.005805 total", output, re.MULTILINE)
    stored = load_run(texts).result.get("any_pass")
    assert re.search(rf"^any_pass +{stored.point:.3f}  \[{stored.low:.3f}, {stored.high:.3f}\]", output, re.MULTILINE)
    assert "! 9 tied votes" in output
    assert "kind=one step" not in output
    assert "segment" not in output.partition("checklist")[0]


def test_the_detailed_form_of_candidates_adds_segments_failures_edges_and_slowest(texts):
    output = report(texts, "--detailed", "--limit", "2").stdout
    assert "failing cases: 23 of 60, the first 2 shown" in output
    assert "and 21 more: --limit 23 shows them all" in output
    assert re.search(r"✗ q00  one step \(Core\), score 0\.000, 4\.13 s\n  input +Farah has 28 stamps", output)
    assert 'actual      ["22","22","41","22","36"]' in output
    assert "0 of 5 candidates pass; answers: 22 x3, 41 x1, 36 x1" in output
    assert "failures by type       Functionality 17, Core 6" in output
    assert re.search(r"^✓  q01 +two steps  3 of 5 pass  ✗✓✗✓✓$", output, re.MULTILINE)
    assert "by kind" in output
    assert re.search(r"slowest cases\n.*\n✗  q39", output)


def test_core_cases_come_first_among_those_that_fail(texts):
    run = load_run(texts)
    found, total = failing_of(run, case_scores(run.reports), 100)
    assert [c.type for c in found] == ["Core"] * 6 + ["Functionality"] * 17
    assert total == 23


@pytest.mark.long
def test_real_runs_keep_within_the_width(sets_folder, tmp_path):
    for source in ("qwen_math100x8", "tau_airline_gpt4o_50x4"):
        assert kofn("score", sets_folder / f"{source}.jsonl", "--out", tmp_path / source).returncode == 0
        for width in (80, 100):
            output = format_run(load_run(tmp_path / source), detailed=True, width=width)
            assert max(map(display_width, output.split("\n"))) <= width


@pytest.mark.parametrize(
    ("more", "cases", "line"),
    [
        ({"infrastructure_failure": "disk full"}, [], "✗ HARNESS FAILED  no policy is met: disk full"),
        ({}, [case("a", x=right())], "✓ PASSED  core-cases: 1 of 1 core cases pass"),
        (
            {"policy": "any-case"},
            [case("a", x=right()), case("b", x=AttributeResult(is_correct=None))],
            "✓ PASSED, incomplete  any-case: 1 of 2 cases pass (Core 1 of 2)",
        ),
        ({}, [], "✗ NOT PASSED  core-cases: no core cases"),
    ],
)  # fmt: skip
def test_the_first_line_says_how_the_run_ended_and_why(more, cases, line, tmp_path):
    output = report(saved(one_group(*cases, **more), tmp_path / "run")).stdout
    assert output.partition("\n")[0] == line


def test_a_run_without_cases_or_groups_is_shown_in_every_form(tmp_path):
    path = saved(evaluation(), tmp_path / "empty")
    assert "passed      no cases" in report(path, "--detailed").stdout
    assert "score: undefined" in report(path, "--markdown").stdout
    assert len(report(path, "--csv").stdout.splitlines()) == 1
    assert json.loads(report(path, "--json", "--detailed").stdout)["reports"] == []
    assert "<html" in report(path, "--html", "-o", "-").stdout


def test_candidates_that_were_not_graded_make_a_run_incomplete(tmp_path):
    rows = [{"id": "a", "passes": [1, None]}, {"id": "b", "passes": [None, None]}]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert kofn("score", source, "-a", "any_pass", "--out", tmp_path / "run").returncode == 0
    output = report(tmp_path / "run", "--detailed").stdout
    assert output.startswith(
        "any_pass 1.000 [0.207, 1.000], 1 of 2 cases x 2 candidates, labels in `passes`. Warning: 3"
    )
    assert "NOT PASSED" not in output  # no verdict is defined
    assert "incomplete  1 of 2 cases unverified; 3 of 4 candidates not graded" in output
    assert "cases       1 of 2 cases pass (50.0%), each where any_pass >= 1" in output
    assert "unverified cases  1: b" in output


def test_long_names_of_cases_groups_and_segments_keep_within_the_width(tmp_path):
    rows = [
        {
            "id": f"{'日本' * 20}-{i}",
            "kind": "群" * (40 * (i % 2) + 1),
            "outputs": [{"text": "x", "pass": (i + j) % 3 == 0, "seconds": 9e3} for j in range(24)],
        }
        for i in range(40)
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = kofn("score", source, "--group", "kind", "--by", "kind", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for width in (80, 100):
        output = format_run(load_run(tmp_path / "run"), detailed=True, width=width)
        assert "slowest cases" in output
        assert "with others; nearest to half" in output
        assert max(map(display_width, output.split("\n"))) <= width


def test_a_regression_case_names_where_it_comes_from():
    old = case("c", x=wrong()).model_copy(update={"original_checkpoint": "one", "original_group": "flags"})
    assert "score 0.000, from one, flags" in format_run(in_memory(one_group(old)), detailed=True)


# hostile text


def test_hostile_text_reaches_the_terminal_as_text(hostile):
    output = report(hostile, "--detailed").stdout
    assert not set(output) & set("\x1b\u202e\r\x07")
    assert r"\x1b[31m\u202eRED\r\n@all" in output
    assert max(map(display_width, output.split("\n"))) <= 100


@given(NAMES, NAMES, NAMES, NAMES)
def test_whatever_a_run_holds_every_line_fits_and_moves_no_cursor(name, group, attribute, diff):
    name, group = name * 5, group * 5
    results = one_group(
        case(name, group, seconds=4e3, fields={"input": diff * 9}, **{attribute: wrong(expected=name, diff=diff)}),
        group=group,
        infrastructure_failure=diff,
    )
    for width in (80, 100):
        output = format_run(in_memory(results), detailed=True, width=width)
        assert escape_controls(output.replace("\n", "")) == output.replace("\n", "")
        assert max(map(display_width, output.split("\n"))) <= width


@pytest.mark.commands
def test_a_damaged_case_field_is_named_in_one_line(tmp_path):
    import polars as pl

    path = saved(one_group(case("a", fields={"input": "x"}, x=wrong())), tmp_path / "run")
    frame = pl.read_parquet(path / "reports.parquet")
    broken = pl.Series("case", [[{"attribute": "input", "value": "{"}]], dtype=frame.schema["case"])
    metadata = {k: v for k, v in pl.read_parquet_metadata(path / "reports.parquet").items() if k != "ARROW:schema"}
    frame.with_columns(broken).write_parquet(path / "reports.parquet", metadata=metadata)
    for form in ("--detailed", "--markdown"):
        done = kofn("report", path, form)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "reports.parquet: '{' is not JSON" in done.stderr


# what is cut


def test_a_long_diff_is_cut_and_the_note_counts_what_is_left_out():
    diff = "\n".join(f"+{i}" + "x" * 400 for i in range(30))
    lines, left = cut_diff(diff)
    assert len(lines) == 16
    assert sum(len(line.removesuffix("…")) + 1 for line in lines) - 1 + left == len(diff)
    output = format_run(in_memory(one_group(case("a", x=wrong(diff=diff)))), detailed=True)
    assert f"… {left:,} characters left out" in output


def test_a_long_value_is_cut_and_the_note_counts_what_is_left_out():
    run = in_memory(one_group(case("a", fields={"input": "y" * 300}, x=wrong(expected="e" * 1000))))
    output = " ".join(format_run(run, detailed=True).split())
    assert "… 762 characters left out" in output  # 1,000 and two quotation marks, of which 240 are shown
    assert "… 100 characters left out" in output
    assert "… 882 characters left out" in run_markdown(run)


def test_a_short_diff_is_not_cut():
    assert cut_diff("-a\n+b\n") == (["-a", "+b"], 0)


def test_of_very_many_groups_the_lowest_are_shown_in_their_order():
    groups = [GroupSummary(f"g{i}", "Core", 1.0, i % 50 / 50, 0, 1, 0) for i in range(100)]
    output = listed_groups(groups)
    assert len(output) == 30
    assert [g.name for g in output] == [f"g{i}" for i in range(100) if i % 50 < 15]


@given(st.text(), st.integers(8, 40))
def test_pieces_of_a_text_fit_and_lose_nothing_but_spaces(text, width):
    found = wrap_columns(text, width)
    assert all(display_width(p) <= width for p in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


@given(st.text(), st.integers(4, 40))
def test_a_shortened_text_fits_and_says_so(text, width):
    output = shorten(text, width)
    assert display_width(output) <= width
    assert output == escape_controls(text) or output.endswith("…")


@given(st.floats(0, 1e9))
def test_a_duration_never_says_sixty_seconds_or_minutes(seconds):
    assert not re.search(r" 60 (s|min)$| 24 h$|e\+", format_duration(seconds)), format_duration(seconds)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_is_a_hundred_percent_only_of_all(counts):
    part, whole = counts
    assert (format_part(part, whole) == "100.0%") == (part == whole)
    assert (format_part(part, whole) == "0.0%") == (part == 0)


# csv and json


def test_csv_is_a_row_a_case_and_attribute_and_what_to_csv_writes(program, tmp_path):
    printed = report(program, "--csv").stdout_bytes
    CorrectnessResults.from_dir(program).to_csv(tmp_path / "by_hand.csv")
    assert printed == (tmp_path / "by_hand.csv").read_bytes()
    rows = list(csv.DictReader(io.StringIO(printed.decode())))
    assert [(r["id"], r["attribute"], r["is_correct"]) for r in rows][:3] == [
        ("empty", "stdout", "true"),
        ("empty", "code", "true"),
        ("two", "stdout", "false"),
    ]


def test_csv_to_a_pipe_keeps_every_character(hostile):
    done = subprocess.run(
        [sys.executable, "-m", "kofn", "report", str(hostile), "--csv"], capture_output=True, check=True
    )
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))
    assert rows[0]["id"] == EVIL


def test_json_is_the_evaluation_and_what_explains_it(texts):
    body = json.loads(report(texts, "--json").stdout)
    stored = json.loads((texts / "evaluation.json").read_text())
    del stored["reports_sha256"]  # of the file beside it
    assert list(body)[: len(stored)] == list(stored)
    assert {k: body[k] for k in stored} == stored
    keys = [
        "headline",
        "status",
        "reason",
        "incomplete",
        "n_cases",
        "n_candidates",
        "n_missing",
        "understood",
        "estimates",
        "extraction",
        "diagnostics",
        "warnings",
        "coded_warnings",
        "judges",
        "checklist",
        "told",
    ]
    assert list(body)[len(stored) :] == keys
    assert body["status"] == "not passed"
    manifest = json.loads((texts / "run.json").read_text())["result"]
    assert [body[k] for k in keys[4:]] == [manifest[k] for k in keys[4:]]
    assert body["headline"] == manifest["headline"]


def test_json_has_the_same_keys_for_programs(program, texts):
    assert list(load_run(program).to_dict()) == list(load_run(texts).to_dict())


def test_detailed_json_holds_every_case_with_its_values_as_they_were(tmp_path):
    values = {"text": "123", "number": 123, "huge": 10**40, "half": "\ud800", "list": [1.5, None, {"a": True}]}
    results = one_group(case("a", fields=values, x=wrong(expected=values, weight=2), y=right()))
    body = json.loads(report(saved(results, tmp_path / "run"), "--json", "--detailed").stdout)
    (found,) = body["reports"]
    assert found["case"] == values
    assert found["results"]["x"] == {"is_correct": False, "weight": 2.0, "expected": values, "actual": None, "diff": ""}
    assert (found["passed"], round(found["score"], 3), found["timestamp"]) == (False, 0.333, "2026-03-01T12:00:00Z")


# markdown


def cells_by_last_character(line):
    """A parser that takes a pipe after a backslash as text."""
    return len(re.findall(r"(?<!\\)\|", line))


def cells_by_pairs(line):
    """A parser that pairs backslashes first."""
    return len(re.findall(r"\|", re.sub(r"\\.", "", line)))


def tables(markdown):
    found: list[list[str]] = [[]]
    fence = ""  # a diff in a fenced block may hold lines that look like rows
    for line in markdown.split("\n"):
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if len(ticks) >= 3 and (not fence or line == fence):
            fence = "" if fence else ticks
        if line.startswith("|") and not fence:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [t for t in found if t]


def code_spans(text):
    """The texts of the code spans, and what is outside: a run of backticks opens, the next equal run closes."""
    out, outside, at = [], "", 0
    while (opening := re.compile("`+").search(text, at)) is not None:
        outside += text[at : opening.start()]
        closed = next((r for r in re.compile("`+").finditer(text, opening.end()) if len(r[0]) == len(opening[0])), None)
        if closed is None:
            outside, at = outside + opening[0], opening.end()
            continue
        inner = text[opening.end() : closed.start()]
        strip = inner.startswith(" ") and inner.endswith(" ") and inner.strip(" ")
        out.append(inner[1:-1] if strip else inner)
        at = closed.end()
    return out, outside + text[at:]


@given(NAMES, NAMES, NAMES)
def test_every_row_of_a_markdown_table_has_the_same_columns_whatever_the_names(name, group, attribute):
    results = one_group(
        case(name, group, fields={"input": name}, **{attribute: wrong(expected=name, actual=group, diff=attribute)}),
        case(name + "2", group, seconds=1, **{attribute: right()}),
        group=group,
    )
    found = tables(run_markdown(in_memory(results), detailed=True))
    assert len(found) == 4
    for rows in found:
        for count in (cells_by_last_character, cells_by_pairs):
            assert len({count(row) for row in rows}) == 1, rows


@given(NAMES)
def test_a_code_span_shows_the_text_and_nothing_else(text):
    output = code_span(text)
    if text:
        spans, outside = code_spans(output)
        assert spans in (
            [escape_controls(text)],
            [f" {escape_controls(text)} "],
        )  # of nothing but spaces none is taken off
        assert outside == ""
    else:
        assert output == "*(empty)*"


@given(st.lists(NAMES.map(lambda t: t.replace("\n", "")), min_size=1, max_size=5))
def test_a_code_block_is_not_closed_by_its_content(lines):
    opening, *inside, closed = code_block(lines, "diff")
    fence = opening.removesuffix("diff")
    assert closed == fence
    assert inside == [escape_controls(line) for line in lines]
    assert not any(re.match(rf" {{0,3}}`{{{len(fence)},}}\s*$", line) for line in inside)


@given(NAMES)
def test_prose_that_is_not_code_has_no_markup(text):
    output = escape_prose(text)
    assert output == code_span(text) or not re.search(r"[`<*\[\]|\\@#]", output)


def test_markdown_of_a_run_of_candidates(texts):
    output = report(texts, "--markdown", "--limit", "2").stdout
    number = r"**mean 0.487 \[0.410, 0.563\], 60 cases x 5 candidates, metric numeric**"
    assert output.startswith(
        f"## `arithmetic`, run `texts`\n\n{number}\n\n✗ NOT PASSED: core-cases: 24 of 30 core cases "
    )
    assert "\n| `any_pass` | 0.850 [0.739, 0.919] | 60 | 0 |\n" in output
    assert "\n| ✗ | `one step` | Core | 1 | 0.800 | 24/30 |\n" in output
    assert "### Failing cases: 23 of 60, the first 2\n" in output
    assert output.count("\n| `q") == 2
    assert "kind=one step" not in output
    assert "| `any_pass` | `kind=one step` | 0.900" in report(texts, "--markdown", "--detailed").stdout


def test_markdown_shows_ten_failing_cases_unless_told(texts):
    assert "23 of 60, the first 10\n" in report(texts, "--markdown").stdout
    assert "### Failing cases: 23 of 60\n" in report(texts, "--markdown", "--limit", "50").stdout
    assert "### Failing" not in report(texts, "--markdown", "--limit", "0").stdout


def test_markdown_puts_a_diff_of_several_lines_in_a_block(program):
    output = report(program, "--markdown").stdout
    assert '| `two` | `lines` | `args=["-l"]` | `stdout` | `"2\\n"` | `"3\\n"` | below |' in output
    assert "```diff\n--- expected\n+++ actual\n@@ -1 +1 @@\n-2\n+3\n```\n" in output


def test_hostile_text_in_markdown_is_code(hostile):
    output = report(hostile, "--markdown").stdout
    assert not set(output) & set("\x1b\u202e\r")
    outside = re.sub(r"(?ms)^(`{3,})diff$.*?^\1$", "", output)
    left = "".join(code_spans(line)[1] for line in outside.split("\n"))
    assert "Diff of , :" in left
    assert not any(sign in left for sign in ("script", "@all", "`", "http", "**x"))


def test_a_table_needs_a_cell_for_every_column():
    assert markdown_table(["a"], [True], [["x\\|y"]]) == ["| a |", "|---:|", "| x\\\\\\|y |"]


# where it goes


@pytest.mark.parametrize("form", ["--csv", "--json", "--markdown"])
def test_a_form_goes_to_a_file_whole_and_says_so(form, program, tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    done = report(program, form, "-o", target)
    assert (done.stdout, done.stderr) == ("", f"report written to {target}, over the file that was there\n")
    assert target.read_bytes() == report(program, form).stdout_bytes == report(program, form, "-o", "-").stdout_bytes
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_html_is_made_again_in_the_run(program):
    done = report(program, "--html", "--json")
    page = program / "report.html"
    assert done.stderr == f"report written to {page}\n"
    assert json.loads(done.stdout)["problem_name"] == "wc"
    assert page.read_text().lstrip().lower().startswith("<!doctype html")
    assert report(program, "--html", "-o", "-").stdout_bytes == page.read_bytes()
    page.unlink()


@pytest.mark.commands(quick=3)
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--csv", "--json"], "--csv and --json are forms of one output: give one"),
        (["--csv", "--html", "-o", "x"], "-o FILE takes one form"),
        (["--csv", "--detailed"], "--detailed is for the terminal, --json and --markdown"),
        (["--html", "--detailed"], "--detailed is for the terminal, --json and --markdown"),
        (["--limit", "3"], "--limit says how many failing cases"),
        (["--json", "--detailed", "--limit", "3"], "--limit says how many failing cases"),
        (["--detailed", "--limit", "-1"], "--limit"),
        (["--csv", "-o", "no/such/file"], "no/such/file: there is no directory no/such"),
        (["--csv", "-o", "."], "is a directory"),
        (["--csv", "-o", "run/evaluation.json"], "run/evaluation.json: holds the run itself"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(args, says, tmp_path):
    saved(one_group(case("a", x=right())), tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    done = kofn("report", "run", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kofn: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert {p: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before


@pytest.mark.commands
def test_a_directory_that_is_no_run_is_refused_in_one_line(tmp_path):
    for name in ("missing", "."):
        done = kofn("report", name, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_run_that_did_not_pass_is_still_shown_with_exit_code_0(program):
    assert kofn("report", program).returncode == 0


@pytest.mark.commands
def test_a_pipe_gets_no_colour_and_a_terminal_does(program):
    import os
    import pty

    assert "\x1b" not in kofn("report", program).stdout
    parent, child = pty.openpty()
    subprocess.run([sys.executable, "-m", "kofn", "report", str(program)], stdout=child, check=True)
    os.close(child)
    assert b"\x1b[31m" in os.read(parent, 100_000)
    os.close(parent)


# --- the headline, verdicts that somebody defined, and recorded checks

OUTPUTS = [{"id": f"q{i}", "reference": "4", "outputs": ["5", "4", "4" if i % 2 else "5"]} for i in range(20)]


def scored_run(folder, name="run", **options):
    kofn_api.score(OUTPUTS, out=folder / name, **options)
    return folder / name


def first_line(text):
    return text.partition("\n")[0]


@pytest.mark.parametrize("use", [None, "any", "vote", "all"])
def test_every_form_says_the_same_sentence_first(tmp_path, use):
    path = scored_run(tmp_path, use=use)
    headline = load_run(path).headline
    text = headline.text
    assert text.startswith(
        {None: "mean 0.5", "any": "any_pass 1.0", "vote": "majority 0.5", "all": "all_pass 0.0"}[use]
    )
    assert text == kofn_api.score(OUTPUTS, use=use).headline.text
    wrapped = " ".join(report(path).stdout.split("\n\n")[0].split())
    assert wrapped == text
    body = json.loads(report(path, "--json").stdout)
    assert (body["headline"]["text"], body["status"]) == (text, "no verdict")
    assert load_run(path).document().headline[0] == text
    assert f"**{escape_markdown(text)}**" in report(path, "--markdown").stdout
    page = (path / "report.html").read_text()
    assert text in html.unescape(re.sub("<[^>]+>", "", page))
    assert "Not passed" not in page
    assert "Passed" not in page


@pytest.mark.parametrize("options", [{"policy": "core-cases"}, {"verdict": "majority"}])
def test_a_verdict_appears_where_somebody_defined_one(tmp_path, options):
    path = scored_run(tmp_path, **options)
    status, word = json.loads(report(path, "--json").stdout)["status"], report(path).stdout.split("\n\n")[0]
    assert status == "not passed"
    assert "✗ NOT PASSED  core-cases: " in word
    assert first_line(word).startswith("mean 0.5")
    assert "Not passed" in (path / "report.html").read_text()


def test_the_order_of_aggregators_decides_nothing(tmp_path):
    orders = [["pass@1", "mean", "majority"], ["majority", "mean", "pass@1"], ["mean", "pass@1", "majority"]]
    runs = [load_run(scored_run(tmp_path, str(i), aggregate=names)) for i, names in enumerate(orders)]
    assert {run.evaluation.verdict for run in runs} == {"majority >= 1"}
    assert len({run.headline.text for run in runs}) == 1
    assert runs[0].headline.estimate.aggregator == "mean"


def test_a_check_is_recorded_in_the_run_and_shown(tmp_path):
    path = scored_run(tmp_path)
    before = (path / "run.json").read_bytes()
    assert kofn("check", path, "--require", "mean >= 0.9", "--require", "mean >= 0.1").returncode == 1
    assert (path / "run.json").read_bytes() == before
    run = load_run(path)
    assert [one["passed"] for one in run.checks["checks"]] == [False, True]
    assert "✗ NOT PASSED  kofn check: 1 of 2 requirements not met: mean >= 0.9: 0.5" in report(path).stdout
    assert json.loads(report(path, "--json").stdout)["status"] == "not passed"
    assert "kofn check: failed: 1 of 2" in (path / "report.html").read_text()

    kofn_api.check(path, require="mean >= 0.1")
    assert "✓ PASSED  kofn check: 1 requirement met" in report(path).stdout


def test_a_check_of_numbers_that_were_made_again_is_not_shown(tmp_path):
    path = scored_run(tmp_path)
    kofn_api.check(path, require="mean >= 0.1")
    scored = load_run(path)
    manifest = {**scored.manifest, "digest": "of another run"}
    assert scored.checks is not None
    assert replace(scored, manifest=manifest).checks is None


def test_a_changed_record_of_a_check_is_refused(tmp_path):
    path = scored_run(tmp_path)
    kofn_api.check(path, require="mean >= 0.9")
    record = json.loads((path / "checks.json").read_text())
    (path / "checks.json").write_text(json.dumps(record | {"passed": True}))
    assert "checks.json" in kofn("report", path).stderr


def test_a_run_that_cannot_be_written_to_is_checked_all_the_same(tmp_path, monkeypatch):
    path = scored_run(tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kofn.render.run_directory.write_atomically", refuse)
    said = []
    assert kofn_api.check(path, require="mean >= 0.1", on_note=said.append).passed
    assert said == [f"{path}: the outcome is not recorded in the run: Permission denied"]


def test_rows_that_repeat_another_are_named_and_not_shown(tmp_path):
    one = [{"id": f"q{i}", "reference": "4", "output": "4" if i % 3 else "5"} for i in range(12)]
    result = kofn_api.score(one)
    grid = result.document().grids[0]
    assert [row[0] for row in grid.rows] == ["mean"]
    said = dict(result.document().notes)["same rows"]
    assert said == "first, any_pass, all_pass, majority, majority_pass and pass@1 equal mean in every case"
    assert len(result.to_dict()["estimates"]) == 7
    asked = kofn_api.score(one, aggregate=["first", "mean"])
    assert [row[0] for row in asked.document().grids[0].rows] == ["first", "mean"]
    assert [row[0] for row in kofn_api.score(one, use="any").document().grids[0].rows] == ["any_pass"]


def test_scores_beyond_one_are_not_counted_as_passes_unless_asked():
    rows = [{"id": f"q{i}", "scores": [1 + i % 5, 3, 5]} for i in range(12)]
    assert [e.aggregator for e in kofn_api.score(rows).estimates] == ["first", "mean", "best_score"]
    assert "any_pass" in [e.aggregator for e in kofn_api.score(rows, threshold=3).estimates]
    assert [e.aggregator for e in kofn_api.score(rows, aggregate="any_pass").estimates] == ["any_pass"]


def test_the_checklist_is_one_line_unless_asked_for(tmp_path):
    path = scored_run(tmp_path)
    assert re.search(r"^checklist  \d yes, .*n/a; --checklist shows it$", report(path).stdout, re.MULTILINE | re.DOTALL)
    whole = report(path, "--checklist").stdout
    assert "– the judge is calibrated and corrected" in whole
    assert "--checklist shows it" not in whole
    assert len(json.loads(report(path, "--json").stdout)["checklist"]) == 8
