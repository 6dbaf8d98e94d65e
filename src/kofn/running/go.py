"""`kofn.run`: prepare, generate, finish."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.running.asking import cache_of, limits_of, prices_of, repeats_of
from kofn.running.finish import finish
from kofn.running.now import now
from kofn.running.prepare import directory_of, prepare
from kofn.running.settings import settings
from kofn.running.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.generate.estimate import Forecast
    from kofn.generate.runner import Outcome
    from kofn.generate.stages import Item
    from kofn.generate.store import Row, Store
    from kofn.report.run import Run
    from kofn.running.prepare import Prepared
    from kofn.running.settings import Settings


def run(task: Any, given: Settings | None = None, **options: Any) -> Run:
    """Run a task: generate what is not there yet, score everything, write the run directory and its report.

    `options` are the fields of `Settings`. Without `out` nothing is kept but what is returned. Running the same again
    asks for nothing that was answered; more repeats or cases ask only for the new ones.

    >>> rows = [{"id": "a", "question": "2 + 2", "answer": "4"}, {"id": "b", "question": "3 + 4", "answer": "7"}]
    >>> task = {"name": "sums", "dataset": rows, "stages": [{"name": "answer", "prompt": "{question} ="}]}
    >>> done = run(task, model=lambda prompt: "It is 4.", repeats=2)
    >>> done.result.get("mean").point
    0.5
    """
    chosen = settings(given, options)
    prepared = prepare(task, chosen)
    if chosen.out is not None:
        return run_in(prepared, chosen.out)
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        return run_in(prepared, Path(folder) / "run")


def run_in(prepared: Prepared, directory: Path) -> Run:
    """The same in a directory, which may hold a part of the run already."""
    from kofn.generate.store import Store

    prices_of(prepared)  # what is wrong with them is said before anything is asked
    store = Store.open(directory, fingerprint=prepared.fingerprint())
    try:
        if prepared.settings.retry_errors:
            store.forget_errors()
        used: set[bytes] | None = set() if store.doubled() else None
        asked = _asked(prepared)
        with Shown.of(prepared, directory, len(asked.recipe.stages)) as shown:
            outcome = now(_generate(asked, store, used, shown))
            shown.pulse.settle()
            against = _answered_with_the_question(prepared, store, directory, outcome, used)
            run = finish(prepared, store, directory, outcome, against=against, keys=used)
            shown.pulse.stop(outcome.stopped)
        return run
    finally:
        store.close()


def _asked(prepared: Prepared) -> Prepared:
    """What is asked: also the answers that see the question, where they are to be compared."""
    from kofn.running.markovian import both

    return both(prepared) if prepared.settings.compare_markovian else prepared


def _answered_with_the_question(
    prepared: Prepared, store: Store, directory: Path, outcome: Outcome, keys: set[bytes] | None
) -> Run | None:
    """The same reasoning answered with the question, as a run of its own."""
    from kofn.running import markovian

    if not prepared.settings.compare_markovian:
        return None
    alone = replace(prepared, settings=replace(prepared.settings, llm_extract=None, append_results=None))
    return finish(markovian.with_question(alone), store, directory / markovian.FOLDER, outcome, keys=keys)


def forecast(prepared: Prepared) -> Forecast:
    """What a run will cost and take, from a few of its requests; what they answer is kept for the run."""
    from kofn.generate.store import Store

    store = Store.open(directory_of(prepared), fingerprint=prepared.fingerprint())
    try:
        return now(_probe(_asked(prepared), store))
    finally:
        store.close()


async def _generate(prepared: Prepared, store: Store, used: set[bytes] | None, shown: Shown) -> Outcome:
    """Ask for everything that is missing. `used` is told the keys of the replies that are meant, where that is open."""
    from kofn.generate.runner import generate

    try:
        async with shown.watching():
            return await generate(
                prepared.items,
                prepared.recipe,
                prepared.models,
                store,
                repeats=repeats_of(prepared),
                run_seed=prepared.settings.seed,
                limits=limits_of(prepared),
                price=prices_of(prepared).cost,
                cache=cache_of(prepared),
                on_case=_told_of_cases(shown, used),
                tally=shown.progress.tally,
                chat=prepared.chat,
            )
    finally:
        await _close(prepared)


def _told_of_cases(shown: Shown, used: set[bytes] | None) -> Callable[[Item, list[Row]], None]:
    if used is None:
        return shown.on_case

    def on_case(item: Item, rows: list[Row]) -> None:
        used.update(row.key for row in rows)
        shown.on_case(item, rows)

    return on_case


async def _probe(prepared: Prepared, store: Store) -> Forecast:
    from kofn.generate.estimate import probe

    try:
        return await probe(
            prepared.items,
            prepared.recipe,
            prepared.models,
            store,
            repeats=repeats_of(prepared),
            run_seed=prepared.settings.seed,
            limits=limits_of(prepared),
            price=prices_of(prepared).cost,
            chat=prepared.chat,
        )
    finally:
        await _close(prepared)


async def _close(prepared: Prepared) -> None:
    for model in {id(m): m for m in prepared.models.values()}.values():
        await model.close()
