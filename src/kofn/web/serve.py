"""The viewer as a server on this machine."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, WorldError
from kofn.web.guard import LEAST_TOKEN, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import uvicorn

    from kofn.web.streams import Streams

TRIED = 20  # ports from the default one on


def check(root: Path, host: str, token: str | None) -> None:
    """Refuse what would show nothing, or show it to everybody."""
    if not root.is_dir():
        what = "is a file" if root.exists() else "no such directory"
        raise InputError(f"{root}: {what}: expected a directory of runs, or a run")
    if token is not None and len(token) < LEAST_TOKEN:
        why = f"{len(token)} characters can be guessed"
        raise InputError(f"--token: {why}: give at least {LEAST_TOKEN}, or `--token new`")
    if not is_loopback(host) and token is None:
        why = "others could read every output"
        raise InputError(f"--host {host}: {why}: give --token too (`--token new` makes one), or leave --host out")


def bound(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port the first free one from 7717 on."""
    ports = [port] if port is not None else [*range(7717, 7717 + TRIED), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for one in ports:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, one))
            sock.listen(128)
            return sock
        except OSError as problem:
            sock.close()
            if port is not None or problem.errno != 98:  # address in use: the next one
                raise WorldError(f"{host}:{one}: cannot listen: {problem.strerror}") from None
    raise WorldError(f"{host}: no free port")


def server(config: uvicorn.Config, streams: Streams) -> uvicorn.Server:
    """A server that ends the streams that are open when it is to end, rather than wait for them."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            streams.close()
            await super().shutdown(sockets)

    return Server(config)


def serve(
    root: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    told: Callable[[str], Any],
) -> None:
    """Serve until interrupted. `told` is given the address once somebody can open it."""
    import uvicorn

    from kofn.web.app import make_app
    from kofn.web.streams import Streams

    check(root, host, token)
    sock = bound(host, port)
    try:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
        streams = Streams()
        app = make_app(root, host=host, token=token, streams=streams)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=2
        )
        threading.Thread(target=_warm, daemon=True, name="kofn-warm").start()
        told(address)
        server(config, streams).run(sockets=[sock])
    finally:
        sock.close()


def _warm() -> None:
    """Load what pages need while nobody waits for one."""
    from importlib import import_module

    from kofn.web import shell
    from kofn.web.app import PAGES, RUN_PAGES

    for target in (*PAGES.values(), *RUN_PAGES.values()):
        import_module(target.partition(":")[0])
    for name in (shell.VEGA, *shell.SHARED, *shell.OWN):
        shell.static(name)
