"""Server-sent events: small messages to open pages when something changes, for a limited number of clients.

A stream polls files once a second, in a thread. It ends when its client goes, when there is nothing more to say, or
when the server shuts down; a browser that is cut off connects again by itself.
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

MAX_STREAMS = 64
THREADS = 2  # that poll files for all streams
PAUSE = 1.0  # seconds from one message to the next, at least
KEEP_ALIVE = 15.0  # seconds of silence until a comment is sent: proxies close connections that say nothing
RETRY_MS = 2000  # milliseconds until a browser that was cut off connects again


class StreamUpdate(NamedTuple):
    """What a poll found: the message, if any; whether it is the last one; seconds until the next poll."""

    data: Any = None
    last: bool = False
    pause: float = PAUSE


class EventStreams:
    """All open streams of a viewer."""

    def __init__(self, max_streams: int = MAX_STREAMS) -> None:
        self.max_streams, self.n_open = max_streams, 0
        self._closing = anyio.Event()
        self._limiter = anyio.CapacityLimiter(THREADS)

    def close(self) -> None:
        """End them all: the server shuts down."""
        self._closing.set()

    def response(self, request: Request, poll: Callable[[], StreamUpdate]) -> Response:
        """The response that sends what `poll` finds; `poll` is called in a thread."""
        if request.method != "GET":
            return Response(media_type=_StreamResponse.media_type)
        return _StreamResponse(self, poll)

    async def events(self, poll: Callable[[], StreamUpdate]) -> AsyncIterator[bytes]:
        """The stream as it is sent."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        last_sent = time.monotonic()
        while not self._closing.is_set():
            try:
                update = await anyio.to_thread.run_sync(poll, limiter=self._limiter, abandon_on_cancel=True)
            except OSError:  # a file could not be read just now
                update = StreamUpdate()
            if update.data is not None or update.last:
                yield encode_event(update.data, "done" if update.last else "")
                last_sent = time.monotonic()
            elif time.monotonic() - last_sent >= KEEP_ALIVE:
                yield b": still here\n\n"
                last_sent = time.monotonic()
            if update.last:
                return
            with anyio.move_on_after(update.pause):  # a pause that a shutdown cuts short
                await self._closing.wait()


def encode_event(data: Any, event: str = "") -> bytes:
    """One event of the stream format.

    >>> encode_event({"a": 1}, "done")
    b'event: done\\ndata: {"a":1}\\n\\n'
    """
    return (f"event: {event}\n".encode() if event else b"") + b"data: " + orjson.dumps(data) + b"\n\n"


class _StreamResponse(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, streams: EventStreams, poll: Callable[[], StreamUpdate]) -> None:
        # the header keeps nginx from collecting messages until a buffer is full
        super().__init__(streams.events(poll), headers={"x-accel-buffering": "no"})
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # counted here and not in `response`: only a response that is sent has an end to count down at
        if self.streams.n_open >= self.streams.max_streams:
            n = self.streams.max_streams
            why = f"kofn: {n} pages are told of changes already: close some, or reload this one\n"
            refusal = PlainTextResponse(why, status_code=503, headers={"retry-after": "15"})
            await refusal(scope, receive, send)
            return
        self.streams.n_open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.streams.n_open -= 1
