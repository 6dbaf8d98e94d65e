"""The extraction audit of a run: extractors to choose from, how far they agree, and where they do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kofn.analysis.extraction_audit import audit_headline
from kofn.core.escape import show_hidden
from kofn.core.format import format_count
from kofn.registry import entries
from kofn.render.audit_report import agreement_cell, disagreement_row, scores_grid
from kofn.viewer.audit_jobs import SAMPLE_SIZES, STORED, AuditQuery, audit_of, available_extractors
from kofn.viewer.case_list import CaseQuery, case_url
from kofn.viewer.case_page import MAX_CANDIDATES
from kofn.viewer.templating import (
    breadcrumbs,
    changed_pairs,
    pager,
    query_string,
    render_page,
    rows_of_page,
    run_url,
    whole_number,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.analysis.extraction_audit import Disagreement, ExtractionAudit
    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer

PAGE = 20  # outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditForm:
    """The fields of the page's form, and which outputs it shows: `only` "verdicts" those on which a verdict depends."""

    extract: tuple[str, ...]
    pattern: str
    only: str
    page: int

    @classmethod
    def parse(cls, params: Any) -> AuditForm:
        """The form of a query string."""
        return cls(
            extract=tuple(params.getlist("extract")),
            pattern=params.get("pattern", "").strip(),
            only="verdicts" if params.get("only") == "verdicts" else "",
            page=whole_number(params.get("page", ""), 8) or 1,
        )


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page; while an audit runs, one that reloads itself."""
    view = viewer.runs.get(name)
    form = AuditForm.parse(request.query_params)
    query = AuditQuery.parse(view, request.query_params, form.extract)
    audit = audit_of(view, query)
    response = render_page(
        "audit_run.html.j2",
        title=f"Extraction audit – {show_hidden(name)}",
        crumbs=breadcrumbs(name, ("Extraction audit", run_url(name, "audit"))),
        run=name,
        query=query,
        form=form,
        choices=_choices(view, query, audit),
        audit=audit,
        **({} if audit is None else _results(view, query, form, audit)),
    )
    if audit is None:
        response.headers["refresh"] = "2"
    return response


def _choices(view: RunView, query: AuditQuery, audit: ExtractionAudit | None) -> list[dict[str, Any]]:
    """The extractors with what each does; ticked are those that were compared."""
    words = {entry.name: entry.summary for entry in entries("extractor")} | {STORED: "The answers that the run stored"}
    ticked = query.names or (() if audit is None else audit.names)
    available = available_extractors(view)
    return [
        {
            "name": name,
            "words": words.get(name.partition("(")[0], ""),
            "ticked": name in ticked,
            "own": name == available[0] and name != STORED,
        }
        for name in available
    ]


def audit_url(view: RunView, query: AuditQuery, form: AuditForm, **changes: Any) -> str:
    """The URL of the same audit with changes."""
    values = {"pattern": form.pattern, "only": form.only, "cases": query.cases, "seed": query.seed, **changes}
    usual = {"pattern": "", "only": "", "cases": AuditQuery().cases, "seed": AuditQuery().seed, "page": 1}
    pairs = [("extract", name) for name in form.extract]
    return run_url(view.name, "audit") + query_string(pairs + changed_pairs(values, usual))


def _results(view: RunView, query: AuditQuery, form: AuditForm, audit: ExtractionAudit) -> dict[str, Any]:
    url = partial(audit_url, view, query, form)
    listed = [d for d in audit.disagreements if d.matters] if form.only else list(audit.disagreements)
    part, page = rows_of_page(len(listed), PAGE, form.page)
    larger = [(f"up to {cases:,} cases", url(cases=cases)) for cases in SAMPLE_SIZES if cases > query.cases]
    sample = {
        "words": f"Looked at: {audit.n_cases:,} of {format_count(view.n, 'case')}, drawn with seed {query.seed}.",
        "other": url(seed=query.seed + 1),
        "larger": larger,
    }
    return {
        "lines": audit_headline(audit),
        "scores": scores_grid(audit),
        "names": audit.names,
        "agreement": [(a, [agreement_cell(audit.agreement[a][b]) for b in audit.names]) for a in audit.names],
        "metric": audit.metric,
        "notes": [*map(str, audit.warnings), *audit.notes],
        "sample": None if audit.n_cases == view.n else sample,
        "n_listed": len(listed),
        "n_verdicts": audit.n_verdicts,
        "n_all": len(audit.disagreements),
        "rows": [(disagreement_row(d, audit.names), candidate_url(view, d)) for d in listed[part]],
        "url": url,
        "pager": pager(len(listed), PAGE, page, lambda to: url(page=to) + "#outputs", "Pages of outputs"),
    }


def candidate_url(view: RunView, disagreement: Disagreement) -> str | None:
    """The page of the case of an output, at its candidate."""
    case, index = disagreement.case_id, disagreement.index
    row = view.row_of(case)
    if row is None:
        return None
    first = index // MAX_CANDIDATES * MAX_CANDIDATES  # of the page of candidates that it is on
    page = f"&from={first}" if first else ""
    return f"{case_url(view.name, case, row, CaseQuery())}{page}#candidate-{index + 1}"
