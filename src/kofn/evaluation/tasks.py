"""A task as a training loop asks it: its own data, two stages, and extractors by the names such loops use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kofn.tasks import Task

# what such loops call it -> for numbers, for letters
METHODS = {
    "simple": ("number_simple", "letter_first"),
    "anchor": ("number_anchor", "letter_word_boundary"),
}
BY_MODEL = ("llm", "haiku")


def extraction(method: str | None, *, letters: bool, haiku: bool = False) -> dict[str, str]:
    """How answers are found, as settings of a run: by an extractor, and by a model beside it.

    A method is one of such loops, any extractor's own name, or llm and llm:MODEL, which leave the task its own
    extractor and let a model read the answers too. None is the task's own.

    >>> extraction("anchor", letters=False), extraction("anchor", letters=True)
    ({'extract': 'number_anchor'}, {'extract': 'letter_word_boundary'})
    >>> extraction("boxed", letters=False), extraction("llm:smollm2", letters=False)
    ({'extract': 'boxed'}, {'llm_extract': 'smollm2'})
    """
    name, _, model = (method or "").partition(":")
    by_model = name in BY_MODEL
    found = {} if by_model or not method else {"extract": METHODS.get(method, (method, method))[letters]}
    if haiku or by_model:
        from kofn.running import DEFAULT_READER

        found["llm_extract"] = (model if by_model else "") or DEFAULT_READER
    return found


def asks_for_letters(task: Task) -> bool:
    """Whether the answers of a task are labels of options."""
    return task.spec.output_type == "multiple_choice" or (task.spec.extract or "").startswith("letter")


def reasoned(task: Task, hyperparameters: Mapping[str, Any]) -> Task:
    """The task in two stages: the actor reasons, then the answer follows. What is not said stays as the task has it.

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


def every(task: Task, data: Path | None, stride: int) -> list[str]:
    """The ids of every so many-th case, from the first."""
    if stride < 1:
        raise InputError(f"stride is {stride}: expected a whole number from 1")
    return [] if stride == 1 else [item.case.id for item in task.items(data)][::stride]
