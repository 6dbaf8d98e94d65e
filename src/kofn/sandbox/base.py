"""`Sandbox`, and what drivers share: a worker's directories, limits that the kernel enforces, a clean environment.

A driver is a frozen dataclass: it is sent to the workers and is part of the keys of finished cases. `drivers.py` picks
the one that this machine uses.
"""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from kofn._version import __version__
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.sandbox.process import Launch, ProcessResult, ProgramLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox(ABC):
    """Runs programs, one at a time, in the directories of a worker.

    name              of the driver, as reports have it
    isolated          whether programs have file system, processes and network of their own; False: limits are all
    scratch_folders   file systems in memory of `SCRATCH_SIZE` bytes each, whose files are counted
    python            the interpreter that a submission gets for the word `python`
    packages          the folders of that interpreter's packages
    release           the version of that interpreter, as it is reported
    search            the folders in which programs are looked up after the interpreter's own
    readable          further paths that programs may read, where they cannot read everything
    """

    name: ClassVar[str]
    isolated: ClassVar[bool]
    scratch_folders: ClassVar[tuple[str, ...]] = ()

    python: str = sys.executable
    packages: tuple[str, ...] = ()
    release: str = ""
    search: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """Everything of the sandbox that can change a result: part of the key of a finished case."""
        return (__version__, self.name, self.python, self.release, *self.readable)

    @property
    def search_path(self) -> list[str]:
        """The folders in which programs are looked up."""
        return list(dict.fromkeys([os.path.dirname(self.python), *self.search]))  # noqa: PTH120 - in the sandbox

    @abstractmethod
    def launch(
        self, argv: Sequence[str], directories: WorkerDirectories, limits: ProgramLimits, env: Mapping[str, str]
    ) -> Launch:
        """How a program is started in the work folder."""

    def failure(self, result: ProcessResult) -> str | None:  # noqa: ARG002 - for those that can fail
        """Why the sandbox itself failed, where that is what a result means; None: it is the program's own."""
        return None

    def resolve_python(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command as it is run: a first word `python` or `python3` is the interpreter of the sandbox."""
        first, *rest = argv
        return (self.python if first in ("python", "python3") else first, *rest)

    def clean_environment(self, home: str, temporary: str, env: Mapping[str, str]) -> dict[str, str]:
        """An environment with nothing of the user's, and `env`, which the problem asks for."""
        return {
            "PATH": ":".join(self.search_path),
            "HOME": home,
            "TMPDIR": temporary,
            "USER": "user",
            "LOGNAME": "user",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }


HOME = "/home/user"  # as the programs see it
_FIRST_UID = 1_000_000  # no user has these; each worker takes its own, so that the kernel counts processes by worker
_PLAIN_UID = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDirectories:
    """Where one worker runs programs, and as which user."""

    work: Path
    home: Path
    etc: Path
    uid: int

    @classmethod
    def create(cls, root: Path) -> WorkerDirectories:
        """Make them below a folder that nobody else uses."""
        work, home, etc = (root / name for name in ("work", "home", "etc"))
        for folder in (work, home, etc):
            folder.mkdir(mode=0o700, exist_ok=True)
        uid = _FIRST_UID + os.getpid() if is_root() else _PLAIN_UID
        directories = cls(work=work, home=home, etc=etc, uid=uid)
        (etc / "passwd").write_text(f"user:x:{uid}:{uid}:user:{HOME}:/bin/sh\n")
        (etc / "group").write_text(f"user:x:{uid}:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        for file in etc.iterdir():
            file.chmod(0o644)
        etc.chmod(0o755)
        if is_root():
            os.chown(work, uid, uid)
            try:
                os.listdir(work)  # noqa: PTH208 - whether it can be
            except PermissionError:
                os.chown(work, 0, 0)
                raise InputError(
                    "root is not allowed to read what other users own (the capability DAC_OVERRIDE is missing): run "
                    "kofn as an ordinary user, or allow it (in a container: --cap-add DAC_OVERRIDE)"
                ) from None
        return directories


def is_root() -> bool:
    """Whether this process is root's: then programs run as another user, without a user namespace."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


_MAX_OPEN_FILES = 512


def prlimit_words(limits: ProgramLimits) -> list[str]:
    """The command that sets the limits and then runs what follows; nothing where there is no `prlimit`."""
    if cached_which("prlimit") is None:
        return []
    return ["prlimit", *(f"--{name.lower()}={soft}:{hard}" for name, (soft, hard) in rlimits(limits).items()), "--"]


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


cached_which = cache(shutil.which)


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
