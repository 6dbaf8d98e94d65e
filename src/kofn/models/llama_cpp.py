"""llama.cpp in this process: one server on 127.0.0.1 per model file and setup, shared by all who use it.

Its server, and not the calls it has for Python: only there are the tokens of every sample counted and texts turned into
tokens, an abandoned reply is given up at once, and a round trip costs 1 to 2 ms where a sample
costs hundreds. A key made for the process keeps others on the machine out.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kofn.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_LOADING = threading.Lock()  # two threads that need the same file must not load it twice


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
        key = secrets.token_urlsafe(24)
        self._server = _start_server(setup, name, key)
        self.url = str(self._server.listening_address)
        self.headers = {"Authorization": f"Bearer {key}"}
        self.room = ContextRoom(setup.context)
        self.first = self._first_token()

    def _first_token(self) -> str:
        """What a text with nothing before it is taken to follow: the token that begins texts, or ends them."""
        import json
        from urllib.request import ProxyHandler, Request, build_opener

        ask = Request(f"{self.url}/props", headers=self.headers)  # noqa: S310 - our own address
        # no proxy, whatever the environment says: the server is this process
        with build_opener(ProxyHandler({})).open(ask, timeout=60) as reply:
            properties: dict[str, Any] = json.load(reply)
        return str(properties.get("bos_token") or properties.get("eos_token") or "")


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
    try:
        import xllamacpp
    except ImportError:
        raise MissingExtra("xllamacpp", "local", f"model {name}") from None
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
