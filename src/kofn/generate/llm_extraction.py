"""Answers that a model reads in stored outputs: `kofn run --extract llm`, and `kofn extract-audit` on a table."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.sync import run_sync
from kofn.core.types import Candidate, Case
from kofn.core.warnings import CodedWarning
from kofn.generate.calls import CallContext
from kofn.generate.limits import Limits
from kofn.generate.llm_extractor import extract_all, open_extraction_model
from kofn.generate.preparation import extractor_of, limits_of
from kofn.generate.pricing import Prices
from kofn.generate.store import Cache, Store
from kofn.models import open_model
from kofn.models.base import Model
from kofn.registry import extractor
from kofn.render.run_directory import accuracy_with
from kofn.scoring.grade import find_answers, with_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.core.table import Table
    from kofn.generate.llm_extractor import Kind, LLMExtraction
    from kofn.generate.preparation import PreparedRun
    from kofn.scoring.configuration import ReportConfig
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult

_LISTED = 100  # disagreements kept in run.json, which is read whole


@dataclass(frozen=True, slots=True)
class LLMExtractionReport:
    """What the LLM extractor found, as run.json (`entry`, `notes`) and the warnings have it."""

    entry: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    warnings: tuple[CodedWarning, ...] = ()


def extract_run_with_llm(
    prepared: PreparedRun, store: Store, result: ScoredResult, plan: ReportConfig, prices: Prices
) -> LLMExtractionReport:
    """Let a model read every output too, where one is named. Without a key it is skipped with a warning."""
    spec = prepared.config.generation.llm_extract
    if spec is None:
        return LLMExtractionReport()
    model = open_extraction_model(spec)
    if not isinstance(model, Model):
        return LLMExtractionReport(warnings=(model,))
    found = run_sync(_extract(prepared, store, result, model, prices))
    return _report(found, result, plan, prepared)


async def _extract(
    prepared: PreparedRun, store: Store, result: ScoredResult, model: Model, prices: Prices
) -> LLMExtraction:
    cases = {item.case.id: item.case for item in prepared.items}
    try:
        return await extract_all(
            list(_candidates(result)),
            model,
            CallContext(store=store, price=prices.cost, limits=_limits(prepared, result)),
            cases=cases,
            kind=kind_of(str(result.extraction.get("extractor"))),
        )
    finally:
        await model.close()


def _limits(prepared: PreparedRun, result: ScoredResult) -> Limits:
    """The limits of the run, with the money and tokens that the outputs have left."""
    table = result.table
    cost, tokens = (
        float(table.candidates.select(columns).sum_horizontal().sum()) if columns else 0.0
        for columns in (
            [c for c in names if c in table.candidates.columns] for names in (("cost",), ("tokens", "tokens_in"))
        )
    )
    return limits_of(prepared).remaining(cost, round(tokens))


def _candidates(result: ScoredResult) -> Iterator[Candidate]:
    """Every candidate with its text and the answer the extractor found."""
    sets = result.scored[0].sets
    texts = sets.having("texts").to_list()
    answers = [None] * len(texts) if sets.answers is None else sets.answers.to_list()
    bounds = sets.offsets.tolist()
    for i, case_id in enumerate(sets.case_ids.to_list()):
        for row in range(bounds[i], bounds[i + 1]):
            yield Candidate(case_id=case_id, index=row - bounds[i], text=texts[row], answer=answers[row])


def _report(
    found: LLMExtraction, result: ScoredResult, plan: ReportConfig, prepared: PreparedRun
) -> LLMExtractionReport:
    accuracy = accuracy_with(result, plan, _answers(found, result, prepared))
    entry = {
        "model": found.model,
        "accuracy": accuracy,
        "cost_usd": found.cost_usd,
        "num_calls": found.num_calls,
        "n_failed": found.n_failed,
        "n_fallback": found.n_fallback,
        "n_disagreements": len(found.disagreements),
        "disagreements": [asdict(d) for d in found.disagreements[:_LISTED]],
    }
    stopped: tuple[CodedWarning, ...] = ()
    if found.stopped:
        stopped = (CodedWarning.of("extraction-stopped", model=found.model, reason=found.stopped),)
    return LLMExtractionReport({"llm_extraction": entry}, {"answers read by": str(found)}, stopped)


def _answers(found: LLMExtraction, result: ScoredResult, prepared: PreparedRun) -> Graded:
    """The model's answers as a column, in the form the extractor gives them so that equal ones vote together."""
    answers = list(found.answers)
    if kind_of(str(result.extraction.get("extractor"))) == "text":
        find = extractor(extractor_of(prepared))
        choices = {item.case.id: item.case.choices for item in prepared.items}
        of = [choices[one.case_id] for one in _candidates(result)]
        answers = [None if a is None else find(a, c or None) for a, c in zip(answers, of, strict=True)]
    return with_answers(result.table, pl.Series("answer", answers, dtype=pl.String), reason="read by a model")


def extract_table_with_llm(
    table: Table,
    extractor: str,
    model: str,
    *,
    limits: Limits | None = None,
    prices: Path | None = None,
    store: Path | None = None,
    cache: bool = False,
) -> LLMExtraction:
    """What a model reads in every output; where it fails the answer of `extractor` is kept, and counted.

    `store` keeps the replies, so that the same command resumes an interrupted audit and pays for no reply twice.
    """
    reader = open_model(model)
    price_lists = Prices.for_models([reader.name], None if limits is None else limits.max_cost, prices)
    return run_sync(_extract_table(table, extractor, reader, limits, price_lists, store, cache=cache))


async def _extract_table(
    table: Table,
    extractor: str,
    model: Model,
    limits: Limits | None,
    prices: Prices,
    store: Path | None,
    *,
    cache: bool,
) -> LLMExtraction:
    place: Any = tempfile.TemporaryDirectory(prefix="kofn-") if store is None else nullcontext(str(store))
    shared = Cache.of_user() if cache else None
    try:
        with place as folder, Store.open(Path(folder), fingerprint={}) as kept:
            return await extract_all(
                candidates_of(table, extractor),
                model,
                CallContext(store=kept, limits=limits or Limits(), price=prices.cost, cache=shared),
                cases=cases_of(table),
                kind=kind_of(extractor),
            )
    finally:
        await model.close()
        if shared is not None:
            shared.close()


def kind_of(extractor: str) -> Kind:
    """What an extractor's answers are.

    >>> kind_of("number_simple"), kind_of("letter"), kind_of("boxed")
    ('number', 'letter', 'text')
    """
    return "letter" if extractor.startswith("letter") else "number" if extractor.startswith("number") else "text"


def cases_of(table: Table) -> dict[str, Case]:
    """The questions and options, by id."""
    rows = table.cases.select([c for c in ("case_id", "input", "choices") if c in table.cases.columns])
    return {
        row["case_id"]: Case(id=row["case_id"], input=row.get("input"), choices=tuple(row.get("choices") or ()))
        for row in rows.iter_rows(named=True)
    }


def candidates_of(table: Table, extractor: str) -> list[Candidate]:
    """Every candidate with its text and what the extractor finds in it."""
    answers = find_answers(table, extractor).sets.answers
    texts = table.candidates["text"].to_list()
    found = [None] * len(texts) if answers is None else answers.to_list()
    bounds = table.offsets.tolist()
    return [
        Candidate(case_id=case, index=row - bounds[i], text=texts[row], answer=found[row])
        for i, case in enumerate(table.cases["case_id"].to_list())
        for row in range(bounds[i], bounds[i + 1])
    ]
