"""The bubblewrap driver: namespaces without network or home, resource limits, and a command to repeat a run by hand.

A program sees a read-only system without the user's files, a private /tmp and home, its work folder at /work, no
process but its own, and a network of nothing but its own loopback. It has no privileges and cannot gain any, and
everything it started ends with it. See docs/sandbox.md for what that does and does not promise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kofn.sandbox.base import HOME, Sandbox, WorkerDirectories, is_root, prlimit_words
from kofn.sandbox.process import SCRATCH_SIZE, Launch, ProgramLimits
from kofn.sandbox.seccomp import filter_descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.sandbox.process import ProcessResult

WORK = "/work"
INSTALL_COMMAND = "apt install bubblewrap"
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_JAVA = [f"/etc/java-{version}-openjdk" for version in (11, 17, 21)]
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", *_JAVA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap(Sandbox):
    """The sandbox that bubblewrap makes; `bwrap` is that program."""

    name: ClassVar[str] = "bubblewrap"
    isolated: ClassVar[bool] = True
    scratch_folders: ClassVar[tuple[str, ...]] = ("/dev/shm", "/tmp", HOME)  # noqa: S108 - inside the sandbox

    bwrap: str
    search: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")

    def launch(
        self, argv: Sequence[str], directories: WorkerDirectories, limits: ProgramLimits, env: Mapping[str, str]
    ) -> Launch:
        info_pipe, seccomp = os.pipe(), filter_descriptor()
        words, info = self.resolve_python(argv), info_pipe[1]
        command = self.command(words, directories=directories, limits=limits, env=env, info=info, seccomp=seccomp)
        path = {"PATH": os.environ.get("PATH", os.defpath)}  # bubblewrap's own; the program's is in the command
        return Launch(command, path, info_pipe=info_pipe, pass_fds=() if seccomp is None else (seccomp,))

    def failure(self, result: ProcessResult) -> str | None:
        """As of `Sandbox`: what looks like bubblewrap's complaint may be a program's joke, so it is probed again."""
        return probe(self) if result.status == 1 and result.stderr.startswith(b"bwrap: ") else None

    def command(
        self,
        argv: Sequence[str],
        *,
        directories: WorkerDirectories,
        limits: ProgramLimits,
        env: Mapping[str, str],
        info: int | None = None,
        seccomp: int | None = None,
    ) -> list[str]:
        """The whole command: what is run, inside its limits, inside the sandbox.

        `info` is a file descriptor that gets the process id of the program's first process, `seccomp` one with the
        filter of system calls.
        """
        sandbox = self._sandbox_words(directories, env, info, seccomp)
        return [*sandbox, *_drop_privileges(directories), *prlimit_words(limits), *argv]

    def waiting_command(self, directories: WorkerDirectories, *, info: int, seccomp: int | None) -> list[str]:
        """A sandbox around a process that waits until its input ends, for others to enter (`fork_server.py`)."""
        return [*self._sandbox_words(directories, {}, info, seccomp), "cat"]

    def _sandbox_words(
        self, directories: WorkerDirectories, env: Mapping[str, str], info: int | None, seccomp: int | None
    ) -> list[str]:
        words = [self.bwrap, *_namespaces(directories), *_mounts(self, directories)]
        words += [w for name, value in self.environment(env).items() for w in ("--setenv", name, value)]
        for option, fd in (("--info-fd", info), ("--seccomp", seccomp)):
            words += [] if fd is None else [option, str(fd)]
        return [*words, "--chdir", WORK, "--"]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return self.clean_environment(HOME, "/tmp", env)  # noqa: S108 - its own


def missing_programs() -> list[str]:
    """What this machine lacks of the programs that a sandbox is made of."""
    names = {"bwrap": "bubblewrap", "prlimit": "prlimit (util-linux)"}
    if is_root():
        names["setpriv"] = "setpriv (util-linux)"
    return [name for program, name in names.items() if shutil.which(program) is None]


def probe(sandbox: Bubblewrap) -> str | None:
    """Run nothing in a sandbox: what goes wrong, or None."""
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        directories, seccomp = WorkerDirectories.create(Path(folder)), filter_descriptor()
        nothing = [sandbox.python, "-I", "-S", "-c", ""]
        command = sandbox.command(nothing, directories=directories, limits=ProgramLimits(), env={}, seccomp=seccomp)
        pass_fds = () if seccomp is None else (seccomp,)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, pass_fds=pass_fds)  # noqa: S603 - ours
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


def _namespaces(directories: WorkerDirectories) -> list[str]:
    """As root the user is changed inside; anybody else gets a user namespace, in which no other can be made."""
    common = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    common += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    if is_root():
        return common
    return [*common, "--unshare-user", "--disable-userns", "--uid", str(directories.uid), "--gid", str(directories.uid)]


def _mounts(sandbox: Bubblewrap, directories: WorkerDirectories) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):  # noqa: PTH114 - a few microseconds for every program
            words += ["--symlink", os.readlink(path), path]  # noqa: PTH115 - as above
        elif os.path.isdir(path):  # noqa: PTH112 - as above
            words += ["--ro-bind", path, path]
    words += ["--perms", "0755", "--dir", "/etc"]
    words += [word for path in _SETTINGS if os.path.exists(path) for word in ("--ro-bind", path, path)]  # noqa: PTH110
    for name in ("passwd", "group", "hosts"):
        words += ["--ro-bind", str(directories.etc / name), f"/etc/{name}"]
    for path in sandbox.readable:
        words += [w for parent in _parents(path) for w in ("--perms", "0755", "--dir", parent)]
        words += ["--ro-bind", path, path]
    # bubblewrap's own process, by whose memory a program of the same user could reach out of its limits, is not shown
    words += ["--proc", "/proc", "--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1", "--dev", "/dev"]
    for path in sandbox.scratch_folders:
        words += [w for parent in _parents(path) for w in ("--perms", "0755", "--dir", parent)]
        words += ["--perms", "1777", "--size", str(SCRATCH_SIZE), "--tmpfs", path]
    return [*words, "--remount-ro", "/dev", "--bind", str(directories.work), WORK, "--remount-ro", "/"]


@cache
def _parents(path: str) -> tuple[str, ...]:
    """The folders above a path that are made for it.

    >>> _parents("/root/.pyenv/versions/3.11")
    ('/root', '/root/.pyenv', '/root/.pyenv/versions')
    """
    parts = path.strip("/").split("/")
    parents = ["/" + "/".join(parts[:i]) for i in range(1, len(parts))]
    return tuple(p for p in parents if p not in ("/dev", "/tmp", "/usr"))  # noqa: S108 - inside the sandbox


def _drop_privileges(directories: WorkerDirectories) -> list[str]:
    """As root: another user, without privileges, which it cannot get back."""
    if not is_root():
        return []
    user = str(directories.uid)
    words = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
    return [*words, "--bounding-set=-all", "--inh-caps=-all", "--"]
