"""The driver for `--unsafe`: programs run as the user who runs kofn, with limits and nothing else around them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from kofn._version import __version__
from kofn.sandbox.base import cached_which, clean_environment, prlimit_words, resolve_python, search_path
from kofn.sandbox.process import RunningProgram
from kofn.sandbox.work_folder import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.sandbox.base import WorkerDirectories
    from kofn.sandbox.process import Monitor
    from kofn.sandbox.program import ProcessResult, ProgramLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOnly:
    """No sandbox: limits, a clean environment and a home that is emptied before every program."""

    name: ClassVar[str] = "none"
    isolated: ClassVar[bool] = False

    python: str = sys.executable
    packages: tuple[str, ...] = ()
    release: str = ""
    search: tuple[str, ...] = field(default_factory=lambda: tuple(os.get_exec_path()))

    @property
    def identity(self) -> tuple[str, ...]:
        """As of `Sandbox`."""
        return (__version__, self.name, self.python, self.release)

    @property
    def search_path(self) -> list[str]:
        """As of `Sandbox`: wherever the user's own programs are found."""
        return search_path(self.python, self.search)

    @property
    def scratch_folders(self) -> tuple[str, ...]:
        """As of `Sandbox`: none, for /tmp and /dev/shm are those of the machine."""
        return ()

    def program_user(self, directories: WorkerDirectories) -> int | None:  # noqa: ARG002 - the protocol's
        """As of `Sandbox`."""
        return None

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
        """As of `Sandbox`."""
        remove_tree(directories.home)
        directories.home.mkdir(mode=0o700)
        home = str(directories.home)
        return RunningProgram(
            [*_no_privileges(), *prlimit_words(limits), *resolve_python(argv, self.python)],
            limits=limits,
            monitor=monitor,
            stdin=stdin,
            env=clean_environment(self.search_path, home, home, env),
            cwd=directories.work,
        )

    def failure(self, result: ProcessResult) -> str | None:  # noqa: ARG002 - the protocol's
        """As of `Sandbox`: there is none that could fail."""
        return None


def _no_privileges() -> list[str]:
    return ["setpriv", "--pdeathsig", "KILL", "--no-new-privs", "--"] if cached_which("setpriv") else []
