"""Which tests run when: the kinds that `make test` leaves to `make test-all`, and what each of them depends on.

    python tests/suites.py quick            the expression for pytest -m of `make test`
    python tests/suites.py all              the one of `make test-all`
    python tests/suites.py changed [BASE]   the one of the suites whose sources changed since BASE, for .ci/run

A test is of a kind by its marker, `@pytest.mark.commands`; with `(quick=3)` its first three parameters stay in
`make test`, as the kind's representatives. tests/conftest.py marks all others of a kind as `large`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LARGE = "large"
QUICK = f"not {LARGE} and not slow and not faults and not fuzz"
ALL = "not fuzz"


class Suite(NamedTuple):
    """What a suite exercises, and how many minutes it takes on two quiet cores."""

    packages: tuple[str, ...]  # of kofn; what these import counts as well
    paths: tuple[str, ...]  # whatever else it reads
    minutes: float


ANYWHERE = ("cli", "viewer", "integrations")  # what these import is all of kofn
KINDS = {
    "docs": Suite(ANYWHERE, ("README.md", "docs", "examples"), 2.5),
    "browser": Suite(("viewer", "render"), ("tests/viewer", "tests/render"), 2.5),
    "model": Suite(("generate", "judge"), ("tests/models", "tests/embedded.py", "tests/tiny.py"), 0.7),
    "peers": Suite(("integrations", "exporters"), ("benchmarks/peers.txt", "tests/integrations"), 0.7),
    "cluster": Suite(("problems",), ("tests/parallel",), 0.5),
    "kills": Suite(("cli",), ("tests/faults", "tests/loopback.py"), 1.0),
    "programs": Suite(("problems",), ("examples/problems", "tests/problems", "tests/sandbox"), 0.5),
    "commands": Suite(("cli",), ("examples", "tests/cli"), 1.0),
    "long": Suite(ANYWHERE, ("benchmarks",), 1.5),
}
# suites of minutes, last: CI runs them where they fit in its time
LONG = {
    "faults": Suite(("cli",), ("tests/faults",), 9.0),
    "slow": Suite(ANYWHERE, ("benchmarks", "docs"), 9.0),
}
FIXTURES = {"browser": ("browser", "visit")}  # a test that asks for one of these is of the kind without a marker
EVERYTHING = ("Makefile", "pyproject.toml", "constraints.txt", ".ci", "tests/conftest.py", "tests/suites.py")
MINUTES = 12.0  # what is left of the 25 of CI after its environments, lint and `make test`


def changed_since(base: str | None = None) -> list[str] | None:
    """Paths that differ from `base`, else from KOFN_BASE, else from where it left origin/main; None: none is known."""
    for name in (base, os.environ.get("KOFN_BASE"), _git("merge-base", "HEAD", "origin/main")):
        if name and _git("rev-parse", f"{name}^{{commit}}") not in (None, _git("rev-parse", "HEAD")):
            found = _git("diff", "--name-only", name, "HEAD")
            return None if found is None else found.splitlines()
    return None


def concerned(paths: list[str] | None) -> list[str]:
    """The suites whose sources are among these paths; all of them where nobody knows.

    >>> concerned(["docs/faq.md"])
    ['docs', 'slow']
    >>> viewer, sandbox = concerned(["src/kofn/viewer/server.py"]), concerned(["src/kofn/sandbox/limits.py"])
    >>> "browser" in viewer, "programs" in viewer, "programs" in sandbox, "model" in sandbox
    (True, False, True, False)
    >>> concerned(None) == concerned(["Makefile"]) == [*KINDS, *LONG]
    True
    """
    suites = {**KINDS, **LONG}
    if paths is None or any(_within(path, EVERYTHING) for path in paths):
        return list(suites)
    return [name for name, suite in suites.items() if any(_within(path, sources(name, suite)) for path in paths)]


def sources(name: str, suite: Suite) -> list[str]:
    """Folders and files that a suite depends on: what it exercises with all that is imported there, and its tests."""
    signs = "|".join([rf"pytest\.mark\.{name}\b", *(rf"def test_.*[(, ]{one}[,)]" for one in FIXTURES.get(name, ()))])
    tests = [path for path in ROOT.joinpath("tests").rglob("test_*.py") if re.search(signs, path.read_text())]
    packages = [f"src/kofn/{one}" for one in _imported(suite.packages)]
    return [*suite.paths, *packages, *(f"{one}.py" for one in packages), *(str(p.relative_to(ROOT)) for p in tests)]


def fitting(names: list[str], minutes: float = MINUTES) -> list[str]:
    """The first of these that fit in so many minutes together, and later ones where there is room.

    >>> fitting(["browser", "faults", "docs"], 6.0)
    ['browser', 'docs']
    """
    suites, found = {**KINDS, **LONG}, []
    for name in names:
        if suites[name].minutes <= minutes:
            found.append(name)
            minutes -= suites[name].minutes
    return found


def expression(names: list[str]) -> str:
    """What pytest's -m selects these suites by, without what `make test` ran already.

    >>> expression(["docs", "faults"])
    '(docs and large and not slow and not faults and not fuzz) or faults'
    """
    kinds = [f"({name} and {LARGE} and not slow and not faults and not fuzz)" for name in names if name in KINDS]
    return " or ".join([*kinds, *(name for name in names if name in LONG)])


def _imported(packages: tuple[str, ...]) -> set[str]:
    """These packages of kofn and all that they import, directly or not."""
    sys.path.insert(0, str(ROOT))  # this file is also run as a script
    from tests.repository.source_tree import imports_of, modules, package_of

    found, left = set(), list(packages)
    while left:
        if (package := left.pop()) not in found:
            found.add(package)
            own = [name for name in modules() if name != "kofn" and package_of(name) == package]
            left += [package_of(one.target) for name in own for one in imports_of(name) if one.target != "kofn"]
    return found


def _within(path: str, folders: object) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def main(words: list[str]) -> str:
    if words[:1] != ["changed"]:
        return {"quick": QUICK, "all": ALL}[words[0]]
    names = concerned(changed_since(*words[1:]))
    chosen = fitting(names)
    for left_out in [name for name in names if name not in chosen]:
        print(f"not run, for want of time: {left_out}", file=sys.stderr)  # noqa: T201 - said to who reads CI's log
    return expression(chosen)


if __name__ == "__main__":
    print(main(sys.argv[1:]))  # noqa: T201
