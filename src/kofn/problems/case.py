"""A case of a problem, its checks, what it showed and its outcome: plain values that travel to a worker and back.

Workers import this module, so it needs the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.sandbox.process import ProcessResult, ProgramLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.sandbox.workspace import File, Tree, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """The HTTP request of a case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeCheck:
    """One attribute to verify: what is expected of it, by which matcher, and what it weighs."""

    attribute: str
    matcher: str
    expected: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCase:
    """One case to run once.

    `key` says exactly what is run (see `work_items`). `files` are put into the work folder before the program
    starts. `summary` is what a report says of the case.
    """

    key: str
    id: str
    args: tuple[str, ...] = ()
    stdin: bytes = b""
    files: tuple[File, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    request: HttpRequest | None = None
    checks: tuple[AttributeCheck, ...] = ()
    seconds: float = 10.0
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """What a worker is given at a time: cases of one group, in order, in one work folder.

    `reset`: every case begins with a fresh folder, and with a fresh server where there is one; otherwise they share
    what the first began with.
    """

    submission: int
    group: str
    env: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[ProblemCase, ...] = ()
    reset: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """What all items share.

    trees     the files of every submission, with the problem's static assets
    entries   the command of every submission, before the arguments of a case
    adapter   "cli" or "api"
    sandbox   the sandbox that programs run in (`kofn.sandbox.base.Sandbox`)
    code      author's code by file name: verifier.py, and modules that matchers name
    scratch   a folder of this machine for work folders; the system's own where it is not there
    """

    trees: tuple[Tree, ...] = ()
    entries: tuple[tuple[str, ...], ...] = ()
    adapter: str = "cli"
    limits: ProgramLimits = field(default_factory=ProgramLimits)
    sandbox: Any = None
    ready_path: str | None = None
    ready_seconds: float = 10.0
    code: Mapping[str, str] = field(default_factory=dict)
    scratch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeVerdict:
    """The verdict on one attribute of a case. `whole` is the actual value where `actual` was cut."""

    attribute: str
    correct: bool | None
    weight: float = 1.0
    expected: Any = None
    actual: Any = None
    diff: str = ""
    whole: bytes | None = None
    whole_expected: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """The outcome of one case, or of a program with its tests. `harness_error`: the harness failed, not the program."""

    key: str
    verdicts: tuple[AttributeVerdict, ...] = ()
    process: ProcessResult = field(default_factory=ProcessResult)
    harness_error: str | None = None
    log: bytes | None = None

    @property
    def passed(self) -> bool | None:
        """Whether every verified attribute is correct, and there is one; None where the harness failed."""
        verified = [one.correct for one in self.verdicts if one.correct is not None]
        return None if self.harness_error is not None else bool(verified) and all(verified)

    @property
    def reason(self) -> str:
        """What went wrong, of the harness or of the first attribute; empty where nothing did."""
        return self.harness_error or next((one.diff for one in self.verdicts if one.diff), "")


FILES, HEADERS = "files/", "headers/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a case showed: attributes by name (bytes, a number, text, None where there is none), and how it ended.

    `log` is what a server wrote while the case ran.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    process: ProcessResult = field(default_factory=ProcessResult)
    log: bytes | None = None


def read_files(workspace: Workspace, case: ProblemCase, limits: ProgramLimits) -> dict[str, Any]:
    """The files that a case looks at, as the program left them."""
    names = {c.attribute for c in case.checks if c.attribute.startswith(FILES)}
    return {name: workspace.folder.read(name.removeprefix(FILES), limits.output) for name in sorted(names)}
