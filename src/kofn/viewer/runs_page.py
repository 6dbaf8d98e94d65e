"""The page of the list of runs: search, filters, order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse

from kofn.core.format import format_count
from kofn.viewer.run_list import RunQuery, filter_choices, filter_runs
from kofn.viewer.templating import pager, render_fragment, render_page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.viewer.run_list import RunLine
    from kofn.viewer.server import Viewer

PAGE = 100
REFRESH = 10  # seconds after which a browser without JavaScript reloads while a run is active


def show(viewer: Viewer, request: Request) -> Response:
    """The page."""
    query, matches, lines = _search(viewer, request)

    def sorted_by(name: str) -> str:
        return "/" + query.query_string(sort=name, down=not (query.sort == name and query.down), page=1)

    return render_page(
        "runs.html.j2",
        title="Runs",
        section="runs",
        scripts=["runs.js", "live.js"],
        refresh=REFRESH if any(line.status == "running" for line in lines) else None,
        folder=str(viewer.folder.root),
        query=query,
        selected={name: getattr(query, name) for name in ("task", "model", "status", "tag")},
        choices=filter_choices(lines),
        sorted_by=sorted_by,
        export_query=query.query_string(page=1),
        page_query=query.query_string(),
        pager=pager(len(matches), PAGE, query.page, lambda page: "/" + query.query_string(page=page), "Pages of runs"),
        **_table(query, matches, lines),
    )


def rows(viewer: Viewer, request: Request) -> Response:
    """The lines of the page and how many there are, as markup, for a page that is open already."""
    return HTMLResponse(render_fragment("runs_update.html.j2", **_table(*_search(viewer, request))))


def _search(viewer: Viewer, request: Request) -> tuple[RunQuery, list[RunLine], list[RunLine]]:
    """The query, the lines that match, and all lines."""
    query = RunQuery.parse(request.query_params)
    lines = viewer.run_list.lines()
    matches = filter_runs(lines, query)
    return replace(query, page=min(query.page, max(1, -(-len(matches) // PAGE)))), matches, lines


def _table(query: RunQuery, matches: list[RunLine], lines: list[RunLine]) -> dict[str, Any]:
    return {
        "lines": matches[(query.page - 1) * PAGE : query.page * PAGE],
        "total": len(lines),
        "n_active": sum(line.status == "running" for line in lines),
        "count": ("" if len(matches) == len(lines) else f"{len(matches):,} of ") + format_count(len(lines), "run"),
    }
