"""Which sandbox this machine uses: register a further driver, from a file of its own, in `find_sandbox`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kofn.errors import InputError
from kofn.sandbox.base import Sandbox, cached_which, prlimit_words
from kofn.sandbox.bubblewrap import INSTALL_COMMAND, Bubblewrap, missing_programs, probe
from kofn.sandbox.process import Launch
from kofn.sandbox.workspace import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kofn.sandbox.base import WorkerDirectories
    from kofn.sandbox.process import ProgramLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOnly(Sandbox):
    """No sandbox: limits, a clean environment and a home that is emptied before every program.

    Its scratch folders are not counted: /tmp and /dev/shm are those of the machine.
    """

    name: ClassVar[str] = "none"
    isolated: ClassVar[bool] = False

    search: tuple[str, ...] = field(default_factory=lambda: tuple(os.get_exec_path()))  # where the user's own are found

    def launch(
        self, argv: Sequence[str], directories: WorkerDirectories, limits: ProgramLimits, env: Mapping[str, str]
    ) -> Launch:
        remove_tree(directories.home)
        directories.home.mkdir(mode=0o700)
        home = str(directories.home)
        privileges = ["setpriv", "--pdeathsig", "KILL", "--no-new-privs", "--"] if cached_which("setpriv") else []
        command = [*privileges, *prlimit_words(limits), *self.resolve_python(argv)]
        return Launch(command, self.clean_environment(home, home, env), cwd=directories.work)


_QUERY = """
import site, sys
print(sys.executable, sys.prefix, sys.base_prefix, " ".join(sys.version.split()), *site.getsitepackages(), sep="\\n")
"""


@cache
def find_interpreter(python: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str]:
    """The path of a Python, the folders it needs (its base's too), its packages' and its version."""
    path = shutil.which(python)
    if path is None:
        raise InputError(f"{python}: no such Python interpreter")
    try:
        done = subprocess.run([path, "-I", "-c", _QUERY], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - asked for
    except (OSError, subprocess.SubprocessError) as problem:
        raise InputError(f"{python}: not a Python interpreter: {problem}") from None
    executable, prefix, base, release, *packages = done.stdout.splitlines()
    return executable, tuple(dict.fromkeys([prefix, base])), tuple(packages), release


def find_sandbox(*, unsafe: bool = False, python: str | None = None, show: Iterable[str] = ()) -> Sandbox:
    """The sandbox of this machine, probed once; refused where there is none, unless `unsafe` is set.

    `python` is the interpreter that programs get, `show` further paths that they may read.
    """
    # the base of a virtual environment: kofn's own packages are not for the programs
    path, folders, packages, release = find_interpreter(python or getattr(sys, "_base_executable", sys.executable))
    if unsafe:
        return LimitsOnly(python=path, packages=packages, release=release)
    if missing := missing_programs():
        raise InputError(
            f"programs are run in a sandbox, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            f"here: {INSTALL_COMMAND} (Linux), or --unsafe to run them with nothing but limits"
        )
    paths = [*folders, *(str(Path(one).expanduser().resolve()) for one in show)]
    for shown in paths:
        if not Path(shown).exists():
            raise InputError(f"{shown}: not there: it was to be shown to the programs")
    # those that /usr does not hold already, outer ones first
    readable = tuple(p for p in dict.fromkeys(sorted(paths)) if p != "/usr" and not p.startswith("/usr/"))
    bwrap = shutil.which("bwrap") or "bwrap"
    sandbox = Bubblewrap(bwrap=bwrap, python=path, packages=packages, release=release, readable=readable)
    if (problem := probe(sandbox)) is not None:
        raise InputError(
            f"bubblewrap cannot make a sandbox here: {problem}; allow user namespaces (in a container: "
            "--security-opt seccomp=unconfined --cap-add SYS_ADMIN), or --unsafe to run with nothing but limits"
        )
    return sandbox
