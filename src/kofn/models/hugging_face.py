"""`hf:PATH`: a model folder, with or without a PEFT adapter, run here by transformers and torch (extra `hf`)."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kofn.models.base import Likelihood, Model, Reply, RequestRejected
from kofn.models.decoding import DecodingCancelled, DecodingRow, ForwardPass, decode, likelihoods
from kofn.models.in_training import ModelInTraining
from kofn.models.local_folders import LocalWeights, find_model_folders, load_tokenizer, load_torch, pick_device
from kofn.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kofn.models.base import Request
    from kofn.models.decoding import Output
    from kofn.models.tokenizer import TokenPair

    T = TypeVar("T")

_ROWS = {"cpu": 8, "cuda": 32, "mps": 16}  # default batch by device
# What torch says when memory runs out: outside of CUDA it raises a plain RuntimeError, so the text has to tell.
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
        folders = find_model_folders(spec)
        tokenizer = Tokenizer(load_tokenizer(folders))
        source = LocalWeights(folders, pick_device(device), dtype)
        self._set_up(f"hf:{spec.removeprefix('hf:')}", source, tokenizer, 1 if reproducible else batch)

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
        source = ModelInTraining(model, adapter, disable_adapter=disable_adapter)
        source.confirm(device)
        self._set_up(name, source, Tokenizer(tokenizer), batch)
        return self

    def _set_up(
        self, name: str, source: LocalWeights | ModelInTraining, tokenizer: Tokenizer, batch: int | None
    ) -> None:
        self.name, self.chat = name, tokenizer.chat
        self.batch = self.samples = batch or _ROWS.get(source.device.partition(":")[0], 8)
        self._source, self._tokenizer = source, tokenizer
        self._rows = self.batch  # halved each time memory runs out

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
            raise RequestRejected(problem)

    async def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """How likely each continuation is: the log-probabilities of its tokens, after the tokens of its context.

        The two are encoded together and split where the context ends; spaces at the end of the context count as the
        continuation's. An empty continuation is certain.
        """
        token_pairs = [self._tokenizer.pair(*pair) for pair in pairs]
        found: dict[int, Likelihood] = {}
        order = sorted((i for i, p in enumerate(token_pairs) if p.continuation), key=lambda i: -_length(token_pairs[i]))
        while order:
            got = await _in_thread(partial(self._likelihoods, [token_pairs[i] for i in order]))
            found.update(zip(order, got, strict=False))
            order = order[len(got) :]
        sure = Likelihood(logprob=0.0, tokens=0, greedy=True)
        return [found.get(i, sure) for i in range(len(token_pairs))]

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

    def _rows_of(self, requests: Sequence[Request], context: int | None) -> tuple[list[DecodingRow], str | None]:
        """A row an output, longest prompts first, those of one prompt together; and what does not fit."""
        rows: list[DecodingRow] = []
        problem = None
        for place, request in enumerate(requests):
            prompt, sampling = self._tokenizer.encode(request.prompt), request.sampling
            room = sampling.max_tokens if context is None else min(sampling.max_tokens, context - len(prompt))
            if room < 1:
                problem = f"the prompt has {len(prompt)} tokens: {self.name} reads {context}, its reply included"
                continue
            seeds = [None if sampling.seed is None else sampling.seed + j for j in range(request.n)]
            rows += [
                DecodingRow(place=place, index=j, prompt=prompt, sampling=sampling, seed=seed, limit=room)
                for j, seed in enumerate(seeds)
            ]
        return sorted(rows, key=lambda row: -len(row.prompt)), problem

    def _write(self, rows: Sequence[DecodingRow], stopped: Callable[[], bool]) -> list[Output]:
        """The outputs of the first rows: as many as are computed together."""

        def some(n: int) -> list[Output]:
            with self._source.using() as model:
                forward_pass = ForwardPass(model, self._tokenizer.padding)
                return decode(forward_pass, self._tokenizer, self._tokenizer.ends(model), rows[:n], stopped)

        try:
            return self._fitting(some)
        except DecodingCancelled:
            return []

    def _likelihoods(self, pairs: Sequence[TokenPair], stopped: Callable[[], bool]) -> list[Likelihood]:  # noqa: ARG002 - one step
        def some(n: int) -> list[Likelihood]:
            with self._source.using() as model:
                return likelihoods(ForwardPass(model, self._tokenizer.padding), pairs[:n], context)

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
                    raise RequestRejected(f"{self.name}: one row alone does not fit in memory") from None
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


def _length(pair: TokenPair) -> int:
    return len(pair.context) + len(pair.continuation)


def _out_of_memory(problem: Exception) -> bool:
    return isinstance(problem, MemoryError) or any(words in str(problem).lower() for words in _NO_MEMORY)


def _let_go() -> None:
    """Give back what torch keeps of the attempt that failed."""
    torch = load_torch()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
