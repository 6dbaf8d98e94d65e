"""The application: addresses to pages. Work that takes time is done in threads, a few at once."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.routing import Match, Route

from kofn.errors import KofnError
from kofn.web import shell
from kofn.web.folder import PREFIX, Absent, Folder, name_of
from kofn.web.guard import Guard
from kofn.web.listing import Listing
from kofn.web.live import Watch
from kofn.web.shelf import Shelf
from kofn.web.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Scope

    from kofn.web.compared import Comparisons
    from kofn.web.followed import Trends

    Page = Callable[["Viewer", Request], Response]
    RunPage = Callable[["Viewer", Request, str], Response]

THREADS = 4  # pages that are made at once; more only take turns on a small machine
# page of a run -> "module:function"; loaded when somebody asks
RUN_PAGES = {
    "": "kofn.web.run_page:show",
    "charts": "kofn.web.run_page:charts",
    "case": "kofn.web.case_page:show",
    "best": "kofn.web.best_page:show",
    "best.json": "kofn.web.best_page:data",
    "audit": "kofn.web.audit_page:show",
    "live": "kofn.web.live:fragment",
    "events": "kofn.web.live:events",
    "labels": "kofn.web.labels_page:show",
    "labels.json": "kofn.web.labels_page:row",
    "export": "kofn.web.exports:show",
    "report.html": "kofn.web.exports:report",
    "candidates.csv": "kofn.web.exports:candidates_csv",
    "candidates.parquet": "kofn.web.exports:candidates_parquet",
    "cases.csv": "kofn.web.exports:cases_csv",
    "cases.parquet": "kofn.web.exports:cases_parquet",
    "attributes.csv": "kofn.web.exports:attributes_csv",
    "reports.parquet": "kofn.web.exports:reports_parquet",
}
PAGES = {
    "/": "kofn.web.runs_page:show",
    "/rows": "kofn.web.runs_page:rows",
    "/events": "kofn.web.live:list_events",
    "/runs.csv": "kofn.web.exports:runs_csv",
    "/runs.parquet": "kofn.web.exports:runs_parquet",
    "/compare": "kofn.web.compare_page:show",
    "/compare/case": "kofn.web.compare_page:case",
    "/trend": "kofn.web.trend_page:show",
}


class _Runs(Route):
    """Every address that begins with /run/, whatever bytes the name of a folder has; line breaks too."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        fits = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        return (Match.FULL, {"endpoint": self.endpoint, "path_params": {}}) if fits else (Match.NONE, {})


class Viewer:
    """What all pages share: the folder, its list of runs, and the runs that are being looked at."""

    def __init__(self, root: Path, streams: Streams | None = None) -> None:
        self.folder = Folder(root)
        self.listing = Listing(self.folder)
        self.shelf = Shelf(self.folder)
        self.streams = streams or Streams()
        self.watch = Watch(self)
        self.limiter = anyio.CapacityLimiter(THREADS)

    @cached_property
    def comparisons(self) -> Comparisons:
        from kofn.web.compared import Comparisons

        return Comparisons(self.folder, self.shelf)

    @cached_property
    def trends(self) -> Trends:
        from kofn.web.followed import Trends

        return Trends(self.folder)

    async def made(self, page: Callable[..., Response], *given: Any) -> Response:
        """A page, made in a thread; or one that says what is wrong."""
        return await anyio.to_thread.run_sync(partial(_made, page, *given), limiter=self.limiter)


def make_app(
    root: Path, *, host: str = "127.0.0.1", token: str | None = None, streams: Streams | None = None
) -> ASGIApp:
    """The viewer of a folder, behind its guard. Who shuts the server down closes its `streams`."""
    viewer = Viewer(root, streams)
    routes = [
        *(Route(path, _page(viewer, target)) for path, target in PAGES.items()),
        Route("/static/{hash}/{name}", _static),
        _Runs(PREFIX, _run_page(viewer), methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _nothing, 405: _nothing})
    return Guard(app, host=host, token=token)


async def _static(request: Request) -> Response:
    return shell.serve_static(request.path_params["name"])


async def _nothing(request: Request, problem: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    return shell.problem(404, "Nothing here", "There is no page of this address.")


def _page(viewer: Viewer, target: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await _answer(_load(target), viewer, request)

    return answer


def _run_page(viewer: Viewer) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        name, page = name_of(request.scope["raw_path"])
        if page not in RUN_PAGES:
            return shell.problem(404, "Nothing here", "There is no such page of a run.")
        return await _answer(_load(RUN_PAGES[page]), viewer, request, name)

    return answer


async def _answer(page: Callable[..., Any], viewer: Viewer, *given: Any) -> Response:
    if getattr(page, "is_async", False):  # reads what was sent, or goes on sending
        return await page(viewer, *given)  # type: ignore[no-any-return]
    return await viewer.made(page, viewer, *given)


def _made(page: Callable[..., Response], *given: Any) -> Response:
    """The page, or one that says what is wrong."""
    try:
        return page(*given)
    except Absent as problem:
        return shell.problem(404, "Not here", str(problem))
    except KofnError as problem:
        return shell.problem(422, "This cannot be shown", str(problem))
    except OSError as problem:
        return shell.problem(503, "This cannot be read now", f"{problem.filename or 'a file'}: {problem.strerror}")
    except Exception as problem:  # a fault of ours, or files that nobody thought of: the viewer goes on
        return _fault(problem)


def _fault(problem: Exception) -> Response:
    """What polars cannot read has changed since it was looked at; anything else is told in the terminal."""
    import logging

    if type(problem).__module__.startswith("polars"):
        return shell.problem(503, "This cannot be read now", "A file changed while it was read: reload the page.")
    logging.getLogger("kofn.web").exception("a page could not be made")
    why = "The terminal of kofn view says what went wrong; the other pages are not affected."
    return shell.problem(500, "This page could not be made", why)


def _load(target: str) -> Callable[..., Any]:
    from importlib import import_module

    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
