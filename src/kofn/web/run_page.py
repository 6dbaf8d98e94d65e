"""One run: what report.html shows, with its cases read from Parquet a page at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import JSONResponse

from kofn.diagnose import counted
from kofn.report import pagecharts
from kofn.report.pagedata import page_data
from kofn.web import programs, shell
from kofn.web.cases import PAGE, SORTS, Wanted, chosen, filters_of, page_of, tags_of
from kofn.web.folder import address
from kofn.web.runs_page import pager
from kofn.web.standing import standing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.web.app import Viewer
    from kofn.web.browsed import Browsed


def crumbs_of(name: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """The way from the list to a run, and on."""
    return [(name or "(this folder)", address(name)), *more]


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page of a run; of one that is going on, how far it is."""
    from kofn.web import live

    now = standing(viewer.folder.run(name))
    if not now.finished:
        return live.show(viewer, request, name)
    one = viewer.shelf.get(name)
    data = page_data(one.run, drawn=False)
    charts = [chart for part in ("estimates", "segments") for chart in data[part]]
    return shell.page(
        "run.html.j2",
        title=f"{data['task']} – {data['verdict']['word'].lower()}",
        crumbs=crumbs_of(name),
        charts={chart.id: {**chart.spec, "description": chart.label} for chart in charts},
        scripts=["run.js", *(["live.js"] if now.going else [])],
        refresh=live.REFRESH if now.going else None,
        live_panel=live.panel(now, name) if now.going else None,
        run=name,
        ways=[*programs.ways(viewer, one), *ways_of(one)],
        later=one.sets is not None or one.seconds is not None,
        case_link=lambda case: case_at(name, case["id"], case["row"], Wanted()),
        group_link=lambda group: f"{address(name)}{Wanted(group=group).query()}#cases",
        **data,
        **programs.page_of(viewer, one),
        **case_table(one, wanted_of(request)),
    )


def wanted_of(request: Request) -> Wanted:
    """Which cases the address asks for."""
    return Wanted.of(request.query_params, tuple(request.query_params.getlist("tag")))


def case_at(name: str, case: str, row: int, wanted: Wanted) -> str:
    """The address of a case, among those that were asked for."""
    rest = wanted.query(page=1).lstrip("?")
    asked = urlencode({"id": case, "row": row}, errors="replace")
    return f"{address(name, 'case')}?{asked}{'&' + rest if rest else ''}"


def case_table(one: Browsed, wanted: Wanted) -> dict[str, Any]:
    """What the table of cases shows."""
    found = chosen(one, wanted)
    n = len(found.rows)
    wanted = replace(wanted, page=min(max(1, wanted.page), max(1, -(-n // PAGE))))
    here = address(one.name)

    def link(**changes: Any) -> str:
        return f"{here}{wanted.query(**changes)}#cases"

    groups = one.scores["group"].unique(maintain_order=True).to_list()
    return {
        "wanted": wanted,
        "rows": page_of(one, found, wanted),
        "n_found": n,
        "found": counted(n, "case") if n == one.n else f"{n:,} of {counted(one.n, 'case')}",
        "found_note": found.note,
        "filters": filters_of(one),
        "tag_filters": [t for t in tags_of(one) if set(t["values"]) != set(groups)],
        "group_names": groups[:500] if len(groups) > 1 else [],
        "sorts": {key: words for key, words in SORTS.items() if _has(one, key)},
        "sorted_by": lambda key: link(**_next_order(wanted, key), page=1),
        "link": link,
        "to_case": lambda row: case_at(one.name, row["id"], row["row"], wanted),
        "pager": pager(n, PAGE, wanted.page, lambda page: link(page=page), "Pages of cases"),
        "can_search_outputs": one.sets is not None and "text" in one.candidate_schema,
    }


def _next_order(wanted: Wanted, key: str) -> dict[str, Any]:
    """A click on a heading: up, down, and back to the order of the run."""
    if wanted.sort != key:
        return {"sort": key, "down": False}
    return {"sort": "", "down": False} if wanted.down else {"sort": key, "down": True}


def _has(one: Browsed, key: str) -> bool:
    if key == "score":
        known = one.scores["score"].drop_nulls()
        return bool(((known != 0) & (known != 1)).any())
    if key == "order":  # of programs, what fails comes first otherwise
        return one.sets is None
    return {"passing": one.graded, "cost": one.costs is not None, "seconds": one.seconds is not None}.get(key, True)


def ways_of(one: Browsed) -> list[tuple[str, str]]:
    """The further pages that a run has."""
    found = []
    if one.sets is not None and one.graded and int(one.sets.sizes.max() if len(one.sets) else 0) > 1:
        found.append(("Best of n", address(one.name, "best")))
    if one.sets is not None and "text" in one.candidate_schema:
        found.append(("Extraction audit", address(one.name, "audit")))
        found.append(("Label", address(one.name, "labels")))
    compare = f"/compare?{urlencode({'run': one.name}, errors='surrogateescape')}"
    return [*found, ("Compare", compare), ("Export", address(one.name, "export"))]


def charts(viewer: Viewer, request: Request, name: str) -> Response:  # noqa: ARG001 - every page takes the request
    """What is drawn from all candidates: markup and specifications, which the page puts in when they come."""
    one = viewer.shelf.get(name)
    result = one.run.result
    sets = [] if result is None else pagecharts.set_charts(one.run, result)
    spending = pagecharts.spending(one.run, one.scores)
    return JSONResponse(
        {
            "sets": shell.fragment("charts.html.j2", charts=sets),
            "spending": shell.fragment("charts.html.j2", charts=spending),
            "charts": {c.id: {**c.spec, "description": c.label} for c in (*sets, *spending)},
        }
    )
