"""Few-shot examples: which ones go before the question of a case, and the order of options in each repeat."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.tasks.stages import Item

_SPARE = 4  # examples drawn beyond the count, because the case itself may be among them
_FEW = 5  # up to so many options every order is used once before one comes again; 6 would have 720 orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Shots:
    """Examples to draw from. A case is shown those of its group where they have groups, and never itself."""

    pool: tuple[Item, ...] = ()
    count: int = 0
    seed: int | None = None
    per_repeat: bool = False
    group: str = "group"
    _of_group: dict[str | None, tuple[Item, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups = {None, *(example.fields.get(self.group) for example in self.pool)}
        own = {g: tuple(e for e in self.pool if e.fields.get(self.group) in (None, g)) for g in groups}
        object.__setattr__(self, "_of_group", own)

    def of(self, item: Item, repeat: int) -> tuple[Item, ...]:
        """The examples a case is shown in one repeat."""
        if not self.count:
            return ()
        own = self._of_group.get(item.fields.get(self.group), self._of_group[None])
        repeat = repeat if self.per_repeat else 0
        count = min(self.count + _SPARE, len(own))
        if self.seed is None and repeat == 0:
            found: Sequence[Item] = own[:count]
        else:
            found = seeded_random(self.seed or 0, "shots", item.case.id, repeat).sample(own, count)
        # an example that is the case itself would give its answer away
        question = _plain(item)
        others = tuple(e for e in found if _plain(e) != question)
        if len(others) < self.count and count < len(own):
            others = tuple(e for e in own if _plain(e) != question)  # many copies of the case itself
        return others[: self.count]


def _plain(item: Item) -> str:
    """The question as anybody would compare it: spaces, capitals and the order of options do not matter."""
    return " ".join(item.fields["question"].casefold().split())


def seeded_random(seed: int, what: str, case_id: str, repeat: int) -> random.Random:
    """A source of draws of its own for every seed, case and repeat, the same on every machine."""
    digest = blake2b(f"{seed}\x00{what}\x00{case_id}\x00{repeat}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "little"))  # noqa: S311 - seeded, not secret


def option_order(n: int, seed: int, case_id: str, repeat: int) -> tuple[int, ...]:
    """The order of n options in a repeat: repeat 0 has that of the file, the next ones others, by seed and case.

    >>> option_order(4, 0, "q1", 0)
    (0, 1, 2, 3)
    >>> len({option_order(3, 0, "q1", r) for r in range(6)})
    6
    """
    if repeat == 0 or n < 2:
        return tuple(range(n))
    if n > _FEW:
        order = list(range(n))
        seeded_random(seed, "order", case_id, repeat).shuffle(order)
        return tuple(order)
    # shuffled once per case, not per repeat: so the repeats go through all orders before one comes again
    orders = list(permutations(range(n)))
    others = orders[1:]
    seeded_random(seed, "order", case_id, 0).shuffle(others)
    return [orders[0], *others][repeat % len(orders)]
