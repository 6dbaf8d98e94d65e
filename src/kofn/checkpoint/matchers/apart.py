"""Work that a hostile value may draw out without end, in a short-lived process that is ended when its time is up."""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import indent

from kofn.errors import InputError, WorldError

LONGEST = 600.0  # seconds
MEMORY = 1_000_000_000  # bytes of address space
_GRACE = 10.0  # seconds to start, and to end; only the work itself is timed
_NEEDED_MORE = 3

# the process ends itself, so that none is left behind if the one that started it dies
_FRAME = """
import resource, signal, sys
data = sys.stdin.buffer.read()
most = resource.getrlimit(resource.RLIMIT_AS)[1]
most = {memory} if most == resource.RLIM_INFINITY else min(most, {memory})
resource.setrlimit(resource.RLIMIT_AS, (most, most))
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, {limit})
try:
{body}
except (MemoryError, RecursionError):
    sys.exit({needed_more})
"""


class Overrun(Exception):
    """The work took more time or memory than it may, or took the process down; the message says which."""


def run_apart(body: str, data: bytes, limit: float, *flags: str) -> bytes:
    """What these lines of Python write to stdout, given `data` (bytes) and `sys`; Overrun after `limit` seconds.

    >>> run_apart("sys.stdout.write(data.decode().upper())", b"abc", 2.0)
    b'ABC'
    >>> run_apart("while True: pass", b"", 0.05)
    Traceback (most recent call last):
    kofn.checkpoint.matchers.apart.Overrun: took longer than 0.05 s
    """
    code = _FRAME.format(memory=MEMORY, limit=float(limit), body=indent(body, "    "), needed_more=_NEEDED_MORE)
    command = [sys.executable, "-I", *flags, "-c", code]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=limit + _GRACE, check=False)  # noqa: S603 - our own interpreter and code
    except subprocess.TimeoutExpired:
        raise Overrun(_too_long(limit)) from None
    except OSError as problem:
        raise WorldError(f"cannot start {sys.executable}: {problem}") from problem
    if done.returncode == 0:
        return done.stdout
    raise _failure(done.returncode, done.stderr, limit)


def check_limit(matcher: str, limit: float) -> None:
    """Refuse a limit that is no time to wait.

    >>> check_limit("regex", 0)
    Traceback (most recent call last):
    kofn.errors.InputError: matcher regex: limit must be above 0 and at most 600 seconds, not 0
    """
    if not 0 < limit <= LONGEST:
        raise InputError(
            f"matcher {matcher}: limit must be above 0 and at most {LONGEST:.0f} seconds, not {limit!r:.20}"
        )


def _failure(code: int, stderr: bytes, limit: float) -> Exception:
    if code == -signal.SIGALRM:
        return Overrun(_too_long(limit))
    if code == _NEEDED_MORE:
        return Overrun(f"needed more than {MEMORY / 1e9:.0f} GB of memory, or too deep a stack")
    if code < 0:
        return Overrun(f"ended by signal {-code}")
    return RuntimeError(f"matcher process failed: {stderr[-2000:].decode('utf-8', 'replace')}")


def _too_long(limit: float) -> str:
    return f"took longer than {limit:g} s"
