"""Prepares a run before the first call: the task with its settings applied, its cases, models and directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.generate.prepared_run import PreparedRun
from kofn.generate.settings import data_path
from kofn.generate.validation import check_run
from kofn.models import open_model
from kofn.models.local_folders import base_of
from kofn.tasks import load_task
from kofn.tasks.load import with_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kofn.generate.settings import Settings
    from kofn.models.base import Model, Prompt
    from kofn.tasks import Task


def prepare(given: Any, settings: Settings) -> PreparedRun:
    """Resolve the task, its data and its models; what is wrong with them is an error here, before the first call."""
    task = resolve_task(given, settings)
    data = data_path(settings)
    items = task.items(data, limit=settings.limit, samples=settings.samples, sample=settings.sample, seed=settings.seed)
    recipe = task.recipe(data, seed=settings.seed)
    models = open_models([stage.model for stage in recipe.stages], settings)
    chat = {role: model.chat if settings.chat is None else settings.chat for role, model in models.items()}
    prepared = PreparedRun(task=task, items=items, recipe=recipe, models=models, chat=chat, settings=settings)
    check_run(prepared)
    return prepared


def resolve_task(given: Any, settings: Settings) -> Task:
    """The task with what the settings change of it."""
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
    return _with_sampling(task, settings)


def _with_sampling(task: Task, settings: Settings) -> Task:
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
    models: dict[Any, Model] = {}

    def open_once(spec: Any) -> Model:
        # objects by identity: a callable or a model need not be hashable
        key = spec if isinstance(spec, str) else id(spec)
        if key not in models:
            models[key] = open_with_settings(spec, settings)
        return models[key]

    named = {"actor": settings.model, "critic": critic_of(settings)}
    return {role: open_once(named.get(role, role)) for role in dict.fromkeys(roles)}


def open_with_settings(spec: str | Model | Callable[..., Any], settings: Settings) -> Model:
    """One backend, with what the settings say of it."""
    options = {"device": settings.device, "batch": settings.batch_size, "timeout": settings.timeout}
    return open_model(
        spec, reproducible=settings.reproducible, options={k: v for k, v in options.items() if v is not None}
    )


def critic_of(settings: Settings) -> str | Model | Callable[..., Any]:
    """The model that answers: `answer_model`, else the actor's base model, which for most is the actor itself.

    >>> from kofn.generate.settings import Settings
    >>> critic_of(Settings(model="hf:base+adapter")), critic_of(Settings(model="smollm2"))
    ('hf:base', 'smollm2')
    """
    if settings.answer_model is not None:
        return settings.answer_model
    if isinstance(settings.model, str) and settings.model.startswith("hf:"):
        return f"hf:{base_of(settings.model.removeprefix('hf:'))}"
    return settings.model


def directory_of(prepared: PreparedRun) -> Path:
    """The run directory: `out`, else one made of task and models, so that the same command finds it again."""
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


def first_prompts(prepared: PreparedRun, n: int = 2) -> Iterator[tuple[str, str, str, Prompt]]:
    """(case, stage, model, prompt) of the first cases, exactly as sent; outputs of earlier stages stand as <stage>."""
    for item in prepared.items[:n]:
        outputs: dict[str, str] = {}
        for number, stage in enumerate(prepared.recipe.stages):
            prompt = prepared.recipe.prompt(item, number, 0, outputs, chat=prepared.chat[stage.model])
            yield item.case.id, stage.name, prepared.models[stage.model].name, prompt
            outputs[stage.name] = f"<{stage.name}>"
