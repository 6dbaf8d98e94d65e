"""Runs a task on records given in Python instead of its own data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.tasks.load import load_task
from kofn.tasks.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kofn.tasks.task import Task


def with_records(task: Task, given: Iterable[Any]) -> Task:
    """The task on these records: (question, answer) pairs, or mappings as its own files or any others have them.

    Where they are not in the task's own shape they are read by the usual names, and its groups and examples, which
    they know nothing of, are left out.
    """
    records = [as_record(at, one) for at, one in enumerate(given)]
    if not records:
        raise InputError("the data is empty: expected (question, answer) pairs or mappings")
    body = task.spec.model_dump(mode="json", exclude_unset=True)
    own = [_in_own_shape(task, record) for record in records]
    if any(own) and not all(own):
        raise InputError(
            f"data: entry {own.index(False)} is not in the shape of {task.name} and entry {own.index(True)} is: "
            "expected all in its shape, or none"
        )
    if not all(own):
        body = {k: v for k, v in body.items() if k not in ("shape", "fields", "groups", "segments")}
    # few-shot examples would come from beside the task's own data
    return load_task({k: v for k, v in body.items() if k != "fewshot"} | {"dataset": records})


def as_record(at: int, given: Any) -> dict[str, Any]:
    """One record as a mapping.

    >>> as_record(0, ("2+2?", 4))
    {'question': '2+2?', 'answer': 4}
    """
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, list | tuple) and len(given) == 2:
        return {"question": given[0], "answer": given[1]}
    raise InputError(f"data: entry {at}: expected (question, answer) or a mapping, not {type(given).__name__}")


def _in_own_shape(task: Task, record: Mapping[str, Any]) -> bool:
    if task.spec.shape is None:
        return True
    try:
        SHAPES[task.spec.shape].example(record)
    except (InputError, TypeError, ValueError, KeyError, AttributeError, IndexError):
        return False
    return True
