"""llama.cpp in this process: loaded once a file and setup, asked through its own server on 127.0.0.1.

Its server, and not the calls it has for Python: only there are the tokens of every sample counted and texts turned into
tokens, a reply that nobody waits for any more is given up at once, and a round trip costs 1 to 2 ms where a sample
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

_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Setup:
    """What makes two models one: the file, and how it is computed."""

    path: Path
    threads: int
    context: int
    slots: int


class Engine:
    """A loaded model, freed when nothing holds it any more. Idle prompts are kept in the context, nowhere else."""

    def __init__(self, setup: Setup, name: str) -> None:
        key = secrets.token_urlsafe(24)
        self._server = _served(setup, name, key)
        self.url = str(self._server.listening_address)
        self.headers = {"Authorization": f"Bearer {key}"}
        self.room = Room(setup.context)
        self.first = self._first_token()

    def _first_token(self) -> str:
        """What a text with nothing before it is taken to follow: the token that begins texts, or ends them."""
        import json
        from urllib.request import ProxyHandler, Request, build_opener

        ask = Request(f"{self.url}/props", headers=self.headers)  # noqa: S310 - our own address
        with build_opener(ProxyHandler({})).open(ask, timeout=60) as reply:
            told: dict[str, Any] = json.load(reply)
        return str(told.get("bos_token") or told.get("eos_token") or "")


_ENGINES: WeakValueDictionary[Setup, Engine] = WeakValueDictionary()


def engine_of(setup: Setup, name: str) -> Engine:
    """The engine of a setup; it takes about a second to load, and is loaded once as long as somebody holds it."""
    with _LOADING:
        found = _ENGINES.get(setup)
        if found is None:
            found = _ENGINES[setup] = Engine(setup, name)
        return found


def _served(setup: Setup, name: str, key: str) -> Any:
    os.environ.setdefault(
        "GOMP_SPINCOUNT", "1000"
    )  # read at the import: threads that spin starve beside another process
    try:
        import xllamacpp
    except ImportError:
        raise MissingExtra("xllamacpp", "local", f"model {name}") from None
    params = xllamacpp.CommonParams()
    params.model.path = str(setup.path)
    params.n_parallel, params.n_ctx, params.kv_unified = setup.slots, setup.context, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setup.threads
    params.fit_params = params.ui = params.endpoint_slots = False
    params.cache_ram_mib = 0  # else prompts of the past are kept, up to 8 GB of them
    params.api_keys, params.verbosity = [key], -1
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise InputError(f"model {name}: llama.cpp cannot load {setup.path}: is it a whole .gguf file?") from None


class Room:
    """The tokens that fit the context, shared by what is computed at the same time, first come first served.

    All samples of all requests in progress are in one context: more than fit would fail together.
    """

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, tokens: int) -> AsyncIterator[None]:
        """Hold this many tokens, at most all of them."""
        held = min(tokens, self.size)
        await self._enter(held)
        try:
            yield
        finally:
            self._give(held)

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
