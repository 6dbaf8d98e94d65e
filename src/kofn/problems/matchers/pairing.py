"""Compares two lists regardless of order: the surplus of each, and a pairing of elements that match."""

from __future__ import annotations

from collections import Counter, deque
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

MAX_STEPS = 400_000


class StepsExceeded(Exception):
    """Pairing everything up would take too long."""


class StepBudget:
    """Steps that may still be taken; what a hostile value can multiply, it cannot multiply without end."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Take steps; TooMuch when none are left."""
        self.left -= steps
        if self.left < 0:
            raise StepsExceeded


def leftovers(left: Sequence[T], right: Sequence[T], key: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """What each side has more of than the other, where things with equal keys are the same.

    >>> leftovers("aab", "abc", str)
    (['a'], ['c'])
    """
    one, other = Counter(map(key, left)), Counter(map(key, right))
    return _surplus(left, one - other, key), _surplus(right, other - one, key)


def unpaired(n: int, same: Callable[[int, int], bool], budget: StepBudget) -> tuple[list[int], list[int]]:
    """Which of n things on either side remain when as many as possible are paired one to one.

    With a tolerance 1 may go with 1.4 and 1.4 with 1.8, so that taking the first that fits may leave others alone.
    This finds a largest pairing, one augmenting path at a time (H. W. Kuhn, The Hungarian method for the assignment
    problem, 1955); the sides should come in such an order that most things face their partner. TooMuch where the
    budget ends before it is clear whether all can be paired.

    >>> left, right = [1, 2], [2.9, 1.9]
    >>> unpaired(2, lambda i, j: abs(left[i] - right[j]) <= 1, StepBudget())
    ([], [])
    """
    same = cache(same)
    partner = {i: i for i in range(n) if same(i, i)}  # of each on the right
    unmatched = [i for i in range(n) if i not in partner]
    failed = 0
    try:
        for i in unmatched:
            failed += not _augment(i, n, partner, same, budget)
    except StepsExceeded:
        if not failed:  # else not all can be paired, and those who are not yet will do to show it
            raise
    paired = set(partner.values())
    return [i for i in range(n) if i not in paired], [j for j in range(n) if j not in partner]


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
