"""The way of a case through the stages: what is stored is found, the rest is asked for, repeat by repeat."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kofn.errors import InputError
from kofn.generate.stages import key_of, of_repeat
from kofn.generate.wanted import Odds, Outputs
from kofn.models.base import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from kofn.generate.calls import Calls, Tally
    from kofn.generate.limits import Budget
    from kofn.generate.stages import Item, Recipe, Stage
    from kofn.generate.store import Cache, Row, Store
    from kofn.generate.wanted import Wanted
    from kofn.models.base import Prompt, Sampling

BREATH = 64  # cases after which a run that finds everything stored lets others have the loop


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


async def together(parts: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
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


def grouped(slots: Iterable[Slot], most: int) -> Iterator[list[Slot]]:
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
class Walk:
    """The way of a case."""

    recipe: Recipe
    queues: Mapping[str, Calls]
    store: Store
    stored: bool  # whether there was anything in the store before
    repeats: Repeats
    run_seed: int | None
    cache: Cache | None
    tally: Tally
    budget: Budget
    chat: dict[str, bool]
    stages: Sequence[Stage] = field(init=False)

    def __post_init__(self) -> None:
        self.stages = self.recipe.stages
        for stage in self.stages:
            if stage.model not in self.queues:
                raise InputError(f"stage {stage.name!r}: no model {stage.model!r}: there is {', '.join(self.queues)}")
            self.chat.setdefault(stage.model, self.queues[stage.model].model.chat)

    async def cases(self, source: Iterator[Item], on_case: Callable[[Item, list[Row]], None] | None) -> None:
        """Take one case after the other until there are no more, or no call may be made any more."""
        for count, item in enumerate(source):
            chains = await self.case(item)
            if chains is not None:
                self.tally.cases += 1
                self.tally.candidates += len(chains)
                if on_case is not None:
                    on_case(item, [row for chain in chains for row in chain])
            if self.budget.reason is not None:
                return
            if count % BREATH == BREATH - 1:
                await asyncio.sleep(0)

    async def case(self, item: Item) -> list[list[Row]] | None:
        """The rows of each candidate, by repeat; None when a budget was used up before they were all there."""
        chains: list[list[Row]] = []
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

    async def _round(self, item: Item, repeats: range) -> dict[int, list[Row]]:
        """Some repeats of a case through all stages."""
        slots = [self._slot(item, 0, repeat, {}) for repeat in repeats]
        found = self._find(item, 0, slots)
        queue = self.queues[self.stages[0].model]
        groups = grouped((slot for slot in slots if slot.repeat not in found), queue.samples)
        parts = [self._new(item, group) for group in groups]
        if found:
            parts.append(self._onward(item, [found[repeat] for repeat in sorted(found)]))
        several = [await parts[0]] if len(parts) == 1 else await together(parts)
        return {chain[0].repeat: chain for chains in several for chain in chains}

    async def _new(self, item: Item, group: list[Slot]) -> list[list[Row]]:
        """Candidates from their first stage on."""
        rows = await self._ask(item, 0, group)
        return [[row] for row in rows] if len(self.stages) == 1 else await self._onward(item, rows)

    async def _onward(self, item: Item, rows: Sequence[Row]) -> list[list[Row]]:
        """Candidates whose first stage is there, through the others."""
        if len(self.stages) == 1 or not rows:
            return [[row] for row in rows]
        return await together([self._chain(item, row) for row in rows])

    async def _chain(self, item: Item, row: Row) -> list[Row]:
        """The rows of one candidate, up to the last stage or the first error."""
        rows, outputs = [row], {}
        for index in range(1, len(self.stages)):
            if row.error is not None:
                break
            outputs[self.stages[index - 1].name] = row.text or ""
            slot = self._slot(item, index, row.repeat, outputs)
            known = self._find(item, index, [slot])
            asked = [known[row.repeat]] if known else await self._ask(item, index, [slot])
            if not asked:
                break
            row = asked[0]
            rows.append(row)
        return rows

    def _slot(self, item: Item, index: int, repeat: int, outputs: Mapping[str, str]) -> Slot:
        stage = self.stages[index]
        plain = stage.kind != "generate"  # a likelihood is that of a text after a text
        chat = not plain and self.chat[stage.model]
        prompt = self.recipe.prompt(item, index, repeat, outputs, chat=chat)
        options = self._options(item, index, repeat) if plain else None
        sampling = of_repeat(stage.sampling, self.run_seed, item.case.id, stage.name, repeat)
        model = self.queues[stage.model].model.name
        key = key_of(model, stage.name, prompt, sampling, repeat, item.case.id, options)
        return Slot(repeat, key, prompt, sampling, options)

    def _options(self, item: Item, index: int, repeat: int) -> list[tuple[str, str]]:
        stage = self.stages[index]
        options = self.recipe.options(item, index, repeat)
        if not options:
            needs = "options to choose among" if stage.kind == "choose" else "a reference"
            raise InputError(f"case {item.case.id!r}: stage {stage.name!r} needs {needs}, and it has none")
        return options if stage.kind == "choose" else options[:1]

    def _ask(self, item: Item, index: int, group: list[Slot]) -> Coroutine[Any, Any, list[Row]]:
        """The rows of repeats that stand together, from the model."""
        stage = self.stages[index]
        asked = self.queues[stage.model].ask(_wanted(stage, item.case.id, group))
        return asked if self.cache is None or not same_always(stage) else self._remembered(stage, group[0], asked)

    def _find(self, item: Item, index: int, slots: Sequence[Slot]) -> dict[int, Row]:
        """What the store holds of these, or the cache."""
        rows = self.store.get([slot.key for slot in slots]) if self.stored else {}
        if self.cache is not None and len(rows) < len(slots) and same_always(self.stages[index]):
            self._recall(item.case.id, self.stages[index], [slot for slot in slots if slot.key not in rows], rows)
        self.tally.reused += len(rows)
        return {row.repeat: row for row in rows.values()}

    # replies of other runs

    def _recall(self, case_id: str, stage: Stage, slots: list[Slot], rows: dict[bytes, Row]) -> None:
        """Copy what the cache has into the store, as replies of this case that cost nothing."""
        assert self.cache is not None
        keys = {slot.key: self._shared_key(stage, slot) for slot in slots}
        known = self.cache.get(set(keys.values()))
        copies = []
        for slot in slots:
            if row := known.get(keys[slot.key]):
                place: dict[str, Any] = {
                    "key": slot.key,
                    "case_id": case_id,
                    "stage": stage.name,
                    "repeat": slot.repeat,
                }
                copies.append(row._replace(**place, cost=0.0, attempts=0, created=time.time()))
        if copies:
            self.store.put(copies)
            rows.update((row.key, row) for row in copies)

    async def _remembered(self, stage: Stage, slot: Slot, asked: Coroutine[Any, Any, list[Row]]) -> list[Row]:
        """Keep the first of these for other runs."""
        assert self.cache is not None
        rows = await asked
        self.cache.put([row._replace(key=self._shared_key(stage, slot)) for row in rows[:1] if row.error is None])
        return rows

    def _shared_key(self, stage: Stage, slot: Slot) -> bytes:
        """The key without case, repeat and seed; with everything the model says about itself."""
        model = self.queues[stage.model].model
        more = [model.describe(), slot.options]
        return key_of(model.name, stage.kind, slot.prompt, replace(slot.sampling, seed=None), 0, "", more)


def same_always(stage: Stage) -> bool:
    """Whether the same request has the same reply.

    >>> from kofn.generate.stages import Stage
    >>> same_always(Stage(name="a", kind="choose")), same_always(Stage(name="a"))
    (True, False)
    """
    return stage.kind != "generate" or stage.sampling.temperature == 0


def _wanted(stage: Stage, case_id: str, group: list[Slot]) -> Wanted:
    first = group[0]
    keys = [slot.key for slot in group]
    if first.options is not None:
        assert isinstance(first.prompt, str)
        choose = stage.kind == "choose"
        return Odds(
            stage=stage.name,
            case_id=case_id,
            repeat=first.repeat,
            keys=keys,
            prompt=first.prompt,
            options=first.options,
            choose=choose,
        )
    request = Request(prompt=first.prompt, sampling=first.sampling, n=len(group), case_id=case_id, repeat=first.repeat)
    return Outputs(stage=stage.name, case_id=case_id, repeat=first.repeat, keys=keys, request=request)
