"""Programs that carry their tests: what a worker does with one. Standard library only, so that a worker stays small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.execute import box_of
from kofn.checkpoint.warm import forget, warm
from kofn.checkpoint.work import Tree
from kofn.errors import WorldError

if TYPE_CHECKING:
    from kofn.checkpoint.box import Box
    from kofn.checkpoint.sandbox import Sandbox
    from kofn.checkpoint.work import Ended, Limits

SECONDS = 3.0  # as in the published evaluator
_EMPTY = Tree()

# What runs in the sandbox. The program is standard input, so that it has no file to look at; then input is empty.
# Python is started without what other packages want to do at every start, but with those packages.
_DRIVER = """
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
        """What it is, and where it runs: the same key, the same result."""
        parts = (*sandbox.identity, str(self.seconds), self.text)
        return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of a program. `passed` is None where the harness failed; `reason` says what went wrong."""

    passed: bool | None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all programs share."""

    sandbox: Any
    limits: Limits
    scratch: str | None = None


def run_program(shared: Shared, program: Program) -> Ran:
    """Run one program with its tests; what a worker does."""
    box = box_of(shared.sandbox, shared.scratch)
    box.folder.reset(_EMPTY)
    word = token_hex(16)
    limits = replace(shared.limits, seconds=program.seconds)
    stdin = f"{word}\n{program.text}".encode(errors="surrogatepass")  # half a character is an error of the program's
    ended = _run(box, stdin, limits)
    if ended.stopped is not None:
        return Ran(passed=False, reason=ended.stopped, seconds=ended.seconds)
    if word.encode() in ended.output:
        return Ran(passed=True, seconds=ended.seconds)
    return Ran(passed=False, reason=_reason(ended.status, ended.stderr), seconds=ended.seconds)


def _run(box: Box, stdin: bytes, limits: Limits) -> Ended:
    """In a fork of a warm interpreter where that is possible, else in one that is started for it."""
    interpreter = warm(box)
    if interpreter is not None:
        try:
            return interpreter.run(stdin, limits)
        except (WorldError, OSError):
            forget(box)
            box.folder.reset(_EMPTY)
    command = ["python", "-I", "-S", "-c", _DRIVER, *box.sandbox.packages]
    return box.run(command, limits=limits, stdin=stdin)


def _reason(status: int | None, stderr: bytes) -> str:
    """Why a program did not pass: the last line of its errors, or how it ended."""
    lines = stderr[-4000:].decode(errors="replace").strip().splitlines()
    if lines and status:
        return lines[-1][:300]
    if status is not None and 128 < status < 160:
        return f"ended by signal {status - 128}"
    return "ended before its tests did" if not status else f"exit status {status}"
