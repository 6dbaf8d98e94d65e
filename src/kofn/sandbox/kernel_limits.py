"""Limits that the kernel enforces on every process of a program: as words of `prlimit`, and for `setrlimit`."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

from kofn.sandbox.directories import is_root

if TYPE_CHECKING:
    from kofn.sandbox.program import ProgramLimits

_MAX_OPEN_FILES = 512


def prlimit_words(limits: ProgramLimits) -> list[str]:
    """The command that sets the limits and then runs what follows; nothing where there is no `prlimit`."""
    if cached_which("prlimit") is None:
        return []
    limited = rlimits(limits)
    options = {"cpu": "CPU", "data": "DATA", "fsize": "FSIZE", "core": "CORE", "nofile": "NOFILE", "nproc": "NPROC"}
    return ["prlimit", *(f"--{option}={_as_word(*limited[name])}" for option, name in options.items()), "--"]


def _as_word(soft: int, hard: int) -> str:
    return str(soft) if soft == hard else f"{soft}:{hard}"


def rlimits(limits: ProgramLimits) -> dict[str, tuple[int, int]]:
    """The soft and the hard limit of each resource, by the name that follows RLIMIT_."""
    seconds = ceil(limits.seconds) + 1
    same = {
        "DATA": limits.memory,  # private memory; RLIMIT_AS would count what a runtime reserves and never uses
        "FSIZE": limits.file_size,
        "CORE": 0,
        "NOFILE": _MAX_OPEN_FILES,
        "NPROC": limits.processes + _uncounted_processes(),
    }
    # one second between the two: at the soft limit the kernel sends SIGXCPU, which a program may catch; then SIGKILL
    return {"CPU": (seconds, seconds + 1), **{name: (value, value) for name, value in same.items()}}


@cache
def cached_which(program: str) -> str | None:
    """`shutil.which`, looked up once."""
    return shutil.which(program)


@cache
def _uncounted_processes() -> int:
    """How many processes of this user the kernel counts beside the program's own.

    As root a worker has a user of its own. Since Linux 5.14 a user namespace counts by itself. Before, and without a
    namespace, all of the user's processes count.
    """
    if is_root():
        return 0
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    if sys.platform == "linux" and release >= (5, 14):
        return 0
    user = os.geteuid()
    return sum(1 for entry in os.scandir("/proc") if entry.name.isdigit() and entry.stat().st_uid == user)
