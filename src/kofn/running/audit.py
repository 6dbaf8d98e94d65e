"""A model as one more extractor: its answers to every output of a table, through the runner and its store."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.running.now import now

if TYPE_CHECKING:
    from kofn.generate.ask import Kind, LLMExtraction
    from kofn.generate.limits import Limits
    from kofn.generate.prices import Prices
    from kofn.models.base import Model
    from kofn.table import Table
    from kofn.types import Candidate, Case


def answers_by_model(
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

    `store` keeps the replies, so that the same command goes on where it was cut and pays for nothing twice.
    """
    from kofn.generate.prices import Prices
    from kofn.models import open_model

    known = Prices.load(prices)
    reader = open_model(model)
    if limits is not None and limits.max_cost is not None and not known.known(reader.name):
        raise InputError(f"max_cost: no price is known for {reader.name}: give --prices FILE, or --max-tokens-total")
    return now(_asked(table, extractor, reader, limits, known, store, cache=cache))


async def _asked(
    table: Table,
    extractor: str,
    model: Model,
    limits: Limits | None,
    prices: Prices,
    store: Path | None,
    *,
    cache: bool,
) -> LLMExtraction:
    import tempfile

    from kofn.generate.ask import PER_SECOND, extract_all
    from kofn.generate.limits import Limits
    from kofn.generate.store import Cache, Store
    from kofn.models.weights import cache_folder

    limits = limits or Limits()
    rate = min(limits.requests_per_second or PER_SECOND, PER_SECOND)
    place: Any = tempfile.TemporaryDirectory(prefix="kofn-") if store is None else nullcontext(str(store))
    shared = Cache.open(cache_folder() / "replies.sqlite") if cache else None
    try:
        with place as folder, Store.open(Path(folder), fingerprint={}) as kept:
            return await extract_all(
                candidates_of(table, extractor),
                model,
                kept,
                cases=cases_of(table),
                kind=kind_of(extractor),
                limits=replace(limits, requests_per_second=rate),
                price=prices.cost,
                cache=shared,
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
    from kofn.types import Case

    rows = table.cases.select([c for c in ("case_id", "input", "choices") if c in table.cases.columns])
    return {
        row["case_id"]: Case(id=row["case_id"], input=row.get("input"), choices=tuple(row.get("choices") or ()))
        for row in rows.iter_rows(named=True)
    }


def candidates_of(table: Table, extractor: str) -> list[Candidate]:
    """Every candidate with its text and what the extractor finds in it."""
    from kofn.scoring import find_answers
    from kofn.types import Candidate

    answers = find_answers(table, extractor).column
    texts = table.candidates["text"].to_list()
    found = [None] * len(texts) if answers is None else answers.to_list()
    bounds = table.offsets.tolist()
    return [
        Candidate(case_id=case, index=row - bounds[i], text=texts[row], answer=found[row])
        for i, case in enumerate(table.cases["case_id"].to_list())
        for row in range(bounds[i], bounds[i + 1])
    ]
