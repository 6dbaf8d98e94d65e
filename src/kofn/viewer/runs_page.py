"""The page of the list of runs: search, filters, order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse

from kofn.viewer.run_list import RunQuery, filter_choices, filter_runs
from kofn.viewer.templating import count_of, pager, render_fragment, render_page, rows_of_page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.viewer.run_list import RunLine
    from kofn.viewer.server import Viewer

PAGE = 100
REFRESH = 10  # seconds after which a browser without JavaScript reloads while a run is active


def show(viewer: Viewer, request: Request) -> Response:
    """The page."""
    query, lines, n, table = _search(viewer, request)

    def sorted_by(name: str) -> str:
        return "/" + query.query_string(sort=name, down=not (query.sort == name and query.down), page=1)

    return render_page(
        "runs.html.j2",
        title="Runs",
        section="runs",
        scripts=["runs.js", "live.js"],
        refresh=REFRESH if table["n_active"] else None,
        folder=str(viewer.folder.root),
        query=query,
        selected={name: getattr(query, name) for name in ("task", "model", "status", "tag")},
        choices=filter_choices(lines),
        sorted_by=sorted_by,
        export_query=query.query_string(page=1),
        page_query=query.query_string(),
        pager=pager(n, PAGE, query.page, lambda page: "/" + query.query_string(page=page), "Pages of runs"),
        **table,
    )


def rows(viewer: Viewer, request: Request) -> Response:
    """The lines of the page and how many there are, as markup, for a page that is open already."""
    *_, table = _search(viewer, request)
    return HTMLResponse(render_fragment("runs_update.html.j2", **table))


def _search(viewer: Viewer, request: Request) -> tuple[RunQuery, list[RunLine], int, dict[str, Any]]:
    """The query, all lines, how many of them match, and what the table shows of these."""
    query = RunQuery.parse(request.query_params)
    lines = viewer.run_list.lines()
    matches = filter_runs(lines, query)
    part, page = rows_of_page(len(matches), PAGE, query.page)
    table = {
        "lines": matches[part],
        "total": len(lines),
        # a column that is empty in the whole folder only takes room
        "shown": {name: any(getattr(line, name) for line in lines) for name in ("task", "model", "cost")},
        "n_active": sum(line.status == "running" for line in lines),
        "count": count_of(len(matches), len(lines), "run"),
    }
    return replace(query, page=page), lines, len(matches), table
