"""Progress of a run on a terminal: the line, and estimates from the cases that are done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kofn.errors import KofnError

if TYPE_CHECKING:
    from kofn.evaluate import Options
    from kofn.generate.progress import Progress
    from kofn.generate.runner import Tally
    from kofn.generate.stages import Item
    from kofn.generate.store import Row
    from kofn.running.prepare import Prepared

EVERY = 16  # cases that are graded together while a run is going
SHOWN = ("mean", "any_pass", "majority")


@dataclass(slots=True)
class Shown:
    """The progress of one run. Cases are graded a few at a time, with the extractor and metrics of the run."""

    progress: Progress
    watching: asyncio.Task[None]
    options: Options
    kind: str
    waiting: list[tuple[Item, list[Row]]] = field(default_factory=list)

    @classmethod
    def of(cls, prepared: Prepared, tally: Tally) -> Shown | None:
        """None where nobody looks."""
        import sys

        from kofn.generate.progress import Progress
        from kofn.running.finish import options_of

        if not prepared.settings.progress or not sys.stderr.isatty():
            return None
        stages = prepared.recipe.stages
        cases = len(prepared.items)
        progress = Progress(tally, cases, cases * prepared.repeats, stages=len(stages))
        return cls(progress, asyncio.create_task(progress.watch()), options_of(prepared), stages[-1].kind)

    def on_case(self, item: Item, rows: list[Row]) -> None:
        """A case is done."""
        if self._is_heavy:
            return
        self.waiting.append((item, rows))
        if len(self.waiting) >= EVERY:
            self._grade()

    @property
    def _is_heavy(self) -> bool:
        """Whether a metric takes too long to grade with while a run is going."""
        from kofn.metrics import trait
        from kofn.registry import metric

        return any(trait(metric(one), "heavy") for one in self.options.metrics)

    def _grade(self) -> None:
        """Add the cases that wait to the running estimates; what cannot be graded yet is said at the end."""
        from kofn.evaluate import applied
        from kofn.registry import aggregator
        from kofn.running.candidates import table_of_rows
        from kofn.scoring import find_answers, score_table

        done, self.waiting = self.waiting, []
        with suppress(KofnError):
            table = table_of_rows(done, self.kind)
            scored = score_table(table, find_answers(table, self.options.extract), self.options.metrics, None)
            if scored:
                values = {name: applied(aggregator(name), scored[0]).tolist() for name in SHOWN}
                for i in range(table.n_cases):
                    self.progress.on_case({name: of[i] for name, of in values.items()})

    async def close(self) -> None:
        """Erase the line."""
        self.watching.cancel()
        with suppress(asyncio.CancelledError):
            await self.watching
        self.progress.close()
