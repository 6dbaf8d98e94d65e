"""`smollm2` and `gguf:PATH`: a language model in this process, run by llama.cpp (extra `local`).

All samples of a request are computed together, and its prompt once. Where a request says nothing of it, llama.cpp's own
sampling holds: temperature 0.8, top_p 0.95; top_k 40 and min_p 0.05 always.

Two modes. In the fast one requests share the machine and reuse what was computed for a prompt, and the same seed gives
the same text only nearly always: rounding depends on what is computed beside it. `reproducible` computes one output at
a time from nothing, so that its text depends on prompt, parameters and seed alone, in any order and in a new process.
Five samples of a short prompt then take about twice as long (measured: 1.8 times), of a long one more: the prompt is
computed for each. Another number of threads, another release of llama.cpp or another machine may round otherwise.

One server on 127.0.0.1 per model file and setup is shared by all who use it. Its server, and not the calls it has for
Python: only there are the tokens of every sample counted and texts turned into tokens, an abandoned reply is given up
at once, and a round trip costs 1 to 2 ms where a sample costs hundreds. A key made for the process keeps others on the
machine out.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import threading
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from kofn.core.system import available_cores
from kofn.errors import InputError, import_extra
from kofn.models import smollm2_weights
from kofn.models.base import Likelihood, Model, Reply, RequestRejected, RetryableError
from kofn.models.http_client import Address, Client, replace_surrogates
from kofn.models.smollm2_weights import ensure
from kofn.runs.files import digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kofn.models.base import Prompt, Request

_LOADING = threading.Lock()  # two threads that need the same file must not load it twice
SAMPLES = 8
CONTEXT = 8192
LONGEST_REPLY = 3600.0  # seconds; slow machines are slow, and a runner may have a shorter patience
FINISH = {"eos": "stop", "word": "stop", "limit": "length"}
HEADER = 64 << 20  # bytes: a .gguf file begins with its metadata, the vocabulary included

# --- the server


@dataclass(frozen=True, slots=True)
class Setup:
    """What makes two models one: the file, and how it is computed."""

    path: Path
    threads: int
    context: int
    slots: int


class LlamaServer:
    """A loaded model, freed when nothing holds it any more. Idle prompts are kept in the context, nowhere else."""

    def __init__(self, setup: Setup, name: str) -> None:
        import json
        from urllib.request import ProxyHandler, Request, build_opener

        key = secrets.token_urlsafe(24)
        self._server = _start_server(setup, name, key)
        self.url = str(self._server.listening_address)
        self.headers = {"Authorization": f"Bearer {key}"}
        self.room = ContextRoom(setup.context)
        ask = Request(f"{self.url}/props", headers=self.headers)  # noqa: S310 - our own address
        # no proxy, whatever the environment says: the server is this process
        with build_opener(ProxyHandler({})).open(ask, timeout=60) as reply:
            properties: dict[str, Any] = json.load(reply)
        # what a text with nothing before it is taken to follow: the token that begins texts, or ends them
        self.first = str(properties.get("bos_token") or properties.get("eos_token") or "")


_SERVERS: WeakValueDictionary[Setup, LlamaServer] = WeakValueDictionary()


def shared_server(setup: Setup, name: str) -> LlamaServer:
    """The server of a setup. Loading takes about a second, and happens once for as long as the server is in use."""
    with _LOADING:
        found = _SERVERS.get(setup)
        if found is None:
            found = _SERVERS[setup] = LlamaServer(setup, name)
        return found


def _start_server(setup: Setup, name: str, key: str) -> Any:
    # OpenMP reads this when xllamacpp is imported. Without it waiting threads spin, and starve beside another process.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    xllamacpp = import_extra("xllamacpp", "local", f"model {name}")
    params = xllamacpp.CommonParams()
    params.model.path = str(setup.path)
    # unified: the slots share one context, so that a long prompt alone may use all of it
    params.n_parallel, params.n_ctx, params.kv_unified = setup.slots, setup.context, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setup.threads
    params.fit_params = params.ui = params.endpoint_slots = False
    params.cache_ram_mib = 0  # else prompts of the past are kept, up to 8 GB of them
    params.api_keys, params.verbosity = [key], -1
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise InputError(f"model {name}: llama.cpp cannot load {setup.path}: is it a whole .gguf file?") from None


class ContextRoom:
    """The tokens that fit the context, shared by what is computed at the same time, first come first served.

    All samples of all requests in progress are in one context: more than fit would fail together.
    """

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, tokens: int) -> AsyncIterator[None]:
        """Hold this many tokens, at most all of them."""
        size = min(tokens, self.size)
        await self._enter(size)
        try:
            yield
        finally:
            self._give(size)

    async def _enter(self, tokens: int) -> None:
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (tokens, ticket)
        self._waiting.append(entry)
        self._give(0)
        try:
            await ticket
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            else:  # it was let in, and cancelled before it knew
                self._free += tokens
            self._give(0)
            raise

    def _give(self, tokens: int) -> None:
        self._free += tokens
        while self._waiting and self._waiting[0][0] <= self._free:
            taken, ticket = self._waiting.popleft()
            self._free -= taken
            if not ticket.cancelled():
                ticket.set_result(None)


class Embedded(Model):
    """A .gguf file: gguf:PATH.

    `context` is how many tokens fit, prompt and output, of all samples in progress together. Threads are as many as
    the environment variable KOFN_THREADS says, else as the process may use cores.
    """

    local: ClassVar[bool] = True

    def __init__(self, spec: str, *, reproducible: bool = False, context: int = CONTEXT) -> None:
        self.name, self.reproducible, self.context = f"gguf:{spec}", reproducible, context
        self.path: Path | None = Path(spec).expanduser()
        self.chat = _has_template(self.path)
        self._set_up()

    def _set_up(self) -> None:
        self.threads = _threads()
        self.samples, self.concurrency = (1, 1) if self.reproducible else (SAMPLES, 2)
        self._server: LlamaServer | None = None
        self._client: Client | None = None

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """The replies of one request after another; all samples that fit the context come together."""
        for place, request in enumerate(requests):
            server, client = await self._ready()
            prompt = await self._tokens(client, request.prompt)
            left = self.context - len(prompt)
            if left < 1:
                raise RequestRejected(f"the prompt has {len(prompt)} tokens, and the context holds {self.context}")
            most = max(1, min(self.samples, left // max(1, request.sampling.max_tokens)))
            for first in range(0, request.n, most):
                n = min(most, request.n - first)
                body = self._body(prompt, request, n, first)
                async with server.room.take(self._size(len(prompt) + n * request.sampling.max_tokens)):
                    results = await client.post("/completion", body)
                for one in results if isinstance(results, list) else [results]:
                    yield _reply(one, place, first, request.sampling.logprobs)

    async def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """Each continuation is forced token by token; summed is what the model gave each of them unforced."""
        return [await self._likelihood(*pair) for pair in pairs]

    def describe(self) -> dict[str, Any]:
        """File, digest, version and mode: what the outputs depend on."""
        from importlib.metadata import PackageNotFoundError, version

        runtime = None
        with suppress(PackageNotFoundError):
            runtime = version("xllamacpp")
        return {
            "name": self.name,
            **self._file(),
            "xllamacpp": runtime,
            "threads": self.threads,
            "context": self.context,
            "mode": "reproducible" if self.reproducible else "fast",
            "always": {"top_k": 40, "min_p": 0.05},
        }

    async def close(self) -> None:
        """Let the model go; its memory is freed when no other holds it. A later call loads it again."""
        client, self._client, self._server = self._client, None, None
        if client is not None:
            await client.close()

    def _file(self) -> dict[str, Any]:
        assert self.path is not None
        return {"file": self.path.name, "sha256": digest(self.path)}

    def _locate_file(self) -> Path:
        assert self.path is not None
        return self.path.resolve()

    async def _ready(self) -> tuple[LlamaServer, Client]:
        if self._server is None or self._client is None:
            server = await asyncio.to_thread(self._load)
            if self._server is not server or self._client is None:
                address = Address(model=self.name, base=server.url, display=server.url, official=False)
                self._server, self._client = server, Client(self.name, address, server.headers, LONGEST_REPLY)
        return self._server, self._client

    def _load(self) -> LlamaServer:
        slots = 1 if self.reproducible else SAMPLES
        return shared_server(Setup(self._locate_file(), self.threads, self.context, slots), self.name)

    def _size(self, tokens: int) -> int:
        """The part of the context that a call holds; all of it where nothing may run beside."""
        return self.context if self.reproducible else tokens

    async def _tokens(self, client: Client, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str):
            messages = [{"role": m.role, "content": m.content} for m in prompt]
            prompt = (await client.post("/apply-template", {"messages": messages}))["prompt"]
        body = {"content": prompt, "add_special": True, "parse_special": True}
        tokens: list[int] = (await client.post("/tokenize", body))["tokens"]
        assert self._server is not None
        if not tokens and self._server.first:
            tokens = (await client.post("/tokenize", {"content": self._server.first, "parse_special": True}))["tokens"]
        if not tokens:
            raise RequestRejected("the prompt is empty")
        return tokens

    def _body(self, prompt: list[int], request: Request, n: int, first: int) -> dict[str, Any]:
        sampling = request.sampling
        body = {
            "prompt": prompt,
            "n_predict": sampling.max_tokens,
            "n_cmpl": n,
            "cache_prompt": not self.reproducible,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": sampling.stop or None,
            "seed": None if sampling.seed is None else (sampling.seed + first) % (2**32 - 1),  # the last means any
            "n_probs": 1 if sampling.logprobs else None,
        }
        return {key: value for key, value in body.items() if value is not None}

    async def _likelihood(self, context: str, continuation: str) -> Likelihood:
        server, client = await self._ready()
        # spaces at the end of the context go to the continuation: the tokenizer writes them at the beginning of a word
        kept = context.rstrip()
        before = await self._tokens(client, kept)
        whole = await self._tokens(client, kept + context[len(kept) :] + continuation) if kept else None
        forced = whole[len(before) :] if whole else await self._tokens(client, context + continuation)
        if len(before) + len(forced) > self.context:
            raise RequestRejected(f"{len(before) + len(forced)} tokens, and the context holds {self.context}")
        if not continuation or not forced:
            return Likelihood(logprob=0.0, tokens=0, greedy=True)
        body = {
            "prompt": before,
            "n_predict": len(forced),
            "temperature": 0,
            "n_probs": 1,
            "cache_prompt": not self.reproducible,
            # a grammar with one sentence; llama.cpp reports the log-probabilities before it applies the grammar
            "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in forced),
        }
        try:
            async with server.room.take(self._size(len(before) + len(forced))):
                probabilities = (await client.post("/completion", body))["completion_probabilities"]
        except RetryableError as problem:
            if "grammar" in str(problem):  # a token that ends texts cannot be forced
                raise RequestRejected("the continuation holds a control token") from None
            raise
        if [one["id"] for one in probabilities] != forced:
            raise RequestRejected("the continuation could not be forced on the model")
        return Likelihood(
            logprob=math.fsum(one["logprob"] for one in probabilities),
            tokens=len(forced),
            greedy=all(one["top_logprobs"][0]["id"] == one["id"] for one in probabilities),
        )


class SmolLM2(Embedded):
    """SmolLM2-135M-Instruct, a small real language model for any machine; fetched once (98 MB)."""

    def __init__(self, spec: str = "", *, reproducible: bool = False, context: int = CONTEXT) -> None:
        if spec:
            raise InputError(f"model 'smollm2:{spec}': smollm2 stands alone; another file is gguf:PATH")
        self.name, self.reproducible, self.context, self.path = "smollm2", reproducible, context, None
        self._set_up()

    def _file(self) -> dict[str, Any]:
        path = smollm2_weights.find()
        return {"file": smollm2_weights.FILE, "sha256": digest(path) if path else smollm2_weights.SHA256}

    def _locate_file(self) -> Path:
        return ensure().resolve()


def _reply(result: dict[str, Any], place: int, first: int, logprobs: bool) -> Reply:
    return Reply(
        text=replace_surrogates(result["content"]),
        place=place,
        index=first + result["index"],
        finish=FINISH.get(result["stop_type"], result["stop_type"]),
        logprob=math.fsum(one["logprob"] for one in result["completion_probabilities"]) if logprobs else None,
        tokens_in=result["tokens_evaluated"],
        tokens_out=result["tokens_predicted"],
    )


def _threads() -> int:
    """KOFN_THREADS, else the cores that this process may use."""
    if not (given := os.environ.get("KOFN_THREADS")):
        return available_cores()
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"KOFN_THREADS={given}: expected a whole number from 1")
    return int(given)


def _has_template(path: Path) -> bool:
    """Whether a .gguf file says how a chat is written; one that does not is best asked in plain text."""
    import mmap

    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise InputError(f"model gguf:{path}: this is no .gguf file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return data.find(b"tokenizer.chat_template", 0, HEADER) >= 0
    except OSError as problem:
        raise InputError(f"model gguf:{path}: {problem.strerror}: expected the path of a .gguf file") from None
