"""Loads a task by name (`tasks/NAME.yaml`), from another YAML file or from a mapping, and runs it on other records."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.core.yaml_file import Yaml
from kofn.errors import InputError, UnknownName
from kofn.tasks.lm_eval_yaml import Function, is_lm_eval, read_config, task_of
from kofn.tasks.shapes import SHAPES
from kofn.tasks.spec import parse_spec
from kofn.tasks.task import Task, check_names

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent


def names() -> list[str]:
    """The built-in tasks."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


def load_task(task: str | Path | Mapping[str, Any] | Task) -> Task:
    """A built-in task by name, one of a YAML file, a mapping with the same keys, or "module:attribute" of any of these.

    >>> load_task("gsm8k").spec.extract
    'number'
    >>> load_task("gsm9k")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown task 'gsm9k': did you mean gsm8k?
    """
    if isinstance(task, Task):
        return task
    if isinstance(task, Mapping):
        source = str(task.get("name", "task"))
        return check_names(Task(spec=parse_spec(task, source), source=source))
    if isinstance(task, Path) or str(task).endswith((".yaml", ".yml")):
        return check_names(read_task_file(Path(task)))
    if task in names():
        return read_task_file(HERE / f"{task}.yaml")
    if ":" not in task:
        raise UnknownName("task", task, names(), hint="`kofn list tasks` shows them, and a file ends in .yaml")
    module, _, attribute = task.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # a module of the folder one is in, as `python -m` would find it
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise InputError(f"task {task!r}: {problem}") from None
    return load_task(found() if callable(found) and not isinstance(found, Task) else found)


def read_task_file(path: Path) -> Task:
    """The task of a YAML file."""
    found = Yaml(path, tags={"!function": Function})
    if is_lm_eval(found.value) or (isinstance(found.value, dict) and "include" in found.value):
        return task_of(read_config(path), str(path), path.parent)
    if not isinstance(found.value, dict):
        raise InputError(f"{path}: expected a mapping with name, dataset and what is asked")
    source = path.stem if path.parent == HERE else str(path)
    return Task(spec=parse_spec(found.value, str(path), found), folder=path.parent, source=source)


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
        one, two = f"entry {own.index(False)}", f"entry {own.index(True)}"
        problem = f"{one} is not in the shape of {task.name} and {two} is"
        raise InputError(f"data: {problem}: expected all in its shape, or none")
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
