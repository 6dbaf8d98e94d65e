"""`kofn.run`: prepares a run, generates what is missing, scores it and writes the run directory."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.core.progress import INTERVAL, show_progress
from kofn.core.sync import run_sync
from kofn.generate.calls import CallTally
from kofn.generate.cost_forecast import probe
from kofn.generate.interim_estimates import InterimGrader
from kofn.generate.preparation import (
    WITH_QUESTION_FOLDER,
    cache_of,
    context_of,
    directory_of,
    prepare,
    prices_of,
    repeats_of,
    with_both_answers,
    with_question,
)
from kofn.generate.progress_file import ProgressWriter, snapshot_of
from kofn.generate.runner import generate
from kofn.generate.scored_run import write_scored_run
from kofn.generate.store import Store
from kofn.scoring.configuration import configure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from kofn.core.progress import Snapshot
    from kofn.generate.cost_forecast import Forecast
    from kofn.generate.preparation import PreparedRun
    from kofn.generate.runner import GenerationOutcome
    from kofn.generate.store import ReplyRow
    from kofn.runs.record import Run
    from kofn.scoring.configuration import Config
    from kofn.tasks.stages import Item


def run(task: Any, given: Config | None = None, **options: Any) -> Run:
    """Run a task: generate what is not there yet, score everything, write the run directory and its report.

    `options` are the fields of the three parts of `kofn.scoring.configuration.Config`. Without `out` nothing is kept
    but what is returned. Running the same again asks for nothing that was answered; more repeats or cases ask only for
    the new ones.

    >>> rows = [{"id": "a", "question": "2 + 2", "answer": "4"}, {"id": "b", "question": "3 + 4", "answer": "7"}]
    >>> task = {"name": "sums", "dataset": rows, "stages": [{"name": "answer", "prompt": "{question} ="}]}
    >>> done = run(task, model=lambda prompt: "It is 4.", repeats=2)
    >>> done.result.get("mean").point
    0.5
    """
    config = configure(given, **options)
    prepared = prepare(task, config)
    if config.report.out is not None:
        return run_in(prepared, config.report.out)
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        return run_in(prepared, Path(folder) / "run")


def run_in(prepared: PreparedRun, directory: Path) -> Run:
    """The same in a directory, which may hold a part of the run already."""
    prices_of(prepared)  # an error in a price file must come before the first paid call
    with Store.open(directory, fingerprint=prepared.fingerprint()) as store:
        if prepared.config.generation.retry_errors:
            store.forget_errors()
        # Only a store with two replies for one candidate needs to know which of them belong to this run.
        used: set[bytes] | None = set() if store.has_duplicates() else None
        asking = _with_comparison(prepared)
        tally, interim = CallTally(), InterimGrader.of(prepared)
        look = _progress_of(asking, tally, interim)
        models = ", ".join(dict.fromkeys(model.name for model in prepared.models.values()))
        with ProgressWriter(directory, look, kind="run", task=prepared.task.name, model=models) as progress:
            outcome = run_sync(_generate(asking, store, used, tally, interim, look))
            progress.mark_scoring()
            against = None
            if prepared.config.generation.compare_markovian:
                against = _answered_with_the_question(prepared, store, directory, outcome, used)
            run = write_scored_run(prepared, store, directory, outcome, against=against, keys=used)
            progress.stop(outcome.stopped)
        return run


def _with_comparison(prepared: PreparedRun) -> PreparedRun:
    """The run with a second answer stage that sees the question, if the two are to be compared."""
    return with_both_answers(prepared) if prepared.config.generation.compare_markovian else prepared


def _answered_with_the_question(
    prepared: PreparedRun, store: Store, directory: Path, outcome: GenerationOutcome, keys: set[bytes] | None
) -> Run:
    """The same reasoning answered with the question, as a run of its own."""
    config = prepared.config
    generation, report = replace(config.generation, llm_extract=None), replace(config.report, append_results=None)
    alone = with_question(replace(prepared, config=replace(config, generation=generation, report=report)))
    return write_scored_run(alone, store, directory / WITH_QUESTION_FOLDER, outcome, keys=keys)


def forecast(prepared: PreparedRun) -> Forecast:
    """What a run will cost and take, from a few of its requests; what they answer is kept for the run."""
    with Store.open(directory_of(prepared), fingerprint=prepared.fingerprint()) as store:
        return run_sync(_probe(_with_comparison(prepared), store))


def _progress_of(prepared: PreparedRun, tally: CallTally, interim: InterimGrader | None) -> Callable[[], Snapshot]:
    """A function that looks how far the run is: what its calls count, and running estimates."""
    began, n = time.monotonic(), len(prepared.items)
    stages = len(prepared.recipe.stages)  # a comparison asks for more replies per candidate than the run's own

    def look() -> Snapshot:
        now = snapshot_of(tally, n, n * prepared.repeats, time.monotonic() - began, stages=stages)
        return now if interim is None else replace(now, estimates=interim.latest)

    return look


async def _generate(
    prepared: PreparedRun,
    store: Store,
    used: set[bytes] | None,
    tally: CallTally,
    interim: InterimGrader | None,
    look: Callable[[], Snapshot],
) -> GenerationOutcome:
    """Generate everything that is missing. `used`, if given, collects the keys of the replies of this run."""

    def on_case(item: Item, rows: list[ReplyRow]) -> None:
        if used is not None:
            used.update(row.key for row in rows)
        if interim is not None:
            interim.add(item, rows)

    try:
        display = show_progress(look, "Generating") if prepared.config.generation.progress else nullcontext()
        async with _watching(interim, display):
            return await generate(
                prepared.items,
                prepared.recipe,
                prepared.models,
                context_of(prepared, store, cache=cache_of(prepared), tally=tally),
                repeats=repeats_of(prepared),
                on_case=on_case,
                chat=prepared.chat,
            )
    finally:
        await _close(prepared)


@asynccontextmanager
async def _watching(interim: InterimGrader | None, display: AbstractContextManager[None]) -> AsyncIterator[None]:
    """Keep the running estimates fresh, and the display, which is erased at the end."""

    async def watch() -> None:
        while interim is not None:
            await asyncio.sleep(INTERVAL)
            interim.look()

    task = asyncio.create_task(watch())
    try:
        with display:
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _probe(prepared: PreparedRun, store: Store) -> Forecast:
    try:
        return await probe(
            prepared.items,
            prepared.recipe,
            prepared.models,
            context_of(prepared, store),
            repeats=repeats_of(prepared),
            chat=prepared.chat,
        )
    finally:
        await _close(prepared)


async def _close(prepared: PreparedRun) -> None:
    for model in {id(m): m for m in prepared.models.values()}.values():
        await model.close()
