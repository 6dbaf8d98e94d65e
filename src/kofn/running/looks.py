"""Estimates while a run is going: cases that are done are graded as they will be at the end, a few at a time.

A look takes a few milliseconds, and then some microseconds for every candidate; where a metric is slow, far more. So
there is at most one a second, and all of them together take about a hundredth of the time at most.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from kofn.generate.sofar import SoFar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.evaluate import Options
    from kofn.generate.stages import Item
    from kofn.generate.store import Row
    from kofn.running.prepare import Prepared
    from kofn.scoring import Scored
    from kofn.table import Table
    from kofn.types import Case, Estimate

    Done = tuple[Item, list[Row]]

SHOWN = ("mean", "any_pass", "majority")
EVERY = 1.0  # seconds from one look to the next; the first ones come sooner
SHARE = 0.01  # of the time; the threads of polars take about as much again
LONGEST = 0.1  # seconds that a look should take: nothing else goes on meanwhile
BUSY = 8  # times as long as it computes may a look take where others, such as the model itself, compute too
GROWTH = 8  # times as many as in the look before, at most
MOST = 4096  # candidates that wait: the texts of more would fill the memory, and are left to the end


@dataclass(slots=True)
class Looks:
    """Cases that wait to be graded, and what those that were say.

    options   how the run is graded, at the end too
    names     the aggregators that are shown
    stages    those of the run: others are asked beside them, to be compared
    """

    options: Options
    names: Sequence[str]
    stages: frozenset[str]
    kind: str
    references: Sequence[str]
    choices: bool
    sofar: SoFar
    waiting: deque[Done] = field(default_factory=deque)
    _held: int = 0
    _suits: str | None = None
    _room: int = 1
    _before: float = 0.0
    _looked: bool = False
    _began: float = field(default_factory=perf_counter)
    _due: float = 0.0

    @classmethod
    def of(cls, prepared: Prepared) -> Looks | None:
        """None where a metric is not to be called more often than it must be."""
        from kofn.evaluate import suited
        from kofn.running.finish import options_of

        options = suited(options_of(prepared))
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
            sofar=SoFar(level=options.level),
        )

    def add(self, item: Item, rows: list[Row]) -> None:
        """A case is done."""
        if self._held < MOST:
            self.waiting.append((item, rows))
            self._held += len(rows)

    def look(self) -> tuple[Estimate, ...] | None:
        """Grade what waits, as far as there is time for it; None where it is too soon, or nothing waits."""
        if not self.waiting or perf_counter() < self._due:
            return None
        start, computed, before = perf_counter(), thread_time(), self._held
        with suppress(Exception):  # what cannot be graded is said at the end
            self._grade(list(self._taken()))
        found = self.sofar.estimates()
        took = max(1e-9, thread_time() - computed, (perf_counter() - start) / BUSY)
        self._plan(took, before - self._held)
        return found

    def _taken(self) -> Iterator[Done]:
        room = self._room
        while self.waiting and room > 0:
            item, rows = self.waiting.popleft()
            room -= len(rows)
            self._held -= len(rows)
            yield item, [row for row in rows if row.stage in self.stages]

    def _plan(self, took: float, candidates: int) -> None:
        """When to look again, and at how many.

        A look that took longer than the one before may have loaded something, which happens once: so the shorter of the
        two counts, and the first one, which loads most, as nothing.
        """
        now = perf_counter()
        self._due = now + max(min(EVERY, now - self._began), min(took, self._before) / SHARE)
        self._room = max(1, min(MOST, int(candidates * min(GROWTH, LONGEST / took))))
        self._before = took if self._looked else 0.0
        self._looked = True

    def _grade(self, done: Sequence[Done]) -> None:
        from kofn.evaluate import graded
        from kofn.running.candidates import table_of_rows

        table = table_of_rows(done, self.kind)
        table, _, scored = graded(table, replace(self.options, extract=self._extractor(table)))
        if scored[0].metric:
            self.sofar.metric = scored[0].metric
            by_id = {item.case.id: item.case for item, _ in done}
            self._add([by_id[case] for case in table.cases["case_id"].to_list()], scored[0])

    def _add(self, cases: Sequence[Case], scored: Scored) -> None:
        """The value of every case, by aggregator; one that is undefined of these sets is left out."""
        from kofn.errors import KofnError
        from kofn.evaluate import applied, is_rate
        from kofn.registry import aggregator

        values, rates = {}, {}
        for name in self.names:
            rule: Any = aggregator(name)
            with suppress(KofnError):
                values[name] = applied(rule, scored)
                rates[name] = is_rate(rule, scored.sets.zero_one)
        self.sofar.add(cases, values, rates)

    def _extractor(self, table: Table) -> Any:
        """The one of the run, or that suits all of its references: those of a few cases might say another."""
        named = self.options.extract
        if named is not None or self.kind != "generate" or "text" not in table.candidates.columns:
            return named
        from kofn.extract import choose_extractor

        if self._suits is None:
            self._suits = choose_extractor(self.references, [], self.choices).name
        if self._suits != "text":
            return self._suits
        texts = table.candidates["text"].drop_nulls().to_list()  # they may say more
        return choose_extractor(self.references, texts, self.choices).name


def aggregators_of(prepared: Prepared) -> list[str]:
    """Those that are shown: of one candidate all are the same; of sets that stopped early some would be biased."""
    if prepared.repeats == 1:
        return ["mean"]
    if not prepared.settings.adaptive:
        return list(SHOWN)
    from kofn.generate.adaptive import keep

    return [name for name in SHOWN if keep(name, 1) is None]


def is_quick(spec: Any) -> bool:
    """Whether a metric may be called while a run is going, and again at the end.

    Those of kofn may, but for heavy ones. A function of somebody's own may take long, cost money or count its calls, so
    it may only where it says `heavy = False` of itself.

    >>> is_quick("exact_match"), is_quick(len), is_quick("score")
    (True, False, True)
    """
    from kofn.registry import metric

    return spec in ("pass", "score") or getattr(metric(spec), "heavy", None) is False
