"""What the site needs beside its pages: two files of the top folder as pages, and docstrings as Markdown.

mkdocs calls `on_files`; griffe, which reads the docstrings, calls `Docstrings`.
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
FROM_ABOVE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}  # page -> file of the top folder
COMING = {  # in the nav, and not written yet; an entry goes when its page is there
    "dependencies.md",
    "faults.md",
    "security.md",
    "stories/actor-critic.md",
    "stories/index.md",
    "stories/programs.md",
    "stories/retrieval.md",
    "stories/self-consistency.md",
    "stories/support-message.md",
}
_DOCTEST = re.compile(r"(?:^>>> .*\n(?:^(?!>>>).+\n)*)+", re.MULTILINE)
_COLUMNS = re.compile(r"(?:^[\w@^*]+(?:, [\w@^*]+)*  +\S.*\n(?:^  +\S.*\n)*){2,}", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the files of the top folder, their links to docs/ made links between pages."""
    from mkdocs.structure.files import File

    for page, source in FROM_ABOVE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text().replace("](docs/", "](")))
    for page in sorted(COMING):
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content="# Not written yet\n"))
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
