"""What travels to a worker and back: plain values of the standard library, so that a worker stays small."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one execution may use.

    seconds     on the clock; a process also gets no more seconds of CPU than this, and one
    memory      bytes of one process, and of all of them together
    file_size   bytes of one file
    disk        bytes of all files in the work folder
    files       files and folders in the work folder
    processes   at the same time, threads included
    output      bytes of standard output, and as many of standard error
    """

    seconds: float = 10.0
    memory: int = 1024 * MB
    file_size: int = 64 * MB
    disk: int = 256 * MB
    files: int = 10_000
    processes: int = 64
    output: int = 8 * MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one process came to its end.

    `status` is its exit status, 128 + n where signal n ended it; None where it never ran. `stopped` says why the
    harness stopped it, None where it ended by itself. `peak_memory` is that of its largest process, in bytes, and is
    never seen smaller than the process that started it.
    """

    output: bytes = b""
    stderr: bytes = b""
    status: int | None = None
    stopped: str | None = None
    timed_out: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file, folder (`mode` has S_IFDIR) or link of a tree: its bytes here, or at a path of this machine.

    `stamp` tells whether the file at the path is still the one that was read first.
    """

    name: str
    mode: int
    data: bytes | None = None
    path: str | None = None
    link: str | None = None
    stamp: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files a work folder begins with, and the digest of them."""

    files: tuple[File, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a server."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One attribute to verify: what is expected of it, by which matcher, and what it weighs."""

    attribute: str
    matcher: str
    expected: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case to run once. `files` are put into the work folder before it starts."""

    key: str
    id: str
    args: tuple[str, ...] = ()
    stdin: bytes = b""
    files: tuple[File, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    request: Request | None = None
    checks: tuple[Check, ...] = ()
    seconds: float = 10.0
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What a worker is given at a time: jobs of one group, in order, in one work folder.

    `reset`: every job begins with a fresh folder, and with a fresh server where there is one; otherwise they share
    what the first began with.
    """

    submission: int
    checkpoint: str
    group: str
    env: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[Job, ...] = ()
    reset: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all items share.

    trees     the files of every submission, with the problem's static assets
    entries   the command of every submission, before the arguments of a case
    adapter   "cli" or "api"
    sandbox   how programs are kept apart (`kofn.checkpoint.sandbox.Sandbox`)
    code      author's code by file name: verifier.py, and modules that matchers name
    scratch   a folder of this machine for work folders; the system's own where it is not there
    """

    trees: tuple[Tree, ...]
    entries: tuple[tuple[str, ...], ...]
    adapter: str = "cli"
    limits: Limits = field(default_factory=Limits)
    sandbox: Any = None
    ready_path: str | None = None
    ready_seconds: float = 10.0
    code: Mapping[str, str] = field(default_factory=dict)
    scratch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of one attribute. `whole` is the actual value where `actual` was cut."""

    attribute: str
    correct: bool | None
    weight: float = 1.0
    expected: Any = None
    actual: Any = None
    diff: str = ""
    whole: bytes | None = None
    whole_expected: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of one job. `broken` is set where the harness failed, not the program."""

    key: str
    checked: tuple[Checked, ...] = ()
    ended: Ended = field(default_factory=Ended)
    broken: str | None = None
    log: bytes | None = None


def passed(done: Done) -> bool:
    """Whether every verified attribute is correct, and there is one."""
    verified = [one.correct for one in done.checked if one.correct is not None]
    return done.broken is None and bool(verified) and all(verified)
