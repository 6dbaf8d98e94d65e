"""The best-of-n page: choose a metric, a threshold and a selector, and bounds on gain, cost and time.

The page's script applies the sliders by the rule of `kofn.analysis.best_of.choose_n`; without it the server does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.responses import JSONResponse

from kofn.analysis.best_of.choose_n import RecommendedN, SpendingBounds, recommend_n
from kofn.core.escape import escape_json, show_hidden
from kofn.core.format import format_count
from kofn.errors import InputError, KofnError
from kofn.render.charts import Chart
from kofn.render.curve_html import LOOKS, gains_label, gains_plot, main_chart
from kofn.render.curve_text import cost_rows, curve_cells, selection_rows
from kofn.render.plot import Guide, TextMark
from kofn.viewer.best_tables import parse_number, tables_of, with_cost
from kofn.viewer.templating import breadcrumbs, render_fragment, render_page, run_url, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.analysis.best_of.best_of import BestOf
    from kofn.analysis.best_of.report import BestOfReport
    from kofn.render.plot import Layer
    from kofn.viewer.best_tables import BestOfTables, TableKey
    from kofn.viewer.context import Viewer

MIN_DISTANCE = 0.05  # curves that are closer have no words between them
MEASURES = {"any": "any candidate passes", "selected": "the selector's pick passes", "majority": "the vote is right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BestControls:
    """What is applied to a table; None where a field of the form is empty."""

    n: int | None = None
    gain: float | None = None
    cost: float | None = None
    latency: float | None = None
    budget: float | None = None
    sequential: bool = False

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> BestControls:
        """The controls of a query string."""
        return cls(
            n=whole_number(params.get("n", ""), 6),
            **{name: parse_number(params, name, above=0) for name in ("gain", "cost", "latency", "budget")},
            sequential=params.get("sequential") == "1",
        )


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page."""
    tables = tables_of(viewer.runs.get(name))
    key, controls = tables.key(request.query_params), BestControls.parse(request.query_params)
    table, report = tables.table(key, intervals=False)
    data = table_data(tables, key, table, report)
    priced = with_cost(table, controls.cost)
    choice = choose_n(priced, controls)
    header, rows = curve_cells(priced, tables.graded.options.level)
    fields = {name: field_text(getattr(controls, name)) for name in ("n", "gain", "cost", "latency", "budget")}
    usual = tables.key({"metric": key.metric})
    return render_page(
        "best.html.j2",
        title=f"Best of n – {show_hidden(name)}",
        crumbs=breadcrumbs(name, ("Best of n", run_url(name, "best"))),
        scripts=["recommend_n.js", "explore.js"],
        run=name,
        key=key,
        controls=controls,
        fields=fields | {"threshold": field_text(key.threshold)},
        choice=choice,
        summary=f"{format_count(table.n_cases, 'case')}, {format_count(tables.graded.table.n_candidates, 'candidate')}",
        metrics=tables.metrics,
        selectors=tables.selectors(key.metric),
        usual_selector=usual.selector,
        usual_measure=usual.measure,
        measures=MEASURES,
        known_cost=f"{table.cost:.3g}" if table.cost else "1 each",
        steps=tables.steps(key.metric),
        ks=[row.k for row in table.rows],
        has=_columns(table),
        header=header,
        rows=[(texts, row.k) for texts, row in zip(rows, table.rows, strict=True)],
        data=Markup(escape_json(data)),  # noqa: S704 - `<` is escaped
        measure=table.measure,
        notes=data["notes"],
        warnings=data["warnings"],
        facts=data["facts"],
        missing=missing_data(tables, table),
        keys=data["keys"],
        charts=_charts(tables, priced, choice.n, controls),
    )


def field_text(value: float | None) -> str:
    """A number as a form field holds it.

    >>> field_text(40.0), field_text(0.00125), field_text(None)
    ('40', '0.00125', '')
    """
    return "" if value is None else repr(value).removesuffix(".0")


def data(viewer: Viewer, request: Request, name: str) -> Response:
    """A table for the script of the page; with `ends=1` also the intervals of a large run, which take time."""
    try:
        tables = tables_of(viewer.runs.get(name))
        key, controls = tables.key(request.query_params), BestControls.parse(request.query_params)
        table, report = tables.table(key, intervals=request.query_params.get("ends") == "1")
        charts = _charts(tables, table, None, controls)
        drawn = {name: render_fragment("drawing.html.j2", chart=chart) for name, chart in charts.items()}
        return JSONResponse({**table_data(tables, key, table, report), "charts": drawn})
    except KofnError as problem:
        return JSONResponse({"problem": str(problem)}, status_code=422)


def table_data(tables: BestOfTables, key: TableKey, table: BestOf, report: BestOfReport | None) -> dict[str, Any]:
    """One table for the script of the page."""
    steps = tables.steps(key.metric)
    return {
        "key": {**asdict(key), "measure": table.measure},
        "table": {
            "measure": table.measure,
            "cost": table.cost,
            "tokens": table.tokens,
            "rows": [row.to_dict() for row in table.rows],
        },
        "level": tables.graded.options.level,
        "ends": report is not None,
        "steps": None if steps is None else steps._asdict(),
        "measures": [name for name in MEASURES if any(row.value(name) is not None for row in table.rows)],
        "notes": [_sentence(note) for note in table.notes],
        "warnings": [] if report is None else [_sentence(str(warning)) for warning in report.warnings],
        "facts": _facts(table, report),
        "keys": main_chart(table, tables.graded.options.level).keys,
        "kept": LOOKS[table.measure][0],
    }


def _charts(tables: BestOfTables, table: BestOf, best: int | None, controls: BestControls) -> dict[str, Chart]:
    """The curve with a line at the recommended n and one at the selected n, and what each candidate adds."""
    if len(table.rows) < 2:
        return {}
    last = table.rows[-1].k
    at = min(last, controls.n or best or last)
    guides: list[Layer] = [
        Guide(value=best, colour="var(--accent)", width=2, name="best", label=f"recommended: {best}"),
        Guide(value=None if at == best else at, colour="var(--ink)", width=1.25, name="at", label=f"n = {at}", row=1),
        *_independent_label(table),
    ]
    rows = [row for row in table.rows if row.gain is not None]
    least = None if controls.gain is None else controls.gain * (table.cost or 1.0)
    gains = Chart(
        id="gains",
        title="What each further candidate adds",
        label=gains_label(rows),
        plot=gains_plot(rows, best or 0, least, LOOKS[table.measure][0]),
        header=(),
        rows=(),
    )
    return {"curve": main_chart(table, tables.graded.options.level, guides), "gains": gains}


def _independent_label(table: BestOf) -> list[TextMark]:
    """A label on the curve of independent tries, since it is not an estimate."""
    row = table.rows[min(2, len(table.rows) - 1)]
    if row.independent is None or row.any is None or row.independent - row.any < MIN_DISTANCE:
        return []
    return [TextMark(x=row.k, y=row.independent, text="if independent", side="left", italic=True)]


def _facts(table: BestOf, report: BestOfReport | None) -> list[list[str]]:
    """Cost and time of a candidate, and what the selector makes of all n, in words."""
    rows = [*cost_rows(table), *([] if report is None else selection_rows(report))]
    return [[name, show_hidden(text)] for name, text in rows]


def _sentence(text: str) -> str:
    return show_hidden(f"{text[:1].upper()}{text[1:]}.")


def _columns(table: BestOf) -> dict[str, bool]:
    first = table.rows[0]
    return {"cost": bool(table.cost), "seconds": first.seconds is not None, "several": len(table.rows) > 1}


def missing_data(tables: BestOfTables, table: BestOf) -> list[str]:
    """What this run lacks for a choice of n, and what would provide it."""
    has, sentences = _columns(table), []
    columns = tables.graded.result.scored[0].sets.selectors
    if not has["several"]:
        return ["Most cases have one candidate: there is no curve, and no n to choose. Ask for several a case."]
    if table.cost is None:
        tokens = "" if table.tokens is None else f" ({table.tokens:,.0f} tokens)"
        sentences.append(
            f"Candidates carry no cost: until you say what one costs{tokens}, gains are counted a candidate."
        )
    elif not table.cost:
        sentences.append("Candidates cost nothing: until you say what one costs, gains are counted a candidate.")
    if not has["seconds"]:
        sentences.append("Candidates carry no time: latency cannot bound n.")
    if not columns:
        sentences.append("There is no column of selector scores: only what needs none can pick.")
    return sentences


def choose_n(table: BestOf, controls: BestControls) -> RecommendedN:
    """The recommended n; a candidate counts as 1 where its cost is unknown."""
    bounds = SpendingBounds(
        gain=controls.gain, latency=controls.latency, budget=controls.budget, sequential=controls.sequential
    )
    unpriced = not table.cost
    if unpriced and controls.budget is not None:
        return RecommendedN(n=None, reason="what a candidate costs is not known: say it, or use outputs with a cost")
    try:
        choice = recommend_n(with_cost(table, 1.0) if unpriced and controls.gain is not None else table, bounds)
    except InputError as problem:
        return RecommendedN(n=None, reason=str(problem))
    return replace(choice, reason=choice.reason.replace("a dollar", "a candidate")) if unpriced else choice
