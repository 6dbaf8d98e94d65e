"""Generates every candidate that the store does not hold: one queue per model, many cases at a time."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kofn.errors import InputError
from kofn.generate.calls import CallQueue, PendingLogLikelihoods, PendingOutputs
from kofn.generate.limits import Budget
from kofn.models.base import Request
from kofn.tasks.stages import key_of, of_repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from kofn.generate.calls import CallContext, CallTally, PendingRequest
    from kofn.generate.store import Cache, ReplyRow
    from kofn.models.base import Model, Prompt, Sampling
    from kofn.tasks.stages import Item, Recipe, Stage

BREATH = 64  # cases after which a run that finds everything stored yields to the event loop, for the progress line


class Repeats(Protocol):
    """How many candidates a case gets: `first` at once, then as many as `more` says, `most` in all."""

    @property
    def first(self) -> int: ...

    @property
    def most(self) -> int: ...

    def more(self, item: Item, outputs: Sequence[str | None]) -> int:
        """How many more, given the last stage's outputs so far in the order of the repeats; None is a failed one."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same number for every case."""

    n: int

    @property
    def first(self) -> int:
        return self.n

    @property
    def most(self) -> int:
        return self.n

    def more(self, item: Item, outputs: Sequence[str | None]) -> int:  # noqa: ARG002 - the protocol's
        return 0


async def run_together(parts: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run all, in this order as far as they wait for the same; the first error ends the others and is raised."""
    if len(parts) == 1:
        return [await parts[0]]
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class Slot(NamedTuple):
    """One reply that a case needs."""

    repeat: int
    key: bytes
    prompt: Prompt
    sampling: Sampling
    options: list[tuple[str, str]] | None


def group_slots(slots: Iterable[Slot], most: int) -> Iterator[list[Slot]]:
    """Repeats that one request can ask for: neighbours with the same prompt, at most so many."""
    group: list[Slot] = []
    for slot in slots:
        if group and (
            len(group) >= most or slot.repeat != group[-1].repeat + 1 or slot.prompt != group[0].prompt or slot.options
        ):
            yield group
            group = []
        group.append(slot)
    if group:
        yield group


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Takes one case after another through the stages."""

    recipe: Recipe
    queues: Mapping[str, CallQueue]
    context: CallContext
    stored: bool  # whether the store held anything before: a new one need not be searched
    repeats: Repeats
    budget: Budget
    chat: dict[str, bool]
    stages: Sequence[Stage] = field(init=False)

    def __post_init__(self) -> None:
        self.stages = self.recipe.stages
        for stage in self.stages:
            if stage.model not in self.queues:
                raise InputError(f"stage {stage.name!r}: no model {stage.model!r}: there is {', '.join(self.queues)}")
            self.chat.setdefault(stage.model, self.queues[stage.model].model.chat)

    async def cases(self, source: Iterator[Item], on_case: Callable[[Item, list[ReplyRow]], None] | None) -> None:
        """Take one case after the other until there are no more, or no call may be made any more."""
        for count, item in enumerate(source):
            chains = await self.case(item)
            if chains is not None:
                self.context.tally.cases += 1
                self.context.tally.candidates += len(chains)
                if on_case is not None:
                    on_case(item, [row for chain in chains for row in chain])
            if self.budget.reason is not None:
                return
            if count % BREATH == BREATH - 1:
                await asyncio.sleep(0)

    async def case(self, item: Item) -> list[list[ReplyRow]] | None:
        """The rows of each candidate, by repeat; None when a budget was used up before they were all there."""
        chains: list[list[ReplyRow]] = []
        more = self.repeats.first
        while more > 0 and len(chains) < self.repeats.most:
            upto = min(len(chains) + more, self.repeats.most)
            found = await self._round(item, range(len(chains), upto))
            for repeat in range(len(chains), upto):
                chain = found.get(repeat, [])
                if len(chain) < len(self.stages) and not (chain and chain[-1].error is not None):
                    return None
                chains.append(chain)
            more = self.repeats.more(item, [chain[-1].text for chain in chains])
        return chains

    async def _round(self, item: Item, repeats: range) -> dict[int, list[ReplyRow]]:
        """Some repeats of a case through all stages."""
        slots = [self._slot(item, 0, repeat, {}) for repeat in repeats]
        found = self._find(item, 0, slots)
        queue = self.queues[self.stages[0].model]
        groups = group_slots((slot for slot in slots if slot.repeat not in found), queue.samples)
        parts = [self._new(item, group) for group in groups]
        if found:
            parts.append(self._onward(item, [found[repeat] for repeat in sorted(found)]))
        several = [await parts[0]] if len(parts) == 1 else await run_together(parts)
        return {chain[0].repeat: chain for chains in several for chain in chains}

    async def _new(self, item: Item, group: list[Slot]) -> list[list[ReplyRow]]:
        """Candidates from their first stage on."""
        rows = await self._ask(item, 0, group)
        return [[row] for row in rows] if len(self.stages) == 1 else await self._onward(item, rows)

    async def _onward(self, item: Item, rows: Sequence[ReplyRow]) -> list[list[ReplyRow]]:
        """Candidates whose first stage is there, through the others."""
        if len(self.stages) == 1 or not rows:
            return [[row] for row in rows]
        return await run_together([self._chain(item, row) for row in rows])

    async def _chain(self, item: Item, row: ReplyRow) -> list[ReplyRow]:
        """The rows of one candidate, up to the last stage or the first error."""
        rows, outputs = [row], {}
        for index in range(1, len(self.stages)):
            if row.error is not None:
                break
            outputs[self.stages[index - 1].name] = row.text or ""
            slot = self._slot(item, index, row.repeat, outputs)
            known = self._find(item, index, [slot])
            fetched = [known[row.repeat]] if known else await self._ask(item, index, [slot])
            if not fetched:
                break
            row = fetched[0]
            rows.append(row)
        return rows

    def _slot(self, item: Item, index: int, repeat: int, outputs: Mapping[str, str]) -> Slot:
        stage = self.stages[index]
        plain = stage.kind != "generate"  # a likelihood is that of one text after another: there are no messages
        chat = not plain and self.chat[stage.model]
        prompt = self.recipe.prompt(item, index, repeat, outputs, chat=chat)
        options = None
        if plain:
            options = self.recipe.options(item, index, repeat)
            if not options:
                needs = "options to choose among" if stage.kind == "choose" else "a reference"
                raise InputError(f"case {item.case.id!r}: stage {stage.name!r} needs {needs}, and it has none")
            options = options if stage.kind == "choose" else options[:1]
        sampling = of_repeat(stage.sampling, self.context.seed, item.case.id, stage.name, repeat)
        model = self.queues[stage.model].model.name
        key = key_of(model, stage.name, prompt, sampling, repeat, item.case.id, options)
        return Slot(repeat, key, prompt, sampling, options)

    def _ask(self, item: Item, index: int, group: list[Slot]) -> Coroutine[Any, Any, list[ReplyRow]]:
        """The rows of repeats that one request can ask for, from the model."""
        stage = self.stages[index]
        fetching = self.queues[stage.model].ask(_pending_request(stage, item.case.id, group))
        if self.context.cache is None or not is_deterministic(stage):
            return fetching
        return self._remember(self.context.cache, stage, group[0], fetching)

    def _find(self, item: Item, index: int, slots: Sequence[Slot]) -> dict[int, ReplyRow]:
        """What the store holds of these, or the cache."""
        rows = self.context.store.get([slot.key for slot in slots]) if self.stored else {}
        # the cache only knows requests without randomness: others must be drawn anew for each run
        cache, stage = self.context.cache, self.stages[index]
        if cache is not None and len(rows) < len(slots) and is_deterministic(stage):
            missing = [slot for slot in slots if slot.key not in rows]
            rows |= self._recall(cache, item.case.id, stage, missing)
        self.context.tally.reused += len(rows)
        return {row.repeat: row for row in rows.values()}

    # replies of other runs

    def _recall(self, cache: Cache, case_id: str, stage: Stage, slots: list[Slot]) -> dict[bytes, ReplyRow]:
        """Copy what the cache has into the store, as replies of this case that cost nothing."""
        keys = {slot.key: self._shared_key(stage, slot) for slot in slots}
        known = cache.get(set(keys.values()))
        copies = []
        for slot in slots:
            if row := known.get(keys[slot.key]):
                row = row._replace(key=slot.key, case_id=case_id, stage=stage.name, repeat=slot.repeat)
                # this run pays nothing for it, and made no call
                copies.append(row._replace(cost=0.0, attempts=0, created=time.time()))
        if copies:
            self.context.store.put(copies)
        return {row.key: row for row in copies}

    async def _remember(
        self, cache: Cache, stage: Stage, slot: Slot, fetching: Coroutine[Any, Any, list[ReplyRow]]
    ) -> list[ReplyRow]:
        """Keep the first of these for other runs."""
        rows = await fetching
        cache.put([row._replace(key=self._shared_key(stage, slot)) for row in rows[:1] if row.error is None])
        return rows

    def _shared_key(self, stage: Stage, slot: Slot) -> bytes:
        """The key in the cache: without case, repeat and seed, with everything that `describe` says of the model."""
        model = self.queues[stage.model].model
        more = [model.describe(), slot.options]
        return key_of(model.name, stage.kind, slot.prompt, replace(slot.sampling, seed=None), 0, "", more)


def is_deterministic(stage: Stage) -> bool:
    """Whether the same request has the same reply.

    >>> from kofn.tasks.stages import Stage
    >>> is_deterministic(Stage(name="a", kind="choose")), is_deterministic(Stage(name="a"))
    (True, False)
    """
    return stage.kind != "generate" or stage.sampling.temperature == 0


def _pending_request(stage: Stage, case_id: str, group: list[Slot]) -> PendingRequest:
    first = group[0]
    place: Any = {"stage": stage.name, "case_id": case_id, "repeat": first.repeat, "keys": [slot.key for slot in group]}
    if first.options is not None:
        assert isinstance(first.prompt, str)
        choose = stage.kind == "choose"
        return PendingLogLikelihoods(**place, prompt=first.prompt, options=first.options, choose=choose)
    request = Request(prompt=first.prompt, sampling=first.sampling, n=len(group), case_id=case_id, repeat=first.repeat)
    return PendingOutputs(**place, request=request)


YOUNG = 20_000  # new objects before the garbage collector looks at them, far more than by default


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """What was done, and why it ended before everything was: None when everything is."""

    tally: CallTally
    stopped: str | None


async def generate(
    items: Iterable[Item],
    recipe: Recipe,
    models: Mapping[str, Model],
    context: CallContext,
    *,
    repeats: Repeats,
    on_case: Callable[[Item, list[ReplyRow]], None] | None = None,
    window: int | None = None,
    chat: Mapping[str, bool] | None = None,
) -> GenerationOutcome:
    """Ask for every candidate that the store does not hold.

    `models` maps what stages name to models; one model under two names has one queue. At most `window` cases are under
    way, taken from `items` one by one, so that memory does not grow with their number. `on_case` gets each case that is
    done with all its rows, by repeat and stage. `chat` says of a stage's model whether it is asked in messages, where
    that is not the model's own way. The random numbers of retries are the only ones drawn here.

    A budget that is used up ends the run well: calls under way finish. An error or a cancellation ends it at once:
    calls under way are dropped, what they gave is stored, and the error is raised.
    """
    tally = context.tally
    tally.started = tally.started or time.monotonic()
    budget = Budget(context.limits, time.monotonic())
    queues = {id(model): CallQueue(model, context, budget=budget) for model in models.values()}
    walk = Scheduler(
        recipe=recipe,
        queues={name: queues[id(model)] for name, model in models.items()},
        context=context,
        stored=context.store.count() > 0,
        repeats=repeats,
        budget=budget,
        chat=dict(chat or {}),
    )
    source = iter(items)
    if window is None:
        # cases under way that keep every model busy while others are being stored: a quarter more than fits, so that a
        # case is ready when a call ends; one where calls come one by one
        room = [queue.concurrency * queue.model.batch for queue in queues.values()]
        window = 1 if max(room, default=1) == 1 else sum(r + max(2, r // 4) for r in room)
    walkers = [walk.cases(source, on_case) for _ in range(window)]
    try:
        with _fewer_collections():
            await run_together(walkers)
    finally:
        for queue in queues.values():
            await queue.close()
        for file in (context.store, context.cache):
            if file is not None:
                file.flush()
    return GenerationOutcome(tally, budget.reason)


@dataclass(frozen=True, slots=True)
class _SingleStage:
    """The recipe of questions that take one call each."""

    stage: Stage
    prompt_of: Callable[[Item, int], Prompt]
    continuations: list[tuple[str, str]]

    @property
    def stages(self) -> Sequence[Stage]:
        return (self.stage,)

    def prompt(self, item: Item, stage: int, repeat: int, outputs: Mapping[str, str], *, chat: bool) -> Prompt:  # noqa: ARG002 - the protocol's
        return self.prompt_of(item, repeat)

    def options(self, item: Item, stage: int, repeat: int) -> list[tuple[str, str]]:  # noqa: ARG002 - the protocol's
        return self.continuations


async def ask_one_model(
    items: Iterable[Item],
    stage: Stage,
    prompt_of: Callable[[Item, int], Prompt],
    model: Model,
    context: CallContext,
    *,
    replies: dict[tuple[str, int], ReplyRow],
    repeats: int = 1,
    options: Sequence[tuple[str, str]] = (),
) -> str | None:
    """Ask a model about every item, `repeats` times; why not everything was asked, None when everything was.

    `prompt_of` makes the prompt of an item and a repeat; `options` are those of a stage that chooses. `replies` gets
    the rows by item id and repeat, and has those that came also where an error ends the asking.
    """
    outcome = await generate(
        items,
        _SingleStage(stage, prompt_of, list(options)),
        {stage.model: model},
        context,
        repeats=Fixed(repeats),
        on_case=lambda item, rows: replies.update({(item.case.id, row.repeat): row for row in rows}),
    )
    return outcome.stopped


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Collect garbage less often: a hundred calls at once are thousands of young objects, and all of them are alive.

    It saves a sixth of the processor time of a request.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
