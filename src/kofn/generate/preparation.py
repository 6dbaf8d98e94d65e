"""Prepares a run before the first call: the task as configured, its cases, models and directory."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.extract import choose_extractor
from kofn.generate.adaptive import Adaptive
from kofn.generate.calls import CallContext
from kofn.generate.limits import Limits
from kofn.generate.pricing import Prices
from kofn.generate.runner import Fixed
from kofn.generate.store import DIGEST, SENT
from kofn.models import open_model
from kofn.models.local_folders import base_of
from kofn.registry import aggregator, extractor, metric
from kofn.runs.load import rows_of
from kofn.scoring.configuration import Requirement
from kofn.stats.estimates import check_interval
from kofn.stats.intervals import check_level, check_resamples
from kofn.tasks import load_task
from kofn.tasks.load import with_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.generate.runner import Repeats
    from kofn.generate.store import Store
    from kofn.models.base import Model, Prompt
    from kofn.scoring.configuration import Config, GenerationConfig, GradingConfig
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
            "weights": {role: weight_digests(model) for role, model in self.models.items()},
            **_stage_settings(self.task, self.chat),
            DIGEST: task_digest(self.task),
            SENT: sent_by_task(self.task),
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


def weight_digests(model: Model) -> dict[str, Any]:
    """What a model says of the files it is made of: a folder may hold another model tomorrow."""
    return {name: value for name, value in model.describe().items() if name.endswith(("fingerprint", "sha256"))}


def task_digest(task: Task) -> str:
    """What a task sends, whatever is done with the answers, as 16 hexadecimal digits."""
    import orjson

    # nothing of grading: a store stays valid when only metrics or aggregators change
    sent = {"stages", "two_stage", *_OF_TASK}
    asked = orjson.dumps(task.spec.model_dump(mode="json", include=sent), option=orjson.OPT_SORT_KEYS)
    return sha256(asked).hexdigest()[:16]


_OF_TASK = {"fewshot", "output_type", "multiple_choice", "shape", "fields"}


def sent_by_task(task: Task) -> dict[str, Any]:
    """What a task file says of what is sent, beside its stages."""
    return task.spec.model_dump(mode="json", include=_OF_TASK)


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
    generation = prepared.config.generation
    limits = Limits(**{one.name: getattr(generation, one.name) for one in fields(Limits)})
    return replace(limits, concurrency=1) if generation.reproducible else limits


def prices_of(prepared: PreparedRun) -> Prices:
    """The price lists of the run, which name every model where there is a bound on money."""
    generation = prepared.config.generation
    return Prices.for_models((m.name for m in prepared.models.values()), generation.max_cost, generation.prices)


def context_of(prepared: PreparedRun, store: Store, **shared: Any) -> CallContext:
    """What the calls of a run share; `shared` are its cache and tally."""
    seed, price = prepared.config.generation.seed, prices_of(prepared).cost
    return CallContext(store=store, limits=limits_of(prepared), price=price, seed=seed, **shared)


def prepare(given: Any, config: Config) -> PreparedRun:
    """Resolve the task, its data and its models; what is wrong with them is an error here, before the first call."""
    generation = config.generation
    task = resolve_task(given, generation)
    data = generation.data_path
    items = task.items(data, limit=generation.limit, ids=generation.ids, sample=generation.sample, seed=generation.seed)
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
        task = with_records(task, rows_of(generation.data))
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
    stages: dict[str, dict[str, Any]] = {}
    for place, stage in enumerate(task.spec.all_stages()):
        changes = {"chat": generation.chat, **({} if place else first)}
        if known := {name: value for name, value in changes.items() if value is not None}:
            stages[stage.name] = known
    return task.override(temperature=generation.temperature, stages=stages or None)


def open_models(roles: Sequence[str], generation: GenerationConfig) -> dict[str, Model]:
    """The backend of every role and model that the stages name; each is opened once."""
    options = {"device": generation.device, "batch": generation.batch_size, "timeout": generation.timeout}
    known = {name: value for name, value in options.items() if value is not None}
    named = {"actor": generation.model, "critic": critic_of(generation)}
    specs = {role: named.get(role, role) for role in roles}
    # objects by identity: a callable or a model need not be hashable
    keys = {role: spec if isinstance(spec, str) else id(spec) for role, spec in specs.items()}
    distinct = {keys[role]: spec for role, spec in specs.items()}
    models = {
        key: open_model(spec, reproducible=generation.reproducible, options=known) for key, spec in distinct.items()
    }
    return {role: models[key] for role, key in keys.items()}


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


def check_run(prepared: PreparedRun) -> None:
    """Refuse names that nothing answers to, fields that no case has, and a k that no set will reach."""
    options = prepared.grading
    check_interval(options.interval)
    check_level(options.level)
    check_resamples(options.n_resamples)
    if options.extract is not None:
        extractor(options.extract)
    for name in options.metrics:
        if name not in ("pass", "score"):
            metric(name)
    _check_aggregators(prepared, options)
    tags = list(dict.fromkeys(name for item in prepared.items for name in item.case.tags))
    hint = f"its cases have {', '.join(tags) or 'no fields'}"
    for name in options.by:
        if name not in (*tags, "input", "reference", "cluster"):
            raise UnknownName("field", name, tags, hint=hint)
    plan, generation = prepared.config.report, prepared.config.generation
    if plan.verdict is not None:
        bounded = any(sign in plan.verdict for sign in "<>")
        aggregator(Requirement.parse(plan.verdict).name if bounded else plan.verdict)
    if plan.group is not None and plan.group not in tags:
        raise InputError(f"{prepared.task.source}: groups: {UnknownName('field', plan.group, tags, hint=hint)}")
    if generation.answer_model is not None and prepared.task.spec.two_stage is None and "critic" not in prepared.models:
        raise InputError("answer_model is the critic, and no stage asks it: give --two-stage too")
    if generation.compare_markovian:
        with_question(prepared)


def _check_aggregators(prepared: PreparedRun, options: GradingConfig) -> None:
    rule = repeats_of(prepared)
    for name in options.aggregate:
        k = getattr(aggregator(name), "k", None)
        if not isinstance(k, int) or k <= rule.first:
            continue
        if prepared.config.generation.adaptive:
            raise InputError(
                f"{name} needs {k} candidates of every case, and adaptive repeats draw {rule.first} at first: "
                f"ask for --repeats {k} --max-repeats {max(k, rule.most)}"
            )
        raise InputError(f"{name} is undefined of {rule.first} candidates: ask for --repeats {k} or more")


# --- the same reasoning answered with the question: where answers get better with it at hand, the reasoning does not
# carry all that they need; both answers follow from the same stored reasoning, so the comparison is paired

WITH_QUESTION = "answer_with_question"
WITH_QUESTION_FOLDER = "with-question"  # the second run's directory, in the first's


def with_question(prepared: PreparedRun) -> PreparedRun:
    """The same run with answers that see the question; only its second stage differs."""
    reasoning, _, other = _comparison_stages(prepared)
    return _with_stages(prepared, [reasoning, other])


def with_both_answers(prepared: PreparedRun) -> PreparedRun:
    """Both in one run, for generation: the reasoning, and two answers that follow from it."""
    return _with_stages(prepared, _comparison_stages(prepared))


def _comparison_stages(prepared: PreparedRun) -> list[dict[str, Any]]:
    if prepared.task.spec.two_stage is None:
        raise InputError(
            "compare_markovian compares the two usual stages: leave out what changes one of them, such as --chat, "
            "--top-p, or stages in the task"
        )
    reasoning, answer = prepared.task.spec.all_stages()
    _, other = prepared.task.two_staged(markovian=False).spec.all_stages()
    # {cot} is the stage before, which is the reasoning in one of the two runs only; {reasoning} is right in both
    prompt = (other.prompt or "").replace("{cot}", "{reasoning}")
    return [
        reasoning.model_dump(),
        answer.model_dump(),
        {**other.model_dump(), "name": WITH_QUESTION, "prompt": prompt},
    ]


def _with_stages(prepared: PreparedRun, stages: list[dict[str, Any]]) -> PreparedRun:
    own = prepared.task
    # `stages` in the place of `two_stage`: a task file may only have one of them
    body = own.spec.model_dump(mode="json", exclude_unset=True, exclude={"two_stage"})
    task = replace(load_task({**body, "stages": stages}), folder=own.folder, source=own.source)
    recipe = task.recipe(prepared.config.generation.data_path, seed=prepared.config.generation.seed)
    return replace(prepared, task=task, recipe=recipe)
