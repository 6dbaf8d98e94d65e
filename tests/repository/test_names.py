"""Names are nouns of the field, and each means one thing."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from tests.repository.source_tree import SRC, modules, tree_of

if TYPE_CHECKING:
    from pathlib import Path

ROOT = SRC.parents[1]

# a file name may be used again only where it plays the same role
SAME_ROLE = {
    "__init__": "a package",
    "__main__": "python -m",
    "base": "what every member of the package is",
    "load": "files -> objects",
    "lm_eval": "lm-evaluation-harness: its logs, and kofn inside it",
    "inspect_log": "Inspect logs: read and written",
}
OLD_FILES = {
    *("go", "now", "told", "asking", "shown", "looks", "given", "opened", "later", "browsed", "followed", "wanted"),
    *(
        "pulse",
        "sofar",
        "shelf",
        "islands",
        "standing",
        "narrowing",
        "apart",
        "own",
        "warm",
        "facts",
        "contests",
        "past",
    ),
}
MOST_AT_THE_ROOT = 10


def test_few_modules_stand_at_the_root():
    assert len(list(SRC.glob("*.py"))) <= MOST_AT_THE_ROOT


def test_every_package_says_what_it_holds():
    for name, path in modules().items():
        if path.name == "__init__.py":
            assert ast.get_docstring(tree_of(name)), f"{name} has no docstring"


def test_a_file_name_is_used_once_or_for_one_role():
    found = defaultdict(list)
    for path in modules().values():
        found[path.stem].append(str(path.relative_to(SRC)))
    again = {name: paths for name, paths in found.items() if len(paths) > 1 and name not in SAME_ROLE}
    assert again == {}


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_no_file_has_a_name_of_the_old_dialect(folder):
    names = {p.stem.removeprefix("test_").partition(".")[0] for p in (ROOT / folder).rglob("*.*") if p.is_file()}
    assert names & OLD_FILES == set()


def test_no_two_classes_share_a_name():
    found = defaultdict(list)
    for name in modules():
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def names_in(path: Path) -> set[str]:
    """The identifiers of a file: not its strings, not its comments."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_told_is_no_name(folder):
    """It named warnings, notes, summaries, entries and messages, and so said nothing. Names of tests are sentences."""
    files = [p for p in (ROOT / folder).rglob("*.py") if "corpus" not in p.parts]
    assert [
        str(p.relative_to(ROOT))
        for p in files
        if any("told" in n.split("_") for n in names_in(p) if not n.startswith("test_"))
    ] == []
