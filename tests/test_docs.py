"""Documentation runs: every command and snippet in README and docs/ is executed, and shows what it says.

In a ```console block a line `$ command` runs in a folder with the examples, one folder a page, and the lines below it
must be what it prints; `...` stands for anything. A ```python block runs in one namespace a file. Other blocks are not
executed.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SETUP = ("make ", "git ", "pip ")
TRAINS = {"actor-critic.md"}  # a page that trains a model takes more than a minute: for the slow suite


def blocks(page: Path, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == kind]


def commands(page: Path) -> list[tuple[str, str]]:
    """(command, what the page shows) in order."""
    parts = [p for body in blocks(page, "console") for p in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def with_commands() -> list[object]:
    marks = {page: pytest.mark.slow if page.name in TRAINS else () for page in PAGES if commands(page)}
    return [pytest.param(page, marks=mark) for page, mark in marks.items()]


@pytest.mark.parametrize("page", with_commands(), ids=lambda p: p.name)
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    """They run one after the other in one folder, so that a page can make a run and look at it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {k: v for k, v in os.environ.items() if k != "GITHUB_STEP_SUMMARY"} | {"PATH": path}
    for command, shown in commands(page):
        if command.startswith(SETUP):
            _check_set_up(command)
            continue
        done = subprocess.run(  # noqa: S602 - the commands are our own documentation
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, env=env, check=False
        )
        printed = done.stdout + done.stderr
        assert done.returncode in (0, 1, 2), f"$ {command}\n{printed}"
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        matches = not shown.strip() or doctest.OutputChecker().check_output(shown, printed, flags)
        assert matches, f"$ {command}\n{printed}"


def _check_set_up(command: str) -> None:
    """Set-up is not run again inside the tests; what it names must be there."""
    if command.startswith("make "):
        target = command.split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no make target {target}"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    source = "\n".join(blocks(page, "python"))
    if ">>>" in source:
        test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        report: list[str] = []
        runner.run(test, out=report.append)
        assert not runner.failures, "".join(report)
    else:
        exec(compile(source, str(page), "exec"), {})  # noqa: S102 - as above


def test_the_tree_in_the_readme_names_every_source_file():
    text = (ROOT / "README.md").read_text()
    tree = text[text.index("src/kofn/") :]
    for path in (ROOT / "src" / "kofn").rglob("*.py"):
        if path.name != "__init__.py":
            assert re.search(rf"\b{re.escape(path.name)}\b", tree), f"{path.name} is not in the README's tree"


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
