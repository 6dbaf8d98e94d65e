"""The ASGI application: a routing table from URLs to pages, each loaded when it is first requested."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Match, Route

from kofn.viewer.assets import asset_response
from kofn.viewer.context import Viewer
from kofn.viewer.security import SecurityMiddleware
from kofn.viewer.templating import error_page
from kofn.viewer.urls import RUN_PREFIX, split_run_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Scope

    from kofn.viewer.event_streams import EventStreams

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
    "candidates.csv": "kofn.viewer.exports:candidates_csv",
    "candidates.parquet": "kofn.viewer.exports:candidates_parquet",
    "cases.csv": "kofn.viewer.exports:cases_csv",
    "cases.parquet": "kofn.viewer.exports:cases_parquet",
    "attributes.csv": "kofn.viewer.exports:attributes_csv",
    "reports.parquet": "kofn.viewer.exports:reports_parquet",
}
# path -> "module:function", called with the viewer and the request
PAGES = {
    "/": "kofn.viewer.runs_page:show",
    "/rows": "kofn.viewer.runs_page:rows",
    "/events": "kofn.viewer.live_page:list_events",
    "/runs.csv": "kofn.viewer.exports:runs_csv",
    "/runs.parquet": "kofn.viewer.exports:runs_parquet",
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
        *(Route(path, _page(viewer, target)) for path, target in PAGES.items()),
        Route("/static/{hash}/{name}", _static),
        _RunRoute(RUN_PREFIX, _run_page(viewer), methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found})
    return SecurityMiddleware(app, host=host, token=token)


async def _static(request: Request) -> Response:
    return asset_response(request.path_params["name"])


async def _not_found(request: Request, problem: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    return error_page(404, "Nothing here", "There is no page of this address.")


def _page(viewer: Viewer, target: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await _call(_load(target), viewer, request)

    return endpoint


def _run_page(viewer: Viewer) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        name, page = split_run_path(request.scope["raw_path"])
        if page not in RUN_PAGES:
            return error_page(404, "Nothing here", "There is no such page of a run.")
        return await _call(_load(RUN_PAGES[page]), viewer, request, name)

    return endpoint


async def _call(page: Callable[..., Any], viewer: Viewer, *args: Any) -> Response:
    if getattr(page, "is_async", False):  # reads a request body, or sends a stream: not in a thread
        return await page(viewer, *args)  # type: ignore[no-any-return]
    return await viewer.respond(page, viewer, *args)


def _load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    page: Callable[..., Any] = getattr(import_module(module), name)
    return page


def preload() -> None:
    """Import every page, so that the first request need not wait for it."""
    for target in (*PAGES.values(), *RUN_PAGES.values()):
        import_module(target.partition(":")[0])
