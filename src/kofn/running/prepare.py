"""Everything a run needs before anything is asked: the task as it will be run, its cases, its models, its directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.running.check import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kofn.generate.stages import Item, Recipe
    from kofn.models.base import Model, Prompt
    from kofn.running.settings import Settings
    from kofn.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A task settled for one run.

    models   stage.model -> the backend that answers there
    chat     stage.model -> whether it is asked in messages
    """

    task: Task
    items: Sequence[Item]
    recipe: Recipe
    models: Mapping[str, Model]
    chat: Mapping[str, bool]
    settings: Settings

    @property
    def repeats(self) -> int:
        """The most candidates a case may get."""
        settings = self.settings
        asked = settings.max_repeats if settings.adaptive else settings.repeats
        return asked or settings.repeats or self.task.spec.repeats

    def fingerprint(self) -> dict[str, Any]:
        """What a directory's replies have in common: nothing of it may change when a run is taken up again."""
        return {
            "task": self.task.name,
            "models": {role: model.name for role, model in self.models.items()},
            "weights": {role: _weights(model) for role, model in self.models.items()},
            **_stages(self.task, self.chat),
            "asked": asked(self.task),
            "seed": self.settings.seed,
            "mode": mode(self.settings),
        }


def _stages(task: Task, chat: Mapping[str, bool]) -> dict[str, Any]:
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


def _weights(model: Model) -> dict[str, Any]:
    """What a model says of the files it is made of: a folder may hold another model tomorrow."""
    return {name: value for name, value in model.describe().items() if name.endswith(("fingerprint", "sha256"))}


def asked(task: Task) -> str:
    """What a task sends, whatever is done with the answers, as 16 hexadecimal digits."""
    import orjson

    names = {"stages", "two_stage", "fewshot", "output_type", "multiple_choice", "shape", "fields"}
    told = orjson.dumps(task.spec.model_dump(mode="json", include=names), option=orjson.OPT_SORT_KEYS)
    return sha256(told).hexdigest()[:16]


def mode(settings: Settings) -> str:
    """How a run was made: bit for bit the same every time, or as fast as the machine can."""
    return "reproducible" if settings.reproducible else "fast"


def prepare(given: Any, settings: Settings) -> Prepared:
    """Settle a task: what is wrong with it, its data or a model's name is said here, before the first call."""
    task = settled_task(given, settings)
    data = data_path(settings)
    items = task.items(data, limit=settings.limit, samples=settings.samples, sample=settings.sample, seed=settings.seed)
    recipe = task.recipe(data, seed=settings.seed)
    models = open_models([stage.model for stage in recipe.stages], settings)
    chat = {role: model.chat if settings.chat is None else settings.chat for role, model in models.items()}
    prepared = Prepared(task=task, items=items, recipe=recipe, models=models, chat=chat, settings=settings)
    check(prepared)
    return prepared


def data_path(settings: Settings) -> Path | None:
    """The file or folder to read instead of the task's own; records at hand are part of the task by now."""
    return Path(settings.data) if isinstance(settings.data, str | Path) else None


def settled_task(given: Any, settings: Settings) -> Task:
    """The task with what the settings change of it."""
    from kofn.tasks import load_task
    from kofn.tasks.given import with_records

    task = load_task(given)
    if settings.data is not None and not isinstance(settings.data, str | Path):
        task = with_records(task, settings.data)
    if settings.two_stage and task.spec.two_stage is None and len(task.spec.all_stages()) > 1:
        raise InputError(f"task {task.name} has several stages of its own: leave out --two-stage, or change the task")
    if settings.two_stage or settings.compare_markovian or task.spec.two_stage is not None:
        task = task.two_staged(
            markovian=True if settings.compare_markovian else settings.markovian,
            actor_reward_weight=settings.actor_reward_weight,
        )
    elif settings.markovian is not None or settings.actor_reward_weight is not None:
        raise InputError("markovian and actor_reward_weight are for two stages: give --two-stage too")
    return _drawn(task, settings)


def _drawn(task: Task, settings: Settings) -> Task:
    """How outputs are drawn, in the first stage of several; whether to chat is for all of them."""
    stop = None if settings.stop is None else list(settings.stop)
    first = {"top_p": settings.top_p, "max_tokens": settings.max_tokens, "stop": stop}
    names = [stage.name for stage in task.spec.all_stages()]
    changes = {name: {"chat": settings.chat, **(first if name == names[0] else {})} for name in names}
    known = {name: {k: v for k, v in of.items() if v is not None} for name, of in changes.items()}
    stages = {name: of for name, of in known.items() if of}
    return task.override(temperature=settings.temperature, stages=stages or None)


def open_models(roles: Sequence[str], settings: Settings) -> dict[str, Model]:
    """The backend of every role and model that the stages name; each is opened once."""
    opened: dict[Any, Model] = {}

    def opening(spec: Any) -> Model:
        key = spec if isinstance(spec, str) else id(spec)
        if key not in opened:
            opened[key] = open_one(spec, settings)
        return opened[key]

    named = {"actor": settings.model, "critic": critic_of(settings)}
    return {role: opening(named.get(role, role)) for role in dict.fromkeys(roles)}


def open_one(spec: str | Model | Callable[..., Any], settings: Settings) -> Model:
    """One backend, with what the settings say of it."""
    from kofn.models import open_model

    options = {"device": settings.device, "batch": settings.batch_size, "timeout": settings.timeout}
    return open_model(
        spec, reproducible=settings.reproducible, options={k: v for k, v in options.items() if v is not None}
    )


def critic_of(settings: Settings) -> str | Model | Callable[..., Any]:
    """The model that answers: the one asked for, else the actor's base model, which for most is the actor itself.

    >>> from kofn.running.settings import Settings
    >>> critic_of(Settings(model="hf:base+adapter")), critic_of(Settings(model="smollm2"))
    ('hf:base', 'smollm2')
    """
    if settings.answer_model is not None:
        return settings.answer_model
    if isinstance(settings.model, str) and settings.model.startswith("hf:"):
        from kofn.models.adapters import base_of

        return f"hf:{base_of(settings.model.removeprefix('hf:'))}"
    return settings.model


def directory_of(prepared: Prepared) -> Path:
    """Where a run goes when nobody says: the same command finds it again."""
    if prepared.settings.out is not None:
        return prepared.settings.out
    names = list(dict.fromkeys(model.name for model in prepared.models.values()))
    return Path("runs") / "-".join(slug(part) for part in (prepared.task.name, *names))


def slug(name: str) -> str:
    """A name as part of a file name.

    >>> slug("openai:org/model@http://127.0.0.1:80/v1")
    'openai-org-model-http-127.0.0.1-80-v1'
    """
    return re.sub(r"[^\w.]+", "-", name).strip("-.")[:80] or "run"


def first_prompts(prepared: Prepared, n: int = 2) -> Iterator[tuple[str, str, str, Prompt]]:
    """(case, stage, model, prompt) of the first cases, exactly as sent; outputs of earlier stages stand as <stage>."""
    for item in prepared.items[:n]:
        outputs: dict[str, str] = {}
        for number, stage in enumerate(prepared.recipe.stages):
            prompt = prepared.recipe.prompt(item, number, 0, outputs, chat=prepared.chat[stage.model])
            yield item.case.id, stage.name, prepared.models[stage.model].name, prompt
            outputs[stage.name] = f"<{stage.name}>"
