"""The driver for `--unsafe`: programs run as the user who runs kofn, with limits and nothing else around them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from kofn.sandbox.base import Sandbox, cached_which, prlimit_words
from kofn.sandbox.process import RunningProgram
from kofn.sandbox.work_folder import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.sandbox.base import WorkerDirectories
    from kofn.sandbox.process import Monitor
    from kofn.sandbox.program import ProgramLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOnly(Sandbox):
    """No sandbox: limits, a clean environment and a home that is emptied before every program.

    Its scratch folders are not counted: /tmp and /dev/shm are those of the machine.
    """

    name: ClassVar[str] = "none"
    isolated: ClassVar[bool] = False

    search: tuple[str, ...] = field(default_factory=lambda: tuple(os.get_exec_path()))  # where the user's own are found

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
        privileges = ["setpriv", "--pdeathsig", "KILL", "--no-new-privs", "--"] if cached_which("setpriv") else []
        return RunningProgram(
            [*privileges, *prlimit_words(limits), *self.resolve_python(argv)],
            limits=limits,
            monitor=monitor,
            stdin=stdin,
            env=self.clean_environment(home, home, env),
            cwd=directories.work,
        )
