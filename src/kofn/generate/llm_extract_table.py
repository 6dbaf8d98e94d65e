"""The LLM extractor on an imported table: answers for `kofn extract-audit`, with limits and a store of replies."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.core.sync import run_sync
from kofn.core.types import Candidate, Case
from kofn.generate.calls import CallContext
from kofn.generate.limits import Limits
from kofn.generate.llm_extractor import extract_all
from kofn.generate.pricing import Prices
from kofn.generate.store import Cache, Store
from kofn.models import open_model
from kofn.scoring.grade import find_answers

if TYPE_CHECKING:
    from kofn.core.table import Table
    from kofn.generate.llm_extractor import Kind, LLMExtraction
    from kofn.models.base import Model


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
    return run_sync(_extract(table, extractor, reader, limits, price_lists, store, cache=cache))


async def _extract(
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
