"""What llama.cpp once replied to the commands of the documentation, under the name of the package that asks it.

With this folder on PYTHONPATH, the embedded model of kofn gets its replies from the files beside this one: everything
of kofn runs, only nothing is computed. A reply is found by its request alone, so a command may move to another place or
page. A request has one reply, on whichever pages it is: what a judge is asked depends on what was answered before.

Set KOFN_REPLIES_RECORD to a file, and the installed package replies to what is not stored yet; the file then has every
reply that was asked for. Without it such a request is refused, and written to the file that KOFN_REPLIES_MISSING names.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

FOLDER = Path(__file__).parent
# what kofn reads of a reply; the rest is settings and timings, ten times as long
KEPT = {
    "/props": ("bos_token", "eos_token"),
    "/completion": (
        *("content", "index", "stop_type", "tokens_evaluated", "tokens_predicted", "completion_probabilities"),
    ),
}
RECORD, MISSING = "KOFN_REPLIES_RECORD", "KOFN_REPLIES_MISSING"


def key_of(path: str, body: bytes) -> str:
    """What a reply is found by: the digest of path and body, whatever the order of the body's fields.

    >>> key_of("/tokenize", b'{"a": 1, "b": 2}') == key_of("/tokenize", b'{"b":2,"a":1}')
    True
    """
    request = json.dumps([path, json.loads(body) if body else None], sort_keys=True)
    return hashlib.sha256(request.encode()).hexdigest()[:24]


def stored_replies(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Every stored reply by its key."""
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines())
    return {entry["key"]: entry for entry in map(json.loads, lines)}


class CommonParams(SimpleNamespace):
    """Settings of llama.cpp, which change nothing about stored replies."""

    def __init__(self) -> None:
        super().__init__(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())


class Server:
    """llama.cpp's server on 127.0.0.1, with stored replies."""

    def __init__(self, params: Any) -> None:
        self.params = params
        self.replies = stored_replies()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.reply))
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{self.http.server_port}"

    def reply(self, path: str, body: bytes) -> tuple[int, Any]:
        """Status and reply to a request."""
        key = key_of(path, body)
        if (entry := self.replies.get(key)) is not None:
            return entry["status"], entry["reply"]
        if os.environ.get(MISSING):
            with Path(os.environ[MISSING]).open("a") as file:
                file.write(f"{path} {body[:200].decode(errors='replace')}\n")
        return 400, {"error": {"message": f"no stored reply to {path} {key}"}}


class RecordingServer(Server):
    """The same with the installed package behind it, every reply kept."""

    def __init__(self, params: Any) -> None:
        self.real = _INSTALLED.Server(params)
        self.headers = {"Authorization": f"Bearer {params.api_keys[0]}", "Content-Type": "application/json"}
        self.lock = threading.Lock()
        super().__init__(params)
        self.file = Path(os.environ[RECORD])
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.kept = {entry["key"] for entry in map(json.loads, lines)}
        self.replies |= {entry["key"]: entry for entry in map(json.loads, lines)}

    def reply(self, path: str, body: bytes) -> tuple[int, Any]:
        key = key_of(path, body)
        if key not in self.replies:
            status, reply = self._ask(path, body)
            self.replies[key] = {"key": key, "path": path, "status": status, "reply": _short(path, reply)}
        entry = self.replies[key]
        with self.lock, self.file.open("a") as file:
            if key not in self.kept:
                file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
                self.kept.add(key)
        return entry["status"], entry["reply"]

    def _ask(self, path: str, body: bytes) -> tuple[int, Any]:
        request = Request(f"{self.real.listening_address}{path}", body or None, self.headers)  # noqa: S310 - on loopback
        try:
            with build_opener(ProxyHandler({})).open(request) as answer:
                return 200, json.load(answer)
        except HTTPError as problem:
            return problem.code, json.load(problem)


def _short(path: str, reply: Any) -> Any:
    if isinstance(reply, list):
        return [_short(path, one) for one in reply]
    return {name: reply[name] for name in KEPT.get(path, reply) if name in reply}


def _handler(reply: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept, as llama.cpp keeps them

        def do_GET(self) -> None:
            status, said = reply(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _installed() -> Any:
    """The package that this file stands in for."""
    here, path = sys.modules.pop(__name__), sys.path
    try:
        sys.path = [entry for entry in path if Path(entry or ".").resolve() != FOLDER]
        return importlib.import_module("xllamacpp")
    finally:
        sys.path, sys.modules[__name__] = path, here


if os.environ.get(RECORD):
    _INSTALLED = _installed()
    CommonParams, Server = _INSTALLED.CommonParams, RecordingServer
