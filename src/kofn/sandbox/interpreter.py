"""The Python interpreter that programs in a sandbox get: its folders, packages and version, as it reports them."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import NamedTuple

from kofn.errors import InputError

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
