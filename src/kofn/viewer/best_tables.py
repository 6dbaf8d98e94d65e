"""Best-of-n tables of a run, each computed once: values at once, intervals of a large run only on request."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from kofn.analysis.best_of.best_of import MEASURES, BestOfOptions, best_of
from kofn.analysis.best_of.choose_n import SpendingBounds
from kofn.analysis.best_of.report import best_of_report, candidate_tokens, default_measure, only_selector
from kofn.analysis.selectors import BUILT_IN, Selector, with_selector
from kofn.errors import InputError, UnknownName
from kofn.runs.files import CANDIDATES
from kofn.runs.load import GradedCandidates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.analysis.best_of.best_of import BestOf
    from kofn.analysis.best_of.report import BestOfReport
    from kofn.scoring.grade import Graded
    from kofn.viewer.run_view import RunView

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
        options = replace(view.run.options, by=(), split=None)
        self.graded = GradedCandidates(
            name=view.name, path=view.path, result=view.run.result, options=options, run=view.run
        )
        self.path = view.file(CANDIDATES)
        self.has_texts = "text" in view.candidate_schema
        self.units = {"tokens": candidate_tokens(self.graded.table), **self.graded.units()}
        self._tables: OrderedDict[tuple[str, TableKey], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._kind_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    # --- choices

    @property
    def metrics(self) -> list[str]:
        return [scored.metric for scored in self.graded.result.scored if scored.metric]

    @property
    def many(self) -> bool:
        return self.graded.table.n_candidates > MANY

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
        if not intervals and self.many and ("report", report_key) not in self._tables:
            unknown: dict[str, Any] = dict.fromkeys(INTERVAL_FIELDS)
            return replace(rough, rows=tuple(replace(row, **unknown) for row in rough.rows)), None
        report = self._once("report", report_key, lambda: self._report(report_key))
        return with_intervals(rough, report.table), report

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
            lengths = self._once("lengths", TableKey(metric=""), self._lengths)
            scored = replace(scored, sets=with_selector(scored.sets, "length", lengths))
        return scored

    def _lengths(self) -> Any:
        length = pl.col("text").str.len_chars().cast(pl.Float64)
        return pl.scan_parquet(self.path, glob=False).select(length).collect(engine="streaming").to_series().to_numpy()

    def _once(self, kind: str, key: TableKey, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed once; two of a kind are never computed at the same time."""
        with self._lock:
            kind_lock = self._kind_locks[kind]
        with kind_lock:
            with self._lock:
                known = (kind, key) in self._tables
            value: T = self._tables[kind, key] if known else compute()
            with self._lock:
                self._tables[kind, key] = value
                self._tables.move_to_end((kind, key))
                while len(self._tables) > MAX_TABLES:
                    self._tables.popitem(last=False)
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
    usual = graded.options.threshold
    if usual is None:
        usual = 1.0 if sets.higher_is_better else 0.0
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


def with_intervals(rough: BestOf, whole: BestOf) -> BestOf:
    """The values and gains of one table with the intervals and notes of another of the same columns."""
    rows = [
        replace(row, **{field: getattr(other, field) for field in INTERVAL_FIELDS})
        for row, other in zip(rough.rows, whole.rows, strict=True)
    ]
    return replace(rough, rows=tuple(rows), notes=whole.notes)


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
    rows = [
        replace(row, cost=row.k * cost, gain_per_cost=None if row.gain is None else row.gain / cost)
        for row in table.rows
    ]
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
