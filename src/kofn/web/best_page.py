"""Best of n, explored: the table of a metric, a threshold and a selector; n, gain, cost and time are applied to it.

The script applies them as they are dragged, by the rule of `kofn.choices`; without it this page does, when it is asked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.responses import JSONResponse

from kofn.choices import Choice, Wanted, choose
from kofn.diagnose import counted
from kofn.errors import InputError, KofnError
from kofn.report.curve_page import LOOKS, main_chart
from kofn.report.curve_text import cells, cost_rows, selection_rows
from kofn.report.html import json_text
from kofn.report.visible import visible
from kofn.web import shell
from kofn.web.best_tables import number_of, priced, tables_of
from kofn.web.folder import address
from kofn.web.run_page import crumbs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.best_of import BestOf
    from kofn.report.curve import Found
    from kofn.web.app import Viewer
    from kofn.web.best_tables import Key, Tables

    Spec = dict[str, Any]

MEASURED = {"any": "any candidate passes", "selected": "the selector's pick passes", "majority": "the vote is right"}
_APART = 0.05  # curves that are closer have no words between them
_LINES = 16  # pixels from a mark's words to the next mark's


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """What is applied to a table; None where nobody asks for it."""

    n: int | None = None
    gain: float | None = None
    cost: float | None = None
    latency: float | None = None
    budget: float | None = None
    sequential: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Levers:
        """What an address asks for."""
        n = given.get("n", "")
        return cls(
            n=int(n) if n.isascii() and n.isdigit() and 0 < len(n) < 7 else None,
            **{name: number_of(given, name, above=0) for name in ("gain", "cost", "latency", "budget")},
            sequential=given.get("sequential") == "1",
        )


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page."""
    tables = tables_of(viewer.shelf.get(name))
    key, levers = tables.key(request.query_params), Levers.of(request.query_params)
    table, found = tables.table(key, ends=False)
    data = answer(tables, key, table, found)
    at_cost = priced(table, levers.cost)
    choice = choice_of(at_cost, levers)
    header, rows = cells(at_cost, tables.opened.options.level)
    return shell.page(
        "best.html.j2",
        title=f"Best of n – {visible(name)}",
        crumbs=crumbs_of(name, ("Best of n", address(name, "best"))),
        charts={},
        scripts=["choose.js", "explore.js"],
        run=name,
        key=key,
        levers=levers,
        given={name: written(getattr(levers, name)) for name in ("n", "gain", "cost", "latency", "budget")}
        | {"threshold": written(key.threshold)},
        choice=choice,
        what=f"{counted(table.n_cases, 'case')}, {counted(tables.opened.table.n_candidates, 'candidate')}",
        metrics=tables.metrics,
        selectors=tables.selectors(key.metric),
        usual_selector=tables.key({"metric": key.metric}).selector,
        usual_measure=tables.key({"metric": key.metric}).measure,
        measures=MEASURED,
        measured=f"{table.cost:.3g}" if table.cost else "1 each",
        steps=tables.steps(key.metric),
        ks=[row.k for row in table.rows],
        has=_has(table),
        header=header,
        rows=[(row, of.k) for row, of in zip(rows, table.rows, strict=True)],
        answer=Markup(json_text(data)),  # noqa: S704 - `<` is escaped
        measure=table.measure,
        notes=data["notes"],
        warnings=data["warnings"],
        facts=data["facts"],
        missing=cannot(tables, table),
        keys=data["keys"],
    )


def written(value: float | None) -> str:
    """A number as a field holds it.

    >>> written(40.0), written(0.00125), written(None)
    ('40', '0.00125', '')
    """
    return "" if value is None else repr(value).removesuffix(".0")


def data(viewer: Viewer, request: Request, name: str) -> Response:
    """A table as the script takes it; with `ends=1` it waits for the intervals of a large run too."""
    try:
        tables = tables_of(viewer.shelf.get(name))
        key = tables.key(request.query_params)
        return JSONResponse(answer(tables, key, *tables.table(key, ends=request.query_params.get("ends") == "1")))
    except KofnError as problem:
        return JSONResponse({"problem": str(problem)}, status_code=422)


def answer(tables: Tables, key: Key, table: BestOf, found: Found | None) -> dict[str, Any]:
    """All that the page shows of one table."""
    chart = main_chart("curve", table, tables.opened.options.level, None)
    steps = tables.steps(key.metric)
    return {
        "key": {**asdict(key), "measure": table.measure},
        "table": {
            "measure": table.measure,
            "cost": table.cost,
            "tokens": table.tokens,
            "rows": [row.to_dict() for row in table.rows],
        },
        "level": tables.opened.options.level,
        "ends": found is not None,
        "steps": None if steps is None else steps._asdict(),
        "measures": [name for name in MEASURED if any(row.value(name) is not None for row in table.rows)],
        "notes": [_sentence(note) for note in table.notes],
        "warnings": [] if found is None else [_sentence(warning) for warning in found.warnings],
        "facts": _facts(table, found),
        "keys": [list(one) for one in chart.keys],
        "charts": {
            "curve": {**marked(chart.spec, table), "description": chart.label},
            **({"gains": gains(table)} if len(table.rows) > 1 else {}),
        },
    }


def _facts(table: BestOf, found: Found | None) -> list[list[str]]:
    """What a candidate costs and takes, and what the selector makes of all n, in words."""
    rows = [*cost_rows(table), *([] if found is None else selection_rows(found))]
    return [[name, visible(text)] for name, text in rows]


def _sentence(text: str) -> str:
    return visible(f"{text[:1].upper()}{text[1:]}.")


def _has(table: BestOf) -> dict[str, bool]:
    first = table.rows[0]
    return {"cost": bool(table.cost), "seconds": first.seconds is not None, "several": len(table.rows) > 1}


def cannot(tables: Tables, table: BestOf) -> list[str]:
    """What this run does not let anybody find out, and what would."""
    there, out = _has(table), []
    columns = tables.opened.result.scored[0].sets.selectors
    if not there["several"]:
        return ["Most cases have one candidate: there is no curve, and no n to choose. Ask for several a case."]
    if table.cost is None:
        tokens = "" if table.tokens is None else f" ({table.tokens:,.0f} tokens)"
        out.append(f"Candidates carry no cost: until you say what one costs{tokens}, gains are counted a candidate.")
    elif not table.cost:
        out.append("Candidates cost nothing: until you say what one costs, gains are counted a candidate.")
    if not there["seconds"]:
        out.append("Candidates carry no time: latency cannot bound n.")
    if not columns:
        out.append("There is no column of selector scores: only what needs none can pick.")
    return out


def choice_of(table: BestOf, levers: Levers) -> Choice:
    """The n to choose; a candidate counts as 1 where nobody knows what it costs."""
    wanted = Wanted(gain=levers.gain, latency=levers.latency, budget=levers.budget, sequential=levers.sequential)
    each = not table.cost
    if each and levers.budget is not None:
        return Choice(n=None, reason="what a candidate costs is not known: say it, or use outputs with a cost")
    try:
        found = choose(priced(table, 1.0) if each and levers.gain is not None else table, wanted)
    except InputError as problem:
        return Choice(n=None, reason=str(problem))
    return replace(found, reason=found.reason.replace("a dollar", "a candidate")) if each else found


# --- charts; what is dragged are signals of theirs


def marked(spec: Spec, table: BestOf) -> Spec:
    """The curves with a line at the recommended n (signal `best`, 0 for none) and one at the n looked at (`at`)."""
    layers = spec["layer"]
    x = layers[0]["encoding"]["x"]
    last = table.rows[-1].k
    marks = [
        *_mark("best", "var(--accent)", "'recommended: ' + best", 0, x, last),
        *_mark("at", "var(--ink)", "'n = ' + at", _LINES, x, last, unless="at == best"),
    ]
    params = [{"name": "best", "value": 0}, {"name": "at", "value": last}]
    named = _independent_words(table, x, layers)
    return {**spec, "params": params, "layer": [*marks, *layers, *named]}


def _mark(signal: str, colour: str, words: str, down: int, x: Spec, last: int, *, unless: str = "false") -> list[Spec]:
    data: Spec = {
        "data": {"values": [{}]},
        "transform": [
            {"calculate": signal, "as": "k"},
            {"filter": f"datum.k > 0 && !({unless})"},
            {"calculate": words, "as": "words"},
        ],
    }
    aside = f"{signal} > {0.6 * last:g}"
    text = {
        "type": "text",
        "align": {"expr": f"{aside} ? 'right' : 'left'"},
        "dx": {"expr": f"{aside} ? -5 : 5"},
        "dy": down - 2 * _LINES + 6,
        "fill": colour,
        "fontWeight": 600,
    }
    rule = {"type": "rule", "stroke": colour, "strokeWidth": 2 if signal == "best" else 1.25}
    return [
        {**data, "mark": rule, "encoding": {"x": x, "y": {"value": down - 2 * _LINES}, "y2": {"value": "height"}}},
        {**data, "mark": text, "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "words"}}},
    ]


def _independent_words(table: BestOf, x: Spec, layers: Sequence[Spec]) -> list[Spec]:
    """The curve of independent tries has its name beside it: it is no estimate."""
    row = table.rows[min(2, len(table.rows) - 1)]
    if row.independent is None or row.any is None or row.independent - row.any < _APART:
        return []
    y = next(layer["encoding"]["y"] for layer in layers if layer["encoding"].get("y", {}).get("field") == "point")
    mark = {"type": "text", "align": "right", "dx": -8, "dy": -6, "fill": "var(--muted)", "fontStyle": "italic"}
    return [
        {
            "data": {"values": [{"k": row.k, "point": row.independent, "words": "if independent"}]},
            "mark": mark,
            "encoding": {"x": x, "y": y, "text": {"field": "words"}},
        }
    ]


def gains(table: BestOf) -> Spec:
    """A bar a candidate: what it adds to the measure; signal `least` is what it would have to add, 0 for nothing."""
    rows = [row for row in table.rows if row.gain is not None]
    values = [{"k": row.k, "candidate": str(row.k), "gain": row.gain} for row in rows]
    most = max((row.gain or 0.0 for row in rows), default=0.0)
    low = min((row.gain or 0.0 for row in rows), default=0.0)
    x: Spec = {"field": "candidate", "type": "ordinal", "sort": None, "title": "candidate number"}
    x["axis"] = {"labelAngle": 0, "grid": False, "labelOverlap": True}
    y: Spec = {"field": "gain", "type": "quantitative", "title": None, "axis": {"tickCount": 4, "format": ".3~f"}}
    y["scale"] = {"domain": [min(0.0, low * 1.1), max(most * 1.1, 1e-6)], "nice": False}
    colour = {"condition": {"test": "datum.k <= best", "value": LOOKS[table.measure][0]}, "value": "var(--some)"}
    tooltip = [{"field": "candidate"}, {"field": "gain", "title": "adds", "format": ".4f"}]
    return {
        "width": "container",
        "height": 190,
        "description": "; ".join(f"number {row.k} adds {row.gain:.3f}" for row in rows[:12]),
        "params": [{"name": "best", "value": 0}, {"name": "least", "value": 0}],
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {"x": x, "y": y, "fill": colour, "tooltip": tooltip},
            },
            {
                "data": {"values": [{}]},
                "transform": [{"calculate": "least", "as": "gain"}, {"filter": "datum.gain > 0"}],
                "mark": {
                    "type": "rule",
                    "clip": True,
                    "stroke": "var(--fail)",
                    "strokeDash": [5, 4],
                    "strokeWidth": 1.5,
                },
                "encoding": {"y": y},
            },
        ],
    }
