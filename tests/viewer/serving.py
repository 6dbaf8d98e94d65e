"""The viewer on loopback, in this process, and a browser that goes nowhere else."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from tests.browsing import BrowserTab, new_context
from tests.waiting import LONGEST, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[str]:
    """The address of a viewer of a folder, such as http://127.0.0.1:41234; it is gone afterwards."""
    import uvicorn

    from kofn.viewer.server import bind_socket, make_app

    sock = bind_socket("127.0.0.1", None)
    config = uvicorn.Config(make_app(folder, **options), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the viewer starts")
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(LONGEST)
        sock.close()


class Answer:
    """What a server said."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


def ask(base: str, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """One request as it is written, nothing in its path tidied; header names with _ for -."""
    connection = HTTPConnection(base.removeprefix("http://"), timeout=LONGEST)
    try:
        connection.putrequest(method, path, skip_host="host" in {h.lower() for h in headers})
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def open_in(
    browser: Any,
    base: str,
    path: str,
    *,
    width: int = 1400,
    height: int = 900,
    scheme: str = "light",
    annotator: str | None = "Tester",
) -> BrowserTab:
    """A page of the viewer in Chromium; what leaves the viewer is refused and written down.

    `annotator` is the name that the label pages remember in this browser; None: they ask for it.
    """
    context = new_context(browser, viewport={"width": width, "height": height}, color_scheme=scheme)
    if annotator is not None:
        kept = "localStorage.getItem('kofn-labeller') ?? localStorage.setItem('kofn-labeller', NAME)"
        context.add_init_script(f"try {{ {kept.replace('NAME', json.dumps(annotator))} }} catch {{}}")
    found = BrowserTab(context.new_page())
    found.page.on("console", lambda message: found.messages.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.messages.append(f"error: {error}"))

    def decide(route: Any) -> None:
        own = route.request.url.startswith((base + "/", "data:", "blob:"))
        if not own:
            found.requests.append(route.request.url)
        route.continue_() if own else route.abort()

    found.page.route("**/*", decide)
    found.page.goto(base + path, wait_until="load")
    found.page.wait_for_selector("html[data-ready]")
    return found
