"""Bounds on what a hostile value may cost: a budget of steps for pairing lists, and a process with limits."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter, deque
from functools import cache
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypeVar

from kofn.errors import InputError, WorldError
from kofn.problems.matchers import NotComparable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

MAX_STEPS = 400_000


class StepsExceeded(NotComparable):
    """Pairing everything up would take too long."""


class StepBudget:
    """Steps that may still be taken; what a hostile value can multiply, it cannot multiply without end."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Take steps; StepsExceeded when none are left."""
        self.left -= steps
        if self.left < 0:
            raise StepsExceeded("too much to compare without order")


def leftovers(left: Sequence[T], right: Sequence[T], key: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """What each side has more of than the other, where things with equal keys are the same.

    >>> leftovers("aab", "abc", str)
    (['a'], ['c'])
    """
    one, other = Counter(map(key, left)), Counter(map(key, right))
    return _surplus(left, one - other, key), _surplus(right, other - one, key)


def unpaired(
    left: Sequence[T], right: Sequence[T], same: Callable[[T, T], bool], budget: StepBudget
) -> tuple[list[T], list[T]]:
    """What remains of two lists of one length when as many as possible are paired one to one.

    With a tolerance 1 may go with 1.4 and 1.4 with 1.8, so that taking the first that fits may leave others alone.
    This finds a largest pairing, one augmenting path at a time (H. W. Kuhn, The Hungarian method for the assignment
    problem, 1955); the sides should come in such an order that most things face their partner. StepsExceeded where the
    budget ends before it is clear whether all can be paired.

    >>> unpaired([1, 2], [2.9, 1.9], lambda one, other: abs(one - other) <= 1, StepBudget())
    ([], [])
    """
    n = len(left)
    fits = cache(lambda i, j: same(left[i], right[j]))
    partner = {i: i for i in range(n) if fits(i, i)}  # of each on the right
    unmatched = [i for i in range(n) if i not in partner]
    failed = 0
    try:
        for i in unmatched:
            failed += not _augment(i, n, partner, fits, budget)
    except StepsExceeded:
        if not failed:  # else not all can be paired, and those who are not yet will do to show it
            raise
    paired = set(partner.values())
    return [left[i] for i in range(n) if i not in paired], [right[j] for j in range(n) if j not in partner]


def _surplus(side: Sequence[T], counts: Counter[Any], key: Callable[[T], Any]) -> list[T]:
    kept = []
    for item in side if counts else ():
        if counts[name := key(item)] > 0:
            counts[name] -= 1
            kept.append(item)
    return kept


def _augment(start: int, n: int, partner: dict[int, int], same: Callable[[int, int], bool], budget: StepBudget) -> bool:
    """Find a partner for one on the left, moving the partners of others where that helps."""
    reached: dict[int, int] = {}
    queue = deque([start])
    while queue:
        i = queue.popleft()
        budget.spend(n)
        for j in range(n):
            if j not in reached and same(i, j):
                reached[j] = i
                if j not in partner:
                    _reassign(j, start, reached, partner)
                    return True
                queue.append(partner[j])
    return False


def _reassign(j: int, start: int, reached: dict[int, int], partner: dict[int, int]) -> None:
    before = {i: j for j, i in partner.items()}
    while True:
        i = reached[j]
        partner[j] = i
        if i == start:
            return
        j = before[i]


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


class IsolationLimitExceeded(NotComparable):
    """The work took more time or memory than it may, or took the process down; the message says which."""


def run_isolated(body: str, data: bytes, limit: float, *flags: str) -> bytes:
    """What these lines of Python write to stdout, given `data` (bytes) and `sys`.

    Raises IsolationLimitExceeded after `limit` seconds.

    >>> run_isolated("sys.stdout.write(data.decode().upper())", b"abc", 2.0)
    b'ABC'
    >>> run_isolated("while True: pass", b"", 0.05)
    Traceback (most recent call last):
    kofn.problems.matchers.bounds.IsolationLimitExceeded: took longer than 0.05 s
    """
    code = _PROGRAM.format(memory=MAX_MEMORY, limit=float(limit), body=indent(body, "    "), needed_more=_MEMORY_EXIT)
    command, too_long = [sys.executable, "-I", *flags, "-c", code], f"took longer than {limit:g} s"
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=limit + _GRACE, check=False)  # noqa: S603 - our own interpreter and code
    except subprocess.TimeoutExpired:
        raise IsolationLimitExceeded(too_long) from None
    except OSError as problem:
        raise WorldError(f"cannot start {sys.executable}: {problem}") from problem
    if done.returncode == 0:
        return done.stdout
    if done.returncode == -signal.SIGALRM:
        raise IsolationLimitExceeded(too_long)
    if done.returncode == _MEMORY_EXIT:
        raise IsolationLimitExceeded(f"needed more than {MAX_MEMORY / 1e9:.0f} GB of memory, or too deep a stack")
    if done.returncode < 0:
        raise IsolationLimitExceeded(f"ended by signal {-done.returncode}")
    raise RuntimeError(f"matcher process failed: {done.stderr[-2000:].decode('utf-8', 'replace')}")


def check_limit(matcher: str, limit: float) -> None:
    """Refuse a limit that is no time to wait.

    >>> check_limit("regex", 0)
    Traceback (most recent call last):
    kofn.errors.InputError: matcher regex: limit must be above 0 and at most 600 seconds, not 0
    """
    if not 0 < limit <= MAX_SECONDS:
        bounds = f"above 0 and at most {MAX_SECONDS:.0f} seconds"
        raise InputError(f"matcher {matcher}: limit must be {bounds}, not {limit!r:.20}")
