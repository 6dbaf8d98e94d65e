"""A server that never stops talking: the reply is given up at a size that no reply has."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kofn.models import http_client, open_model
from kofn.models.base import Message, Request, RequestRejected


class Endless(BaseHTTPRequestHandler):
    """Sends spaces in chunks until nobody listens; or says that it will send far too much."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        if self.path.startswith("/long"):
            self.send_header("Content-Length", str(1 << 40))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                chunk = b" " * 65536
                self.wfile.write(chunk if self.path.startswith("/long") else b"10000\r\n" + chunk + b"\r\n")
                type(self).sent += len(chunk)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.mark.parametrize("path", ["chunked", "long"])
def test_a_reply_without_end_is_given_up(path, monkeypatch):
    monkeypatch.setattr(http_client, "LARGEST", 1 << 20)
    monkeypatch.setattr(Endless, "sent", 0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    async def ask() -> None:
        model = open_model(f"openai:m@http://127.0.0.1:{server.server_address[1]}/{path}")
        try:
            async for _ in model.generate([Request(prompt=(Message("user", "hi"),))]):
                pass
        finally:
            await model.close()

    try:
        with pytest.raises(RequestRejected, match="a reply of more than 1 MiB"):
            asyncio.run(ask())
    finally:
        server.shutdown()
        server.server_close()
    assert Endless.sent < 64 << 20
