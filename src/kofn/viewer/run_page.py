"""The page of one run: what report.html shows, with its cases read from Parquet a page at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import JSONResponse

from kofn.render import charts as render_charts
from kofn.render.report_html import report_data
from kofn.viewer import live_page, program_runs
from kofn.viewer.case_list import (
    PAGE,
    SORTS,
    CaseQuery,
    available_filters,
    case_url,
    page_rows,
    select_cases,
    tag_filters,
)
from kofn.viewer.run_folder import read_status
from kofn.viewer.templating import breadcrumbs, count_of, pager, render_fragment, render_page, rows_of_page, run_url

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page of a run; of one without results yet, its progress."""
    status = read_status(viewer.folder.run(name))
    if not status.finished:
        return live_page.show(viewer, request, name)
    view = viewer.runs.get(name)
    data = report_data(view.run, with_charts=False)
    return render_page(
        "run.html.j2",
        title=data.pop("title"),
        crumbs=breadcrumbs(name),
        scripts=["run.js", *(["live.js"] if status.active else [])],
        refresh=live_page.REFRESH if status.active else None,
        live_panel=live_page.panel(status, name) if status.active else None,
        run=name,
        links=[*program_runs.related_links(viewer, view), *page_links(view)],
        loads_charts=view.sets is not None or view.seconds is not None,
        case_link=lambda case: case_url(name, case["id"], case["row"], CaseQuery()),
        group_link=lambda group: f"{run_url(name)}{CaseQuery(group=group).query_string()}#cases",
        **data,
        **program_runs.page_sections(viewer, view),
        **case_table(view, CaseQuery.from_request(request)),
    )


def case_table(view: RunView, query: CaseQuery) -> dict[str, Any]:
    """The variables of the table of cases."""
    selection = select_cases(view, query)
    n = len(selection.rows)
    part, page = rows_of_page(n, PAGE, query.page)
    query = replace(query, page=page)

    def link(**changes: Any) -> str:
        return f"{run_url(view.name)}{query.query_string(**changes)}#cases"

    def sorted_by(key: str) -> str:
        """A click on a heading: ascending, descending, and back to the order of the run."""
        again = query.sort == key
        return link(sort="" if again and query.down else key, down=again and not query.down, page=1)

    groups = view.scores["group"].unique(maintain_order=True).to_list()
    return {
        "query": query,
        "rows": page_rows(view, selection.rows[part]),
        "n_matches": n,
        "count": count_of(n, view.n, "case"),
        "count_note": selection.note,
        "filters": available_filters(view),
        # a tag with the values of the groups would be the same filter twice
        "tag_filters": [t for t in tag_filters(view) if set(t["values"]) != set(groups)],
        "group_names": groups[:500] if len(groups) > 1 else [],
        "sorts": {key: words for key, words in SORTS.items() if _can_sort(view, key)},
        "sorted_by": sorted_by,
        "link": link,
        "to_case": lambda row: case_url(view.name, row["id"], row["row"], query),
        "pager": pager(n, PAGE, page, lambda page: link(page=page), "Pages of cases"),
        "can_search_outputs": view.has_texts,
    }


def _can_sort(view: RunView, key: str) -> bool:
    if key == "score":  # 0 and 1 sort as the verdicts do
        known = view.scores["score"].drop_nulls()
        return bool(((known != 0) & (known != 1)).any())
    if key == "order":  # of programs, what fails comes first otherwise
        return view.sets is None
    has = {"passing": view.graded, "cost": view.costs is not None, "seconds": view.seconds is not None}
    return has.get(key, True)


def page_links(view: RunView) -> list[tuple[str, str]]:
    """(title, URL) of the further pages of a run."""
    links = []
    if view.sets is not None and view.graded and int(view.sets.sizes.max() if len(view.sets) else 0) > 1:
        links.append(("Best of n", run_url(view.name, "best")))
    if view.has_texts:
        links += [("Extraction audit", run_url(view.name, "audit")), ("Label", run_url(view.name, "labels"))]
    compare = f"/compare?{urlencode({'run': view.name}, errors='surrogateescape')}"
    return [*links, ("Compare", compare), ("Export", run_url(view.name, "export"))]


def charts(viewer: Viewer, request: Request, name: str) -> Response:  # noqa: ARG001 - every page takes the request
    """Charts of all candidates as markup, which the page loads after itself."""
    view = viewer.runs.get(name)
    result = view.run.result
    drawn = {
        "sets": [] if result is None else render_charts.set_charts(view.run, result),
        "spending": render_charts.spending_charts(view.run, view.scores),
    }
    return JSONResponse({place: render_fragment("charts.html.j2", charts=charts) for place, charts in drawn.items()})
