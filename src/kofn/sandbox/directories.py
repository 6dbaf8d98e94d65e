"""The directories of one worker: the work folder, a home, the few files of /etc, and the user that programs run as."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

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
            _check_access(work)
        return directories


def is_root() -> bool:
    """Whether this process is root's: then programs run as another user, without a user namespace."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _check_access(work: Path) -> None:
    """Refuse a root that may not look into the folders of others, as in a container without that capability."""
    try:
        os.listdir(work)  # noqa: PTH208 - whether it can be
    except PermissionError:
        os.chown(work, 0, 0)
        raise InputError(
            "root is not allowed to read what other users own (the capability DAC_OVERRIDE is missing): run kofn as an "
            "ordinary user, or allow it (in a container: --cap-add DAC_OVERRIDE)"
        ) from None
