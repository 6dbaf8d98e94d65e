"""The best-of-n page: choose a metric, a threshold and a selector, and bounds on gain, cost and time.

The page's script applies the sliders by the rule of `kofn.analysis.curve_report`; without it the server does.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from markupsafe import Markup
from starlette.responses import JSONResponse

from kofn.analysis.best_of import MEASURES, BestOfOptions, best_of
from kofn.analysis.curve_report import (
    RecommendedN,
    SpendingBounds,
    best_of_report,
    candidate_tokens,
    default_measure,
    only_selector,
    recommend_n,
)
from kofn.analysis.selectors import BUILT_IN, Selector, with_selector
from kofn.core.escape import escape_json, show_hidden
from kofn.core.format import format_count
from kofn.errors import InputError, KofnError, UnknownName
from kofn.render.charts import Chart
from kofn.render.curve_html import LOOKS, gains_label, gains_plot, main_chart
from kofn.render.curve_text import cost_rows, curve_cells, selection_rows
from kofn.render.plot import Guide, TextMark
from kofn.runs.files import CANDIDATES
from kofn.viewer.caches import drop_oldest
from kofn.viewer.templating import breadcrumbs, render_fragment, render_page, run_url, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.analysis.best_of import BestOf
    from kofn.analysis.curve_report import BestOfReport
    from kofn.render.plot import Layer
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.grade import Graded
    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer

T = TypeVar("T")
MANY = 200_000  # candidates; the intervals of more take longer than a page should
MAX_TABLES = 300  # of a run, in memory
INTERVAL_FIELDS = [f"{measure}_{end}" for measure in MEASURES for end in ("low", "high")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKey:
    """Which table: a metric, the threshold of a pass, a selector, and the measure whose gain counts."""

    metric: str
    threshold: float | None = None
    selector: str = ""
    low: bool = False  # the lowest score is picked
    measure: str = "any"


class ThresholdSteps(NamedTuple):
    """The range of a slider over the values of a metric. `usual` is where it stands at first."""

    low: float
    high: float
    by: float
    usual: float
    higher_is_better: bool


class BestOfTables:
    """The tables of one run."""

    def __init__(self, view: RunView) -> None:
        if view.run.result is None:
            raise InputError(f"{view.name or 'this run'}: best of n needs candidates, and this run has none")
        # not the view itself: these tables are dropped with it
        self.path, self.has_texts = view.file(CANDIDATES), view.has_texts
        self.graded = replace(view.graded_candidates, options=replace(view.run.options, by=(), split=None))
        self.units = {"tokens": candidate_tokens(self.graded.table), **self.graded.units()}
        self._tables: OrderedDict[tuple[str, TableKey], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._kind_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    # --- choices

    def selectors(self, metric: str) -> dict[str, str]:
        """The selectors with descriptions: columns of scores, and built-in ones, never a function that a run names."""
        sets = self.graded.metric(metric).sets
        columns = dict.fromkeys(sets.selectors, "a column of scores")
        possible = {"vote": sets.answers is not None, "length": self.has_texts}
        return columns | {n: words for n, words in BUILT_IN.items() if n not in columns and possible.get(n, True)}

    def key(self, params: Mapping[str, str]) -> TableKey:
        """The table of a URL; where it does not say, that of `kofn curve`."""
        scored = self.graded.metric(params.get("metric") or None)
        usual = only_selector(scored)
        selector = params.get("selector", "" if usual is None else usual.by)
        if selector and selector not in self.selectors(scored.metric):
            raise UnknownName("selector", selector, list(self.selectors(scored.metric)))
        measure = params.get("measure") or default_measure(self.graded.options)
        if measure not in MEASURES or (measure == "selected" and not selector):
            measure = "any"
        return TableKey(
            metric=scored.metric,
            threshold=parse_number(params, "threshold"),
            selector=selector,
            low=params.get("low") == "1" and selector not in ("vote", "random", ""),
            measure=measure,
        )

    def steps(self, metric: str) -> ThresholdSteps | None:
        """The thresholds to choose from; None where the values are passes already."""
        return self._once("steps", TableKey(metric=metric), lambda: threshold_steps(self.graded, metric))

    # --- tables

    def table(self, key: TableKey, *, intervals: bool) -> tuple[BestOf, BestOfReport | None]:
        """The table and its report; of a large run only the table, unless `intervals` or it was computed before."""
        rough = self._rough(key)
        report_key = replace(key, measure="any")  # the report holds every measure
        many = self.graded.table.n_candidates > MANY
        if many and not intervals and ("report", report_key) not in self._tables:
            unknown: dict[str, Any] = dict.fromkeys(INTERVAL_FIELDS)
            return replace(rough, rows=tuple(replace(row, **unknown) for row in rough.rows)), None
        report = self._once("report", report_key, lambda: self._report(report_key))
        rows = [
            replace(row, **{field: getattr(other, field) for field in INTERVAL_FIELDS})
            for row, other in zip(rough.rows, report.table.rows, strict=True)
        ]
        return replace(rough, rows=tuple(rows), notes=report.table.notes), report

    def _rough(self, key: TableKey) -> BestOf:
        """The values and gains, with intervals that are cheap and not shown.

        A vote without a curve (too many votes, values that are not passes) gives way to any@k.
        """
        try:
            return self._once("rough", key, lambda: self._compute(key))
        except InputError:
            if key.measure != "majority":
                raise
            return self._rough(replace(key, measure="any"))

    def _compute(self, key: TableKey) -> BestOf:
        units, clusters = dict(self.units), self.units["clusters"]
        # any interval will do here, so the fastest
        weighted = clusters is not None or units["weights"] is not None
        if weighted and clusters is None:
            units["clusters"] = np.arange(self.graded.table.n_cases)
        options = replace(self.graded.options, interval="cluster" if weighted else "t")
        return best_of(self._scored(key).sets, options, _best_of_options(key), **units)

    def _report(self, key: TableKey) -> BestOfReport:
        return best_of_report(
            self.graded.name,
            self._scored(key),
            self.graded.table,
            self.graded.options,
            _best_of_options(key),
            SpendingBounds(),
            judges=self.graded.result.judges,
            units=self.graded.units(),
        )

    def _scored(self, key: TableKey) -> Graded:
        """The sets under the metric and threshold, with the lengths of texts where these pick."""
        scored = self.graded.metric(key.metric)
        if key.threshold is not None:
            scored = replace(scored, sets=scored.sets.passing_from(key.threshold))
        if key.selector == "length" and "length" not in scored.sets.selectors:
            length = pl.col("text").str.len_chars().cast(pl.Float64)
            scan = pl.scan_parquet(self.path, glob=False).select(length)
            lengths = self._once("lengths", TableKey(metric=""), lambda: scan.collect(engine="streaming").to_series())
            scored = replace(scored, sets=with_selector(scored.sets, "length", lengths.to_numpy()))
        return scored

    def _once(self, kind: str, key: TableKey, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed once; two of a kind are never computed at the same time."""
        with self._lock:
            kind_lock = self._kind_locks[kind]
        with kind_lock:
            value: T = self._tables[kind, key] if (kind, key) in self._tables else compute()
            with self._lock:
                self._tables[kind, key] = value
                self._tables.move_to_end((kind, key))
                drop_oldest(self._tables, MAX_TABLES)
            return value


def _best_of_options(key: TableKey) -> BestOfOptions:
    prefer: Any = "low" if key.low else "high"
    selector = None if not key.selector else Selector(name=key.selector, by=key.selector, prefer=prefer)
    return BestOfOptions(measure=key.measure, selector=selector)


def threshold_steps(graded: GradedCandidates, metric: str) -> ThresholdSteps | None:
    sets = graded.metric(metric).sets
    values = sets.values[np.isfinite(sets.values)]
    if not len(values) or bool(((values == 0) | (values == 1)).all()):
        return None
    low, high = float(values.min()), float(values.max())
    if low == high:
        return None
    usual = float(sets.higher_is_better) if graded.options.threshold is None else graded.options.threshold
    by = step_of(high - low)
    low, high = round(floor(low / by) * by, 10), round(ceil(high / by) * by, 10)
    return ThresholdSteps(low, high, by, min(high, max(low, usual)), sets.higher_is_better)


def step_of(span: float) -> float:
    """A round step, 100 to 250 of which make the span.

    >>> step_of(1.0), step_of(7.3)
    (0.01, 0.05)
    """
    size = 10.0 ** np.floor(np.log10(span / 100))
    return float(f"{max(m * size for m in (1, 2, 5) if m * size <= span / 100 * (1 + 1e-9)):.3g}")


def with_cost(table: BestOf, cost: float | None) -> BestOf:
    """The table with a cost per candidate; None leaves it as it is.

    >>> from kofn.scoring.configuration import GradingConfig
    >>> from kofn.core.candidate_sets import CandidateSets
    >>> table = with_cost(best_of(CandidateSets.from_lists([[1, 0], [0, 0]]), GradingConfig()), 0.5)
    >>> [(row.cost, row.gain_per_cost) for row in table.rows], table.unit
    ([(0.5, None), (1.0, 0.5)], 'dollars')
    """
    if cost is None:
        return table
    gains = [None if row.gain is None else row.gain / cost for row in table.rows]
    rows = (replace(row, cost=row.k * cost, gain_per_cost=g) for row, g in zip(table.rows, gains, strict=True))
    return replace(table, rows=tuple(rows), cost=cost, unit="dollars")


def parse_number(params: Mapping[str, str], name: str, *, above: float | None = None) -> float | None:
    """A number of a query string; None where it is not given.

    >>> parse_number({"cost": "0.5"}, "cost"), parse_number({"cost": ""}, "cost")
    (0.5, None)
    """
    text = params.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or (above is not None and not value > above):
        more = "" if above is None else f" above {above:g}"
        raise InputError(f"{name}: expected a number{more}, not {text[:60]!r}")
    return value


_TABLES: WeakKeyDictionary[RunView, BestOfTables] = WeakKeyDictionary()
_LOCK = threading.Lock()


def tables_of(view: RunView) -> BestOfTables:
    """The tables of a run; they are dropped with the run, when the cache drops it."""
    with _LOCK:
        if view not in _TABLES:
            _TABLES[view] = BestOfTables(view)
        return _TABLES[view]


MIN_DISTANCE = 0.05  # curves that are closer have no words between them
MEASURE_WORDS = {
    "any": "any candidate passes",
    "selected": "the selector's pick passes",
    "majority": "the vote is right",
}
_BOUNDS = ("gain", "cost", "latency", "budget")


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
            **{name: parse_number(params, name, above=0) for name in _BOUNDS},
            sequential=params.get("sequential") == "1",
        )


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page."""
    view = viewer.runs.get(name)
    tables = tables_of(view)
    key, controls = tables.key(request.query_params), BestControls.parse(request.query_params)
    table, report = tables.table(key, intervals=False)
    data = table_data(tables, key, table, report)
    priced = with_cost(table, controls.cost)
    choice = choose_n(priced, controls)
    header, rows = curve_cells(priced, tables.graded.options.level)
    fields = {name: field_text(getattr(controls, name)) for name in ("n", *_BOUNDS)}
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
        metrics=view.metrics,
        selectors=tables.selectors(key.metric),
        usual_selector=usual.selector,
        usual_measure=usual.measure,
        measures=MEASURE_WORDS,
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
    # cost and time of a candidate, and what the selector makes of all n, in words
    facts = [*cost_rows(table), *([] if report is None else selection_rows(report))]
    return {
        "key": {**asdict(key), "measure": table.measure},
        "table": {name: getattr(table, name) for name in ("measure", "cost", "tokens")}
        | {"rows": [row.to_dict() for row in table.rows]},
        "level": tables.graded.options.level,
        "ends": report is not None,
        "steps": None if steps is None else steps._asdict(),
        "measures": [name for name in MEASURE_WORDS if any(row.value(name) is not None for row in table.rows)],
        "notes": [_sentence(str(note)) for note in table.notes],
        "warnings": [] if report is None else [(_sentence(str(w)), w.code) for w in report.warnings],
        "facts": [[name, show_hidden(text)] for name, text in facts],
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
    ]
    at_label = table.rows[min(2, len(table.rows) - 1)]
    tries = at_label.independent
    if tries is not None and at_label.any is not None and tries - at_label.any >= MIN_DISTANCE:
        # its curve is not an estimate
        guides.append(TextMark(x=at_label.k, y=tries, text="if independent", side="left", italic=True))
    rows = [row for row in table.rows if row.gain is not None]
    least = None if controls.gain is None else controls.gain * (table.cost or 1.0)
    plot = gains_plot(rows, best or 0, least, LOOKS[table.measure][0])
    title = "What each further candidate adds"
    gains = Chart(id="gains", title=title, label=gains_label(rows), plot=plot, header=(), rows=())
    return {"curve": main_chart(table, tables.graded.options.level, guides), "gains": gains}


def _sentence(text: str) -> str:
    return show_hidden(f"{text[:1].upper()}{text[1:]}.")


def _columns(table: BestOf) -> dict[str, bool]:
    first = table.rows[0]
    return {"cost": bool(table.cost), "seconds": first.seconds is not None, "several": len(table.rows) > 1}


def missing_data(tables: BestOfTables, table: BestOf) -> list[str]:
    """What this run lacks for a choice of n, and what would provide it."""
    has, sentences = _columns(table), []
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
    if not tables.graded.result.scored[0].sets.selectors:
        sentences.append("There is no column of selector scores: only what needs none can pick.")
    return sentences


def choose_n(table: BestOf, controls: BestControls) -> RecommendedN:
    """The recommended n; a candidate counts as 1 where its cost is unknown."""
    bounds = SpendingBounds(**{name: getattr(controls, name) for name in ("gain", "latency", "budget", "sequential")})
    unpriced = not table.cost
    if unpriced and controls.budget is not None:
        return RecommendedN(n=None, reason="what a candidate costs is not known: say it, or use outputs with a cost")
    try:
        choice = recommend_n(with_cost(table, 1.0) if unpriced and controls.gain is not None else table, bounds)
    except InputError as problem:
        return RecommendedN(n=None, reason=str(problem))
    return replace(choice, reason=choice.reason.replace("a dollar", "a candidate")) if unpriced else choice
