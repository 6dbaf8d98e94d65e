"""Documentation runs: every command and snippet in README and docs/ is executed, and shows what it says.

In a ```console block a line `$ command` runs in a folder with the examples, one folder a page, and the lines below it
must be what it prints; `...` stands for anything. A ```python block runs in one namespace a file. Other blocks are not
executed.

Commands that need the embedded model get stored replies (tests/docs_replies); `make test-all` runs them with the model
itself too. After a change of such a command, or of a prompt: KOFN_DOCS=record pytest tests/repository/test_docs.py
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

ROOT = Path(__file__).parents[2]
REPLIES = ROOT / "tests" / "docs_replies"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SETUP = ("make ", "git ", "pip ")
TRAINS = {"docs/stories/actor-critic.md"}  # a page that trains a model takes more than a minute: for the slow suite
# pages of many seconds: for the suite `docs`
LONG = {
    *("docs/calibrate.md", "docs/check.md", "docs/compare.md", "docs/curve.md", "docs/import.md", "docs/migration.md"),
    *("docs/inspect.md", "docs/lm_eval.md", "docs/looking-around.md", "docs/models.md", "docs/plan.md"),
    *("docs/pytest.md", "docs/run.md", "docs/view.md"),
    *("docs/overview.md", "docs/problems.md", "docs/report.md", "docs/rescore.md", "docs/scale.md"),
    *("docs/stories/programs.md", "docs/stories/retrieval.md", "docs/stories/self-consistency.md"),
    *("docs/stories/support-message.md", "docs/trend.md"),
}


def blocks(page: Path, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == kind]


def commands(page: Path) -> list[tuple[str, str]]:
    """(command, what the page shows) in order."""
    parts = [p for body in blocks(page, "console") for p in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def replies_of(page: Path) -> Path:
    """The file of stored replies of a page; there is one for each page whose commands ask the embedded model."""
    return REPLIES / f"{name_of(page).removeprefix('docs/').removesuffix('.md').replace('/', '-')}.jsonl"


def page_param(page: Path) -> object:
    name = name_of(page)
    return pytest.param(
        page, id=name, marks=[pytest.mark.slow] * (name in TRAINS) + [pytest.mark.docs] * (name in LONG)
    )


@pytest.mark.parametrize("page", [page_param(page) for page in PAGES if commands(page)])
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    """They run one after the other in one folder, so that a page can make a run and look at it."""
    if name_of(page) in TRAINS:
        run_commands(page, tmp_path)
        return
    env = {"PYTHONPATH": f"{REPLIES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    if os.environ.get("KOFN_DOCS") == "record":
        recorded = tmp_path / "recorded.jsonl"
        run_commands(page, tmp_path, **env, KOFN_REPLIES_RECORD=str(recorded))
        replies_of(page).unlink(missing_ok=True)
        if recorded.exists():
            shutil.copyfile(recorded, replies_of(page))
        return
    run_commands(page, tmp_path, **env, KOFN_REPLIES_MISSING=str(tmp_path / "missing.txt"))


@pytest.mark.docs
@pytest.mark.parametrize("page", [page for page in PAGES if replies_of(page).exists()], ids=name_of)
def test_the_commands_of_a_page_print_what_it_shows_with_the_model_itself(page, tmp_path):
    run_commands(page, tmp_path)


def run_commands(page: Path, folder: Path, **more: str) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {k: v for k, v in os.environ.items() if k != "GITHUB_STEP_SUMMARY"} | {"PATH": path} | more
    missing = Path(more.get("KOFN_REPLIES_MISSING", folder / "missing.txt"))
    for command, expected in commands(page):
        if command.startswith(SETUP):
            _check_set_up(command)
            continue
        done = subprocess.run(  # noqa: S602 - the commands are our own documentation
            command, shell=True, cwd=folder, capture_output=True, text=True, env=env, check=False
        )
        printed = done.stdout + done.stderr
        record = f"KOFN_DOCS=record {Path(sys.executable).name} -m pytest tests/repository/test_docs.py -k {page.name}"
        assert not missing.exists(), f"$ {command}\nasks the model for what is not stored; to record it: {record}"
        assert done.returncode in (0, 1, 2), f"$ {command}\n{printed}"
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        matches = not expected.strip() or doctest.OutputChecker().check_output(expected, printed, flags)
        assert matches, f"$ {command}\n{printed}"


def test_the_lists_of_pages_name_pages_that_are_there():
    """A page that is gone leaves no entry and no stored replies behind."""
    assert {*TRAINS, *LONG} <= {name_of(page) for page in PAGES if commands(page)}
    assert {*REPLIES.glob("*.jsonl")} <= {replies_of(page) for page in PAGES}


def _check_set_up(command: str) -> None:
    """Set-up is not run again inside the tests; what it names must be there."""
    if command.startswith("make "):
        target = command.split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no make target {target}"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name_of)
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


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The headings of a page that a link can name, in the form that mkdocs and GitHub use."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_links_to_a_heading_lead_to_one():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
            there = page.parent / target if target else page
            assert anchor in anchors(there), f"{name_of(page)} links to {target}#{anchor}"
