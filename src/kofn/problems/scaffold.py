"""Creates a new problem: small, commented, and passed by the submission that comes with it."""

from __future__ import annotations

import re
from pathlib import Path

from kofn.errors import InputError, UnknownName

ADAPTERS = ("cli", "api")
_TEMPLATES = Path(__file__).with_name("templates")
_NAME = "__NAME__"
_TEXT = ".txt"  # Python of a template has it behind .py, so that nothing takes it for a module of kofn


def new_problem(folder: Path, *, adapter: str = "cli") -> list[Path]:
    """Write a problem, named as its folder, and return its files. A folder that is there is refused, empty or not."""
    if adapter not in ADAPTERS:
        raise UnknownName("adapter", adapter, list(ADAPTERS))
    name = folder.resolve().name
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(f"{name!r} cannot name a problem: expected letters, digits, _, - and .")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{folder}: is there already: give a name that is free") from None
    source = _TEMPLATES / adapter
    return [_written(path, folder / path.relative_to(source), name) for path in sorted(_files(source))]


def _files(source: Path) -> list[Path]:
    return [path for path in source.rglob("*") if path.is_file()]


def _written(template: Path, path: Path, name: str) -> Path:
    target = path.with_suffix("") if path.name.endswith(f".py{_TEXT}") else path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(template.read_text(encoding="utf-8").replace(_NAME, name), encoding="utf-8")
    return target
