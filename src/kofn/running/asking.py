"""How a run asks: how often, how fast, at what price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from kofn.generate.prices import Prices
    from kofn.generate.runner import Limits, Repeats
    from kofn.generate.store import Cache
    from kofn.running.prepare import Prepared


def repeats_of(prepared: Prepared) -> Repeats:
    """How many candidates a case gets: so many, or as many as its leading answer needs."""
    from kofn.generate.runner import Fixed

    if not prepared.settings.adaptive:
        return Fixed(prepared.repeats)
    from kofn.generate.adaptive import Adaptive

    settings = prepared.settings
    least = settings.repeats if settings.repeats is not None and settings.max_repeats is not None else 0
    return Adaptive(extractor_of(prepared), most=prepared.repeats, first=least, confidence=settings.confidence)


def extractor_of(prepared: Prepared) -> str:
    """The extractor of a run's votes: the one asked for, the task's, else what suits its references."""
    named = prepared.settings.extract or prepared.task.spec.extract
    if named is not None:
        return named
    from kofn.extract import choose_extractor

    cases = [item.case for item in prepared.items]
    references = [c.references[0] for c in cases if c.references]
    return choose_extractor(references, references, any(c.choices for c in cases)).name


def limits_of(prepared: Prepared) -> Limits:
    """What the settings allow; a reproducible run asks one thing at a time."""
    from kofn.generate.runner import Limits

    s = prepared.settings
    return Limits(
        concurrency=1 if s.reproducible else s.concurrency,
        requests_per_second=s.requests_per_second,
        tokens_per_minute=s.tokens_per_minute,
        timeout=s.timeout,
        retries=s.retries,
        max_cost=s.max_cost,
        max_tokens_total=s.max_tokens_total,
        max_time=s.max_time,
    )


def prices_of(prepared: Prepared) -> Prices:
    """What tokens cost; a bound on money needs to know."""
    from kofn.generate.prices import Prices

    prices = Prices.load(prepared.settings.prices)
    unknown = [model.name for model in prepared.models.values() if not prices.known(model.name)]
    if prepared.settings.max_cost is not None and unknown:
        raise InputError(f"max_cost: no price is known for {unknown[0]}: give --prices FILE, or --max-tokens-total")
    return prices


def cache_of(prepared: Prepared) -> Cache | None:
    """Replies across runs, where they were asked for."""
    from kofn.generate.store import Cache
    from kofn.models.weights import cache_folder

    return Cache.open(cache_folder() / "replies.sqlite") if prepared.settings.cache else None
