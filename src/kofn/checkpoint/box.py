"""A place to run programs in, one a worker: the sandbox, the work folder, and what a program may use."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.checkpoint.folder import Folder, remove
from kofn.checkpoint.process import Running, adopt_orphans
from kofn.checkpoint.sandbox import SCRATCH, SCRATCH_FOLDERS, Place, trial
from kofn.checkpoint.seccomp import descriptor
from kofn.checkpoint.usage import inodes, unnamed
from kofn.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.checkpoint.sandbox import Sandbox
    from kofn.checkpoint.work import Ended, Limits

_EVERY = 0.5  # seconds between two looks at how full the folder is


class Box:
    """Runs one program at a time."""

    def __init__(self, sandbox: Sandbox, root: Path | None = None) -> None:
        self.sandbox = sandbox
        self.root = Path(tempfile.mkdtemp(prefix="kofn-", dir=root))
        self.place = Place.make(self.root)
        self.folder = Folder(self.place.work, self.place.uid if sandbox.bwrap and os.geteuid() == 0 else None)
        adopt_orphans()

    def run(
        self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        """Run a program to its end."""
        running = self.start(argv, limits=limits, env=env or {}, stdin=stdin)
        ended = running.wait(limits.seconds)
        if ended.status == 1 and ended.stderr.startswith(b"bwrap: "):  # bubblewrap's complaint, or a program's joke
            problem = trial(self.sandbox)
            if problem is not None:
                raise WorldError(f"the sandbox does not work any more: {problem}")
        return ended

    def start(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str], stdin: bytes = b"") -> Running:
        """Start a program; somebody has to wait for it."""
        words = self.sandbox.words(argv)
        unsafe = self.sandbox.bwrap is None
        info = None if unsafe else os.pipe()
        fd, barred = (None, None) if info is None else (info[1], descriptor())
        command = self.sandbox.command(words, place=self.place, limits=limits, env=env, info=fd, barred=barred)
        outside = {"PATH": os.environ.get("PATH", os.defpath)}
        if unsafe:
            remove(self.place.home)
            self.place.home.mkdir(mode=0o700)
        return Running(
            command,
            limits=limits,
            look=self.looker(limits),
            stdin=stdin,
            env=self.sandbox.environment(self.place, env) if unsafe else outside,
            folder=self.place.work if unsafe else None,
            info=info,
            passed=() if barred is None else (barred,),
        )

    def start_server(self, argv: Sequence[str], *, limits: Limits, env: Mapping[str, str]) -> Running:
        """Start a program that stays."""
        return self.start(argv, limits=replace(limits, seconds=86_400.0), env=env)

    def looker(self, limits: Limits) -> Looker:
        """Looks at what programs leave in the folder and in scratch space."""
        return Looker(self.folder, limits)

    def close(self) -> None:
        """Remove everything; whoever made the folder around it may have done so already."""
        remove(self.root)


class Looker:
    """Whether the work folder, or the scratch space in memory, is too full, looked at now and then."""

    def __init__(self, folder: Folder, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._next = 0.0

    def __call__(self, pids: Sequence[int]) -> str | None:
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + _EVERY
        device = os.lstat(self._folder.path).st_dev
        reason = self._folder.overfull(self._limits, unnamed(pids, device))
        if reason is None and max(inodes(pid, SCRATCH_FOLDERS, SCRATCH) for pid in pids) > self._limits.files:
            return f"made more than {self._limits.files:,} files"
        return reason
