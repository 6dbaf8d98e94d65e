"""How judges are asked: the settings, and the calls of all judges, one after the other within one budget."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kofn.core.progress import show_progress
from kofn.generate.calls import CallContext, CallTally, sum_tallies
from kofn.generate.limits import Limits
from kofn.generate.pricing import Prices
from kofn.generate.progress_file import ProgressWriter, snapshot_of
from kofn.generate.store import Cache, Store
from kofn.judge.client import ask_judge
from kofn.judge.rubric import load_rubric
from kofn.models import open_model
from kofn.models.base import Sampling
from kofn.registry import check_unique

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kofn.core.progress import Snapshot
    from kofn.judge.client import JudgeQuestion, JudgeReplies
    from kofn.judge.rubric import Rubric
    from kofn.models.base import Model


Panel = Literal["mean", "vote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How judges are asked. None is the rubric's, or the model's own."""

    models: tuple[Any, ...]
    repeats: int = 1
    panel: Panel = "mean"
    name: str | None = None
    choose: bool = False
    replace: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    prices: Path | None = None
    cache: bool = False
    retry_errors: bool = False
    progress: bool = False

    def rubric(self, name_or_file: Any) -> Rubric:
        """The rubric, with the likeliest verdict instead of a reply where that was asked for."""
        rubric = load_rubric(name_or_file)
        return rubric.model_copy(update={"parse": "choose"}) if self.choose else rubric

    def sampling(self, rubric: Rubric) -> Sampling:
        """How a verdict is drawn."""
        heat = rubric.temperature if self.temperature is None else self.temperature
        return Sampling(temperature=heat, max_tokens=self.max_tokens or rubric.max_tokens)


JUDGE_FOLDER = "judging"  # the store of verdicts, in the run's directory


def open_judges(settings: JudgeSettings) -> list[Model]:
    """The models, each once."""
    models = [open_model(spec) for spec in settings.models]
    names = [model.name for model in models]
    check_unique(names, "judge {} is there twice: --repeats asks one judge several times")
    return models


def label_judges(name: str, models: Sequence[Model]) -> list[str]:
    """Metric names: the rubric's for one judge, with the model's behind it for several."""
    if len(models) == 1:
        return [name]
    short = [model.name.rpartition("/")[2].partition("@")[0] for model in models]
    if len(set(short)) < len(short):
        short = [f"{s}-{i + 1}" for i, s in enumerate(short)]
    return [f"{name}.{s}" for s in short]


async def ask_judges(
    models: Sequence[Model],
    questions: Mapping[str, JudgeQuestion],
    rubric: Rubric,
    settings: JudgeSettings,
    directory: Path,
) -> list[JudgeReplies]:
    """Every judge, one after another; a budget is of all of them together."""
    prices = Prices.for_models((model.name for model in models), settings.limits.max_cost, settings.prices)
    found: list[JudgeReplies] = []
    tallies: list[CallTally] = []
    with (
        # no fingerprint: the store holds the verdicts of every judge that was ever asked about this run
        Store.open(directory / JUDGE_FOLDER, fingerprint={}) as store,
        _progress_writer(
            directory / JUDGE_FOLDER, rubric, models, len(questions), settings.repeats, tallies
        ) as progress_writer,
    ):
        if settings.retry_errors:
            store.forget_errors()
        cache = Cache.of_user() if settings.cache else None
        try:
            for model in models:
                limits = _remaining_limits(settings.limits, tallies)
                tallies.append(CallTally())
                with _display(tallies[-1], model.name, len(questions) * settings.repeats, settings):
                    judge_replies = await ask_judge(
                        questions,
                        rubric,
                        model,
                        CallContext(
                            store=store,
                            limits=limits,
                            price=prices.cost,
                            cache=cache,
                            seed=settings.seed,
                            tally=tallies[-1],
                        ),
                        sampling=settings.sampling(rubric),
                        repeats=settings.repeats,
                    )
                found.append(judge_replies)
                progress_writer.stop(next((one.stopped for one in found if one.stopped), None))
        finally:
            for model in models:
                await model.close()
            if cache is not None:
                cache.close()
    return found


def _progress_writer(
    folder: Path, rubric: Rubric, models: Sequence[Model], questions: int, repeats: int, tallies: Sequence[CallTally]
) -> ProgressWriter:
    """Progress of all judges together, for whoever looks from outside."""
    began, cases = time.monotonic(), questions * len(models)

    def take_snapshot() -> Snapshot:
        return snapshot_of(sum_tallies(tallies), cases, cases * repeats, time.monotonic() - began)

    return ProgressWriter(
        folder, take_snapshot, kind="judge", task=rubric.name, model=", ".join(model.name for model in models)
    )


def _remaining_limits(limits: Limits, tallies: Sequence[CallTally]) -> Limits:
    """What earlier judges left of the budget; what was stored before this start is paid for."""
    return limits.remaining(sum(t.cost for t in tallies), sum(t.tokens_in + t.tokens_out for t in tallies))


def _display(tally: CallTally, name: str, total: int, settings: JudgeSettings) -> AbstractContextManager[object]:
    """How far one judge is, where somebody looks at a terminal."""
    began = time.monotonic()

    def take_snapshot() -> Snapshot:
        return snapshot_of(tally, total, total, time.monotonic() - began)

    return show_progress(take_snapshot, f"Judging: {name}", unit="verdicts") if settings.progress else nullcontext()
