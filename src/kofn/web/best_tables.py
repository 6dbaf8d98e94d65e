"""Best-of-n tables of a run, each made once: the values at once, intervals of a large run when they are asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from kofn.best_of import MEASURES, Asked, best_of
from kofn.choices import Wanted
from kofn.errors import InputError, UnknownName
from kofn.opened import Opened
from kofn.report.curve import candidate_tokens, default_measure, found_of, only_selector
from kofn.report.files import CANDIDATES
from kofn.selectors import OWN, Selector, with_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.best_of import BestOf
    from kofn.report.curve import Found
    from kofn.scoring import Scored
    from kofn.web.browsed import Browsed

T = TypeVar("T")
MANY = 200_000  # candidates; the intervals of more take longer than a page should
MOST_KEPT = 300  # tables of a run
ENDS = [f"{measure}_{end}" for measure in MEASURES for end in ("low", "high")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Which table: the metric whose passes count and from which value on, who picks, whose gain counts."""

    metric: str
    threshold: float | None = None
    selector: str = ""
    low: bool = False  # the lowest score is picked
    measure: str = "any"


class Steps(NamedTuple):
    """The values a metric gives, for a slider: from, to, by, and where it stands when nobody moved it."""

    low: float
    high: float
    by: float
    usual: float
    higher_is_better: bool


class Tables:
    """The tables of one run."""

    def __init__(self, one: Browsed) -> None:
        if one.run.result is None:
            raise InputError(f"{one.name or 'this run'}: best of n needs candidates, and this run has none")
        options = replace(one.run.options, by=(), split=None)
        self.opened = Opened(name=one.name, path=one.path, result=one.run.result, options=options, run=one.run)
        self.path = one.file(CANDIDATES)
        self.has_texts = "text" in one.candidate_schema
        self.spent = {"tokens": candidate_tokens(self.opened.table), **self.opened.units()}
        self._kept: OrderedDict[tuple[str, Key], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._making: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # one of a kind at a time

    # --- what there is to choose from

    @property
    def metrics(self) -> list[str]:
        return [scored.metric for scored in self.opened.result.scored if scored.metric]

    @property
    def many(self) -> bool:
        return self.opened.table.n_candidates > MANY

    def selectors(self, metric: str) -> dict[str, str]:
        """What may pick, with words for it: columns of scores, and what needs none. Nobody's function is called."""
        sets = self.opened.metric(metric).sets
        found = dict.fromkeys(sets.selectors, "a column of scores")
        there = {"vote": sets.answers is not None, "length": self.has_texts}
        return found | {n: words for n, words in OWN.items() if n not in found and there.get(n, True)}

    def key(self, given: Mapping[str, str]) -> Key:
        """What an address asks for; without words of its own, what `kofn curve` shows."""
        scored = self.opened.metric(given.get("metric") or None)
        usual = only_selector(scored)
        selector = given.get("selector", "" if usual is None else usual.by)
        if selector and selector not in self.selectors(scored.metric):
            raise UnknownName("selector", selector, list(self.selectors(scored.metric)))
        measure = given.get("measure") or default_measure(self.opened.options)
        if measure not in MEASURES or (measure == "selected" and not selector):
            measure = "any"
        return Key(
            metric=scored.metric,
            threshold=number_of(given, "threshold"),
            selector=selector,
            low=given.get("low") == "1" and selector not in ("vote", "random", ""),
            measure=measure,
        )

    def steps(self, metric: str) -> Steps | None:
        """Where a pass may begin; None where the values are the passes."""
        return self._once("steps", Key(metric=metric), lambda: _steps(self.opened, metric))

    # --- tables

    def table(self, key: Key, *, ends: bool) -> tuple[BestOf, Found | None]:
        """The table, and what there is to say beside it: of a large run only with `ends`, or when made before."""
        rough = self._rough(key)
        beside = replace(key, measure="any")
        if not ends and self.many and ("whole", beside) not in self._kept:
            nothing: dict[str, Any] = dict.fromkeys(ENDS)
            return replace(rough, rows=tuple(replace(row, **nothing) for row in rough.rows)), None
        found = self._once("whole", beside, lambda: self._whole(beside))
        return with_ends(rough, found.table), found

    def _rough(self, key: Key) -> BestOf:
        """The values and gains, with intervals that cost nothing and are not shown.

        A vote that has no curve (too many votes, values that are no passes) gives way to any@k.
        """
        try:
            return self._once("rough", key, lambda: self._made(key))
        except InputError:
            if key.measure != "majority":
                raise
            return self._rough(replace(key, measure="any"))

    def _made(self, key: Key) -> BestOf:
        spent, clusters = dict(self.spent), self.spent["clusters"]
        weighted = clusters is not None or spent["weights"] is not None
        if weighted and clusters is None:
            spent["clusters"] = np.arange(self.opened.table.n_cases)
        options = replace(self.opened.options, interval="cluster" if weighted else "t")
        return best_of(self._scored(key).sets, options, _asked(key), **spent)

    def _whole(self, key: Key) -> Found:
        return found_of(
            self.opened.name,
            self._scored(key),
            self.opened.table,
            self.opened.options,
            _asked(key),
            Wanted(),
            judges=self.opened.result.judges,
            units=self.opened.units(),
        )

    def _scored(self, key: Key) -> Scored:
        """The sets under the metric and threshold, with the lengths of texts where these pick."""
        scored = self.opened.metric(key.metric)
        if key.threshold is not None:
            scored = replace(scored, sets=scored.sets.passing_from(key.threshold))
        if key.selector == "length" and "length" not in scored.sets.selectors:
            lengths = self._once("lengths", Key(metric=""), self._lengths)
            scored = replace(scored, sets=with_selector(scored.sets, "length", lengths))
        return scored

    def _lengths(self) -> Any:
        length = pl.col("text").str.len_chars().cast(pl.Float64)
        return pl.scan_parquet(self.path, glob=False).select(length).collect(engine="streaming").to_series().to_numpy()

    def _once(self, what: str, key: Key, make: Callable[[], T]) -> T:
        with self._lock:
            making = self._making[what]
        with making:
            with self._lock:
                there = (what, key) in self._kept
            made: T = self._kept[what, key] if there else make()
            with self._lock:
                self._kept[what, key] = made
                self._kept.move_to_end((what, key))
                while len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            return made


def _asked(key: Key) -> Asked:
    prefer: Any = "low" if key.low else "high"
    selector = None if not key.selector else Selector(name=key.selector, by=key.selector, prefer=prefer)
    return Asked(measure=key.measure, selector=selector)


def _steps(opened: Opened, metric: str) -> Steps | None:
    sets = opened.metric(metric).sets
    values = sets.values[np.isfinite(sets.values)]
    if not len(values) or bool(((values == 0) | (values == 1)).all()):
        return None
    low, high = float(values.min()), float(values.max())
    if low == high:
        return None
    usual = opened.options.threshold
    if usual is None:
        usual = 1.0 if sets.higher_is_better else 0.0
    by = step_of(high - low)
    low, high = round(floor(low / by) * by, 10), round(ceil(high / by) * by, 10)
    return Steps(low, high, by, min(high, max(low, usual)), sets.higher_is_better)


def step_of(span: float) -> float:
    """A round step, 100 to 250 of which make the span.

    >>> step_of(1.0), step_of(7.3)
    (0.01, 0.05)
    """
    size = 10.0 ** np.floor(np.log10(span / 100))
    return float(f"{max(m * size for m in (1, 2, 5) if m * size <= span / 100 * (1 + 1e-9)):.3g}")


def with_ends(rough: BestOf, whole: BestOf) -> BestOf:
    """The values and gains of one table with the intervals and notes of another of the same columns."""
    rows = [
        replace(row, **{end: getattr(of, end) for end in ENDS}) for row, of in zip(rough.rows, whole.rows, strict=True)
    ]
    return replace(rough, rows=tuple(rows), notes=whole.notes)


def priced(table: BestOf, cost: float | None) -> BestOf:
    """The table with what a candidate costs, where somebody says it.

    >>> from kofn.evaluate import Options
    >>> from kofn.sets import CandidateSets
    >>> found = priced(best_of(CandidateSets.from_lists([[1, 0], [0, 0]]), Options()), 0.5)
    >>> [(row.cost, row.gain_per_cost) for row in found.rows], found.unit
    ([(0.5, None), (1.0, 0.5)], 'dollars')
    """
    if cost is None:
        return table
    rows = [
        replace(row, cost=row.k * cost, gain_per_cost=None if row.gain is None else row.gain / cost)
        for row in table.rows
    ]
    return replace(table, rows=tuple(rows), cost=cost, unit="dollars")


def number_of(given: Mapping[str, str], name: str, *, above: float | None = None) -> float | None:
    """A number of an address; None where it is not there.

    >>> number_of({"cost": "0.5"}, "cost"), number_of({"cost": ""}, "cost")
    (0.5, None)
    """
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found) or (above is not None and not found > above):
        more = "" if above is None else f" above {above:g}"
        raise InputError(f"{name}: expected a number{more}, not {text[:60]!r}")
    return found


_TABLES: WeakKeyDictionary[Browsed, Tables] = WeakKeyDictionary()
_LOCK = threading.Lock()


def tables_of(one: Browsed) -> Tables:
    """The tables of a run, as long as it is on the shelf."""
    with _LOCK:
        if one not in _TABLES:
            _TABLES[one] = Tables(one)
        return _TABLES[one]
