"""The viewer stays up: runs that change, break or vanish meanwhile, and many who ask at once."""

from __future__ import annotations

import json
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.sealing import reseal
from tests.viewer.runs import CALLED, small_rows, write
from tests.viewer.serving import ask, served

PAGES = ("", "/-/case?id=q01", "/-/charts", "?show=tied", "?show=identical", "?show=truncated", "?q=2&within=outputs")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "one", small_rows(12))
    write(tmp_path / "good", small_rows(12))
    return tmp_path


@pytest.mark.long(quick=1)
@pytest.mark.parametrize(
    "file", ["run.json", "evaluation.json", "reports.parquet", "candidates.parquet", "cases.parquet"]
)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "other"])
def test_a_damaged_run_is_said_and_the_others_are_shown(folder, file, damage):
    path = folder / "one" / file
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        at = random.Random(file).randrange(8, len(data) - 8)
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    else:
        path.write_bytes(b"" if damage == "empty" else b'{"a": 1}')
    with served(folder) as base:
        statuses = {ask(base, f"/run/one{page}").status for page in PAGES}
        assert statuses <= {200, 404, 422}, statuses
        assert damage == "flipped" or statuses & {404, 422}
        assert ask(base, "/").status == 200
        assert {ask(base, f"/run/good{page}").status for page in PAGES} == {200}


def test_a_run_that_is_changed_is_shown_as_it_is_now(folder):
    with served(folder) as base:
        assert "12 cases" in ask(base, "/run/one").text
        shutil.rmtree(folder / "one")
        assert ask(base, "/run/one").status == 404
        write(folder / "one", small_rows(7))
        assert "7 cases" in ask(base, "/run/one").text


@pytest.mark.long
def test_files_that_change_under_a_run_that_is_kept_are_not_mixed(folder):
    """candidates.parquet of another run, put in place while the run is in memory: refused or shown, never a crash."""
    write(folder / "other", small_rows(30))
    with served(folder) as base:
        assert ask(base, "/run/one").status == 200
        shutil.copy(folder / "other" / "candidates.parquet", folder / "one" / "candidates.parquet")
        assert {ask(base, f"/run/one{page}").status for page in PAGES} <= {200, 422}
        (folder / "one" / "candidates.parquet").unlink()
        assert {ask(base, f"/run/one{page}").status for page in PAGES} <= {200, 404, 422, 503}
        assert ask(base, "/run/good").status == 200


@pytest.mark.long
def test_two_hundred_at_once_are_answered(folder):
    paths = [f"/run/{run}{page}" for run in ("one", "good") for page in PAGES] + [
        "/",
        "/?q=one",
        "/nothing",
        "/run/none",
    ]
    with served(folder) as base, ThreadPoolExecutor(200) as pool:
        requested = [paths[i % len(paths)] for i in range(200)]
        answers = list(pool.map(lambda path: ask(base, path), requested))
    wrong = {p: a.status for p, a in zip(requested, answers, strict=True) if a.status != (404 if "no" in p else 200)}
    assert wrong == {}


@pytest.mark.long
def test_runs_that_come_and_go_while_many_look_break_nothing(folder):
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            shutil.rmtree(folder / "one", ignore_errors=True)
            shutil.copytree(folder / "good", folder / "one")

    worker = threading.Thread(target=churn)
    with served(folder) as base, ThreadPoolExecutor(8) as pool:
        worker.start()
        try:
            paths = [f"/run/one{PAGES[i % len(PAGES)]}" if i % 3 else "/" for i in range(150)]
            statuses = {a.status for a in pool.map(lambda path: ask(base, path), paths)}
        finally:
            stop.set()
            worker.join()
        assert statuses <= {200, 404, 422, 503}
        assert ask(base, "/run/good").status == 200


def test_two_viewers_of_one_folder_show_the_same(folder):
    with served(folder) as first, served(folder) as second:
        for path in ("/run/one", "/run/one/-/case?id=q03", "/"):
            assert ask(first, path).text == ask(second, path).text


def test_nothing_is_written_by_looking(folder):
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")}
    with served(folder) as base:
        for run in ("one", "good"):
            for page in (*PAGES, "/-/audit", "/-/best", "/-/labels", "/-/export"):
                ask(base, f"/run/{run}{page}")
        ask(base, "/compare?run=one&run=good")
        ask(base, "/trend?task=sums")
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")} == before


def test_a_huge_number_or_text_in_a_manifest_is_shown_cut(folder):
    path = folder / "one" / "run.json"
    body = json.loads(path.read_text())
    body["tags"] = ["x" * 100_000]
    path.write_text(json.dumps(body))
    reseal(path)
    with served(folder) as base:
        assert ask(base, "/").status == 200


@pytest.mark.long(quick=1)
@pytest.mark.parametrize("named", ["os:system", "tests.viewer.runs:pwned", "pattern('(a+)+$')", "none", None])
def test_what_a_run_names_is_never_called(folder, named):
    path = folder / "one" / "run.json"
    body = json.loads(path.read_text())
    body["result"]["extraction"]["extractor"] = named
    rules = [named, "tests.viewer.runs:pwned"]
    body["options"] |= {"extract": named, "metrics": [named], "aggregate": rules, "by": []}
    path.write_text(json.dumps(body))
    reseal(path)
    with served(folder) as base:
        for page in (*PAGES, "?show=extractors", "/-/audit", "/-/best", "/-/best.json", "/-/labels", "/-/export"):
            assert ask(base, f"/run/one{page}").status in (200, 422), page
        assert ask(base, "/compare?run=one&run=good").status in (200, 422)
        assert ask(base, "/trend?task=sums").status == 200
    assert CALLED == []
