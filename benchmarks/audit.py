"""What installing kofn brings along: every package of the base and of each extra, its version, licence and kind.

    python benchmarks/audit.py [--no-database]      # `make audit`; writes docs/dependencies.md

What depends on what is read from the packages themselves, where `make` has installed them (.venv and its like).
Known vulnerabilities come from pip-audit, where its database can be reached; where it cannot, the page says so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from importlib.metadata import Distribution

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
LONGEST = 40


class Audit(NamedTuple):
    """What pip-audit said: package -> ids of what is known against its pinned version, or why nothing is known."""

    found: dict[str, list[str]]
    said: str


def main() -> None:
    """Gather, ask, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-database", action="store_true", help="do not ask for known vulnerabilities")
    parser.add_argument("--environments", nargs="*", type=Path, default=sorted(ROOT.glob(".venv*")))
    options = parser.parse_args()
    installed = packages_in(options.environments)
    used = {group: closure(wanted, installed) for group, wanted in groups().items()}
    audit = Audit({}, "not asked") if options.no_database else vulnerabilities()
    PAGE.write_text(page(installed, used, audit))
    print(f"{PAGE.relative_to(ROOT)}: {len(pins())} pinned packages; known vulnerabilities: {audit.said}")
    sys.exit(1 if audit.found else 0)


def pins() -> dict[str, str]:
    """Package -> version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [line.partition("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name.strip()): version.strip() for name, _, version in found}


def groups() -> dict[str, list[Requirement]]:
    """`base` and every extra -> what pyproject.toml names for it; extras of kofn's own within an extra are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"base": project["dependencies"], **project["optional-dependencies"]}
    parsed = {group: [Requirement(one) for one in wanted] for group, wanted in named.items()}
    return {group: [one for one in wanted if one.name != "kofn"] for group, wanted in parsed.items() if group != "all"}


def packages_in(environments: list[Path]) -> dict[str, Distribution]:
    """Every package of some environments, by name; the first environment that has it counts."""
    found: dict[str, Distribution] = {}
    for place in environments:
        for folder in sorted(place.glob("lib/python3*/site-packages")):
            for one in distributions(path=[str(folder)]):
                found.setdefault(canonicalize_name(one.metadata["Name"]), one)
    return found


def closure(wanted: list[Requirement], installed: dict[str, Distribution]) -> dict[str, bool]:
    """Package -> whether it is named by pyproject.toml itself; all others come with these."""
    found = {canonicalize_name(one.name): True for one in wanted}
    left = list(wanted)
    while left:
        one = left.pop()
        package = installed.get(canonicalize_name(one.name))
        for text in (package.requires if package else None) or []:
            needed = Requirement(text)
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in one.extras or {""}):
                continue
            name = canonicalize_name(needed.name)
            if name not in found:
                found[name] = False
                left.append(needed)
    return found


def licence(package: Distribution) -> str:
    """The licence that a package names: its expression, else its classifiers, else the first line of its field."""
    about = package.metadata
    if about.get("License-Expression"):
        return about["License-Expression"]
    prefix = "License :: "
    classed = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or [] if c.startswith(prefix)]
    classed = [c for c in classed if c != "OSI Approved"]
    first = (about.get("License") or "").strip().partition("\n")[0]
    return ", ".join(classed) or first[:LONGEST] or "not named"


def kind(package: Distribution) -> str:
    """pure: Python alone; compiled: with machine code."""
    wheel = package.read_text("WHEEL") or ""
    tags = re.findall(r"^Tag: (\S+)", wheel, re.MULTILINE)
    if not tags:
        return "unknown"
    return "pure" if all(tag.endswith("-any") for tag in tags) else "compiled"


def vulnerabilities() -> Audit:
    """What is known against the pinned versions. The database is on the network, and may not be reached."""
    program = Path(sys.executable).with_name("pip-audit")
    if not program.exists():
        return Audit({}, "pip-audit is not installed")
    command = [str(program), "--requirement", str(ROOT / "constraints.txt"), "--no-deps", "--disable-pip"]
    try:
        done = subprocess.run(
            [*command, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        report = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Audit({}, "not known: the database did not answer within 300 s")
    except json.JSONDecodeError:
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return Audit({}, f"not known: the database cannot be reached ({without_hosts(why)})")
    listed = report["dependencies"]
    found = {canonicalize_name(one["name"]): [v["id"] for v in one["vulns"]] for one in listed if one.get("vulns")}
    skipped = [one["name"] for one in listed if "skip_reason" in one]
    if len(skipped) == len(listed):
        return Audit(
            {}, f"not known: the database cannot be reached from here ({len(skipped)} of {len(listed)} skipped)"
        )
    left = f"; not looked at: {', '.join(skipped)}" if skipped else ""
    return Audit(found, f"{sum(map(len, found.values()))} in {len(listed) - len(skipped)} packages{left}")


def without_hosts(text: str) -> str:
    """The kind of a failure, without addresses."""
    return re.sub(r"\S*(?:://|host=)\S*|\([^)]*\)|'[^']*'", "", text).strip(" :,")[:80].strip() or "no answer"


def page(installed: dict[str, Distribution], used: dict[str, dict[str, bool]], audit: Audit) -> str:
    """The page, a row a package."""
    pinned = pins()
    users: defaultdict[str, list[str]] = defaultdict(list)
    for group, names in used.items():
        for name, direct in names.items():
            users[name].append(f"**{group}**" if direct else group)
    rows = []
    for name in sorted({*users, *pinned}):
        package = installed.get(name)
        cells = [
            name,
            pinned.get(name, "not pinned"),
            shown_groups(users[name]),
            licence(package) if package else "not installed here",
            kind(package) if package else "-",
            ", ".join(audit.found.get(name, [])) or "-",
        ]
        rows.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    python = ".".join(map(str, sys.version_info[:3]))
    more = ", ".join(f"{g} {len(names.keys() - used['base'].keys())}" for g, names in used.items() if g != "base")
    return "\n".join(
        [
            "# Dependencies",
            "",
            "Written by `make audit` (benchmarks/audit.py). A group in bold names the package in pyproject.toml; in",
            "plain text the package is a dependency of another one. Versions are those of constraints.txt, which all",
            "tests use; an installation without it gets versions within the ranges in pyproject.toml.",
            "",
            f"Made on {datetime.now(UTC):%Y-%m-%d} with Python {python} on {sys.platform}.",
            f"Known vulnerabilities (pip-audit, of the pinned versions): {audit.said}.",
            "",
            f"Packages in a plain installation: {len(used['base'])}. Additional packages per extra: {more}.",
            "",
            "| package | pinned | needed by | licence | kind | known vulnerabilities |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def shown_groups(groups: list[str]) -> str:
    """The groups that need a package; the base is in every one of them."""
    if "**base**" in groups or "base" in groups:
        named = [group for group in groups if group.startswith("**") and group != "**base**"]
        return ", ".join(["**base**" if "**base**" in groups else "base", *named])
    return ", ".join(groups) or "Makefile"


if __name__ == "__main__":
    main()
