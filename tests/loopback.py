"""A real server on 127.0.0.1 that speaks the OpenAI and Anthropic formats and can be told to misbehave.

What it answers depends on the prompt, the seed and the sample alone: sample j of seed s is sample 0 of seed s + j.
Every request is written down before its reply goes out: path, model, prompt, seed, n, fault, and whether a whole reply
was given to somebody who was still there.

    with serving(faults={"*": ["429", "cut"]}) as server:      # the first two requests fail, the others do not
        server.url, server.requests
    with running(log, delay=0.02, faults={"*": {"500": 0.1}}) as server:    # a process of its own; a tenth fails
        server.url, server.requests                                         # read from the log
    python tests/loopback.py --log FILE --port 0 --delay 0.1 --faults '{"*": "401"}'    # prints its port

Faults are by model, or "*" for all others: a name (always), a list (one a request, then none), or shares.
A model named like a fault always has it; "cut-then-ok" has it the first time each request is made.

    429, 503, 500:2    that status; after the colon the Retry-After (429 alone asks for 1), or `echo`: repeats the key
    429-ms, 429-date   429 that asks for 30 ms; that asks for a date 2 s away
    401, 404, 400, quota, credit, unsupported, filter, refusal      as the vendors say it
    hang, drop, cut, malformed, html, no-choices, error-200, empty, huge, 302      a reply that never comes, or is none
    drip, typeless    a whole reply byte by byte, or as text/plain
    slow, one-usage, wrong-usage, absurd-usage, no-usage, one-choice, null, reasons, half, filter-one    good but odd
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST = 120  # seconds, as in tests/waiting.py: this file is also run as a script, which finds no other
SERVED = (
    *("ok", "slow", "drip", "typeless", "one-usage", "wrong-usage", "absurd-usage", "no-usage", "one-choice", "null"),
    *("reasons", "half", "filter", "filter-one", "refusal"),
)
BROKEN = ("hang", "drop", "cut", "malformed", "html", "no-choices", "error-200", "empty", "huge", "429-ms", "429-date")
SAID_WITH = {"quota": "429", "credit": "400", "unsupported": "400"}
STATUS = re.compile(r"([345]\d\d)(?::(.+))?")


SAID = "The answer is {digit}."


def answer_of(prompt: Any, seed: int | None, index: int = 0, said: str = SAID) -> str:
    """What the server says: a digit, or pass or fail, that depends on prompt and seed, and a mark of them if asked for.

    >>> answer_of("1+1", 7, 2) == answer_of("1+1", 9)
    True
    >>> answer_of("1+1", 7, said="{mark} Verdict: {word}")
    'umrvvipsoqtt Verdict: pass'
    """
    drawn = blake2b(orjson.dumps([prompt, (seed or 0) + index]), digest_size=2).digest()[0]
    return said.format(digit=drawn % 10, word="pass" if drawn % 3 else "fail", mark=mark_of(prompt, seed, index))


def mark_of(prompt: Any, seed: int | None, index: int = 0) -> str:
    """Twelve letters that no other prompt and seed have; none of them makes a digit or a word."""
    drawn = blake2b(orjson.dumps([prompt, (seed or 0) + index]), digest_size=6).hexdigest()
    return drawn.translate(str.maketrans("0123456789abcdef", "ghijklmnopqrstuv"))


def is_fault(fault: str) -> bool:
    return fault in SERVED + BROKEN or fault in SAID_WITH or STATUS.fullmatch(fault) is not None


class Server:
    """The application, and what it was asked."""

    def __init__(
        self,
        faults: Mapping[str, Any] | None = None,
        delay: float = 0.0,
        log: Path | None = None,
        said: str = SAID,
    ) -> None:
        self.said = said
        self.faults = {k: list(v) if isinstance(v, list | tuple) else v for k, v in (faults or {}).items()}
        self.delay = delay
        # an open file for good: one write a line, so that a reader never sees half of one
        self.log = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._received: list[dict[str, Any]] = []
        self.seen: Counter[bytes] = Counter()
        self.count = 0
        self.now = self.most = 0
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.over = asyncio.Event()
        self.app = web.Application(client_max_size=64 << 20)
        self.app.router.add_post("/v1/chat/completions", self.chat)
        self.app.router.add_post("/v1/completions", self.completions)
        self.app.router.add_post("/v1/messages", self.messages)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base URL of the OpenAI format."""
        return f"{self.root}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What was asked so far; empty when it goes to a file."""
        return list(self._received)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self.serve(request, chat_reply)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self.serve(request, text_reply)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        return await self.serve(request, message_reply)

    async def serve(self, request: web.Request, shape: Any) -> web.StreamResponse:
        """One request, from reading to writing down."""
        body = orjson.loads(await request.read())
        prompt = body["prompt"] if "prompt" in body else body["messages"]
        body["said"] = self.said
        fault = self.fault_of(body["model"], [request.path, prompt, body.get("seed")])
        if self.log is None:  # headers hold keys: they stay in memory
            self.headers.append({k.lower(): v for k, v in request.headers.items()})
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            self.write_down(request, fault, body, prompt)  # before the reply: who has read that finds this line
            return await self.respond(request, fault, shape, body, prompt)
        finally:
            self.now -= 1

    def write_down(self, request: web.Request, fault: str, body: dict[str, Any], prompt: Any) -> None:
        """Keep one line: what was asked, and whether a whole reply is about to go to somebody who is still there."""
        line = {"path": request.path, "model": body["model"], "prompt": prompt, "seed": body.get("seed")}
        line |= {"n": body.get("n", 1), "fault": fault, "answered": fault in SERVED and request.transport is not None}
        line["body"] = {k: v for k, v in body.items() if k not in ("model", "prompt", "messages", "seed", "n", "said")}
        if self.log is None:
            self._received.append(line)
        else:
            os.write(self.log, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def fault_of(self, model: str, what: list[Any]) -> str:
        """What this request meets."""
        self.count += 1
        if is_fault(model):
            return model
        if model.endswith("-then-ok") and is_fault(model.removesuffix("-then-ok")):
            key = orjson.dumps([model, what])
            self.seen[key] += 1
            return model.removesuffix("-then-ok") if self.seen[key] == 1 else "ok"
        plan = self.faults.get(model, self.faults.get("*", "ok"))
        if isinstance(plan, list):
            return plan.pop(0) if plan else "ok"
        return drawn(plan, self.count) if isinstance(plan, dict) else plan

    async def respond(
        self, request: web.Request, fault: str, shape: Any, body: dict[str, Any], prompt: Any
    ) -> web.StreamResponse:
        if fault not in SERVED:
            return await self.fail(request, fault, shape, body, prompt)
        text = orjson.dumps(shape(body, prompt, fault))
        if fault == "half":
            text = text.replace(b'."', b' \\ud83d"', 1)
        if fault == "slow":
            return await drip(request, text)
        if fault == "drip":
            return await drip(request, text, pieces=len(text), apart=0.001)
        return web.Response(body=text, content_type="text/plain" if fault == "typeless" else "application/json")

    async def fail(
        self, request: web.Request, fault: str, shape: Any, body: dict[str, Any], prompt: Any
    ) -> web.StreamResponse:
        """A reply that is none."""
        if fault == "hang":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), 60)
        if fault in ("hang", "drop"):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        if fault == "cut":
            return await cut(request, orjson.dumps(shape(body, prompt, "ok")))
        if fault in ("malformed", "html", "no-choices", "error-200", "empty", "huge"):
            return spoiled(fault, orjson.dumps(shape(body, prompt, "ok")))
        return refused(fault, body["model"], request.headers)

    async def start(self, port: int = 0) -> web.AppRunner:
        runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        self.port = runner.addresses[0][1]
        return runner

    async def stop(self, runner: web.AppRunner) -> None:
        self.over.set()
        await runner.cleanup()
        if self.log is not None:
            os.close(self.log)


def drawn(shares: Mapping[str, float], count: int) -> str:
    """A fault by its share, or none; request number `count` always draws the same."""
    at = int.from_bytes(blake2b(b"%d" % count, digest_size=4).digest(), "big") / 2**32
    for name, share in shares.items():
        if at < share:
            return name
        at -= share
    return "ok"


async def drip(request: web.Request, text: bytes, pieces: int = 20, apart: float = 0.02) -> web.StreamResponse:
    """A whole reply, in twenty pieces over 0.4 s."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    size = max(1, len(text) // pieces)
    for at in range(0, len(text), size):
        await response.write(text[at : at + size])
        await asyncio.sleep(apart)
    await response.write_eof()
    return response


async def cut(request: web.Request, text: bytes) -> web.StreamResponse:
    """Half of a reply, and the connection is gone."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(text))})
    await response.prepare(request)
    await response.write(text[: len(text) // 2])
    await asyncio.sleep(0.01)
    if request.transport is not None:
        request.transport.close()
    return response


def spoiled(fault: str, text: bytes) -> web.Response:
    """Status 200 with something else than an answer."""
    if fault == "html":
        return web.Response(text="<html><body>Just a moment...</body></html>", content_type="text/html")
    if fault in ("empty", "huge"):
        return web.Response(body=b" " * (0 if fault == "empty" else 16 << 20), content_type="application/json")
    said = {"no-choices": {"id": "x", "object": "nothing"}, "error-200": {"error": {"message": "provider is down"}}}
    return web.Response(body=orjson.dumps(said[fault]) if fault in said else text[:-9], content_type="application/json")


def refused(fault: str, model: str, headers: Any) -> web.Response:
    """An error status, with the bodies that vendors send."""
    status, _, wait = SAID_WITH.get(fault, fault).replace("-", ":").partition(":")
    retry_headers = {"Retry-After": "1"} if status == "429" else {}
    if wait == "ms":
        retry_headers["retry-after-ms"] = "30"
    elif wait == "date":
        retry_headers = {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)}
    elif status.startswith("3"):
        retry_headers = {"Location": "/v1/messages"}
    elif wait and wait != "echo":
        retry_headers = {"Retry-After": wait}
    key = headers.get("x-api-key") or headers.get("Authorization", "")
    message, code = messages_of(model, key).get(wait if wait == "echo" else fault, (f"status {status}", "error"))
    error = {"message": message, "type": code, "code": code}
    return web.json_response({"type": "error", "error": error}, status=int(status), headers=retry_headers)


def messages_of(model: str, key: str) -> dict[str, tuple[str, str]]:
    """What the vendors say, with its code."""
    return {
        "400": (
            "This model's maximum context length is 4096 tokens. Your request has 5000.",
            "context_length_exceeded",
        ),
        "401": (f"Incorrect API key provided: {key}.", "invalid_api_key"),
        "404": (f"The model `{model}` does not exist or you do not have access to it.", "model_not_found"),
        "credit": ("Your credit balance is too low to access the API.", "invalid_request_error"),
        "echo": (f"It failed.\n  Your header was {key}", "error"),
        "quota": ("You exceeded your current quota, please check your plan.", "insufficient_quota"),
        "unsupported": ("`temperature` is not supported with this model.", "invalid_request_error"),
    }


def sampled(body: dict[str, Any], prompt: Any, index: int) -> tuple[list[str], str]:
    """The words of one sample, cut where the request says, and why it ended."""
    text = answer_of(prompt, body.get("seed"), index, body["said"])
    most = body.get("max_tokens") or body.get("max_completion_tokens") or 1000
    stops = body.get("stop") or body.get("stop_sequences") or []
    for stop in [stops] if isinstance(stops, str) else stops:
        text = text.split(stop)[0]
    words = re.findall(r"\s?\S+", text)
    return words[:most], "stop" if len(words) <= most else "length"


def usage_of(body: dict[str, Any], prompt: Any, tokens: list[int], fault: str) -> dict[str, Any]:
    """What was counted, or what a wrong server says was."""
    if fault == "wrong-usage":
        return {"usage": {"prompt_tokens": "many", "completion_tokens": -3}}
    if fault == "absurd-usage":  # -1 as some programs write it
        return {"usage": {"prompt_tokens": 2**64 - 1, "completion_tokens": 2**63}}
    if fault == "no-usage":
        return {}
    joined = prompt if isinstance(prompt, str) else " ".join(str(m["content"]) for m in prompt)
    counted = tokens[0] if fault == "one-usage" else sum(tokens)
    before = len(joined.split())
    usage = {"prompt_tokens": before, "completion_tokens": counted, "total_tokens": before + counted}
    return {"usage": usage, **({"timings": {}} if fault == "one-usage" else {})}  # as llama.cpp answers


def chat_reply(body: dict[str, Any], prompt: Any, fault: str) -> dict[str, Any]:
    """What /v1/chat/completions answers."""
    choices, tokens = [], []
    for index in range(1 if fault == "one-choice" else body.get("n", 1)):
        words, finish = sampled(body, prompt, index)
        message: dict[str, Any] = {"role": "assistant", "content": None if fault == "null" else "".join(words)}
        if fault == "reasons":
            message["reasoning_content"] = f"Because of {index}."
        if fault == "refusal":
            message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
        if fault == "filter" or (fault == "filter-one" and index == 1):
            message, finish = {"role": "assistant", "content": ""}, "content_filter"
        choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": finish, "logprobs": None}
        if body.get("logprobs"):
            each = [{"token": w, "logprob": -0.25, "bytes": list(w.encode()), "top_logprobs": []} for w in words]
            choice["logprobs"] = {"content": each, "refusal": None}
        choices.append(choice)
        tokens.append(len(words))
    reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": choices}
    return {**reply, **usage_of(body, prompt, tokens, fault)}


def text_reply(body: dict[str, Any], prompt: Any, fault: str) -> dict[str, Any]:
    """What /v1/completions answers."""
    choices, tokens = [], []
    for index in range(1 if fault == "one-choice" else body.get("n", 1)):
        words, finish = sampled(body, prompt, index)
        choice: dict[str, Any] = {"index": index, "text": "".join(words), "finish_reason": finish, "logprobs": None}
        if body.get("logprobs") is not None:
            places = [len("".join(words[:i])) for i in range(len(words))]
            values = [-0.25] * len(words)
            choice["logprobs"] = {
                "tokens": words,
                "token_logprobs": values,
                "top_logprobs": None,
                "text_offset": places,
            }
        choices.append(choice)
        tokens.append(len(words))
    reply = {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": body["model"], "choices": choices}
    return {**reply, **usage_of(body, prompt, tokens, fault)}


def message_reply(body: dict[str, Any], prompt: Any, fault: str) -> dict[str, Any]:
    """What /v1/messages answers."""
    words, finish = sampled(body, prompt, 0)
    content: list[dict[str, Any]] = [] if fault == "null" else [{"type": "text", "text": "".join(words)}]
    if fault == "reasons":
        content.insert(0, {"type": "thinking", "thinking": "Because of 0.", "signature": "x"})
    reason = "refusal" if fault in ("refusal", "filter") else {"stop": "end_turn", "length": "max_tokens"}[finish]
    counts = usage_of(body, prompt, [len(words)], fault).get("usage")
    usage = counts and {"input_tokens": counts["prompt_tokens"], "output_tokens": counts["completion_tokens"]}
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content}
    reply |= {"stop_reason": reason, "stop_sequence": None}
    return reply if usage is None else {**reply, "usage": usage}


@contextlib.contextmanager
def serving(
    faults: Mapping[str, Any] | None = None, delay: float = 0.0, log: Path | None = None, said: str = SAID
) -> Iterator[Server]:
    """The server, in a thread of this process."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    server = Server(faults, delay, log, said)
    stop = asyncio.Event()

    async def run() -> None:
        runner = await server.start()
        ready.set()
        await stop.wait()
        await server.stop(runner)

    def work() -> None:
        loop.run_until_complete(run())
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(LONGEST)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(LONGEST)


class Remote:
    """A server in a process of its own, and what its log says."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def count(self) -> int:
        """How many requests came so far."""
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0


@contextlib.contextmanager
def running(
    log: Path, delay: float = 0.0, faults: Mapping[str, Any] | None = None, said: str = SAID
) -> Iterator[Remote]:
    """The server, in a process of its own."""
    command = [sys.executable, __file__, "--log", str(log), "--delay", str(delay), "--faults", json.dumps(faults or {})]
    command += ["--said", said]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Remote(process, int(process.stdout.readline()), log)
        finally:
            process.terminate()
            process.wait(LONGEST)


async def _main(options: argparse.Namespace) -> None:
    server = Server(json.loads(options.faults), options.delay, options.log, options.said)
    runner = await server.start(options.port)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    parent = os.getppid()
    while not stop.is_set() and os.getppid() == parent:  # whoever started it may be killed: do not outlive it
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1)
    await server.stop(runner)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--faults", default="{}")
    parser.add_argument("--said", default=SAID)
    asyncio.run(_main(parser.parse_args()))
