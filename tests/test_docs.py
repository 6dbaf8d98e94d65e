"""Documentation runs: every command and snippet in README and docs/ is executed, and shows what it says.

In a ```console block a line `$ command` runs in the project's folder and the lines below it must be what it prints;
`...` stands for anything. A ```python block runs in one namespace a file. Other blocks are not executed.
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


def blocks(page: Path, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == kind]


def commands() -> list[tuple[Path, str, str]]:
    out = []
    for page in PAGES:
        for body in blocks(page, "console"):
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                out.append((page, command, shown))
    return out


@pytest.mark.parametrize(
    ("page", "command", "shown"), commands(), ids=lambda x: x if isinstance(x, str) and "\n" not in x else ""
)
def test_a_command_prints_what_the_page_shows(page, command, shown, tmp_path):
    if command.startswith(SETUP):
        target = command.split()[1]
        if command.startswith("make "):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no make target {target}"
        return
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S602 - the commands are our own documentation
        command,
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode in (0, 2), printed
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert not shown.strip() or checker.check_output(shown, printed, flags), printed


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
