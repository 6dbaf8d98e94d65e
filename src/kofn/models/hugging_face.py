"""`hf:PATH`, run here by transformers and torch (extra `hf`): a model folder, or a model that is being trained."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kofn.errors import InputError
from kofn.models.base import Likelihood, Model, Reply, RequestRejected
from kofn.models.decoding import DecodingCancelled, DecodingRow, ForwardPass, Tokenizer, decode, likelihoods
from kofn.models.local_folders import LocalWeights, find_model_folders, load_tokenizer, load_torch, pick_device

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from kofn.models.base import Request
    from kofn.models.decoding import Output, TokenPair

    T = TypeVar("T")

# Actor and critic may be two faces of one model, so that all models of this kind are used one at a time.
_ONE_AT_A_TIME = threading.RLock()
_ROWS = {"cpu": 8, "cuda": 32, "mps": 16}  # default batch by device
# What torch says when memory runs out: outside of CUDA it raises a plain RuntimeError, so the text has to tell.
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")

# --- a model in training: evaluated without gradients and left in the state it was found in


class ModelInTraining:
    """A model in memory, used with one adapter on, with all adapters off, or as it is."""

    def __init__(self, model: Any, adapter: str | None = None, *, disable_adapter: bool = False) -> None:
        self.model = _inside(model)
        self.adapter, self.off = adapter, disable_adapter
        known = list(getattr(self.model, "peft_config", {}))
        if adapter is not None and adapter not in known:
            raise InputError(f"the model has no adapter {adapter!r}: it has {', '.join(known) or 'none'}")
        if disable_adapter and not hasattr(self.model, "disable_adapter"):
            raise InputError("disable_adapter: the model is not a PeftModel, so that it has no adapter to turn off")

    @property
    def device(self) -> str:
        """Where its first parameter is."""
        return str(next(self.model.parameters()).device)

    def confirm(self, device: Any) -> None:
        """Refuse a device other than the one that the model is on."""
        if device is not None and load_torch().device(device).type != self.device.partition(":")[0]:
            raise InputError(f"device {str(device)!r}: the model is on {self.device}: move it there first")

    def describe(self) -> dict[str, Any]:
        """What a manifest can say of a model that changes."""
        adapter = None if self.off else self.adapter or getattr(self.model, "active_adapter", None)
        return {"live": type(self.model).__name__, "device": self.device, "adapter": adapter}

    def close(self) -> None:
        """Do nothing: the model belongs to the training loop."""

    @contextmanager
    def using(self) -> Iterator[Any]:
        """The model in evaluation mode.

        Afterwards every module is in the mode it was in, every parameter as trainable as it was, and the same adapter
        is on. There is no gradient, but no inference mode either: what a model keeps from it could not be trained on.
        """
        with _ONE_AT_A_TIME, load_torch().no_grad():
            modes = [(module, module.training) for module in self.model.modules()]
            trainable = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
            before = getattr(self.model, "active_adapter", None)
            try:
                self.model.eval()
                if self.adapter is not None:
                    self.model.set_adapter(self.adapter)
                with self.model.disable_adapter() if self.off else nullcontext():
                    yield self.model
            finally:
                if self.adapter is not None:
                    self.model.set_adapter(before)
                for module, mode in modes:
                    module.training = mode
                for parameter, was in trainable:
                    parameter.requires_grad_(was)


def weights_digest(model: Any) -> str:
    """Eight hex digits that change when a model is trained on: made of the sum of every parameter."""
    from hashlib import blake2b

    torch, parameters = load_torch(), _inside(model).parameters()
    kinds = ((p, torch.float32 if p.device.type == "mps" else torch.float64) for p in parameters)
    sums = [torch.sum(p.detach(), dtype=dtype).item() for p, dtype in kinds]
    return blake2b(repr(sums).encode(), digest_size=4).hexdigest()


def _inside(model: Any) -> Any:
    """The model itself, out of what distributed training or compilation wraps around it."""
    torch = load_torch()
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


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
        rows, problem = self._rows_of(requests, await asyncio.to_thread(self._context))
        while rows:
            outputs = await _in_thread(partial(self._write, rows))
            rows = rows[len(outputs) :]
            for output in outputs:
                yield Reply(
                    text=output.text,
                    place=output.row.place,
                    index=output.row.index,
                    finish=output.finish,
                    logprob=output.logprob if output.row.sampling.logprobs else None,
                    tokens_in=len(output.row.prompt),
                    tokens_out=len(output.tokens),
                )
        if problem is not None:
            raise RequestRejected(problem)

    async def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """How likely each continuation is: the log-probabilities of its tokens, after the tokens of its context.

        The two are encoded together and split where the context ends; spaces at the end of the context count as the
        continuation's. An empty continuation is certain.
        """
        token_pairs = [self._tokenizer.pair(*pair) for pair in pairs]
        found: dict[int, Likelihood] = {}
        order = sorted(
            (i for i, p in enumerate(token_pairs) if p.continuation),
            key=lambda i: -len(token_pairs[i].context + token_pairs[i].continuation),
        )
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
            for j in range(request.n):
                seed = None if sampling.seed is None else sampling.seed + j
                row = DecodingRow(place=place, index=j, prompt=prompt, sampling=sampling, seed=seed, limit=room)
                rows.append(row)
        return sorted(rows, key=lambda row: -len(row.prompt)), problem

    def _write(self, rows: Sequence[DecodingRow], stopped: Callable[[], bool]) -> list[Output]:
        """The outputs of the first rows: as many as are computed together."""
        tokenizer = self._tokenizer
        try:
            return self._fitting(lambda run, n: decode(run, tokenizer, tokenizer.ends(run.model), rows[:n], stopped))
        except DecodingCancelled:
            return []

    def _likelihoods(self, pairs: Sequence[TokenPair], stopped: Callable[[], bool]) -> list[Likelihood]:  # noqa: ARG002 - one step
        context = self._context()
        return self._fitting(lambda run, n: likelihoods(run, pairs[:n], context))

    def _fitting(self, work: Callable[[ForwardPass, int], list[T]]) -> list[T]:
        """Do the work on as many rows as fit in memory: half as many from now on when it runs out."""
        while True:
            try:
                with self._source.using() as model:
                    return work(ForwardPass(model, self._tokenizer.padding), self._rows)
            except (RuntimeError, MemoryError) as problem:  # torch.OutOfMemoryError is a RuntimeError
                text = str(problem).lower()
                if not isinstance(problem, MemoryError) and not any(words in text for words in _NO_MEMORY):
                    raise
                if self._rows == 1:
                    raise RequestRejected(f"{self.name}: one row alone does not fit in memory") from None
            self._rows = max(1, self._rows // 2)
            if load_torch().cuda.is_available():  # torch keeps what the attempt that failed has used
                load_torch().cuda.empty_cache()


async def _in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Compute beside the event loop; when the caller is cancelled, the computation ends at its next token."""
    gone = threading.Event()
    try:
        return await asyncio.to_thread(work, gone.is_set)
    finally:
        gone.set()
