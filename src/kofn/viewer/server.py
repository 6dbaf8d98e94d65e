"""The viewer as an HTTP server on this machine: socket, uvicorn and shutdown."""

from __future__ import annotations

import errno
import socket
import threading
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, WorldError
from kofn.viewer import app, assets
from kofn.viewer.event_streams import EventStreams
from kofn.viewer.security import MIN_TOKEN_LENGTH, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import uvicorn

DEFAULT_PORT = 7717
PORTS_TRIED = 20  # from the default one on


def check_options(root: Path, host: str, token: str | None) -> None:
    """Refuse what would show nothing, or show it to everybody."""
    if not root.is_dir():
        what = "is a file" if root.exists() else "no such directory"
        raise InputError(f"{root}: {what}: expected a directory of runs, or a run")
    if token is not None and len(token) < MIN_TOKEN_LENGTH:
        why = f"{len(token)} characters can be guessed"
        raise InputError(f"--token: {why}: give at least {MIN_TOKEN_LENGTH}, or `--token new`")
    if not is_loopback(host) and token is None:
        why = "others could read every output"
        raise InputError(f"--host {host}: {why}: give --token too (`--token new` makes one), or leave --host out")


def bind_socket(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port the first free one from 7717 on."""
    # the last resort is port 0: the system picks a free one
    ports = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in ports:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, candidate))
            sock.listen(128)
            return sock
        except OSError as problem:
            sock.close()
            if port is not None or problem.errno != errno.EADDRINUSE:
                raise WorldError(f"{host}:{candidate}: cannot listen: {problem.strerror}") from None
    raise WorldError(f"{host}: no free port")


def make_server(config: uvicorn.Config, streams: EventStreams) -> uvicorn.Server:
    """A server whose shutdown ends the open streams, rather than wait for clients that never leave."""
    import uvicorn

    class ViewerServer(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            streams.close()
            await super().shutdown(sockets)

    return ViewerServer(config)


def serve(
    root: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    announce: Callable[[str], Any],
) -> None:
    """Serve until interrupted. `announce` is called with the URL once it can be opened."""
    import uvicorn

    check_options(root, host, token)
    sock = bind_socket(host, port)
    try:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
        streams = EventStreams()
        application = app.make_app(root, host=host, token=token, streams=streams)
        config = uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        threading.Thread(target=_preload, daemon=True, name="kofn-preload").start()
        announce(url)
        make_server(config, streams).run(sockets=[sock])
    finally:
        sock.close()


def _preload() -> None:
    """Load what pages need while no request waits for it."""
    app.preload()
    assets.preload()
