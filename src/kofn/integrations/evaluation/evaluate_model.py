"""A task set up for a training loop: its data, its two stages, and extractors by the names that such loops use."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.errors import InputError
from kofn.generate.run import run
from kofn.models.base import Model
from kofn.models.hugging_face import Transformers, weights_digest
from kofn.render.run_directory import append_line
from kofn.scoring.configuration import DEFAULT_READER
from kofn.tasks import load_task
from kofn.tasks.load import with_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kofn.tasks import Task


# name in such loops -> extractor for numbers, for letters
METHODS = {
    "simple": ("number_simple", "letter_first"),
    "anchor": ("number_anchor", "letter_word_boundary"),
}
BY_MODEL = ("llm", "haiku")


def extraction_settings(method: str | None, *, letters: bool, haiku: bool = False) -> dict[str, str]:
    """Settings of a run that say how answers are extracted: by an extractor, and by a model beside it.

    A method is a name of such loops, any extractor's own name, or llm and llm:MODEL, which leave the task its own
    extractor and let a model extract the answers too. None is the task's own.

    >>> extraction_settings("anchor", letters=False), extraction_settings("anchor", letters=True)
    ({'extract': 'number_anchor'}, {'extract': 'letter_word_boundary'})
    >>> extraction_settings("boxed", letters=False), extraction_settings("llm:smollm2", letters=False)
    ({'extract': 'boxed'}, {'llm_extract': 'smollm2'})
    """
    name, _, model = (method or "").partition(":")
    by_model = name in BY_MODEL
    settings = {} if by_model or not method else {"extract": METHODS.get(method, (method, method))[letters]}
    if haiku or by_model:
        settings["llm_extract"] = (model if by_model else "") or DEFAULT_READER
    return settings


def has_letter_answers(task: Task) -> bool:
    """Whether the answers of a task are labels of options."""
    return task.spec.output_type == "multiple_choice" or (task.spec.extract or "").startswith("letter")


def two_staged(task: Task, hyperparameters: Mapping[str, Any]) -> Task:
    """The task in two stages: the actor reasons, then the answer follows. Without a key the task's own value stays.

    Keys: temperature and cot_length (tokens) of the reasoning, answer_length, markovian, actor_reward_weight.
    """
    given = hyperparameters

    def number(name: str, kind: type) -> Any:
        try:
            return None if given.get(name) is None else kind(given[name])
        except (TypeError, ValueError):
            raise InputError(f"hyperparameters: {name}: expected a number, found {given[name]!r}") from None

    def length(name: str) -> dict[str, int]:
        tokens = number(name, int)
        return {} if tokens is None else {"max_tokens": tokens}

    return task.two_staged(
        markovian=None if given.get("markovian") is None else bool(given["markovian"]),
        actor_reward_weight=number("actor_reward_weight", float),
        temperature=number("temperature", float),
        reasoning=length("cot_length"),
        answer=length("answer_length"),
    )


def every_nth(task: Task, data: Path | None, stride: int) -> list[str]:
    """The ids of every `stride`-th case, from the first."""
    if stride < 1:
        raise InputError(f"stride is {stride}: expected a whole number from 1")
    return [] if stride == 1 else [item.case.id for item in task.items(data)][::stride]


HAIKU = ("haiku_accuracy", "haiku_cost_usd", "haiku_num_calls")


class _EvaluationTuple(NamedTuple):
    accuracy: float | None
    results: list[dict[str, Any]]
    haiku_metrics: dict[str, Any] | None


class Evaluated(_EvaluationTuple):
    """The result of an evaluation; unpacks into accuracy, results and haiku_metrics.

    accuracy         the share of the cases that are right; None where no case could be graded
    results          one dictionary per case: question, reasoning, generated_answer, predicted, answer, correct, repeats
    haiku_metrics    haiku_accuracy, haiku_cost_usd and haiku_num_calls; None where no model read the answers
    accuracy_legacy  the same with the answers that the older rule for letters or numbers finds; None without such
    line             all of it, as results.jsonl has it
    """

    line: Mapping[str, Any]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Evaluated:
        """From a line of results.jsonl."""
        haiku = {name: line[name] for name in HAIKU} if HAIKU[0] in line else None
        self = cls(line["accuracy"], line["detailed_results"], haiku)
        self.line = line
        return self

    @property
    def accuracy_legacy(self) -> float | None:
        """The accuracy by the older rule."""
        found: float | None = self.line.get("accuracy_legacy")
        return found


def evaluate_model_on(
    task: str | Path | Mapping[str, Any] | Task,
    actor_model: Any,
    critic_model: Any = None,
    tokenizer: Any = None,
    device: Any = None,
    test_data: Iterable[Any] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    answer_extraction_method: str | None = None,
    enable_haiku_metric: bool = False,
    **options: Any,
) -> Evaluated:
    """Evaluate a model of a training loop on a task, in two stages: the actor reasons, then the answer follows.

    actor_model, critic_model   models of transformers, which are left as they were found, or names such as hf:PATH.
                     Without a critic the actor's frozen base answers: a PeftModel with its adapters off, else itself.
    test_data        (question, answer) pairs or mappings; None: the task's own data
    hyperparameters  temperature, cot_length and answer_length (tokens), markovian, actor_reward_weight, repeats, seed,
                     limit; others, such as a training run has, are not looked at. Questions are never cut.
    answer_extraction_method   simple, anchor, any extractor's name, or llm, which is the task's own (as None is) and
                     enable_haiku_metric
    enable_haiku_metric        let a model read the answers too (it needs a key, and costs money)
    options          of `kofn.run`, such as aggregate=["any_pass"], out=DIR or batch_index=500
    """
    hyper = dict(hyperparameters or {})
    staged = two_staged(load_with_data(task, test_data), hyper)
    actor, critic = backends(actor_model, critic_model, tokenizer, device=device, batch=batch_size)
    line = run_line(
        staged,
        actor,
        critic,
        {
            **extraction_settings(
                answer_extraction_method, letters=has_letter_answers(staged), haiku=enable_haiku_metric
            ),
            **{name: hyper[name] for name in ("repeats", "seed", "limit") if hyper.get(name) is not None},
            "batch_size": batch_size,
            "device": str(device) if device is not None and isinstance(actor, str) else None,
            **options,
        },
    )
    return Evaluated.of(line)


evaluate_model_on_gsm8k = partial(evaluate_model_on, "gsm8k")
evaluate_model_on_gsm8k.__doc__ = """`evaluate_model_on("gsm8k", ...)`."""
evaluate_model_on_mmlu = partial(evaluate_model_on, "mmlu")
evaluate_model_on_mmlu.__doc__ = (
    """`evaluate_model_on("mmlu", ...)`; `.accuracy_legacy` of what it returns takes the first of A to E anywhere."""
)


def backends(
    actor: Any, critic: Any, tokenizer: Any, *, device: Any = None, batch: int | None = None
) -> tuple[str | Model, str | Model | None]:
    """Actor and critic for `kofn.run`. A critic that is the actor itself is the actor's base."""

    def backend(model: Any, role: str, **more: Any) -> str | Model:
        if isinstance(model, str | Model):
            return model
        if tokenizer is None:
            raise InputError(f"{role}_model is a model in memory: give its tokenizer too")
        name = f"{role}-{weights_digest(model)}"  # so that a run directory with replies of other weights is not resumed
        return Transformers.of(model, tokenizer, device=device, name=name, batch=batch, **more)

    if critic is not None and critic is not actor:
        return backend(actor, "actor"), backend(critic, "critic")
    if isinstance(actor, str):
        return actor, None  # a run finds the base of a name by itself
    return backend(actor, "actor"), backend(actor, "critic", disable_adapter=hasattr(actor, "disable_adapter"))


def run_line(task: Task, actor: str | Model, critic: str | Model | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task and return its line of results.jsonl, which is appended to the file `append_results` where named."""
    answers = any(stage.model == "critic" for stage in task.spec.all_stages())
    options = {"model": actor, "answer_model": critic if answers else None, "repeats": 1, **settings}
    results = options.pop("append_results", None)
    with TemporaryDirectory(prefix="kofn-line-") as folder:
        path = Path(folder) / "results.jsonl"
        run(task, **options, append_results=path)
        text = path.read_text(encoding="utf-8")
    line: dict[str, Any] = json.loads(text.splitlines()[-1])
    if results is not None:
        append_line(Path(results), line)
    return line


def load_with_data(task: Any, test_data: Iterable[Any] | None) -> Task:
    """The task, on these records if there are any."""
    return load_task(task) if test_data is None else with_records(load_task(task), test_data)
