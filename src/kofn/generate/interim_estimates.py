"""Running estimates over the cases that are finished: graded a few at a time, with closed-form intervals.

A look takes a few milliseconds, and then some microseconds for every candidate; where a metric is slow, far more. So
there is at most one look per second, and all of them together take about 1% of the time at most. Intervals of a
finished run are resampled; these have closed forms.
"""

from __future__ import annotations

from array import array
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.core.types import Estimate
from kofn.errors import KofnError
from kofn.extract import choose_extractor
from kofn.generate.adaptive import keep
from kofn.generate.candidate_table import table_of_rows
from kofn.registry import aggregator, metric
from kofn.scoring.evaluate import apply_aggregator, grade, is_rate, resolve_extractor
from kofn.stats.estimates import choose_interval, rarer_side
from kofn.stats.intervals import NO_INTERVAL, cluster_robust, t_interval, wilson
from kofn.stats.resample import as_units, without_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.table import Table
    from kofn.core.types import Case
    from kofn.generate.preparation import PreparedRun
    from kofn.generate.store import ReplyRow
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded
    from kofn.stats.intervals import Interval
    from kofn.tasks.stages import Item

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]
    Done = tuple[Item, list[ReplyRow]]


def closed_interval(
    values: Floats, level: float = 0.95, *, weights: Floats | None = None, clusters: Codes | None = None, rate: bool
) -> Interval:
    """An interval of the mean that needs no resampling: Wilson's of plain 0/1 values, else Student's t.

    With weights or clusters it is the cluster-robust one (CR1). Values that are all equal show no spread: all 0 or all
    1 have Wilson's interval, others none, and none of them one of width 0. Its ends stay within [0, 1] where every
    value does. `rate` is as in `kofn.stats.estimates`.

    >>> closed_interval(np.array([1.0, 1.0, 1.0]), rate=True)
    Interval(low=0.4385..., high=1.0, method='wilson')
    >>> closed_interval(np.array([0.5, 0.5, 0.5]), rate=True).method
    'none'
    >>> closed_interval(np.array([0.25, 0.75, 1.0]), rate=True)
    Interval(low=0.0, high=1.0, method='t')
    """
    narrow = without_width(as_units(values, weights, clusters), level)
    if narrow is not None:
        return narrow if rate and narrow.method == "wilson" else NO_INTERVAL
    plain = weights is None and clusters is None
    method = choose_interval(values.size, plain=plain, rarer=rarer_side(values) if rate else None, closed=True)
    if method == "wilson":
        return wilson(float(values.sum()), values.size, level)
    units = np.arange(values.size) if clusters is None else clusters
    found = t_interval(values, level) if method == "t" else cluster_robust(values, units, level, weights=weights)
    if values.min() < 0 or values.max() > 1:
        return found
    return found._replace(low=max(0.0, found.low), high=min(1.0, found.high))


@dataclass(slots=True)
class InterimEstimates:
    """The values of the cases that are done, by aggregator, with the weights and clusters of these cases."""

    level: float = 0.95
    metric: str = ""
    _values: dict[str, array[float]] = field(default_factory=dict)
    _rates: dict[str, bool] = field(default_factory=dict)
    _weights: array[float] = field(default_factory=lambda: array("d"))
    _clusters: array[int] = field(default_factory=lambda: array("q"))
    _codes: dict[str, int] = field(default_factory=dict)

    def add(self, cases: Sequence[Case], values: Mapping[str, Floats], rates: Mapping[str, bool]) -> None:
        """Some cases more: the value of each by aggregator, NaN where it has none; which of them are shares."""
        before = len(self._weights)
        for name in values:
            self._values.setdefault(name, array("d", [nan] * before))
        for name, of in self._values.items():
            of.extend(values[name].tolist() if name in values else [nan] * len(cases))
            self._rates[name] = self._rates.get(name, True) and rates.get(name, True)
        for case in cases:
            self._weights.append(case.weight)
            alone = -1 - len(self._clusters)  # a case without a cluster is one of its own: codes of others are from 0
            self._clusters.append(
                alone if case.cluster is None else self._codes.setdefault(case.cluster, len(self._codes))
            )

    def estimates(self) -> tuple[Estimate, ...]:
        """One an aggregator, in the order they came; those that no case has a value of are left out."""
        weights = np.array(self._weights)
        clusters = np.array(self._clusters) if self._codes else None
        found = [self._estimate(name, weights if (weights != 1).any() else None, clusters) for name in self._values]
        return tuple(one for one in found if one.point is not None)

    def _estimate(self, name: str, weights: Floats | None, clusters: Codes | None) -> Estimate:
        every = np.array(self._values[name])
        kept = ~np.isnan(every)
        x = every[kept]
        w, c = None if weights is None else weights[kept], None if clusters is None else clusters[kept]
        some = x.size > 0 and (w is None or bool(w.any()))
        ends = NO_INTERVAL
        if some:
            ends = closed_interval(x, self.level, weights=w, clusters=c, rate=self._rates[name])
        return Estimate(
            metric=self.metric,
            aggregator=name,
            point=as_units(x, w, None).point if some else None,
            low=ends.low if isfinite(ends.low) else None,
            high=ends.high if isfinite(ends.high) else None,
            level=self.level,
            n=x.size,
            n_missing=every.size - x.size,
            method=ends.method,
        )


AGGREGATORS = ("mean", "any_pass", "majority")
EVERY = 1.0  # seconds from one look to the next; the first ones come sooner
SHARE = 0.01  # of the time; the threads of polars take about as much again
LONGEST = 0.1  # seconds that a look should take: it runs in the event loop, so no reply is handled meanwhile
BUSY = 8  # times as long as it computes may a look take where others, such as the model itself, compute too
GROWTH = 8  # times as many as in the look before, at most
MOST = 4096  # candidates that wait: the texts of more would fill the memory, and are left to the end


@dataclass(slots=True)
class InterimGrader:
    """Finished cases that wait to be graded, and the estimates over those that were.

    options   how the run is graded, as at the end
    names     the aggregators of the estimates
    stages    those of the run, without the extra ones of a comparison
    latest    the estimates of the last look
    """

    options: GradingConfig
    names: Sequence[str]
    stages: frozenset[str]
    kind: str
    references: Sequence[str]
    choices: bool
    estimates: InterimEstimates
    latest: tuple[Estimate, ...] = ()
    waiting: deque[Done] = field(default_factory=deque)
    _waiting_rows: int = 0
    _extractor_name: str | None = None
    _room: int = 1
    _before: float = 0.0
    _looked: bool = False
    _began: float = field(default_factory=perf_counter)
    _due: float = 0.0

    @classmethod
    def of(cls, prepared: PreparedRun) -> InterimGrader | None:
        """None where a metric may be slow, so that it must not be called more often than necessary."""
        options = resolve_extractor(prepared.grading)
        if not all(map(is_quick, options.metrics)):
            return None
        cases = [item.case for item in prepared.items]
        return cls(
            options=options,
            names=aggregators_of(prepared),
            stages=frozenset(stage.name for stage in prepared.recipe.stages),
            kind=prepared.recipe.stages[-1].kind,
            references=[case.references[0] for case in cases if case.references],
            choices=any(case.choices for case in cases),
            estimates=InterimEstimates(level=options.level),
        )

    def add(self, item: Item, rows: list[ReplyRow]) -> None:
        """A case is done."""
        if self._waiting_rows < MOST:
            self.waiting.append((item, rows))
            self._waiting_rows += len(rows)

    def look(self) -> None:
        """Grade what waits, as far as there is time for it; nothing where it is too soon, or nothing waits."""
        if not self.waiting or perf_counter() < self._due:
            return
        # CPU time of this thread, because the wall clock also counts the time in which the model itself computes
        start, computed, before = perf_counter(), thread_time(), self._waiting_rows
        with suppress(Exception):  # what cannot be graded fails again at the end, and is reported there
            self._grade(list(self._next_cases()))
        self.latest = self.estimates.estimates()
        took = max(1e-9, thread_time() - computed, (perf_counter() - start) / BUSY)
        self._plan(took, before - self._waiting_rows)

    def _next_cases(self) -> Iterator[Done]:
        room = self._room
        while self.waiting and room > 0:
            item, rows = self.waiting.popleft()
            room -= len(rows)
            self._waiting_rows -= len(rows)
            yield item, [row for row in rows if row.stage in self.stages]

    def _plan(self, took: float, candidates: int) -> None:
        """When to look again, and at how many.

        A look that took longer than the one before may have loaded a package, which happens once: so the shorter of the
        two counts, and the first look, which loads most, counts as nothing.
        """
        now = perf_counter()
        self._due = now + max(min(EVERY, now - self._began), min(took, self._before) / SHARE)
        self._room = max(1, min(MOST, int(candidates * min(GROWTH, LONGEST / took))))
        self._before = took if self._looked else 0.0
        self._looked = True

    def _grade(self, done: Sequence[Done]) -> None:
        table = table_of_rows(done, self.kind)
        table, scored = grade(table, replace(self.options, extract=self._extractor(table)))
        if scored[0].metric:
            self.estimates.metric = scored[0].metric
            by_id = {item.case.id: item.case for item, _ in done}
            self._add([by_id[case] for case in table.cases["case_id"].to_list()], scored[0])

    def _add(self, cases: Sequence[Case], scored: Graded) -> None:
        """The value of every case, by aggregator; one that is undefined of these sets is left out."""
        values, rates = {}, {}
        for name in self.names:
            rule: Any = aggregator(name)
            with suppress(KofnError):
                values[name] = apply_aggregator(rule, scored)
                rates[name] = is_rate(rule, scored.sets.zero_one)
        self.estimates.add(cases, values, rates)

    def _extractor(self, table: Table) -> Any:
        """The extractor of the run, else the one chosen by all of its references: a few could mislead."""
        named = self.options.extract
        if named is not None or self.kind != "generate" or "text" not in table.candidates.columns:
            return named
        if self._extractor_name is None:
            self._extractor_name = choose_extractor(self.references, [], self.choices).name
        if self._extractor_name != "text":
            return self._extractor_name
        texts = table.candidates["text"].drop_nulls().to_list()  # the outputs may point to a better one
        return choose_extractor(self.references, texts, self.choices).name


def aggregators_of(prepared: PreparedRun) -> list[str]:
    """The aggregators of the progress line: one where all would be equal; over adaptive sets only unbiased ones."""
    if prepared.repeats == 1:
        return ["mean"]
    if not prepared.config.generation.adaptive:
        return list(AGGREGATORS)
    return [name for name in AGGREGATORS if keep(name, 1) is None]


def is_quick(spec: Any) -> bool:
    """Whether a metric may be called while a run is going, and again at the end.

    The metrics of kofn may, except heavy ones. A user's own function may take long, cost money or count its calls, so
    it may only if it has the attribute `heavy = False`.

    >>> is_quick("exact_match"), is_quick(len), is_quick("score")
    (True, False, True)
    """
    return spec in ("pass", "score") or getattr(metric(spec), "heavy", None) is False
