"""Runs a comparison in a subprocess with a time limit, for values that could make it run forever."""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import indent

from kofn.errors import InputError, WorldError

MAX_SECONDS = 600.0  # seconds
MAX_MEMORY = 1_000_000_000  # bytes of address space
_GRACE = 10.0  # seconds to start, and to end; only the work itself is timed
_MEMORY_EXIT = 3

# the process ends itself, so that none is left behind if the one that started it dies
_PROGRAM = """
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


class IsolationLimitExceeded(Exception):
    """The work took more time or memory than it may, or took the process down; the message says which."""


def run_isolated(body: str, data: bytes, limit: float, *flags: str) -> bytes:
    """What these lines of Python write to stdout, given `data` (bytes) and `sys`; Overrun after `limit` seconds.

    >>> run_isolated("sys.stdout.write(data.decode().upper())", b"abc", 2.0)
    b'ABC'
    >>> run_isolated("while True: pass", b"", 0.05)
    Traceback (most recent call last):
    kofn.problems.matchers.isolation.IsolationLimitExceeded: took longer than 0.05 s
    """
    code = _PROGRAM.format(memory=MAX_MEMORY, limit=float(limit), body=indent(body, "    "), needed_more=_MEMORY_EXIT)
    command = [sys.executable, "-I", *flags, "-c", code]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=limit + _GRACE, check=False)  # noqa: S603 - our own interpreter and code
    except subprocess.TimeoutExpired:
        raise IsolationLimitExceeded(_too_long(limit)) from None
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
    if not 0 < limit <= MAX_SECONDS:
        raise InputError(
            f"matcher {matcher}: limit must be above 0 and at most {MAX_SECONDS:.0f} seconds, not {limit!r:.20}"
        )


def _failure(code: int, stderr: bytes, limit: float) -> Exception:
    if code == -signal.SIGALRM:
        return IsolationLimitExceeded(_too_long(limit))
    if code == _MEMORY_EXIT:
        return IsolationLimitExceeded(f"needed more than {MAX_MEMORY / 1e9:.0f} GB of memory, or too deep a stack")
    if code < 0:
        return IsolationLimitExceeded(f"ended by signal {-code}")
    return RuntimeError(f"matcher process failed: {stderr[-2000:].decode('utf-8', 'replace')}")


def _too_long(limit: float) -> str:
    return f"took longer than {limit:g} s"
