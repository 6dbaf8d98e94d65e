"""Selectors of a YAML file, and what is wrong with one that has a mistake."""

from __future__ import annotations

import pytest

from kofn.analysis.selector_file import load_selector
from kofn.analysis.selectors import Selector
from kofn.errors import InputError


@pytest.fixture
def written(tmp_path):
    def write(text, name="judge.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", ["vote", "first", "reward", "my_pkg.module:pick", "odd name"])
def test_any_other_text_is_what_picks(name):
    assert load_selector(name) == Selector(name=name, by=name)


def test_a_file_says_everything(written):
    text = "name: careful\nby: length\nprefer: low\nversion: 2\nmodel: openai:judge\nprompt: |\n  Which is best?\n"
    assert load_selector(written(text)) == Selector(
        name="careful", by="length", prefer="low", version="2", model="openai:judge", prompt="Which is best?\n"
    )


def test_a_file_without_a_name_lends_its_own(written):
    assert load_selector(written("by: reward\n", "small.yml")).name == "small"


def test_what_decides_the_pick_changes_the_fingerprint_and_the_name_does_not(written):
    one, renamed = (load_selector(written("by: reward\n", f"{name}.yaml")) for name in "ab")
    other = load_selector(written("by: reward\nprompt: Be strict.\n"))
    assert one.fingerprint() == renamed.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nbye: reward\n", r"line 2: unknown key 'bye': did you mean by\?"),
        ("by: reward\nprefer: higher\n", "line 2: prefer: expected 'high' or 'low'"),
        ("by: reward\nversion: 1.5\n", "line 2: version: expected text; in quotes"),
        ("name: x\n", "by: missing: expected a value"),
        ("by: reward\nby: vote\n", "line 2: 'by' is there twice"),
        ("- reward\n", "expected a mapping with `by`"),
        ("", "expected a mapping with `by`"),
        ("by: [reward\n", "not YAML"),
        ("by: ''\n", "line 1: by: "),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_place(written, text, message):
    path = written(text)
    with pytest.raises(InputError, match=message) as caught:
        load_selector(path)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"nowhere\.yaml: no such file"):
        load_selector("nowhere.yaml")


def test_nothing_is_no_selector():
    with pytest.raises(InputError, match="not nothing"):
        load_selector(" ")
