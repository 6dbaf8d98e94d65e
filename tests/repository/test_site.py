"""The site: every page in its place, every verb with its page, the reference as the code is, nothing from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.site import DOCS, HOOKS, ROOT, nav_pages

from kofn.cli import VERBS

MKDOCS = Path(os.environ.get("KOFN_DOCS_PYTHON", ROOT / ".venv-docs" / "bin" / "python"))


def test_every_page_is_in_the_nav_once():
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert pages <= set(nav_pages())
    assert len(nav_pages()) == len(set(nav_pages()))


def test_every_entry_of_the_nav_is_there():
    assert [page for page in nav_pages() if page not in HOOKS.FROM_ABOVE and not (DOCS / page).exists()] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_page_that_shows_it(verb):
    """The how-to names its page, and a command of that page calls it."""
    row = re.search(rf"\| `kofn {verb}` \| \[[^\]]+\]\(([\w.-]+)\)", (DOCS / "how-to.md").read_text())
    assert row is not None
    assert re.search(rf"^(?:\$ )?kofn {verb}\b", (DOCS / row[1]).read_text(), re.MULTILINE)


def check_reference(folder):
    command = [sys.executable, "benchmarks/reference.py", "--check"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_reference_is_what_the_code_says():
    """`python benchmarks/reference.py` writes it: help of every verb, every name of the registry and of the API."""
    done = check_reference(ROOT)
    assert done.returncode == 0, done.stderr


def test_a_stale_reference_is_noticed(tmp_path):
    """The check above can fail."""
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    shutil.copytree(DOCS / "reference", tmp_path / "docs" / "reference")
    page = tmp_path / "docs" / "reference" / "cli.md"
    page.write_text(page.read_text().replace("--repeats", "--repeat"))
    done = check_reference(tmp_path)
    assert (done.returncode, "cli not as" in done.stderr) == (1, True)


def test_docstrings_become_markdown():
    """Doctests are code, columns of names are lists, and what is neither stays."""
    given = "What.\n\nlow   one end\nhigh  the other,\n      or none\n\n>>> f()\n3\n"
    expected = "What.\n\n- `low` one end\n- `high` the other, or none\n\n```pycon\n>>> f()\n3\n```\n"
    assert HOOKS.as_markdown(given) == expected
    assert HOOKS.as_markdown("One line.") == "One line.\n"


def test_a_link_that_leaves_the_pages_stays_as_its_text():
    given = "see [the test](../tests/site.py) and [runs](../docs/run.md#in-python), [gone](../nowhere.md)"
    expected = "see the test and [runs](../docs/run.md#in-python), [gone](../nowhere.md)"
    assert HOOKS.within(given, DOCS) == expected


class _Addresses(HTMLParser):
    """What a page makes a browser fetch by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source") or (tag == "link" and given.get("rel") != "canonical"):
            self.addresses += [given[key] for key in ("src", "href", "srcset") if given.get(key)]


@pytest.mark.slow
@pytest.mark.skipif(not MKDOCS.exists(), reason=f"{MKDOCS} is not there: `make docs` makes it")
def test_the_site_builds_without_a_warning_and_asks_nothing_of_the_network(tmp_path):
    command = [MKDOCS, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(nav_pages())
    for page in pages:
        collector = _Addresses()
        collector.feed(page.read_text())
        assert [a for a in collector.addresses if "//" in a] == [], page
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", style.read_text()), style
