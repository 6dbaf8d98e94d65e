"""`kofn.run`: prepares a run, generates what is missing, scores what is stored and writes the run directory."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.format import format_p_in_text
from kofn.core.progress import INTERVAL, show_progress
from kofn.core.sync import run_sync
from kofn.core.warnings import CodedWarning
from kofn.errors import WorldError
from kofn.generate.adaptive import Adaptive, honest, keep, saving
from kofn.generate.calls import CallTally
from kofn.generate.candidate_table import candidate_rows, table_of
from kofn.generate.cost_forecast import probe
from kofn.generate.interim_estimates import InterimGrader
from kofn.generate.llm_extractor import extract_run_with_llm
from kofn.generate.preparation import (
    WITH_QUESTION_FOLDER,
    context_of,
    directory_of,
    prepare,
    prices_of,
    repeats_of,
    task_digest,
    with_both_answers,
    with_question,
)
from kofn.generate.progress_file import ProgressWriter, snapshot_of
from kofn.generate.runner import generate
from kofn.generate.store import Cache, Store
from kofn.registry import aggregator
from kofn.render.run_directory import write_run
from kofn.scoring.configuration import configure
from kofn.scoring.evaluate import aggregators_of, evaluate
from kofn.stats import compare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractContextManager

    from kofn.core.progress import Snapshot
    from kofn.core.table import Table
    from kofn.generate.adaptive import Saving
    from kofn.generate.cost_forecast import Forecast
    from kofn.generate.preparation import PreparedRun
    from kofn.generate.runner import GenerationOutcome
    from kofn.generate.store import ReplyRow
    from kofn.runs.record import Run
    from kofn.scoring.configuration import Config, GradingConfig, ReportConfig
    from kofn.scoring.result import ScoredResult
    from kofn.stats.paired import Comparison
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
        with Cache.of_user() if prepared.config.generation.cache else nullcontext() as cache:
            async with _watching(interim, display):
                return await generate(
                    prepared.items,
                    prepared.recipe,
                    prepared.models,
                    context_of(prepared, store, cache=cache, tally=tally),
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


# Diagnostics that in an adaptive run are over the first candidates alone: sets that stop when they agree would make
# models look more consistent than they are.
_OF_FIRST = ("votes", "diversity")
_MANY = 0.1  # the share of outputs above which a problem becomes a warning


def write_scored_run(
    prepared: PreparedRun,
    store: Store,
    directory: Path,
    outcome: GenerationOutcome,
    *,
    against: Run | None = None,
    keys: set[bytes] | None = None,
) -> Run:
    """Score what is stored and write the run.

    `against` is the run of the same reasoning answered with the question; `keys` are as in `candidate_rows`.
    """
    table = stored_table(prepared, store, directory, outcome.stopped, keys)
    options = prepared.grading
    result = evaluate_run(prepared, table, options)
    report = report_config(prepared, directory, table)
    extraction = extract_run_with_llm(prepared, store, result, report, prices_of(prepared))
    generation = generation_entry(prepared, table, outcome)
    comparison: dict[str, Any] = {}
    notes = {**generation["notes"], **extraction.notes}
    found = None if against is None or against.result is None else compare_markovian(result, against.result)
    if found is not None:
        comparison["markovian"] = comparison_entry(found)
        notes["leans on the question"] = format_comparison(found)
    result = result.with_warnings([*_run_warnings(prepared, result, outcome), *extraction.warnings])
    return write_run(
        result,
        directory,
        sources=source_files(prepared),
        options=options.to_dict(),
        report=report,
        generation={**generation, **extraction.entry, **comparison, "notes": notes},
    )


def report_config(prepared: PreparedRun, directory: Path, table: Table) -> ReportConfig:
    """What is reported of the run, without groups that no case belongs to: a run may be on a part of the data."""
    report = replace(prepared.config.report, name=directory.resolve().name)
    if report.group is None or report.group not in table.tags.columns:
        return report
    there = set(table.tags[report.group].cast(pl.String).to_list())
    return replace(
        report,
        types={group: kind for group, kind in report.types.items() if group in there},
        weights={group: weight for group, weight in report.weights.items() if group in there},
    )


def stored_table(
    prepared: PreparedRun, store: Store, directory: Path, stopped: str | None, keys: set[bytes] | None
) -> Table:
    """The candidates that are stored."""
    stages = prepared.recipe.stages
    ids = [item.case.id for item in prepared.items]
    rows = candidate_rows(store, stages, ids, prepared.repeats, keys)
    if rows.height == 0:
        why = f" ({stopped})" if stopped else ""
        raise WorldError(f"{directory}: no candidate is whole yet{why}: run the same command again to go on")
    if prepared.config.generation.adaptive:
        rows = _within_rule(prepared, rows)
    return table_of(rows, prepared.items, stages[-1].kind, source=str(directory))


def _within_rule(prepared: PreparedRun, rows: pl.DataFrame) -> pl.DataFrame:
    """The candidates that the rule of adaptive repeats draws: the store may hold more, from a run with another rule."""
    rule = repeats_of(prepared)
    assert isinstance(rule, Adaptive)
    texts = rows.group_by("id", maintain_order=True).agg("text")
    items = {item.case.id: item for item in prepared.items}
    sizes = [rule.drawn(items[case], of) for case, of in texts.iter_rows()]
    most = pl.DataFrame({"id": texts["id"], "most": sizes})
    return (
        rows.join(most, on="id", maintain_order="left")
        .filter(pl.int_range(pl.len()).over("id") < pl.col("most"))
        .drop("most")
    )


def evaluate_run(prepared: PreparedRun, table: Table, options: GradingConfig) -> ScoredResult:
    """Grade and aggregate. Of adaptive sets only the vote and the first candidate are over everything drawn."""
    if not prepared.config.generation.adaptive:
        return evaluate(table, options)
    first = repeats_of(prepared).first
    start = evaluate(table.truncate(first), options)
    names = [str(a) for a in options.aggregate] or [a.name for a in aggregators_of(start.scored[0], options)]
    over_all = tuple(name for name in names if keep(name, first) is None)
    whole = evaluate(table, replace(options, aggregate=over_all or ("first",)))
    estimates = {(e.metric, e.aggregator, e.segment): e for e in whole.estimates}
    return replace(
        whole,
        estimates=tuple(estimates.get((e.metric, e.aggregator, e.segment), e) for e in start.estimates),
        case_values={key: whole.case_values.get(key, values) for key, values in start.case_values.items()},
        extraction=start.extraction,
        diagnostics={**whole.diagnostics, **{k: start.diagnostics[k] for k in _OF_FIRST if k in start.diagnostics}},
    )


def _run_warnings(prepared: PreparedRun, result: ScoredResult, outcome: GenerationOutcome) -> list[CodedWarning]:
    """Warnings about how the outputs were made."""
    found = []
    if outcome.stopped:
        most = len(prepared.items) * prepared.repeats
        found.append(CodedWarning.of("run-stopped", reason=outcome.stopped, n=result.n_candidates, most=most))
    found += _output_warnings(prepared, result)
    if prepared.config.generation.adaptive:
        first = repeats_of(prepared).first
        names = dict.fromkeys(e.aggregator for e in result.estimates)
        biased = tuple(name for name in names if honest(name, first) is not None)
        if biased:
            found.append(CodedWarning.of("first-candidates-only", aggregators=biased, first=first))
    return found


def _output_warnings(prepared: PreparedRun, result: ScoredResult) -> list[CodedWarning]:
    """Warnings about failed calls, outputs that were cut off, and empty reasoning."""
    table = result.table
    rows, found = table.candidates, []
    if "error" in rows.columns and (failed := rows["error"].count()):
        error = most_frequent(rows["error"])
        found.append(CodedWarning.of("calls-failed", n=failed, of=rows.height, error=error))
    if "finish" in rows.columns and (cut := int((rows["finish"] == "length").sum())) > rows.height * _MANY:
        found.append(CodedWarning.of("outputs-cut-off", n=cut, of=rows.height))
    if len(prepared.recipe.stages) > 1 and "reasoning" in rows.columns:
        empty = int((rows["reasoning"].str.strip_chars() == "").sum())
        if empty > rows.height * _MANY:
            found.append(CodedWarning.of("empty-reasoning", n=empty, of=rows.height))
    return found


def most_frequent(errors: pl.Series) -> str:
    """The error seen most often, cut short."""
    return str(errors.drop_nulls().mode().sort()[0])[:200]


def generation_entry(prepared: PreparedRun, table: Table, outcome: GenerationOutcome) -> dict[str, Any]:
    """How the outputs were made: everything that is needed to make them again, and what it took."""
    generation, tally = prepared.config.generation, outcome.tally
    adaptive: dict[str, Any] | None = None
    notes = {}
    if generation.adaptive:
        found = adaptive_saving(prepared, table)
        adaptive = {
            "first": repeats_of(prepared).first,
            "most": prepared.repeats,
            "confidence": generation.confidence,
            "candidates": found.samples,
            "fixed": found.cases * found.fixed,
            "cost": found.cost,
            "fixed_cost": found.fixed_cost,
        }
        paid = found.cost and found.fixed_cost
        notes["adaptive"] = str(found if paid else found._replace(cost=None)).removeprefix("adaptive: ")
    if two := prepared.task.spec.two_stage:
        notes["two stages"] = "the answer is asked " + ("without" if two.markovian else "with") + " the question"
    return {
        "models": {role: model.name for role, model in prepared.models.items()},
        "described": {role: model.describe() for role, model in prepared.models.items()},
        "chat": dict(prepared.chat),
        "stages": [
            {
                "name": s.name,
                "model": s.model,
                "kind": s.kind,
                "sampling": asdict(s.sampling),
                "prompt": _prompt(prepared, i),
            }
            for i, s in enumerate(prepared.recipe.stages)
        ],
        "asked": task_digest(prepared.task),
        "dataset": {"cases": len(prepared.items), "sha256": prepared.task.dataset_digest(prepared.items)},
        "seed": generation.seed,
        "mode": generation.mode,
        "repeats": prepared.repeats,
        "adaptive": adaptive,
        "stopped": outcome.stopped,
        **_totals(table),
        "wall_seconds": round(time.monotonic() - tally.started, 3) if tally.started else 0.0,
        "calls": tally.calls,
        "reused": tally.reused,
        "retries": tally.retries,
        "notes": notes,
    }


def _prompt(prepared: PreparedRun, stage: int) -> dict[str, str | None]:
    spec = prepared.task.spec.all_stages()[stage]
    text = spec.prompt or ""
    return {"template": text, "system": spec.system, "sha256": sha256(f"{spec.system}\0{text}".encode()).hexdigest()}


def _totals(table: Table) -> dict[str, Any]:
    """Sums over the candidates of the run, whenever they were made; None where nothing is known."""

    rows = table.candidates
    tokens_in, tokens_out = (
        round(rows[name].sum()) if name in rows.columns else None for name in ("tokens_in", "tokens")
    )
    errors = rows["error"].count() if "error" in rows.columns else 0
    # a failed call has no cost; any other row without one has a model whose price is not known
    priced = "cost" in rows.columns and rows["cost"].null_count() <= errors
    cost = float(rows["cost"].sum()) if priced else None
    return {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost": cost, "errors": errors}


def adaptive_saving(prepared: PreparedRun, table: Table) -> Saving:
    """The saving of an adaptive run, against as many candidates of every case, and about what these would have cost.

    A prompt is paid once per request. So the fixed run pays each case's prompt once for as many samples as a request
    gives, and outputs as long as those that were drawn. Computed for one stage and known prices; else None.
    """
    found = saving(np.diff(table.offsets).tolist(), prepared.repeats)
    rows, stage = table.candidates, prepared.recipe.stages[0]
    names = ("cost", "tokens", "tokens_in")
    if len(prepared.recipe.stages) > 1 or any(n not in rows.columns or rows[n].null_count() for n in names):
        return found
    model, most, first = prepared.models[stage.model], prepared.repeats, repeats_of(prepared).first
    price, fixed = prices_of(prepared).cost, 0.0
    for start, end in pairwise(table.offsets.tolist()):
        drawn = rows[start:end]
        prompt = drawn["tokens_in"].head(first).sum() / ceil(min(first, end - start) / model.samples)
        requests, out = ceil(most / model.samples), drawn["tokens"].mean()
        assert isinstance(out, float)
        cost = price(model.name, round(prompt * requests), round(out * most))
        if cost is None:
            return found
        fixed += cost
    return found._replace(cost=float(rows["cost"].sum()), fixed_cost=fixed)


def source_files(prepared: PreparedRun) -> Sequence[Path]:
    """The files the cases came from."""
    place = prepared.task.locate_data(prepared.config.generation.data_path)
    if place is None:
        return []
    # at most 100: each file gets a digest in run.json
    return sorted(p for p in place.rglob("*") if p.is_file())[:100] if place.is_dir() else [place]


def compare_markovian(without: ScoredResult, with_it: ScoredResult) -> Comparison | None:
    """The mean of every case's candidates, answered with the question against without; None where nothing is graded."""
    a, b = without.scored[0].sets, with_it.scored[0].sets
    if not without.scored[0].metric or not a.graded.any() or not b.graded.any():
        return None
    mean = aggregator("mean")
    found = compare(a.case_ids.to_list(), mean(a), b.case_ids.to_list(), mean(b))
    return found if found.n else None


def format_comparison(found: Comparison) -> str:
    """The comparison in one line, for the notes of a run."""
    low, high = ("?" if end is None else f"{end:+.3f}" for end in (found.low, found.high))
    return (
        f"{found.a:.3f} without the question, {found.b:.3f} with it: {found.difference:+.3f} [{low}, {high}], "
        f"{format_p_in_text(found.p)}, over {found.n:,} cases on the same reasoning"
    )


def comparison_entry(found: Comparison) -> dict[str, Any]:
    """The comparison as an entry of run.json."""
    names = ("n", "a", "b", "difference", "low", "high", "p", "wins", "losses")
    return {name: getattr(found, name) for name in names}
