"""Grades finished cases while a run is going, a few at a time, for the running estimates.

A look takes a few milliseconds, and then some microseconds for every candidate; where a metric is slow, far more. So
there is at most one look per second, and all of them together take about 1% of the time at most.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from kofn.errors import KofnError
from kofn.extract import choose_extractor
from kofn.generate.adaptive import keep
from kofn.generate.candidate_table import table_of_rows
from kofn.generate.interim_estimates import InterimEstimates
from kofn.registry import aggregator, metric
from kofn.scoring.evaluate import apply_aggregator, grade, is_rate, resolve_extractor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.core.table import Table
    from kofn.core.types import Case, Estimate
    from kofn.generate.prepared_run import PreparedRun
    from kofn.generate.store import ReplyRow
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded
    from kofn.tasks.stages import Item

    Done = tuple[Item, list[ReplyRow]]

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
    """

    options: GradingConfig
    names: Sequence[str]
    stages: frozenset[str]
    kind: str
    references: Sequence[str]
    choices: bool
    estimates: InterimEstimates
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

    def look(self) -> tuple[Estimate, ...] | None:
        """Grade what waits, as far as there is time for it; None where it is too soon, or nothing waits."""
        if not self.waiting or perf_counter() < self._due:
            return None
        # CPU time of this thread, because the wall clock also counts the time in which the model itself computes
        start, computed, before = perf_counter(), thread_time(), self._waiting_rows
        with suppress(Exception):  # what cannot be graded fails again at the end, and is reported there
            self._grade(list(self._next_cases()))
        found = self.estimates.estimates()
        took = max(1e-9, thread_time() - computed, (perf_counter() - start) / BUSY)
        self._plan(took, before - self._waiting_rows)
        return found

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
