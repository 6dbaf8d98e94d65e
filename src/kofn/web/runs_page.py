"""The list of runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import HTMLResponse

from kofn.diagnose import counted
from kofn.web import shell
from kofn.web.cases import whole
from kofn.web.listing import SORTS, Asked, choices, chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.web.app import Viewer
    from kofn.web.listing import Line

PAGE = 100
REFRESH = 10  # seconds after which a browser without script asks again, while a run is going on


def asked_of(given: Mapping[str, str]) -> Asked:
    """What the address of the list asks for.

    >>> asked_of({"q": "gsm", "sort": "cost", "page": "x"})
    Asked(query='gsm', task='', model='', status='', tag='', sort='cost', down=True, page=1)
    """
    return Asked(
        query=given.get("q", "")[:500],
        **{name: given.get(name, "") for name in ("task", "model", "status", "tag")},
        sort=given["sort"] if given.get("sort") in SORTS else "when",
        down=given.get("up") != "1",
        page=whole(given.get("page", "1")) or 1,
    )


def query_of(asked: Asked, **changes: Any) -> str:
    """The same as the end of an address.

    >>> query_of(Asked(query="a b"), page=2)
    '?q=a+b&page=2'
    """
    asked, plain = replace(asked, **changes), Asked()
    pairs = {name: getattr(asked, name) for name in ("query", "task", "model", "status", "tag", "sort", "page")}
    kept = {("q" if n == "query" else n): v for n, v in pairs.items() if v != getattr(plain, n)}
    return f"?{urlencode(kept | ({} if asked.down else {'up': '1'}))}" if kept or not asked.down else ""


def show(viewer: Viewer, request: Request) -> Response:
    """The page."""
    asked, found, lines = _looked_up(viewer, request)
    return shell.page(
        "runs.html.j2",
        title="Runs",
        here="runs",
        scripts=["runs.js", "live.js"],
        refresh=REFRESH if any(line.status == "running" for line in lines) else None,
        where=str(viewer.folder.root),
        asked=asked,
        chosen={name: getattr(asked, name) for name in ("task", "model", "status", "tag")},
        choices=choices(lines),
        sorted_by=lambda name: "/" + query_of(asked, sort=name, down=not (asked.sort == name and asked.down), page=1),
        query=query_of(asked, page=1),
        here_query=query_of(asked),
        pager=pager(len(found), PAGE, asked.page, lambda page: "/" + query_of(asked, page=page), "Pages of runs"),
        **_shown(asked, found, lines),
    )


def rows(viewer: Viewer, request: Request) -> Response:
    """The lines of the page and how many there are, as markup: for a page that is open already."""
    return HTMLResponse(shell.fragment("runs_fresh.html.j2", **_shown(*_looked_up(viewer, request))))


def _looked_up(viewer: Viewer, request: Request) -> tuple[Asked, list[Line], list[Line]]:
    """What is asked for, the lines that fit, and all."""
    asked = asked_of(request.query_params)
    lines = viewer.listing.lines()
    found = chosen(lines, asked)
    return replace(asked, page=min(asked.page, max(1, -(-len(found) // PAGE)))), found, lines


def _shown(asked: Asked, found: list[Line], lines: list[Line]) -> dict[str, Any]:
    return {
        "lines": found[(asked.page - 1) * PAGE : asked.page * PAGE],
        "total": len(lines),
        "n_going": sum(line.status == "running" for line in lines),
        "count": ("" if len(found) == len(lines) else f"{len(found):,} of ") + counted(len(lines), "run"),
    }


def pager(total: int, size: int, page: int, at: Callable[[int], str], label: str) -> Markup:
    """Links to the other pages of a table."""
    pages = -(-total // size)
    first = (page - 1) * size + 1
    made = shell.fragment(
        "pager.html.j2",
        pages=pages,
        page=page,
        at=at,
        first=first,
        last=min(total, first + size - 1),
        total=total,
        label=label,
    )
    return Markup(made)  # noqa: S704 - the template escapes
