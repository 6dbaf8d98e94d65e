"""The kinds of tests: each is registered, used, and depends on what is there."""

from __future__ import annotations

import tomllib

from tests import suites
from tests.shared import ROOT

SUITES = {**suites.KINDS, **suites.LONG}


def test_every_suite_is_a_registered_marker_and_has_tests():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    registered = {marker.partition(":")[0] for marker in options["markers"]}
    assert {*SUITES, suites.LARGE, "fuzz"} == registered
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in SUITES if f"pytest.mark.{name}" not in tests] == []


def test_what_a_suite_depends_on_is_there():
    for name, suite in SUITES.items():
        assert [path for path in suite.paths if not (ROOT / path).exists()] == [], name
        assert [one for one in suite.packages if not (ROOT / "src" / "kofn" / one).is_dir()] == [], name


def test_nobody_knows_what_changed_without_a_commit_to_compare_with(monkeypatch):
    monkeypatch.setattr(suites, "_git", lambda *_: None)
    assert suites.changed_since() is None
    assert suites.changed_since("v1") is None


def test_paths_since_a_commit_are_those_that_git_says(monkeypatch):
    said = {"merge-base": "old", "rev-parse": None, "diff": "docs/faq.md\nsrc/kofn/viewer/server.py"}
    monkeypatch.setattr(suites, "_git", lambda verb, *rest: said[verb] or rest[-1])
    assert suites.changed_since() == ["docs/faq.md", "src/kofn/viewer/server.py"]
    assert "browser" in suites.concerned(suites.changed_since())
