"""Loads a task by name (`tasks/NAME.yaml`), from another YAML file or from a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kofn.core.yaml_file import Yaml
from kofn.errors import InputError, UnknownName
from kofn.tasks.lm_eval_yaml import Function, is_lm_eval, read_config, task_of
from kofn.tasks.spec import parse_spec
from kofn.tasks.task import Task, check_names

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
        return check_names(
            Task(spec=parse_spec(task, str(task.get("name", "task"))), source=str(task.get("name", "task")))
        )
    if isinstance(task, Path) or str(task).endswith((".yaml", ".yml")):
        return check_names(read_task_file(Path(task)))
    if task in names():
        return read_task_file(HERE / f"{task}.yaml")
    if ":" in task:
        return load_task(_import_task(task))
    raise UnknownName("task", task, names(), hint="`kofn list tasks` shows them, and a file ends in .yaml")


def read_task_file(path: Path) -> Task:
    """The task of a YAML file."""
    found = Yaml(path, tags={"!function": Function})
    if is_lm_eval(found.value) or (isinstance(found.value, dict) and "include" in found.value):
        return task_of(read_config(path), str(path), path.parent)
    if not isinstance(found.value, dict):
        raise InputError(f"{path}: expected a mapping with name, dataset and what is asked")
    source = path.stem if path.parent == HERE else str(path)
    return Task(spec=parse_spec(found.value, str(path), found), folder=path.parent, source=source)


def _import_task(target: str) -> Any:
    import sys
    from importlib import import_module

    module, _, attribute = target.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # a module of the folder one is in, as `python -m` would find it
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise InputError(f"task {target!r}: {problem}") from None
    return found() if callable(found) and not isinstance(found, Task) else found
