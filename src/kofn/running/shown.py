"""Progress of a run: the line on a terminal, and the file for whoever looks from outside."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kofn.generate.progress import INTERVAL, Progress
from kofn.generate.pulse import Pulse
from kofn.generate.runner import Tally
from kofn.running.looks import Looks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kofn.generate.stages import Item
    from kofn.generate.store import Row
    from kofn.running.prepare import Prepared


@dataclass(slots=True)
class Shown:
    """How far one run is. Inside its `with` block the file is kept fresh, inside `watching` the line and estimates."""

    progress: Progress
    pulse: Pulse
    looks: Looks | None
    on_terminal: bool

    @classmethod
    def of(cls, prepared: Prepared, directory: Path, stages: int) -> Shown:
        """`stages` is how many replies a candidate takes: some are asked beside those of the run."""
        cases, models = len(prepared.items), dict.fromkeys(model.name for model in prepared.models.values())
        progress = Progress(Tally(), cases, cases * prepared.repeats, stages=stages)
        pulse = Pulse(directory, progress.snapshot, kind="run", task=prepared.task.name, model=", ".join(models))
        return cls(progress, pulse, Looks.of(prepared), prepared.settings.progress)

    def __enter__(self) -> Self:
        self.pulse.__enter__()
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self.pulse.__exit__(kind, problem, trace)

    def on_case(self, item: Item, rows: list[Row]) -> None:
        """A case is done."""
        if self.looks is not None:
            self.looks.add(item, rows)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep the estimates fresh, and the line where somebody looks; then erase the line."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.progress.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            found = None if self.looks is None else self.looks.look()
            if found is not None:
                self.progress.estimates = found
            if self.on_terminal:
                self.progress.update()
