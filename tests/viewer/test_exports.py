"""What is taken away from the viewer: the same rows as the run has, those that were asked for, and never a formula."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest
from tests.viewer.runs import EVIL, small_rows, write
from tests.viewer.serving import ask, open_in, served
from tests.waiting import wait_until

from kofn.errors import WorldError
from kofn.render.report_html import report_page
from kofn.render.run_directory import write_evaluation
from kofn.runs.case_reports import AttributeResult, VerifierReport
from kofn.runs.record import load_run
from kofn.runs.run_tables import CorrectnessResults
from kofn.scoring.configuration import GroupType
from kofn.viewer import exports

ODD = 'run "ü"\n;=1'


def formulas(n=9):
    """Cases whose every text is a formula to a spreadsheet."""
    starts = ["=HYPERLINK(1)", "+1", "-2", "@x", "\ttab", "'quoted", "plain", '=a,"b"\r\nc', ""]
    return [
        {"id": f"{starts[i]}{i}", "input": starts[i], "reference": ["4", "=5"], "=kind": starts[i % 3],
         "outputs": [{"text": f"{starts[i]}", "cost": -0.5, "answer": "4"}, {"text": "4", "cost": 1.0, "answer": "4"}]}
        for i in range(n)
    ]  # fmt: skip


def verified(folder):
    """A run of a program: case reports, and no candidates."""
    results = CorrectnessResults(problem_name="p", name="one")
    for group, numbers in (("g", range(3)), ("=h", range(3, 5))):
        cases = [
            VerifierReport(
                id=f"case {i}",
                group=group,
                type="Core",
                duration=0.5,
                results={"output": AttributeResult(is_correct=bool(i % 2), expected="a", actual="=b")},
            )
            for i in numbers
        ]
        results.add_group_report(group, GroupType.CORE, 1.0, cases)
    write_evaluation(results, folder, {"kind": "verify", "sources": [], "options": {}}, {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write(root / "one", small_rows(60), by=["kind"])
    write(root / "evil", small_rows(12, evil=EVIL))
    write(root / "formulas", formulas(), task="=task")
    write(root / ODD, small_rows(2))
    verified(root / "program")
    return root


@pytest.fixture(scope="module")
def base(folder):
    with served(folder) as address:
        yield address


def saved(base, path):
    """What an attachment holds, as a table."""
    answer = ask(base, path)
    assert answer.status == 200, answer.text[:2000]
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    if "parquet" in path:
        assert int(answer.headers["content-length"]) == len(answer.body)
        return pl.read_parquet(io.BytesIO(answer.body))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text, newline=""), strict=True))


def unguarded(text):
    return text[1:] if text[:1] == "'" and text[1:2] in tuple("=+-@\t\r'") else text


def ids(rows):
    return rows["case_id"].to_list() if isinstance(rows, pl.DataFrame) else [row["case_id"] for row in rows]


# --- tables


@pytest.mark.parametrize("name", ["candidates", "cases", "reports"])
def test_without_filters_parquet_is_the_file_on_disk(base, folder, name):
    assert ask(base, f"/run/one/-/{name}.parquet").body == (folder / "one" / f"{name}.parquet").read_bytes()


@pytest.mark.parametrize("run", ["one", "evil", "formulas"])
@pytest.mark.parametrize("name", ["candidates", "cases"])
def test_csv_holds_every_row_and_column_of_the_file(base, folder, run, name, monkeypatch):
    monkeypatch.setattr(exports, "FIRST_ROWS", 7)  # many slices
    monkeypatch.setattr(exports, "MAX_ROWS", 7)
    frame = pl.read_parquet(folder / run / f"{name}.parquet")
    rows = saved(base, f"/run/{run}/-/{name}.csv")
    assert len(rows) == frame.height
    assert [unguarded(column) for column in rows[0]] == frame.columns
    for column in frame.iter_columns():
        found = [unguarded(row[list(rows[0])[frame.columns.index(column.name)]]) for row in rows]
        if column.dtype == pl.String:
            assert found == [value or "" for value in column]
        elif column.dtype.is_float():
            assert [float(v) if v else None for v in found] == column.to_list()
        elif column.dtype.is_nested():
            assert [json.loads(v) for v in found] == column.to_list()


def test_no_cell_of_a_csv_is_a_formula(base):
    for path in ("/run/formulas/-/candidates.csv", "/run/formulas/-/cases.csv", "/run/program/-/cases.csv",
                 "/run/program/-/attributes.csv", "/runs.csv"):  # fmt: skip
        table = list(csv.reader(io.StringIO(ask(base, path).text, newline="")))
        cells = [cell for row in table for cell in row]
        assert any(cell.startswith("'") for cell in cells), path
        numbers = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
        assert not [c for c in cells if c.startswith(("=", "+", "-", "@", "\t", "\r")) and not numbers.fullmatch(c)], (
            path
        )


@pytest.mark.parametrize(
    "query",
    ["verdict=failed", "show=some_fail", "tag=kind%3Dk1", "q=the+3", "q=total&within=outputs", "sort=cost&down=1",
     "verdict=failed&sort=id&down=1", "q=nothing+holds+this"],
)  # fmt: skip
def test_filters_and_order_are_those_of_the_table_of_cases(base, folder, query, monkeypatch):
    monkeypatch.setattr(exports, "REORDERED_ROWS", 11)
    monkeypatch.setattr(exports, "FIRST_ROWS", 13)
    listed, number = [], 1
    while True:
        text = ask(base, f"/run/one?{query}&page={number}").text.partition('id="table"')[2].partition("</table>")[0]
        here = re.findall(r'class="c-id"><a [^>]*><bdi>([^<]*)</bdi>', text)
        listed, number = listed + here, number + 1
        if len(here) < 50:
            break
    whole = pl.read_parquet(folder / "one" / "cases.parquet")
    place = {case: i for i, case in enumerate(whole["case_id"])}
    for form in ("csv", "parquet"):
        assert ids(saved(base, f"/run/one/-/cases.{form}?{query}")) == listed
        found = ids(saved(base, f"/run/one/-/candidates.{form}?{query}"))
        assert found == [case for case in sorted(listed, key=place.get) for _ in range(4)]
    assert saved(base, f"/run/one/-/cases.parquet?{query}").equals(whole[[place[case] for case in listed]])
    assert f"/run/one/-/cases.csv?{query.partition('&')[0]}" in ask(base, f"/run/one/-/export?{query}").text


def test_slices_are_bounded_by_bytes_and_end_when_the_file_is_another_one(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    frame = pl.DataFrame({"i": np.arange(20_000), "text": ["x" * 1000] * 20_000})
    frame.write_parquet(path)
    monkeypatch.setattr(exports, "SLICE_BYTES", 100_000)
    pieces = list(exports.slices(path))
    assert pl.concat(pieces).equals(frame)
    assert max(piece.estimated_size() for piece in pieces) < 500_000
    reading = exports.slices(path)
    next(reading), next(reading)
    frame.with_columns(pl.col("i") + 1).write_parquet(tmp_path / "u.parquet")
    (tmp_path / "u.parquet").replace(path)
    with pytest.raises(WorldError, match="written again meanwhile"):
        list(reading)


def test_nothing_of_a_filtered_table_stays_on_disk(base, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert saved(base, "/run/one/-/candidates.parquet?verdict=failed").height
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_cannot_be_written_is_told(base, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/nowhere")
    assert ask(base, "/run/one/-/candidates.parquet?verdict=failed").status == 503
    assert ask(base, "/run/one/-/candidates.parquet").status == 200


def test_a_run_of_programs_has_cases_and_attributes_and_no_candidates(base, folder):
    rows = saved(base, "/run/program/-/cases.csv?verdict=failed")
    assert [row["id"] for row in rows] == ["case 0", "case 2", "case 4"]
    assert sorted(saved(base, "/run/program/-/cases.parquet?group=g")["id"]) == ["case 0", "case 1", "case 2"]
    attributes = saved(base, "/run/program/-/attributes.csv")
    assert [row["attribute"] for row in attributes] == ["output"] * 5
    assert saved(base, "/run/program/-/reports.parquet").height == 5
    for name in ("candidates.csv", "candidates.parquet"):
        assert ask(base, f"/run/program/-/{name}").status == 404
    assert ask(base, "/run/one/-/attributes.csv").status == 404
    assert ask(base, "/run/none/-/cases.csv").status == 404


# --- names


def test_attachments_have_names_that_any_system_takes(base):
    header = ask(base, f"/run/{quote(ODD)}/-/cases.csv").headers["content-disposition"]
    plain, full = re.fullmatch(r"""attachment; filename="([\w.-]+)"; filename\*=UTF-8''([\w.%-]+)""", header).groups()
    assert plain == "run_-_1-cases.csv" or plain.endswith("1-cases.csv")
    assert full == quote(f"{ODD}-cases.csv".replace("\n", "_"), safe="")


def test_files_are_closed_also_when_nobody_reads_them_to_their_end(base):
    def handles():
        return {one for one in Path("/proc/self/fd").iterdir() if is_parquet(one)}

    def is_parquet(one):
        try:
            return ".parquet" in str(one.readlink())
        except OSError:
            return False

    before = handles()
    for path in ("candidates.parquet", "cases.parquet?verdict=failed", "candidates.parquet?verdict=failed"):
        ask(base, f"/run/one/-/{path}", "HEAD")
        ask(base, f"/run/one/-/{path}")
    # the last is closed after its reader has it all
    wait_until(lambda: handles() <= before, lambda: [one.readlink() for one in handles() - before])


def test_asking_only_for_the_head_makes_nothing(base):
    for path in ("/run/one/-/candidates.csv", "/run/one/-/report.html", "/runs.parquet"):
        answer = ask(base, path, "HEAD")
        assert (answer.status, answer.body) == (200, b"")
        assert "attachment" in answer.headers["content-disposition"]


# --- the run as one page, the list, the page of exports


@pytest.mark.long(quick=1)
@pytest.mark.parametrize("large", [10**9, 0], ids=["here", "in another process"])
@pytest.mark.parametrize("run", ["one", "evil"])
def test_the_run_as_one_file_is_its_report(base, folder, run, large, monkeypatch):
    monkeypatch.setattr(exports, "LARGE", large)
    answer = ask(base, f"/run/{run}/-/report.html")
    assert answer.text == report_page(load_run(folder / run))
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{run}-report.html"')


def test_a_page_that_cannot_be_made_elsewhere_is_told(base, monkeypatch):
    monkeypatch.setattr(exports, "LARGE", 0)
    monkeypatch.setattr("sys.executable", "/bin/false")
    answer = ask(base, "/run/one/-/report.html")
    assert answer.status == 422
    assert "the page cannot be made" in answer.text


def test_the_list_of_runs_is_exported_as_it_is_filtered_and_sorted(base):
    assert [row["name"] for row in saved(base, "/runs.csv?sort=name&up=1")] == sorted(
        ["evil", "formulas", "one", "program", ODD]
    )
    frame = saved(base, "/runs.parquet?task=sums&sort=cases")
    assert frame["name"].to_list() == ["one", "evil", ODD]
    assert frame["cases"].to_list() == [60, 12, 2]
    assert frame.schema["tags"] == pl.List(pl.String)
    assert saved(base, "/runs.parquet?q=nothing").height == 0
    assert saved(base, "/runs.csv?q=nothing") == []


@pytest.mark.parametrize("run", ["one", "program", quote(ODD)])
def test_the_page_of_exports_leads_to_files_that_are_there(base, run):
    links = re.findall(r'<a class="button" href="([^"]+)"', ask(base, f"/run/{run}/-/export").text)
    assert len(links) >= 4
    for link in links:
        answer = ask(base, link, "HEAD")
        assert (answer.status, "attachment" in answer.headers["content-disposition"]) == (200, True), link


# --- in a browser


def test_any_table_of_a_page_is_saved_as_csv_without_formulas(base, browser, tmp_path):
    tab = open_in(browser, base, "/run/program")
    with tab.page.expect_download() as waiting:
        tab.click("#groups .save-table >> nth=0")
    waiting.value.save_as(tmp_path / "t.csv")
    assert waiting.value.suggested_filename == "Groups.csv"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_bytes().decode(), newline="")))
    assert [row["group"] for row in rows] == ["g", "'=h"]
    assert rows[0]["passed"] == "1 / 3"
    tab.clean()
    tab.context.close()


def test_a_filtered_export_is_saved_from_the_page(base, browser, tmp_path):
    tab = open_in(browser, base, "/run/one?verdict=failed", width=390)
    with tab.page.expect_download() as waiting:
        tab.click("a:has-text('CSV') >> nth=0")
    waiting.value.save_as(tmp_path / "t.csv")
    assert waiting.value.suggested_filename == "one-cases.csv"
    assert (tmp_path / "t.csv").read_bytes() == ask(base, "/run/one/-/cases.csv?verdict=failed").body
    tab.goto(f"{base}/run/one/-/export?verdict=failed")
    tab.when_ready()
    assert "as they were filtered" in tab.text("main")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.clean()
    tab.context.close()
