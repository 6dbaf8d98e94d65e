"""The extraction audit of a run: extractors to choose from, how far they agree, and where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from kofn.auditing import headline
from kofn.diagnose import counted
from kofn.registry import entries
from kofn.report.audit_page import cell_of, row_of
from kofn.report.audit_text import scores_grid
from kofn.report.visible import visible
from kofn.web import shell
from kofn.web.audits import LEVELS, STORED, Ask, audit_of, offered
from kofn.web.case_page import MOST as CANDIDATES_A_PAGE
from kofn.web.cases import Wanted
from kofn.web.folder import address
from kofn.web.run_page import case_at, crumbs_of
from kofn.web.runs_page import pager

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.auditing import Disagreement, ExtractionAudit
    from kofn.web.app import Viewer
    from kofn.web.browsed import Browsed

PAGE = 20  # outputs


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page; while an audit goes on, one that asks again by itself."""
    one = viewer.shelf.get(name)
    given = request.query_params
    ask = Ask.of(one, given, given.getlist("extract"))
    asked = {"extract": given.getlist("extract"), "pattern": given.get("pattern", "").strip(), "only": _only(given)}
    audit = audit_of(one, ask)
    response = shell.page(
        "audit_run.html.j2",
        title=f"Extraction audit – {visible(name)}",
        crumbs=crumbs_of(name, ("Extraction audit", address(name, "audit"))),
        run=name,
        ask=ask,
        asked=asked,
        choices=_choices(one, ask, audit),
        audit=audit,
        **({} if audit is None else _found(one, ask, asked, audit, _page_of(given.get("page", "")))),
    )
    if audit is None:
        response.headers["refresh"] = "2"
    return response


def _only(given: Any) -> str:
    return "verdicts" if given.get("only") == "verdicts" else ""


def _page_of(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _choices(one: Browsed, ask: Ask, audit: ExtractionAudit | None) -> list[dict[str, Any]]:
    """The extractors with what each does; ticked are those that were compared."""
    words = {entry.name: entry.summary for entry in entries("extractor")} | {STORED: "The answers that the run stored"}
    ticked = ask.names or (() if audit is None else audit.names)
    own = offered(one)[0]
    return [
        {
            "name": name,
            "words": words.get(name.partition("(")[0], ""),
            "ticked": name in ticked,
            "own": name == own and name != STORED,
        }
        for name in offered(one)
    ]


def at(one: Browsed, ask: Ask, asked: dict[str, Any], **changes: Any) -> str:
    """The address of the same audit with changes."""
    plain = Ask()
    pairs: list[tuple[str, Any]] = [("extract", name) for name in asked["extract"]]
    more = {"pattern": asked["pattern"], "only": asked["only"], "cases": ask.cases, "seed": ask.seed, **changes}
    usual = {"pattern": "", "only": "", "cases": plain.cases, "seed": plain.seed, "page": 1}
    pairs += [(key, value) for key, value in more.items() if value != usual[key]]
    end = urlencode(pairs, errors="replace")
    return address(one.name, "audit") + (f"?{end}" if end else "")


def _found(one: Browsed, ask: Ask, asked: dict[str, Any], audit: ExtractionAudit, page: int) -> dict[str, Any]:
    shown = [d for d in audit.disagreements if d.matters] if asked["only"] else list(audit.disagreements)
    page = min(page, max(1, -(-len(shown) // PAGE)))
    outputs = shown[(page - 1) * PAGE : page * PAGE]
    return {
        "lines": headline(audit),
        "scores": scores_grid(audit),
        "names": audit.names,
        "agreement": [(a, [cell_of(audit.agreement[a][b]) for b in audit.names]) for a in audit.names],
        "metric": audit.metric,
        "told": audit.told,
        "drawn": _drawn(one, ask, asked, audit),
        "n_shown": len(shown),
        "n_verdicts": audit.n_verdicts,
        "n_all": len(audit.disagreements),
        "rows": [(row_of(d, audit.names), link_of(one, d)) for d in outputs],
        "link": lambda **changes: at(one, ask, asked, **changes),
        "pager": pager(
            len(shown),
            PAGE,
            page,
            lambda number: at(one, ask, asked, page=number) + "#outputs",
            "Pages of outputs",
        ),
    }


def _drawn(one: Browsed, ask: Ask, asked: dict[str, Any], audit: ExtractionAudit) -> dict[str, Any] | None:
    """What is said where not all cases are looked at, and how to look at others."""
    if audit.n_cases == one.n:
        return None
    larger = [cases for cases in LEVELS if cases > ask.cases]
    return {
        "words": f"Looked at: {audit.n_cases:,} of {counted(one.n, 'case')}, drawn with seed {ask.seed}.",
        "other": at(one, ask, asked, seed=ask.seed + 1),
        "more": [(f"up to {cases:,} cases", at(one, ask, asked, cases=cases)) for cases in larger],
    }


def link_of(one: Browsed, found: Disagreement) -> str | None:
    """Where the case of an output is shown, at its candidate."""
    row = one.row_of(found.case_id)
    if row is None:
        return None
    first = found.index // CANDIDATES_A_PAGE * CANDIDATES_A_PAGE
    page = f"&from={first}" if first else ""
    return f"{case_at(one.name, found.case_id, row, Wanted())}{page}#candidate-{found.index + 1}"
