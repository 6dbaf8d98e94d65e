"""The statistics explained: no figure of docs/statistics is anything but what the command prints today."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from benchmarks.drawing import seal
from benchmarks.explain import FOLDER, GIVEN, TOPICS

DOCS = Path(__file__).parents[2] / "docs"
FROM = {"independence": "numbers.md", "intervals": "coverage.md"}  # pages that also quote another page's figures
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+")


@cache
def topic(name):
    return TOPICS[name]()


CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def quoted(page):
    """The decimals of a page's prose and tables, but for those of its code, which is executed by its own test."""
    code, prose = " ".join(CODE.findall(page.read_text())), CODE.sub("", page.read_text())
    return set(NUMBER.findall(prose)) - set(NUMBER.findall(code))


@pytest.mark.parametrize("name", TOPICS)
def test_every_figure_of_a_page_is_computed(name):
    known = {*topic(name).figures.values(), *GIVEN[name]}
    if name in FROM:
        known |= quoted(DOCS / FROM[name])
    known |= {f"{float(value):.2f}" for value in known}  # of a picture, told with two digits
    assert quoted(DOCS / "statistics" / f"{name}.md") <= known


@pytest.mark.parametrize("name", TOPICS)
def test_a_picture_shows_the_numbers_of_today(name):
    drawn = (FOLDER / f"{name}.svg").read_text()
    assert f"<!-- {seal(topic(name).spec)} -->" in drawn, "python -m benchmarks.explain draws it again"
    assert topic(name).label in drawn


def test_every_page_of_the_statistics_has_its_topic():
    pages = {page.stem for page in (DOCS / "statistics").glob("*.md")} - {"index"}
    assert pages == set(TOPICS) == set(GIVEN)


def test_a_picture_follows_the_scheme_of_its_page_and_asks_for_nothing():
    for drawn in FOLDER.glob("*.svg"):
        text = drawn.read_text()
        assert "prefers-color-scheme: dark" in text
        assert "var(--ink)" in text
        assert not re.search(r"(?:href|src)=.http|url\((?!#)|@import|<script", text)
