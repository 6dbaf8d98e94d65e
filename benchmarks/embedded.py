"""The embedded model: several samples in one request against one after another, beside a busy process, reproducible.

python benchmarks/run.py --only embedded
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from table import Limit, Row, left_out, one_pass, show

from kofn.models import open_model
from kofn.models.base import Message, Request, Sampling
from kofn.models.smollm2_weights import ensure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.models.base import Model

TITLE = "The embedded model"
HOW = """Tokens per second of smollm2 on the CPU; several samples of a prompt share its computation. The limit is to
read the weights from memory once per step, for all samples that are generated together: the bound that memory sets
for one core. The model computes far more than it reads, so nothing comes near it; it shows what generating samples
together can gain."""

ROUNDS, SAMPLES, TOKENS = 2, 5, 48
QUESTIONS = (
    "What is the capital of France? Answer in one short sentence.",
    "Tom has 3 apples and buys 4 more. How many apples does he have? Think step by step.",
    "Name a large animal and say in two sentences why it is large.",
)
BUSY = "while True: pass"


def requests(n: int, first: int, tokens: int = TOKENS) -> Iterator[Request]:
    for i, question in enumerate(QUESTIONS):
        sampling = Sampling(temperature=0.8, max_tokens=tokens, seed=1000 * i + first)
        yield Request(prompt=(Message("user", question),), sampling=sampling, n=n)


async def rate(model: Model, asked: list[Request]) -> float:
    """Tokens per second, prompts not counted."""
    start, tokens = time.perf_counter(), 0
    for request in asked:
        async for reply in model.generate([request]):
            tokens += reply.tokens_out or 0
    return tokens / (time.perf_counter() - start)


async def best(model: Model, asked: dict[str, list[Request]]) -> dict[str, float]:
    """The best rate of each way, interleaved, after one that warms up."""
    await rate(model, list(requests(1, 0)))
    found = dict.fromkeys(asked, 0.0)
    for _ in range(ROUNDS):
        for name, several in asked.items():
            found[name] = max(found[name], await rate(model, several))
    await model.close()
    return found


async def rates(samples: int, tokens: int) -> dict[str, float]:
    one_by_one = [request for first in range(samples) for request in requests(1, first, tokens)]
    together = list(requests(samples, 0, tokens))
    quiet = await best(open_model("smollm2"), {"together": together, "one by one": one_by_one})
    exact = await best(open_model("smollm2", reproducible=True), {"reproducible": together})
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        beside = await best(open_model("smollm2"), {"beside": together, "beside, one by one": one_by_one})
    finally:
        busy.kill()
        busy.wait()
    return quiet | exact | beside


def main(small: bool = False) -> list[Row]:
    if find_spec("xllamacpp") is None:
        left_out("the embedded model: no module xllamacpp (pip install 'kofn[local]')")
        return []
    samples, tokens = (2, 4) if small else (SAMPLES, TOKENS)
    found = asyncio.run(rates(samples, tokens))
    step = one_pass(ensure().stat().st_size).cost

    def row(work: str, ours: str, peer: str, theirs: str, together: int = samples) -> Row:
        limit = Limit("reading the weights once per step", together / step)
        return show(Row(work=work, kofn=found[ours], peer=peer, theirs=found[theirs], limit=limit, unit="tokens/s"))

    print(f"load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return [
        row(f"{samples} samples of a prompt", "together", f"{samples} calls in turn", "one by one"),
        row("the same, reproducible", "reproducible", "not reproducible", "together"),
        row("the same, beside a process that keeps one core busy", "beside", "without", "together"),
        row("one sample per call, beside such a process", "beside, one by one", "without", "one by one", 1),
    ]


if __name__ == "__main__":
    main()
