"""Prepares a run before the first call: the task as configured, its cases, models and directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.generate.prepared_run import PreparedRun
from kofn.generate.validation import check_run
from kofn.models import open_model
from kofn.models.local_folders import base_of
from kofn.tasks import load_task
from kofn.tasks.load import with_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kofn.models.base import Model, Prompt
    from kofn.scoring.configuration import Config, GenerationConfig
    from kofn.tasks import Task


def prepare(given: Any, config: Config) -> PreparedRun:
    """Resolve the task, its data and its models; what is wrong with them is an error here, before the first call."""
    generation = config.generation
    task = resolve_task(given, generation)
    data = generation.data_path
    items = task.items(
        data, limit=generation.limit, samples=generation.samples, sample=generation.sample, seed=generation.seed
    )
    recipe = task.recipe(data, seed=generation.seed)
    models = open_models([stage.model for stage in recipe.stages], generation)
    chat = {role: model.chat if generation.chat is None else generation.chat for role, model in models.items()}
    prepared = PreparedRun(
        task=task, items=items, recipe=recipe, models=models, chat=chat, config=task.configure(config)
    )
    check_run(prepared)
    return prepared


def resolve_task(given: Any, generation: GenerationConfig) -> Task:
    """The task with what the configuration changes of it."""
    task = load_task(given)
    if generation.data is not None and not isinstance(generation.data, str | Path):
        task = with_records(task, generation.data)
    if generation.two_stage and task.spec.two_stage is None and len(task.spec.all_stages()) > 1:
        raise InputError(f"task {task.name} has several stages of its own: leave out --two-stage, or change the task")
    if generation.two_stage or generation.compare_markovian or task.spec.two_stage is not None:
        task = task.two_staged(
            markovian=True if generation.compare_markovian else generation.markovian,
            actor_reward_weight=generation.actor_reward_weight,
        )
    elif generation.markovian is not None or generation.actor_reward_weight is not None:
        raise InputError("markovian and actor_reward_weight are for two stages: give --two-stage too")
    return _with_sampling(task, generation)


def _with_sampling(task: Task, generation: GenerationConfig) -> Task:
    """How outputs are drawn, in the first stage of several; whether to chat is for all of them."""
    stop = None if generation.stop is None else list(generation.stop)
    first = {"top_p": generation.top_p, "max_tokens": generation.max_tokens, "stop": stop}
    names = [stage.name for stage in task.spec.all_stages()]
    changes = {name: {"chat": generation.chat, **(first if name == names[0] else {})} for name in names}
    known = {name: {k: v for k, v in of.items() if v is not None} for name, of in changes.items()}
    stages = {name: of for name, of in known.items() if of}
    return task.override(temperature=generation.temperature, stages=stages or None)


def open_models(roles: Sequence[str], generation: GenerationConfig) -> dict[str, Model]:
    """The backend of every role and model that the stages name; each is opened once."""
    models: dict[Any, Model] = {}

    def open_once(spec: Any) -> Model:
        # objects by identity: a callable or a model need not be hashable
        key = spec if isinstance(spec, str) else id(spec)
        if key not in models:
            models[key] = open_with_settings(spec, generation)
        return models[key]

    named = {"actor": generation.model, "critic": critic_of(generation)}
    return {role: open_once(named.get(role, role)) for role in dict.fromkeys(roles)}


def open_with_settings(spec: str | Model | Callable[..., Any], generation: GenerationConfig) -> Model:
    """One backend, with what the configuration says of it."""
    options = {"device": generation.device, "batch": generation.batch_size, "timeout": generation.timeout}
    return open_model(
        spec, reproducible=generation.reproducible, options={k: v for k, v in options.items() if v is not None}
    )


def critic_of(generation: GenerationConfig) -> Any:
    """The model that answers: `answer_model`, else the actor's base model, which for most is the actor itself.

    >>> from kofn.scoring.configuration import GenerationConfig
    >>> critic_of(GenerationConfig(model="hf:base+adapter")), critic_of(GenerationConfig(model="smollm2"))
    ('hf:base', 'smollm2')
    """
    if generation.answer_model is not None:
        return generation.answer_model
    if isinstance(generation.model, str) and generation.model.startswith("hf:"):
        return f"hf:{base_of(generation.model.removeprefix('hf:'))}"
    return generation.model


def directory_of(prepared: PreparedRun) -> Path:
    """The run directory: `out`, else one made of task and models, so that the same command finds it again."""
    if (out := prepared.config.report.out) is not None:
        return out
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
