"""Which sandbox this machine uses: bubblewrap, or with `--unsafe` limits alone. A further driver is added here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kofn.errors import InputError
from kofn.sandbox.bubblewrap import INSTALL_COMMAND, Bubblewrap, missing_programs, probe
from kofn.sandbox.limits_only import LimitsOnly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kofn.sandbox.base import Sandbox

_QUERY = """
import site, sys
print(sys.executable, sys.prefix, sys.base_prefix, " ".join(sys.version.split()), *site.getsitepackages(), sep="\\n")
"""


class Interpreter(NamedTuple):
    """A Python, the folders it needs (its own, and its base's in a virtual environment), and its packages'."""

    path: str
    folders: tuple[str, ...]
    packages: tuple[str, ...]
    release: str


@cache
def find_interpreter(python: str) -> Interpreter:
    """The interpreter of a name or path."""
    path = shutil.which(python)
    if path is None:
        raise InputError(f"{python}: no such Python interpreter")
    try:
        done = subprocess.run([path, "-I", "-c", _QUERY], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - asked for
    except (OSError, subprocess.SubprocessError) as problem:
        raise InputError(f"{python}: not a Python interpreter: {problem}") from None
    executable, prefix, base, release, *packages = done.stdout.splitlines()
    return Interpreter(executable, tuple(dict.fromkeys([prefix, base])), tuple(packages), release)


def find_sandbox(*, unsafe: bool = False, python: str | None = None, show: Iterable[str] = ()) -> Sandbox:
    """The sandbox of this machine, probed once; refused where there is none, unless `unsafe` is set.

    `python` is the interpreter that programs get, `show` further paths that they may read.
    """
    # the base of a virtual environment: kofn's own packages are not for the programs
    found = find_interpreter(python or getattr(sys, "_base_executable", sys.executable))
    if unsafe:
        return LimitsOnly(python=found.path, packages=found.packages, release=found.release)
    missing = missing_programs()
    if missing:
        raise InputError(
            f"programs are run in a sandbox, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            f"here: {INSTALL_COMMAND} (Linux), or --unsafe to run them with nothing but limits"
        )
    paths = [*found.folders, *(str(Path(path).expanduser().resolve()) for path in show)]
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"{path}: not there: it was to be shown to the programs")
    sandbox = Bubblewrap(
        bwrap=shutil.which("bwrap") or "bwrap",
        python=found.path,
        packages=found.packages,
        release=found.release,
        # those that /usr does not hold already, outer ones first
        readable=tuple(p for p in dict.fromkeys(sorted(paths)) if p != "/usr" and not p.startswith("/usr/")),
    )
    problem = probe(sandbox)
    if problem is not None:
        raise InputError(
            f"bubblewrap cannot make a sandbox here: {problem}; allow user namespaces (in a container: "
            "--security-opt seccomp=unconfined --cap-add SYS_ADMIN), or --unsafe to run with nothing but limits"
        )
    return sandbox
