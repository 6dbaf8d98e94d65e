"""Where programs of others run: bubblewrap around them, limits inside it, and a command that anybody can repeat.

A program sees a read-only system without the user's files, a private /tmp and home, its work folder at /work, no
process but its own, and a network of nothing but its own loopback. It has no privileges and cannot gain any, and
everything it started ends with it. See docs/sandbox.md for what that does and does not promise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kofn import __version__
from kofn.checkpoint.seccomp import descriptor
from kofn.checkpoint.work import MB, Limits
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WORK, HOME = "/work", "/home/user"
INSTALL = "apt install bubblewrap"
SCRATCH = 128 * MB  # each of these, all in memory
SCRATCH_FOLDERS = ("/dev/shm", "/tmp", HOME)  # noqa: S108 - inside the sandbox
FIRST_UID = 1_000_000  # no user has these; each worker takes its own, so that processes are counted by worker
_PLAIN_UID = 1000
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    *(f"/etc/java-{n}-openjdk" for n in (11, 17, 21)),
)
FILES_OPEN = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How programs are kept apart.

    bwrap       the program bubblewrap; None: nothing keeps them apart but limits (`--unsafe`)
    python      what `python` is to a submission
    shown       further paths that are shown, read-only
    packages    where that Python has its packages
    release     which Python it is
    """

    bwrap: str | None
    python: str = sys.executable
    shown: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    search: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    release: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """What of it can change what comes of a program: a result in another sandbox is not one in this."""
        return (__version__, "bubblewrap" if self.bwrap else "none", self.python, self.release, *self.shown)

    def command(
        self,
        argv: Sequence[str],
        *,
        place: Place,
        limits: Limits,
        env: Mapping[str, str],
        info: int | None = None,
        barred: int | None = None,
    ) -> list[str]:
        """The whole command: what is run, inside its limits, inside the sandbox.

        `info` is a file descriptor that gets the process id of the program's first process, `barred` one with the
        filter of system calls.
        """
        if self.bwrap is None:
            return [*_unsafe_prefix(), *_limited(limits), *argv]
        boxed = self._boxed(place, env, info, barred)
        return [*boxed, *_dropped(place), *_limited(limits), *argv]

    def waiting(self, place: Place, *, info: int, barred: int | None) -> list[str]:
        """A sandbox with a process that waits until it is told no more, for others to enter (`warm.py`)."""
        return [*self._boxed(place, {}, info, barred), "cat"]

    def _boxed(self, place: Place, env: Mapping[str, str], info: int | None, barred: int | None) -> list[str]:
        assert self.bwrap is not None
        words = [self.bwrap, *_namespaces(place), *_mounts(self, place)]
        words += [w for name, value in self.environment(place, env).items() for w in ("--setenv", name, value)]
        for option, fd in (("--info-fd", info), ("--seccomp", barred)):
            words += [] if fd is None else [option, str(fd)]
        return [*words, "--chdir", WORK, "--"]

    def environment(self, place: Place, env: Mapping[str, str]) -> dict[str, str]:
        """A clean environment: nothing of the user's, and what the problem asks for."""
        home, temporary = (HOME, "/tmp") if self.bwrap else (str(place.home), str(place.home))  # noqa: S108 - its own
        return {
            "PATH": ":".join(self.environment_path),
            "HOME": home,
            "TMPDIR": temporary,
            "USER": "user",
            "LOGNAME": "user",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }

    @property
    def environment_path(self) -> list[str]:
        """Where programs are looked for."""
        return list(dict.fromkeys([os.path.dirname(self.python), *self.search]))  # noqa: PTH120 - in the sandbox

    def words(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command as it is run: a first word `python` or `python3` is the interpreter of the sandbox."""
        first, *rest = argv
        return (self.python if first in ("python", "python3") else first, *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one worker runs programs: its work folder, a home, the few files of /etc, and as which user."""

    work: Path
    home: Path
    etc: Path
    uid: int

    @classmethod
    def make(cls, root: Path) -> Place:
        """A place under a folder that nobody else uses."""
        work, home, etc = (root / name for name in ("work", "home", "etc"))
        for folder in (work, home, etc):
            folder.mkdir(mode=0o700, exist_ok=True)
        uid = FIRST_UID + os.getpid() if _is_root() else _PLAIN_UID
        place = cls(work=work, home=home, etc=etc, uid=uid)
        (etc / "passwd").write_text(f"user:x:{uid}:{uid}:user:{HOME}:/bin/sh\n")
        (etc / "group").write_text(f"user:x:{uid}:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        for file in etc.iterdir():
            file.chmod(0o644)
        etc.chmod(0o755)
        if _is_root():
            os.chown(work, uid, uid)
            _check_reach(work)
        return place


def _check_reach(work: Path) -> None:
    """Refuse a root that may not look into the folders of others, as in a container without that capability."""
    try:
        os.listdir(work)  # noqa: PTH208 - whether it can be
    except PermissionError:
        os.chown(work, 0, 0)
        raise InputError(
            "root is not allowed to read what other users own (the capability DAC_OVERRIDE is missing): run kofn as an "
            "ordinary user, or allow it (in a container: --cap-add DAC_OVERRIDE)"
        ) from None


def find(*, unsafe: bool = False, python: str | None = None, shown: Iterable[str] = ()) -> Sandbox:
    """The sandbox of this machine, tried once; refused where there is none, unless `unsafe` is said."""
    asked = _interpreter(python or getattr(sys, "_base_executable", sys.executable))
    usual = Sandbox(bwrap=None, python=asked.path, packages=asked.packages, release=asked.release)
    if unsafe:
        return replace(usual, search=tuple(os.get_exec_path()))
    missing = missing_programs()
    if missing:
        raise InputError(
            f"programs are run in a sandbox, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            f"here: {INSTALL} (Linux), or --unsafe to run them with nothing but limits"
        )
    paths = [*asked.folders, *(str(Path(path).expanduser().resolve()) for path in shown)]
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"{path}: not there: it was to be shown to the programs")
    sandbox = replace(usual, bwrap=shutil.which("bwrap"), shown=_outside(paths))
    problem = trial(sandbox)
    if problem is not None:
        raise InputError(
            f"bubblewrap cannot make a sandbox here: {problem}; allow user namespaces (in a container: "
            "--security-opt seccomp=unconfined --cap-add SYS_ADMIN), or --unsafe to run with nothing but limits"
        )
    return sandbox


def missing_programs() -> list[str]:
    """What this machine lacks of the programs that a sandbox is made of."""
    names = {"bwrap": "bubblewrap", "prlimit": "prlimit (util-linux)"}
    if _is_root():
        names["setpriv"] = "setpriv (util-linux)"
    return [name for program, name in names.items() if shutil.which(program) is None]


def trial(sandbox: Sandbox) -> str | None:
    """What goes wrong where nothing is run in the sandbox; None: nothing does."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        place, barred = Place.make(Path(folder)), descriptor()
        nothing = [sandbox.python, "-I", "-S", "-c", ""]
        command = sandbox.command(nothing, place=place, limits=Limits(), env={}, barred=barred)
        passed = () if barred is None else (barred,)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, pass_fds=passed)  # noqa: S603 - ours
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


class _Interpreter(NamedTuple):
    """A Python, the folders it needs (its own, and its base's in a virtual environment), and its packages'."""

    path: str
    folders: tuple[str, ...]
    packages: tuple[str, ...]
    release: str


_QUESTION = """
import site, sys
print(sys.executable, sys.prefix, sys.base_prefix, " ".join(sys.version.split()), *site.getsitepackages(), sep="\\n")
"""


@cache
def _interpreter(python: str) -> _Interpreter:
    """What a Python says of itself."""
    path = shutil.which(python)
    if path is None:
        raise InputError(f"{python}: no such Python interpreter")
    try:
        done = subprocess.run([path, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - asked for
    except (OSError, subprocess.SubprocessError) as problem:
        raise InputError(f"{python}: not a Python interpreter: {problem}") from None
    executable, prefix, base, release, *packages = done.stdout.splitlines()
    return _Interpreter(executable, tuple(dict.fromkeys([prefix, base])), tuple(packages), release)


def _outside(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that /usr does not hold already, outer ones first."""
    return tuple(p for p in dict.fromkeys(sorted(paths)) if p != "/usr" and not p.startswith("/usr/"))


def _namespaces(place: Place) -> list[str]:
    """As root the user is changed inside; anybody else gets a user namespace, in which no other can be made."""
    common = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    common += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    if _is_root():
        return common
    return [*common, "--unshare-user", "--disable-userns", "--uid", str(place.uid), "--gid", str(place.uid)]


def _mounts(sandbox: Sandbox, place: Place) -> list[str]:
    """What is seen, and where."""
    words = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):  # noqa: PTH114 - a few microseconds for every program
            words += ["--symlink", os.readlink(path), path]  # noqa: PTH115 - as above
        elif os.path.isdir(path):  # noqa: PTH112 - as above
            words += ["--ro-bind", path, path]
    words += ["--perms", "0755", "--dir", "/etc"]
    words += [word for path in _SETTINGS if os.path.exists(path) for word in ("--ro-bind", path, path)]  # noqa: PTH110
    for name in ("passwd", "group", "hosts"):
        words += ["--ro-bind", str(place.etc / name), f"/etc/{name}"]
    for path in sandbox.shown:
        words += [w for parent in _parents(path) for w in ("--perms", "0755", "--dir", parent)]
        words += ["--ro-bind", path, path]
    # bubblewrap's own process, by whose memory a program of the same user could reach out of its limits, is not shown
    words += ["--proc", "/proc", "--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1", "--dev", "/dev"]
    for path in SCRATCH_FOLDERS:
        words += [w for parent in _parents(path) for w in ("--perms", "0755", "--dir", parent)]
        words += ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", path]
    return [*words, "--remount-ro", "/dev", "--bind", str(place.work), WORK, "--remount-ro", "/"]


@cache
def _parents(path: str) -> tuple[str, ...]:
    """The folders above a path that are made for it.

    >>> _parents("/root/.pyenv/versions/3.11")
    ('/root', '/root/.pyenv', '/root/.pyenv/versions')
    """
    parts = path.strip("/").split("/")
    found = ["/" + "/".join(parts[:i]) for i in range(1, len(parts))]
    return tuple(p for p in found if p not in ("/dev", "/tmp", "/usr"))  # noqa: S108 - inside the sandbox


def _dropped(place: Place) -> list[str]:
    """As root: another user, without privileges, which it cannot get back."""
    if not _is_root():
        return []
    user = str(place.uid)
    words = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
    return [*words, "--bounding-set=-all", "--inh-caps=-all", "--"]


def _limited(limits: Limits) -> list[str]:
    """The kernel's limits on every process; `data` counts private memory, not what a runtime reserves."""
    if shutil_which("prlimit") is None:
        return []
    seconds = ceil(limits.seconds) + 1
    words = [f"--cpu={seconds}:{seconds + 1}", f"--data={limits.memory}", f"--fsize={limits.file_size}", "--core=0"]
    return ["prlimit", *words, f"--nofile={FILES_OPEN}", f"--nproc={limits.processes + others()}", "--"]


@cache
def shutil_which(program: str) -> str | None:
    """`shutil.which`, looked up once."""
    return shutil.which(program)


def _unsafe_prefix() -> list[str]:
    return ["setpriv", "--pdeathsig", "KILL", "--no-new-privs", "--"] if shutil_which("setpriv") else []


@cache
def others() -> int:
    """How many processes of this user are counted beside the program's own.

    As root a worker has a user of its own. Since Linux 5.14 a user namespace counts by itself. Before, and without a
    namespace, all of the user's processes count.
    """
    if _is_root():
        return 0
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    if sys.platform == "linux" and release >= (5, 14):
        return 0
    user = os.geteuid()
    return sum(1 for entry in os.scandir("/proc") if entry.name.isdigit() and entry.stat().st_uid == user)
