"""hf:PATH: a model folder, with a PEFT adapter or without, computed on this machine by transformers and torch."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kofn.models.adapters import Folder, find_place, load_tokenizer, load_torch, pick_device
from kofn.models.base import Declined, Likelihood, Model, Reply
from kofn.models.decoding import Reader, Row, Stopped, likelihoods, write
from kofn.models.live import Live
from kofn.models.tokens import Words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kofn.models.base import Request
    from kofn.models.decoding import Output
    from kofn.models.tokens import Pair

    T = TypeVar("T")

_ROWS = {"cpu": 8, "cuda": 32, "mps": 16}  # outputs computed together where nobody says
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


class Transformers(Model):
    """A causal language model of transformers. `batch` outputs are computed together, fewer where memory ends.

    Nothing is downloaded, and no code of a model folder is run. Models of one base share it in memory. A temperature or
    top_p of None is 1: what generation_config.json suggests is not applied. `reproducible` computes one output at a
    time, so that nothing depends on its batch mates, not even the rounding.
    """

    local: ClassVar[bool] = True

    def __init__(
        self,
        spec: str,
        *,
        reproducible: bool = False,
        device: str | None = None,
        dtype: str | None = None,
        batch: int | None = None,
        **options: Any,  # noqa: ARG002 - such as the timeout of a server, which nothing here can use
    ) -> None:
        place = find_place(spec)
        words = Words(load_tokenizer(place))
        source = Folder(place, pick_device(device), dtype)
        self._set_up(f"hf:{spec.removeprefix('hf:')}", source, words, 1 if reproducible else batch)

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        device: Any = None,
        name: str = "live",
        adapter: str | None = None,
        disable_adapter: bool = False,
        batch: int | None = None,
    ) -> Transformers:
        """A model that is in memory already, such as that of a training loop, which is left as it was found.

        `adapter` is turned on for the calls, `disable_adapter` turns them all off: the frozen base of a PeftModel. The
        model stays on its device, which `device` may only confirm.
        """
        self = cls.__new__(cls)
        source = Live(model, adapter, disable_adapter=disable_adapter)
        source.confirm(device)
        self._set_up(name, source, Words(tokenizer), batch)
        return self

    def _set_up(self, name: str, source: Folder | Live, words: Words, batch: int | None) -> None:
        self.name, self.chat = name, words.chat
        self.batch = self.samples = batch or _ROWS.get(source.device.partition(":")[0], 8)
        self._source, self._words = source, words
        self._rows = self.batch  # halved when memory ends

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """The replies, a batch at a time. A prompt too long for the model is declined after the others are done."""
        context = await asyncio.to_thread(self._context)
        rows, problem = self._rows_of(requests, context)
        while rows:
            outputs = await _in_thread(partial(self._write, rows))
            rows = rows[len(outputs) :]
            for output in outputs:
                yield self._reply(output)
        if problem is not None:
            raise Declined(problem)

    async def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """How likely each continuation is: the log-probabilities of its tokens, after the tokens of its context.

        The two are encoded together and split where the context ends; spaces at the end of the context count as the
        continuation's. An empty continuation is certain.
        """
        told = [self._words.pair(*pair) for pair in pairs]
        found: dict[int, Likelihood] = {}
        order = sorted((i for i, p in enumerate(told) if p.continuation), key=lambda i: -_length(told[i]))
        while order:
            got = await _in_thread(partial(self._weigh, [told[i] for i in order]))
            found.update(zip(order, got, strict=False))
            order = order[len(got) :]
        sure = Likelihood(logprob=0.0, tokens=0, greedy=True)
        return [found.get(i, sure) for i in range(len(told))]

    def describe(self) -> dict[str, Any]:
        """Folders with their fingerprints, device, and what a seed decides."""
        return {
            "name": self.name,
            "backend": "transformers",
            **self._source.describe(),
            "chat_template": self.chat,
            "batch": self.batch,
            "seeds": "an output depends on its own seed; its batch changes the rounding"
            if self.batch > 1
            else "an output depends on its own seed alone",
            "versions": {name: version(name) for name in ("torch", "transformers")},
        }

    async def close(self) -> None:
        """Let the weights go; a base that others use stays."""
        self._source.close()

    def _context(self) -> int | None:
        """The most tokens the model reads, None where it does not say."""
        with self._source.using() as model:
            config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
        return getattr(config, "max_position_embeddings", None)

    def _rows_of(self, requests: Sequence[Request], context: int | None) -> tuple[list[Row], str | None]:
        """A row an output, longest prompts first, those of one prompt together; and what does not fit."""
        rows: list[Row] = []
        problem = None
        for place, request in enumerate(requests):
            prompt, sampling = self._words.encode(request.prompt), request.sampling
            room = sampling.max_tokens if context is None else min(sampling.max_tokens, context - len(prompt))
            if room < 1:
                problem = f"the prompt has {len(prompt)} tokens: {self.name} reads {context}, its reply included"
                continue
            seeds = [None if sampling.seed is None else sampling.seed + j for j in range(request.n)]
            rows += [
                Row(place=place, index=j, prompt=prompt, sampling=sampling, seed=seed, limit=room)
                for j, seed in enumerate(seeds)
            ]
        return sorted(rows, key=lambda row: -len(row.prompt)), problem

    def _write(self, rows: Sequence[Row], stopped: Callable[[], bool]) -> list[Output]:
        """The outputs of the first rows: as many as are computed together."""

        def some(n: int) -> list[Output]:
            with self._source.using() as model:
                reader = Reader(model, self._words.padding)
                return write(reader, self._words, self._words.ends(model), rows[:n], stopped)

        try:
            return self._fitting(some)
        except Stopped:
            return []

    def _weigh(self, pairs: Sequence[Pair], stopped: Callable[[], bool]) -> list[Likelihood]:  # noqa: ARG002 - one step
        def some(n: int) -> list[Likelihood]:
            with self._source.using() as model:
                return likelihoods(Reader(model, self._words.padding), pairs[:n], context)

        context = self._context()
        return self._fitting(some)

    def _fitting(self, work: Callable[[int], list[T]]) -> list[T]:
        """Do the work on as many rows as fit in memory: half as many from now on when it runs out."""
        while True:
            try:
                return work(self._rows)
            except (RuntimeError, MemoryError) as problem:  # torch.OutOfMemoryError is a RuntimeError
                if not _out_of_memory(problem):
                    raise
                if self._rows == 1:
                    raise Declined(f"{self.name}: one row alone does not fit in memory") from None
            self._rows = max(1, self._rows // 2)
            _let_go()

    def _reply(self, output: Output) -> Reply:
        row = output.row
        return Reply(
            text=output.text,
            place=row.place,
            index=row.index,
            finish=output.finish,
            logprob=output.logprob if row.sampling.logprobs else None,
            tokens_in=len(row.prompt),
            tokens_out=len(output.tokens),
        )


async def _in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Compute beside the event loop; when the caller is cancelled, the computation ends at its next token."""
    gone = threading.Event()
    try:
        return await asyncio.to_thread(work, gone.is_set)
    finally:
        gone.set()


def _length(pair: Pair) -> int:
    return len(pair.context) + len(pair.continuation)


def _out_of_memory(problem: Exception) -> bool:
    return isinstance(problem, MemoryError) or any(words in str(problem).lower() for words in _NO_MEMORY)


def _let_go() -> None:
    """Give back what torch keeps of the attempt that failed."""
    torch = load_torch()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
