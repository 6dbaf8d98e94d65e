"""A small run of two stages for tests, here or in a process that will be killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kofn.core.types import Case
from kofn.generate.calls import CallContext
from kofn.generate.limits import Limits
from kofn.generate.runner import Fixed, generate
from kofn.generate.store import Store
from kofn.models.base import Message, Model, Reply, Sampling
from kofn.models.openai import OpenAI
from kofn.tasks.stages import Item, Stage

FINGERPRINT = {"task": "test"}


def items(n):
    return [Item(case=Case(id=f"c{i}"), fields={"question": f"{i} + {i}?"}) for i in range(n)]


class Recipe:
    """Reasoning, then an answer; or whatever stages are given."""

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages or (
            Stage(name="think", sampling=Sampling(temperature=0.8, max_tokens=16)),
            Stage(name="answer", sampling=Sampling(temperature=0.0, max_tokens=16)),
        )

    def prompt(self, item, stage, repeat, outputs, *, chat):  # noqa: ARG002 - the protocol's
        text = " ".join([self.stages[stage].name, item.case.id, *outputs.values()])
        return (Message("user", text),) if chat else text

    def options(self, item, stage, repeat):  # noqa: ARG002 - the protocol's
        return [(label, f" {label.lower()}" * (i + 1)) for i, label in enumerate("AB")]


ONE = Recipe(Stage(name="answer", sampling=Sampling(temperature=0.8)))


class Echo(Model):
    """Says what it is asked, with the seed. `asked` is every request; `script` may raise, by the number of the call."""

    def __init__(self, script=None, *, batch=1, concurrency=4, samples=4, name="echo"):
        self.name, self.batch, self.concurrency, self.samples = name, batch, concurrency, samples
        self.chat, self.script = False, script
        self.requests, self.sizes, self.now, self.most = [], [], 0, 0

    async def generate(self, requests):
        self.requests += requests
        self.sizes.append(len(requests))
        number = len(self.sizes)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            for place, request in enumerate(requests):
                for index in range(request.n):
                    if self.script:
                        await self.script(number, request, index)
                    yield self.say(request, place, index)
        finally:
            self.now -= 1

    def say(self, request, place, index):
        seed = request.sampling.seed
        text = f"{request.prompt}|{None if seed is None else seed + index}"
        return Reply(text=text, place=place, index=index, tokens_in=10, tokens_out=3, finish="stop")


def open_store(directory):
    return Store.open(Path(directory), fingerprint=FINGERPRINT)


def run(directory, model, *, n=5, recipe=ONE, repeats=None, seed=1, limits=None, **more):
    """One run from open to close; the outcome and the rows of each case."""
    rows = {}
    context = {name: more.pop(name) for name in ("price", "cache", "tally") if name in more}

    def done(item, found):
        rows[item.case.id] = found

    async def go(store):
        return await generate(
            items(n) if isinstance(n, int) else n,
            recipe,
            model if isinstance(model, dict) else {"actor": model},
            CallContext(store=store, limits=limits or Limits(), seed=seed, **context),
            repeats=repeats or Fixed(3),
            on_case=done,
            **more,
        )

    with open_store(directory) as store:
        return asyncio.run(go(store)), rows


def work(directory, url, n, repeats):
    """What is killed: a run against a server."""

    async def go(store):
        model = OpenAI(f"m@{url}")
        try:
            limits = Limits(concurrency=4, retries=8)
            await generate(
                items(n),
                Recipe(),
                {"actor": model},
                CallContext(store=store, limits=limits, seed=1),
                repeats=Fixed(repeats),
            )
        finally:
            await model.close()

    with open_store(directory) as store:
        asyncio.run(go(store))
