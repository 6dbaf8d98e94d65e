"""Every case through its stages, as often as it is repeated: what is stored is not asked again."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kofn.generate.calls import Calls, Tally
from kofn.generate.limits import Budget, Limits
from kofn.generate.walk import Fixed, Repeats, Walk, together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kofn.generate.stages import Item, Recipe
    from kofn.generate.store import Cache, Row, Store
    from kofn.generate.wanted import Priced
    from kofn.models.base import Model

__all__ = ["Fixed", "Limits", "Outcome", "Repeats", "Tally", "generate"]

YOUNG = 20_000  # objects


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, and why it ended before everything was: None when everything is."""

    tally: Tally
    stopped: str | None


async def generate(
    items: Iterable[Item],
    recipe: Recipe,
    models: Mapping[str, Model],
    store: Store,
    *,
    repeats: Repeats,
    run_seed: int | None,
    limits: Limits,
    price: Priced | None = None,
    cache: Cache | None = None,
    on_case: Callable[[Item, list[Row]], None] | None = None,
    tally: Tally | None = None,
    window: int | None = None,
    chat: Mapping[str, bool] | None = None,
) -> Outcome:
    """Ask for every candidate that the store does not hold.

    `models` maps what stages name to models; one model under two names has one queue. At most `window` cases are under
    way, taken from `items` one by one, so that memory does not grow with their number. `on_case` gets each case that is
    done with all its rows, by repeat and stage. `chat` says of a stage's model whether it is asked in messages, where
    that is not the model's own way. The random numbers of retries are the only ones drawn here.

    A budget that is used up ends the run well: calls under way finish. An error or a cancellation ends it at once:
    calls under way are dropped, what they gave is stored, and the error is raised.
    """
    tally = tally if tally is not None else Tally()
    tally.started = tally.started or time.monotonic()
    budget = Budget(limits, time.monotonic())
    queues = {id(model): Calls(model, store, limits, price, tally=tally, budget=budget) for model in models.values()}
    walk = Walk(
        recipe=recipe,
        queues={name: queues[id(model)] for name, model in models.items()},
        store=store,
        stored=store.count() > 0,
        repeats=repeats,
        run_seed=run_seed,
        cache=cache,
        tally=tally,
        budget=budget,
        chat=dict(chat or {}),
    )
    source = iter(items)
    walkers = [walk.cases(source, on_case) for _ in range(window or _window(queues.values()))]
    try:
        with _fewer_collections():
            await together(walkers)
    finally:
        for queue in queues.values():
            await queue.close()
        for file in (store, cache):
            if file is not None:
                file.flush()
    return Outcome(tally, budget.reason)


def _window(queues: Iterable[Calls]) -> int:
    """Cases under way that keep every model busy while others are being stored; one where calls come one by one."""
    room = [queue.concurrency * queue.model.batch for queue in queues]
    return 1 if max(room, default=1) == 1 else sum(r + max(2, r // 4) for r in room)


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Look for garbage less often: a hundred calls at once are thousands of young objects, and none of them is any.

    It saves a sixth of the processor time of a request.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
