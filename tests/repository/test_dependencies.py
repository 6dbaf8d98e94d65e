"""docs/dependencies.md names what pyproject.toml and constraints.txt name, at the versions they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def table() -> dict[str, list[str]]:
    lines = (ROOT / "docs" / "dependencies.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row for row in rows if row[0] != "package"}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonical(name): version for name, sign, version in (line.partition("==") for line in lines) if sign}


def test_every_pinned_package_is_there_at_its_version():
    assert {name: row[1] for name, row in table().items() if row[1] != "not pinned"} == pins()


def test_every_package_that_pyproject_names_is_there_under_its_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"base": project["dependencies"], **project["optional-dependencies"]}
    for group, required in named.items():
        for one in required:
            name = canonical(re.split(r"[<>=\[;~! ]", one)[0])
            if name != "kofn":
                assert f"**{group}**" in table()[name][2], (group, name)


def test_every_group_of_the_table_is_one_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {"base", "Makefile", *project["optional-dependencies"]}
    for name, row in table().items():
        assert {group.strip("* ") for group in row[2].split(",")} <= known, name


def test_every_package_of_a_plain_install_is_pinned_and_names_its_licence():
    for name, row in table().items():
        if row[2].strip("*").startswith("base"):
            assert row[1] != "not pinned", name
            assert row[3] not in ("not named", "not installed here"), name
