"""Answers read by a model beside the extractor: what it finds, what it costs, where the two disagree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.models.base import Model
from kofn.running.asking import limits_of
from kofn.running.now import now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.evaluate import Result
    from kofn.generate.ask import Kind, LLMExtraction
    from kofn.generate.limits import Limits
    from kofn.generate.prices import Prices
    from kofn.generate.store import Store
    from kofn.report.convert import Plan
    from kofn.report.lines import ModelExtraction
    from kofn.running.prepare import Prepared
    from kofn.scoring import Answers
    from kofn.types import Candidate

_LISTED = 100  # disagreements kept in run.json


@dataclass(frozen=True, slots=True)
class Reading:
    """What there is to tell: for results.jsonl, for run.json, and as warnings."""

    metric: ModelExtraction | None = None
    told: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_by_model(prepared: Prepared, store: Store, result: Result, plan: Plan, prices: Prices) -> Reading:
    """Let a model read every output too, where that was asked for. Without a key it is skipped, and said."""
    wanted = prepared.settings.llm_extract
    if wanted is None:
        return Reading()
    from kofn.generate.ask import open_reader

    model = open_reader(wanted)
    if not isinstance(model, Model):
        return Reading(warnings=(model,))
    found = now(_asked(prepared, store, result, model, prices))
    return _told(found, result, plan, prepared)


async def _asked(prepared: Prepared, store: Store, result: Result, model: Model, prices: Prices) -> LLMExtraction:
    from kofn.generate.ask import extract_all

    cases = {item.case.id: item.case for item in prepared.items}
    try:
        return await extract_all(
            list(_candidates(result)),
            model,
            store,
            cases=cases,
            kind=kind_of(result),
            price=prices.cost,
            limits=_limits(prepared, result),
        )
    finally:
        await model.close()


def _limits(prepared: Prepared, result: Result) -> Limits:
    """Those of the run, at most 50 calls a second, and of its money and tokens what the outputs have left."""
    from dataclasses import replace

    from kofn.generate.ask import PER_SECOND

    limits = limits_of(prepared)
    table = result.table
    assert table is not None
    cost, tokens = (
        float(table.candidates.select(columns).sum_horizontal().sum()) if columns else 0.0
        for columns in (
            [c for c in names if c in table.candidates.columns] for names in (("cost",), ("tokens", "tokens_in"))
        )
    )
    return replace(
        limits,
        requests_per_second=min(limits.requests_per_second or PER_SECOND, PER_SECOND),
        max_cost=None if limits.max_cost is None else max(0.0, limits.max_cost - cost),
        max_tokens_total=None if limits.max_tokens_total is None else max(0, limits.max_tokens_total - round(tokens)),
    )


def _candidates(result: Result) -> Iterator[Candidate]:
    """Every candidate with its text and the answer the extractor found."""
    from kofn.types import Candidate

    sets = result.scored[0].sets
    assert sets.texts is not None
    texts = sets.texts.to_list()
    answers = [None] * len(texts) if sets.answers is None else sets.answers.to_list()
    bounds = sets.offsets.tolist()
    for i, case_id in enumerate(sets.case_ids.to_list()):
        for row in range(bounds[i], bounds[i + 1]):
            yield Candidate(case_id=case_id, index=row - bounds[i], text=texts[row], answer=answers[row])


def kind_of(result: Result) -> Kind:
    """What the answers are: letters, numbers, or other words."""
    name = str(result.extraction.get("extractor"))
    return "letter" if name.startswith("letter") else "number" if name.startswith("number") else "text"


def _told(found: LLMExtraction, result: Result, plan: Plan, prepared: Prepared) -> Reading:
    from dataclasses import asdict

    from kofn.report.lines import ModelExtraction, accuracy_with

    accuracy = accuracy_with(result, plan, _answers(found, result, prepared))
    metric = ModelExtraction(accuracy=accuracy, cost_usd=found.cost_usd, num_calls=found.num_calls)
    told = {
        "model": found.model,
        "accuracy": accuracy,
        "cost_usd": found.cost_usd,
        "num_calls": found.num_calls,
        "n_failed": found.n_failed,
        "n_fallback": found.n_fallback,
        "n_disagreements": len(found.disagreements),
        "disagreements": [asdict(d) for d in found.disagreements[:_LISTED]],
    }
    stopped = (f"answers read by {found.model}: stopped: {found.stopped}",) if found.stopped else ()
    return Reading(metric, {"llm_extraction": told}, {"answers read by": str(found)}, stopped)


def _answers(found: LLMExtraction, result: Result, prepared: Prepared) -> Answers:
    """The model's answers as a column, in the form the extractor gives them so that equal ones vote together."""
    import polars as pl

    from kofn.registry import extractor
    from kofn.running.asking import extractor_of
    from kofn.scoring import Answers

    answers = list(found.answers)
    if kind_of(result) == "text":
        find = extractor(extractor_of(prepared))
        choices = {item.case.id: item.case.choices for item in prepared.items}
        of = [choices[one.case_id] for one in _candidates(result)]
        answers = [None if a is None else find(a, c or None) for a, c in zip(answers, of, strict=True)]
    return Answers(column=pl.Series("answer", answers, dtype=pl.String), extractor=None, reason="read by a model")
