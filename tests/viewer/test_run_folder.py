"""Only what is below the folder is looked at, whatever an address or a link says."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest
from tests.viewer.runs import EVIL, small_rows, write
from tests.viewer.serving import ask, served

from kofn.viewer.run_folder import NotFound, RunFolder
from kofn.viewer.templating import run_url, split_run_path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    top = tmp_path_factory.mktemp("top")
    write(top / "secret", small_rows(3), task="secret-task")
    runs = top / "runs"
    write(runs / "one", small_rows(3))
    write(runs / "deep" / "er" / "two", small_rows(3))
    return runs


@pytest.fixture(scope="module")
def base(root):
    with served(root) as found:
        yield found


@pytest.mark.parametrize("path", [
    "/run/../secret", "/run/%2e%2e/secret", "/run/one/../../secret", "/run/one/%2e%2e/%2e%2e/secret", "/run/%ff%fe",
    "/run/..%5csecret", "/run//etc", "/run/%2fetc", "/run/one%00", "/run/one/candidates.parquet", "/run/one/run.json",
    "/run/deep", "/run/nothing", "/run/one/-/nothing", "/static/x/../../app.py", "/static/x/..%2f..%2fapp.py",
    "/run/..%2fsecret",
])  # fmt: skip
def test_no_address_leads_out_of_the_folder_or_to_a_file(base, path):
    answer = ask(base, path)
    assert answer.status == 404
    assert b"secret-task" not in answer.body


def test_links_that_lead_out_are_neither_listed_nor_opened(root, base):
    link = root / "link"
    link.symlink_to(root.parent / "secret")
    inner = root / "inner"
    inner.mkdir()
    for one in (root.parent / "secret").iterdir():
        (inner / one.name).symlink_to(one)
    try:
        listed = ask(base, "/").text
        assert ">link<" not in listed
        assert "secret-task" not in listed
        for name in ("link", "inner"):
            answer = ask(base, f"/run/{name}")
            assert answer.status == 404
            assert b"secret-task" not in answer.body
    finally:
        link.unlink()
        for one in inner.iterdir():
            one.unlink()
        inner.rmdir()


def test_a_circle_of_links_ends(root, base):
    (root / "deep" / "circle").symlink_to(root)
    try:
        assert ask(base, "/").text.count("deep/er/two") > 0
        assert len(list(RunFolder(root).runs())) == 2
    finally:
        (root / "deep" / "circle").unlink()


@pytest.mark.long(quick=2)
@pytest.mark.parametrize("name", ["a b", "ünï", "50%25", "-", "a#b?c=d&e", "q'\"<i>", "x\ny"])
def test_runs_of_strange_names_are_listed_and_open(tmp_path, name):
    write(tmp_path / "plain", small_rows(3)).rename(tmp_path / name)
    with served(tmp_path) as found:
        page = ask(found, "/")
        assert page.status == 200
        assert f'href="{run_url(name).replace("&", "&amp;")}"' in page.text
        assert ask(found, run_url(name)).status == 200
        assert ask(found, run_url(name, "case") + "?id=q00").status == 200
    assert split_run_path(run_url(name, "case").encode()) == (name, "case")


def test_a_name_that_is_no_unicode_is_listed_and_the_page_says_what_to_do(tmp_path):
    name = os.fsdecode(b"\xff\xfe-raw")
    write(tmp_path / "plain", small_rows(3)).rename(tmp_path / name)
    with served(tmp_path) as found:
        assert "/run/%FF%FE-raw" in ask(found, "/").text
        answer = ask(found, run_url(name))
    assert answer.status == 422
    assert "is no Unicode text, so its files cannot be opened: rename it" in answer.text


def test_a_hostile_name_stays_text(tmp_path):
    name = EVIL.replace("/", "").replace("\0", "")
    write(tmp_path / name, small_rows(3), task=EVIL.replace("\0", ""))
    with served(tmp_path) as found:
        for path in ("/", run_url(name)):
            text = ask(found, path).text
            assert "<img src=x" not in text
            assert "&lt;img src=x" in text
            assert "\u202e" not in text


def test_the_folder_may_be_a_run_itself(tmp_path):
    write(tmp_path / "run", small_rows(3))
    with served(tmp_path / "run") as found:
        assert "(this folder)" in ask(found, "/").text
        assert ask(found, run_url("")).status == 200
        assert ask(found, run_url("", "case") + "?id=" + quote("q00")).status == 200


def test_names_with_dots_or_nothing_are_no_runs(tmp_path):
    folder = RunFolder(tmp_path)
    for name in ("..", "a/../b", "\0", "none"):
        with pytest.raises(NotFound):
            folder.run(name)
