"""Progress of a run: updates the line on the terminal, progress.json and the running estimates."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kofn.generate.calls import CallTally
from kofn.generate.interim_grading import InterimGrader
from kofn.generate.progress_line import INTERVAL, ProgressLine
from kofn.generate.progress_writer import ProgressWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kofn.generate.prepared_run import PreparedRun
    from kofn.generate.store import ReplyRow
    from kofn.tasks.stages import Item


@dataclass(slots=True)
class RunProgress:
    """How far one run is. Inside its `with` block the file is kept fresh, inside `watching` the line and estimates."""

    progress: ProgressLine
    file: ProgressWriter
    interim: InterimGrader | None
    on_terminal: bool

    @classmethod
    def of(cls, prepared: PreparedRun, directory: Path, stages: int) -> RunProgress:
        """`stages` is how many replies a candidate takes; a comparison asks for more than the run's own."""
        cases, models = len(prepared.items), dict.fromkeys(model.name for model in prepared.models.values())
        progress = ProgressLine(CallTally(), cases, cases * prepared.repeats, stages=stages)
        file = ProgressWriter(
            directory, progress.snapshot, kind="run", task=prepared.task.name, model=", ".join(models)
        )
        return cls(progress, file, InterimGrader.of(prepared), prepared.config.generation.progress)

    def __enter__(self) -> Self:
        self.file.__enter__()
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self.file.__exit__(kind, problem, trace)

    def on_case(self, item: Item, rows: list[ReplyRow]) -> None:
        """A case is done."""
        if self.interim is not None:
            self.interim.add(item, rows)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep the estimates and the line fresh; then erase the line."""
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
            found = None if self.interim is None else self.interim.look()
            if found is not None:
                self.progress.estimates = found
            if self.on_terminal:
                self.progress.update()
