"""CONTRIBUTING.md leads to files and symbols that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
CHANGES = [line for line in TEXT.split("\n") if line.startswith("| a")]
NAME = re.compile(r"`([A-Za-z_]\w+)`")


def linked(text: str) -> list[Path]:
    return [ROOT / target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]


def symbols(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    return names | {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}


def test_ten_changes_have_their_row():
    topics = ("aggregator", "extractor", "backend", "importer", "reports.parquet", "run.json", "sandbox driver")
    for topic in (*topics, "page of the viewer", "a task", "a statistic"):
        assert any(topic in line.split("|")[1] for line in CHANGES), topic


@pytest.mark.parametrize("target", sorted(set(linked(TEXT))), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_linked_file_is_there(target):
    assert target.exists()


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: row.split("|")[1].strip())
def test_the_symbols_of_a_row_are_in_the_files_it_links(row):
    files = [path for path in linked(row) if path.suffix == ".py"]
    assert files
    there = set().union(*map(symbols, files))
    wanted = {name for name in NAME.findall(row) if name[:1].isupper() or "_" in name}
    assert wanted
    assert wanted <= there


def test_its_make_targets_are_there():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)`", TEXT):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_is_short():
    text = re.sub(r"^```.*?^```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(text.split()) <= 1000
