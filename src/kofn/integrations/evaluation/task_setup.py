"""A task set up for a training loop: its data, its two stages, and extractors by the names that such loops use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.scoring.configuration import DEFAULT_READER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
    return task.two_staged(
        markovian=None if given.get("markovian") is None else bool(given["markovian"]),
        actor_reward_weight=_number(given, "actor_reward_weight", float),
        temperature=_number(given, "temperature", float),
        reasoning=_length(given, "cot_length"),
        answer=_length(given, "answer_length"),
    )


def _length(given: Mapping[str, Any], name: str) -> dict[str, int]:
    tokens = _number(given, name, int)
    return {} if tokens is None else {"max_tokens": tokens}


def _number(given: Mapping[str, Any], name: str, kind: type) -> Any:
    try:
        return None if given.get(name) is None else kind(given[name])
    except (TypeError, ValueError):
        raise InputError(f"hyperparameters: {name}: expected a number, found {given[name]!r}") from None


def every_nth(task: Task, data: Path | None, stride: int) -> list[str]:
    """The ids of every `stride`-th case, from the first."""
    if stride < 1:
        raise InputError(f"stride is {stride}: expected a whole number from 1")
    return [] if stride == 1 else [item.case.id for item in task.items(data)][::stride]
