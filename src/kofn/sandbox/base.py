"""The `Sandbox` protocol: what a driver provides to run untrusted programs.

A driver is a frozen dataclass in a file of its own (`bubblewrap.py`, `limits_only.py`): it is sent to the workers and
is part of the keys of finished cases. `drivers.py` picks the one that this machine uses.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.sandbox.directories import WorkerDirectories
    from kofn.sandbox.process import Monitor, RunningProgram
    from kofn.sandbox.program import ProcessResult, ProgramLimits


class Sandbox(Protocol):
    """Runs programs, one at a time, in the directories of a worker.

    name       of the driver, as reports have it
    isolated   whether programs have file system, processes and network of their own; False: limits are all there is
    """

    name: ClassVar[str]
    isolated: ClassVar[bool]

    @property
    def python(self) -> str:
        """The interpreter that a submission gets for the word `python`."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """The folders of that interpreter's packages."""
        ...

    @property
    def release(self) -> str:
        """The version of that interpreter, as it is reported."""
        ...

    @property
    def identity(self) -> tuple[str, ...]:
        """Everything of the sandbox that can change a result: part of the key of a finished case."""
        ...

    @property
    def search_path(self) -> list[str]:
        """The folders in which programs are looked up."""
        ...

    @property
    def scratch_folders(self) -> tuple[str, ...]:
        """File systems in memory of `SCRATCH_SIZE` bytes each, whose files are counted."""
        ...

    def program_user(self, directories: WorkerDirectories) -> int | None:
        """The user that owns what programs write; None: the user of this process."""
        ...

    def start(
        self,
        argv: Sequence[str],
        *,
        directories: WorkerDirectories,
        limits: ProgramLimits,
        env: Mapping[str, str],
        stdin: bytes,
        monitor: Monitor,
    ) -> RunningProgram:
        """Start a program in the work folder; the caller waits for it."""
        ...

    def failure(self, result: ProcessResult) -> str | None:
        """Why the sandbox itself failed, where that is what a result means; None: it is the program's own."""
        ...


def resolve_python(argv: Sequence[str], python: str) -> tuple[str, ...]:
    """A command as it is run: a first word `python` or `python3` is the interpreter of the sandbox."""
    first, *rest = argv
    return (python if first in ("python", "python3") else first, *rest)


def search_path(python: str, folders: Sequence[str]) -> list[str]:
    """The folder of the interpreter before these folders."""
    return list(dict.fromkeys([os.path.dirname(python), *folders]))  # noqa: PTH120 - in the sandbox


def clean_environment(path: Sequence[str], home: str, temporary: str, env: Mapping[str, str]) -> dict[str, str]:
    """An environment with nothing of the user's, and `env`, which the problem asks for."""
    return {
        "PATH": ":".join(path),
        "HOME": home,
        "TMPDIR": temporary,
        "USER": "user",
        "LOGNAME": "user",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **env,
    }
