"""docs/security.md: every promise names a test, and every test that it names is there and run by `make test`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
LINK = re.compile(r"\[(tests/[\w./]+)\]\(\.\./(tests/[\w./]+)\)")


def promises() -> list[list[str]]:
    """The rows of the tables whose last column is a test."""
    rows, inside = [], False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        inside = line.startswith("|") and (inside or cells[-1] == "test")
        if inside and cells[0] not in ("promise", "---"):
            rows.append(cells)
    return rows


def test_every_promise_says_how_it_is_kept_and_names_a_test():
    assert len(promises()) >= 20
    for promise, how, *tests in promises():
        assert promise
        assert how
        assert LINK.findall(" ".join(tests)), promise


def test_every_file_that_the_page_names_is_there_and_holds_tests():
    named = LINK.findall(PAGE)
    assert named
    for label, target in named:
        assert label == target
        assert (ROOT / target).is_file(), target
        if Path(target).name.startswith("test_"):
            assert re.search(r"^def test_", (ROOT / target).read_text(), re.MULTILINE), target


def test_every_part_of_the_threat_model_says_what_is_not_promised_or_links_it():
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    for part in parts:
        if "| promise |" in part:
            assert "ot promised" in part, part.splitlines()[0]
