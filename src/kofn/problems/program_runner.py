"""The worker side of functions with tests: runs one program and its tests.

Workers import this module, so it needs the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from kofn.errors import WorldError
from kofn.problems.execute import workspace_for
from kofn.sandbox.fork_server import fork_server_for, stop_fork_server
from kofn.sandbox.work_folder import Tree

if TYPE_CHECKING:
    from kofn.sandbox.base import Sandbox
    from kofn.sandbox.program import ProcessResult, ProgramLimits
    from kofn.sandbox.workspace import Workspace

SECONDS = 3.0  # as in the published evaluator
_EMPTY = Tree()

# What runs in the sandbox. The program is standard input, so that it has no file to look at; then input is empty.
# Python is started without what other packages want to do at every start, but with those packages.
_TEST_DRIVER = """
import contextlib, os, sys, builtins, _sitebuiltins
sys.path += sys.argv[1:]
del sys.argv[1:]
for name in ("exit", "quit"):
    setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
text = sys.stdin.buffer.read().decode()
word, _, program = text.partition("\\n")
tell = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for name in ("__main__", "program"):
    sys.modules[name] = type(sys)(name)
exec(compile(program, "program.py", "exec"), sys.modules["program"].__dict__)
os.write(tell, ("\\n" + word).encode())
if "threading" in sys.modules:
    sys.modules["threading"]._shutdown()
for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(Exception):
        stream.flush()
os._exit(0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with its tests, and how long it may take."""

    text: str
    seconds: float = SECONDS

    def key(self, sandbox: Sandbox) -> str:
        """A digest of the program and of where it runs: equal keys have equal results."""
        parts = (*sandbox.identity, str(self.seconds), self.text)
        return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutcome:
    """The outcome of a program. `passed` is None where the harness failed; `reason` says what went wrong."""

    passed: bool | None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramContext:
    """What all programs share."""

    sandbox: Any
    limits: ProgramLimits
    scratch: str | None = None


def run_program(context: ProgramContext, program: Program) -> ProgramOutcome:
    """Run one program with its tests."""
    workspace = workspace_for(context.sandbox, context.scratch)
    workspace.folder.reset(_EMPTY)
    # its exit status a program can choose; a random word that is printed after the tests it can not
    word = token_hex(16)
    limits = replace(context.limits, seconds=program.seconds)
    stdin = f"{word}\n{program.text}".encode(errors="surrogatepass")  # half a character is an error of the program's
    result = _run(workspace, stdin, limits)
    if result.stopped is not None:
        return ProgramOutcome(passed=False, reason=result.stopped, seconds=result.seconds)
    if word.encode() in result.output:
        return ProgramOutcome(passed=True, seconds=result.seconds)
    return ProgramOutcome(passed=False, reason=_reason(result.status, result.stderr), seconds=result.seconds)


def _run(workspace: Workspace, stdin: bytes, limits: ProgramLimits) -> ProcessResult:
    """In a fork of the fork server where there is one, else in an interpreter that is started for it."""
    server = fork_server_for(workspace)
    if server is not None:
        try:
            return server.run(stdin, limits)
        except (WorldError, OSError):
            stop_fork_server(workspace)
            workspace.folder.reset(_EMPTY)
    command = ["python", "-I", "-S", "-c", _TEST_DRIVER, *workspace.sandbox.packages]
    return workspace.run(command, limits=limits, stdin=stdin)


def _reason(status: int | None, stderr: bytes) -> str:
    """Why a program did not pass: the last line of its errors, or how it ended."""
    lines = stderr[-4000:].decode(errors="replace").strip().splitlines()
    if lines and status:
        return lines[-1][:300]
    if status is not None and 128 < status < 160:
        return f"ended by signal {status - 128}"
    return "ended before its tests did" if not status else f"exit status {status}"
