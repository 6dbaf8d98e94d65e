"""docs/architecture.md says what the code says, and its walks are the ways that records take."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.repository.architecture import DATA, PAGE, RUN, SCORE, page
from tests.repository.source_tree import SRC, modules, summary_of

from kofn.cli import kofn

ROOT = Path(__file__).parents[2]
LONGEST = 130
MOST_MODULES = 60


def test_the_page_is_what_the_code_says():
    assert PAGE.read_text() == page(), "run: .venv/bin/python -m tests.repository.architecture"


def test_the_data_that_it_names_is_there():
    assert [place for places in DATA.values() for place, _ in places if not list(SRC.glob(place.rstrip("/")))] == []


@pytest.mark.parametrize("module", modules())
def test_every_module_says_in_one_line_what_it_holds(module):
    line = summary_of(module)
    assert line, f"{module} has no docstring"
    assert len(line) <= LONGEST
    assert "TODO" not in line


def visited(command: list[str]) -> list[str]:
    """The modules whose functions a command calls, in the order of the first call."""
    found: dict[str, None] = {}

    def note(frame, event, _):
        if event == "call" and not frame.f_code.co_flags & 0x10 and frame.f_code.co_name != "<module>":
            found.setdefault(frame.f_globals.get("__name__", "").removeprefix("kofn."))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = CliRunner().invoke(kofn, command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert result.exit_code == 0, result.output
    return list(found)


def check(walk, command, again):
    visited(command)  # imports everything, so that class bodies are not taken for calls
    order = visited(again)
    steps = [name for name, _ in walk]
    assert [name for name in steps if name not in order] == []
    assert steps == sorted(steps, key=order.index)


def test_score_takes_this_walk(tmp_path):
    command = ["score", str(ROOT / "examples" / "arithmetic.jsonl"), "--out"]
    check(SCORE, [*command, str(tmp_path / "a")], [*command, str(tmp_path / "b")])


def test_run_takes_this_walk(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    # estimates while a run goes grade some cases earlier, if the machine is slow
    monkeypatch.setattr("kofn.generate.interim_estimates.InterimGrader.of", lambda _: None)
    command = ["run", "starter", "--limit", "2", "--repeats", "2", "--model", "fake:tests.repository.walks:answer"]
    check(RUN, [*command, "--out", str(tmp_path / "a")], [*command, "--out", str(tmp_path / "b")])


def test_score_passes_through_few_modules(tmp_path):
    """Whoever follows `kofn score --out` opens every module that it calls: the number may fall, and may not grow."""
    command = ["score", str(ROOT / "examples" / "arithmetic.jsonl"), "--out"]
    visited([*command, str(tmp_path / "a")])  # imports everything
    called = {f"kofn.{name}" for name in visited([*command, str(tmp_path / "b")])}
    assert len(called & modules().keys()) < MOST_MODULES
