"""Serves the viewer: what its pages share, its routes, a port, and how it ends."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from functools import partial
from inspect import iscoroutinefunction
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.routing import Match, Route

from kofn.errors import InputError, KofnError, WorldError
from kofn.viewer.caches import RunCache
from kofn.viewer.compare_data import ComparisonCache
from kofn.viewer.event_streams import EventStreams
from kofn.viewer.run_folder import NotFound, RunFolder
from kofn.viewer.run_list import RecentLines, RunList
from kofn.viewer.security import MIN_TOKEN_LENGTH, SecurityMiddleware, is_loopback
from kofn.viewer.templating import OWN, RUN_PREFIX, SHARED, asset_response, error_page, split_run_path, static_url
from kofn.viewer.trend_data import TrendCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Scope

THREADS = 4  # pages that are made at once; more only take turns on a small machine


class Viewer:
    """The state of one viewer, which every page is given."""

    def __init__(self, root: Path, streams: EventStreams | None = None) -> None:
        self.folder = RunFolder(root)
        self.run_list = RunList(self.folder)
        self.recent = RecentLines(self.run_list)
        self.runs = RunCache(self.folder)
        self.comparisons = ComparisonCache(self.folder, self.runs)
        self.trends = TrendCache(self.folder)
        self.streams = streams or EventStreams()
        self.limiter = anyio.CapacityLimiter(THREADS)

    async def respond(self, page: Callable[..., Response], *args: Any) -> Response:
        """The response of a page function, run in a thread; or a page that says what is wrong."""
        return await anyio.to_thread.run_sync(partial(_respond, page, *args), limiter=self.limiter)


def _respond(page: Callable[..., Response], *args: Any) -> Response:
    try:
        return page(*args)
    except NotFound as problem:
        return error_page(404, "Not here", str(problem))
    except KofnError as problem:
        return error_page(422, "This cannot be shown", str(problem))
    except OSError as problem:
        return error_page(503, "This cannot be read now", f"{problem.filename or 'a file'}: {problem.strerror}")
    except Exception as problem:  # a bug, or files that no test has: the viewer goes on
        # stamps were compared before, so what polars cannot parse was changed while it was read
        if type(problem).__module__.startswith("polars"):
            return error_page(503, "This cannot be read now", "A file changed while it was read: reload the page.")
        logging.getLogger("kofn.viewer").exception("a page could not be made")
        reason = "The terminal of kofn view says what went wrong; the other pages are not affected."
        return error_page(500, "This page could not be made", reason)


# page of a run -> "module:function", called with the viewer, the request and the name of the run
RUN_PAGES = {
    "": "kofn.viewer.run_page:show",
    "charts": "kofn.viewer.run_page:charts",
    "case": "kofn.viewer.case_page:show",
    "best": "kofn.viewer.best_page:show",
    "best.json": "kofn.viewer.best_page:data",
    "audit": "kofn.viewer.audit_page:show",
    "live": "kofn.viewer.live_page:fragment",
    "events": "kofn.viewer.live_page:events",
    "labels": "kofn.viewer.labels_page:show",
    "labels.json": "kofn.viewer.labels_page:row",
    "export": "kofn.viewer.exports:show",
    "report.html": "kofn.viewer.exports:report",
    "candidates.csv": "kofn.viewer.exports:candidates",
    "candidates.parquet": "kofn.viewer.exports:candidates",
    "cases.csv": "kofn.viewer.exports:cases",
    "cases.parquet": "kofn.viewer.exports:cases",
    "attributes.csv": "kofn.viewer.exports:attributes",
    "reports.parquet": "kofn.viewer.exports:reports",
}
# path -> "module:function", called with the viewer and the request
PAGES = {
    "/": "kofn.viewer.runs_page:show",
    "/rows": "kofn.viewer.runs_page:rows",
    "/events": "kofn.viewer.live_page:list_events",
    "/runs.csv": "kofn.viewer.exports:runs",
    "/runs.parquet": "kofn.viewer.exports:runs",
    "/compare": "kofn.viewer.compare_page:show",
    "/compare/case": "kofn.viewer.compare_page:case",
    "/trend": "kofn.viewer.trend_page:show",
}


class _RunRoute(Route):
    """Every path below /run/. Names of folders may hold line breaks, which a path pattern would not match."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        fits = scope["type"] == "http" and scope["path"].startswith(RUN_PREFIX)
        return (Match.FULL, {"endpoint": self.endpoint, "path_params": {}}) if fits else (Match.NONE, {})


def make_app(
    root: Path, *, host: str = "127.0.0.1", token: str | None = None, streams: EventStreams | None = None
) -> ASGIApp:
    """The viewer of a folder behind its access checks. Who shuts the server down closes its `streams`."""
    viewer = Viewer(root, streams)
    routes = [
        *(Route(path, partial(_call, viewer, target)) for path, target in PAGES.items()),
        Route("/static/{hash}/{name}", _static),
        _RunRoute(RUN_PREFIX, partial(_run_page, viewer), methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found})
    return SecurityMiddleware(app, host=host, token=token)


async def _static(request: Request) -> Response:
    return asset_response(request.path_params["name"])


async def _not_found(request: Request, problem: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    return error_page(404, "Nothing here", "There is no page of this address.")


async def _run_page(viewer: Viewer, request: Request) -> Response:
    name, page = split_run_path(request.scope["raw_path"])
    if page not in RUN_PAGES:
        return error_page(404, "Nothing here", "There is no such page of a run.")
    return await _call(viewer, RUN_PAGES[page], request, name)


async def _call(viewer: Viewer, target: str, *args: Any) -> Response:
    page = resolve_name(target)
    if iscoroutinefunction(page):  # reads a request body, or sends a stream: not in a thread
        return await page(viewer, *args)  # type: ignore[no-any-return]
    return await viewer.respond(page, viewer, *args)


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

    streams = EventStreams()

    class ViewerServer(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            streams.close()  # their clients never leave: a shutdown would wait for them
            await super().shutdown(sockets)

    check_options(root, host, token)
    sock = bind_socket(host, port)
    try:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
        config = uvicorn.Config(
            make_app(root, host=host, token=token, streams=streams),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        threading.Thread(target=preload, daemon=True, name="kofn-preload").start()
        announce(url)
        ViewerServer(config).run(sockets=[sock])
    finally:
        sock.close()


def preload() -> None:
    """Load pages, scripts and style sheets while no request waits for them."""
    for target in (*PAGES.values(), *RUN_PAGES.values()):
        resolve_name(target)
    for name in (*SHARED, *OWN):
        static_url(name)
