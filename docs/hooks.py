"""What the site needs beside its pages: two files of the top folder, a list of decisions, docstrings as Markdown.

mkdocs calls the functions `on_...`; griffe, which reads the docstrings, calls `Docstrings`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from griffe import Extension
except ImportError:  # the environment of the tests, which try `as_markdown` alone
    Extension = object

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FROM_ABOVE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}  # page -> file of the top folder
_DOCTEST = re.compile(r"(?:^>>> .*\n(?:^(?!>>>).+\n)*)+", re.MULTILINE)
_COLUMNS = re.compile(r"(?:^[\w@^*]+(?:, [\w@^*]+)*  +\S.*\n(?:^  +\S.*\n)*){2,}", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Put every decision into the nav."""
    config.nav = expanded(config.nav)
    return config


def expanded(nav: Any) -> Any:
    """The nav with patterns replaced by the pages they match."""
    if isinstance(nav, dict):
        return {title: expanded(part) for title, part in nav.items()}
    return [page for part in nav for page in _pages(part)] if isinstance(nav, list) else nav


def _pages(part: Any) -> list[Any]:
    if isinstance(part, str) and "*" in part:
        return sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob(part))
    return [expanded(part)]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """List the decisions on their first page; a link to a file beside docs/ stays as its text."""
    if page.file.src_uri == "decisions/index.md":
        markdown += "\n| | |\n|---|---|\n" + "".join(map(_row, sorted(DOCS.glob("decisions/0*.md"))))
    return within(markdown, (DOCS / page.file.src_uri).parent)


def _row(decision: Path) -> str:
    title = re.sub(r"^# (?:\d{4} )?", "", decision.read_text().partition("\n")[0])
    return f"| {decision.name[:4]} | [{title}]({decision.name}) |\n"


def within(markdown: str, folder: Path) -> str:
    """Links that leave docs/ lead nowhere on the site, and somewhere in the repository."""

    def kept(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[1] if target.exists() and not target.is_relative_to(DOCS) else link[0]

    return re.sub(r"\[([^\]\n]+)\]\((\.\./[^)#\s]+)[^)]*\)", kept, markdown)


def on_files(files: Any, config: Any) -> Any:
    """Add the files of the top folder, their links to docs/ made links between pages."""
    from mkdocs.structure.files import File

    for page, source in FROM_ABOVE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text().replace("](docs/", "](")))
    return files


class Docstrings(Extension):
    """Every docstring as Markdown, before it is parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Doctests as code blocks, and columns `name   what it is` as a list."""
    text = _COLUMNS.sub(lambda found: _listed(found[0]), docstring.rstrip("\n") + "\n")
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}```\n", text)


def _listed(columns: str) -> str:
    rows = re.sub(r"\n {2,}(?=\S)", " ", columns)
    return re.sub(r"^(\S+(?:, \S+)*)  +", r"- `\1` ", rows, flags=re.MULTILINE)
