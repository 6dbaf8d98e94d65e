"""A run with its task, items and models resolved, and what follows: repeats, limits, prices, cache, fingerprint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kofn.extract import choose_extractor
from kofn.generate.adaptive import Adaptive
from kofn.generate.calls import CallContext
from kofn.generate.limits import Limits
from kofn.generate.pricing import Prices
from kofn.generate.scheduler import Fixed
from kofn.generate.store import Cache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.generate.scheduler import Repeats
    from kofn.generate.store import Store
    from kofn.models.base import Model
    from kofn.scoring.configuration import Config, GradingConfig
    from kofn.tasks import Task
    from kofn.tasks.stages import Item, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A task with everything resolved for one run.

    config   as it is used: what it left out is as the task says
    models   stage.model -> the backend that answers there
    chat     stage.model -> whether it is asked in messages
    """

    task: Task
    items: Sequence[Item]
    recipe: Recipe
    models: Mapping[str, Model]
    chat: Mapping[str, bool]
    config: Config

    @property
    def repeats(self) -> int:
        """The most candidates a case may get."""
        generation = self.config.generation
        most = generation.max_repeats if generation.adaptive else generation.repeats
        return most or generation.repeats or self.task.spec.repeats

    @property
    def grading(self) -> GradingConfig:
        """How the replies are graded. A stage that chooses an option gives the answer itself: no text is searched."""
        grading = self.config.grading
        return grading if self.recipe.stages[-1].kind == "generate" else replace(grading, extract=None)

    def fingerprint(self) -> dict[str, Any]:
        """What a directory's replies have in common: nothing of it may change when a run is taken up again."""
        return {
            "task": self.task.name,
            "models": {role: model.name for role, model in self.models.items()},
            "weights": {role: _weight_digests(model) for role, model in self.models.items()},
            **_stage_settings(self.task, self.chat),
            "asked": task_digest(self.task),
            "seed": self.config.generation.seed,
            "mode": self.config.generation.mode,
        }


def _stage_settings(task: Task, chat: Mapping[str, bool]) -> dict[str, Any]:
    """What each stage sends and how it draws, by names that people know."""
    names = ("prompt", "system", "temperature", "top_p", "max_tokens", "stop", "logprobs")
    return {
        f"{stage.name}.{name}": value
        for stage in task.spec.all_stages()
        for name, value in [
            *((name, getattr(stage, name)) for name in names),
            ("chat", chat[stage.model] if stage.chat is None else stage.chat),
        ]
    }


def _weight_digests(model: Model) -> dict[str, Any]:
    """What a model says of the files it is made of: a folder may hold another model tomorrow."""
    return {name: value for name, value in model.describe().items() if name.endswith(("fingerprint", "sha256"))}


def task_digest(task: Task) -> str:
    """What a task sends, whatever is done with the answers, as 16 hexadecimal digits."""
    import orjson

    # nothing of grading: a store stays valid when only metrics or aggregators change
    names = {"stages", "two_stage", "fewshot", "output_type", "multiple_choice", "shape", "fields"}
    sent = orjson.dumps(task.spec.model_dump(mode="json", include=names), option=orjson.OPT_SORT_KEYS)
    return sha256(sent).hexdigest()[:16]


def repeats_of(prepared: PreparedRun) -> Repeats:
    """How many candidates a case gets: a fixed number, or as many as its leading answer needs."""
    if not prepared.config.generation.adaptive:
        return Fixed(prepared.repeats)
    generation = prepared.config.generation
    least = generation.repeats if generation.repeats is not None and generation.max_repeats is not None else 0
    return Adaptive(extractor_of(prepared), most=prepared.repeats, first=least, confidence=generation.confidence)


def extractor_of(prepared: PreparedRun) -> str:
    """The extractor of a run's votes: the one that is named, else the one chosen by its references."""
    named = prepared.config.grading.extract
    if isinstance(named, str):
        return named
    cases = [item.case for item in prepared.items]
    references = [c.references[0] for c in cases if c.references]
    return choose_extractor(references, references, any(c.choices for c in cases)).name


def limits_of(prepared: PreparedRun) -> Limits:
    """What the configuration allows; a reproducible run asks one thing at a time."""
    s = prepared.config.generation
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


def prices_of(prepared: PreparedRun) -> Prices:
    """The price lists of the run, which name every model where there is a bound on money."""
    generation = prepared.config.generation
    return Prices.for_models((m.name for m in prepared.models.values()), generation.max_cost, generation.prices)


def cache_of(prepared: PreparedRun) -> Cache | None:
    """The cache of replies across runs, if it is turned on."""
    return Cache.of_user() if prepared.config.generation.cache else None


def context_of(prepared: PreparedRun, store: Store, **shared: Any) -> CallContext:
    """What the calls of a run share; `shared` are its cache and tally."""
    seed, price = prepared.config.generation.seed, prices_of(prepared).cost
    return CallContext(store=store, limits=limits_of(prepared), price=price, seed=seed, **shared)
