"""Server-sent events: a page is told when something changed. Few at once, each a small message and seldom.

A stream looks at files once a second, in a thread. It ends when its client goes, when there is nothing more to tell, or
when the server shuts down; a browser asks again by itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.to_thread
import orjson
from starlette.responses import PlainTextResponse, Response, StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

MOST = 64  # streams at once
THREADS = 2  # that look at files for all of them
PAUSE = 1.0  # seconds from one message to the next, at least
ALIVE = 15.0  # seconds without a message, after which a comment says that there is somebody
AGAIN = 2000  # milliseconds after which a browser that was cut off asks again


class Tick(NamedTuple):
    """What was seen: what to say of it, if anything; whether that was the last; seconds until the next look."""

    data: Any = None
    last: bool = False
    pause: float = PAUSE


class Streams:
    """All streams of a viewer."""

    def __init__(self, most: int = MOST) -> None:
        self.most, self.n = most, 0
        self._closing = anyio.Event()
        self._limiter = anyio.CapacityLimiter(THREADS)

    def close(self) -> None:
        """End them all, now: the server shuts down."""
        self._closing.set()

    def answer(self, request: Request, look: Callable[[], Tick]) -> Response:
        """The answer to who asks for a stream of what `look` sees; it is called in a thread."""
        if request.method != "GET":
            return Response(media_type=_Stream.media_type)
        return _Stream(self, look)

    async def events(self, look: Callable[[], Tick]) -> AsyncIterator[bytes]:
        """The stream as it is sent."""
        yield f"retry: {AGAIN}\n\n".encode()
        said = time.monotonic()
        while not self._closing.is_set():
            tick = await anyio.to_thread.run_sync(_seen, look, limiter=self._limiter, abandon_on_cancel=True)
            if tick.data is not None or tick.last:
                yield message(tick.data, "done" if tick.last else "")
                said = time.monotonic()
            elif time.monotonic() - said >= ALIVE:
                yield b": still here\n\n"
                said = time.monotonic()
            if tick.last:
                return
            with anyio.move_on_after(tick.pause):
                await self._closing.wait()


def _seen(look: Callable[[], Tick]) -> Tick:
    """What a look saw; nothing where a file could not be read just now."""
    try:
        return look()
    except OSError:
        return Tick()


def message(data: Any, event: str = "") -> bytes:
    """One event.

    >>> message({"a": 1}, "done")
    b'event: done\\ndata: {"a":1}\\n\\n'
    """
    return (f"event: {event}\n".encode() if event else b"") + b"data: " + orjson.dumps(data) + b"\n\n"


class _Stream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, streams: Streams, look: Callable[[], Tick]) -> None:
        super().__init__(streams.events(look), headers={"x-accel-buffering": "no"})
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.streams.n >= self.streams.most:
            why = f"kofn: {self.streams.most} pages are told of changes already: close some, or reload this one\n"
            refused = PlainTextResponse(why, status_code=503, headers={"retry-after": "15"})
            await refused(scope, receive, send)
            return
        self.streams.n += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.streams.n -= 1
