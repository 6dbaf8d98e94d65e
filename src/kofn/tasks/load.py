"""Tasks by name, by path, or as a mapping; a mistake is one line that names the file, the line and the field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kofn.errors import InputError, UnknownName
from kofn.tasks.spec import TaskSpec
from kofn.tasks.task import Task
from kofn.yamlfile import Yaml, told

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
        return checked(Task(spec=spec_of(task, str(task.get("name", "task"))), source=str(task.get("name", "task"))))
    if isinstance(task, Path) or str(task).endswith((".yaml", ".yml")):
        return checked(read(Path(task)))
    if task in names():
        return read(HERE / f"{task}.yaml")
    if ":" in task:
        return load_task(_imported(task))
    raise UnknownName("task", task, names(), hint="`kofn list tasks` shows them, and a file ends in .yaml")


def read(path: Path) -> Task:
    """The task of a YAML file."""
    from kofn.tasks.lm_eval import Function, is_lm_eval, read_config, task_of

    found = Yaml(path, tags={"!function": Function})
    if is_lm_eval(found.value) or (isinstance(found.value, dict) and "include" in found.value):
        return task_of(read_config(path), str(path), path.parent)
    if not isinstance(found.value, dict):
        raise InputError(f"{path}: expected a mapping with name, dataset and what is asked")
    source = path.stem if path.parent == HERE else str(path)
    return Task(spec=spec_of(found.value, str(path), found), folder=path.parent, source=source)


def spec_of(value: Mapping[str, Any], source: str, file: Yaml | None = None) -> TaskSpec:
    """The specification that a mapping holds."""
    try:
        return TaskSpec.model_validate(dict(value))
    except ValidationError as problem:
        raise InputError(told(problem, source, file)) from None


def checked(task: Task) -> Task:
    """The task, once every extractor, metric and aggregator it names is known to exist."""
    from kofn.registry import aggregator, extractor, metric
    from kofn.tasks.grading import REPEATS

    spec = task.spec
    try:
        if spec.extract is not None and not spec.extract.startswith("llm"):
            extractor(spec.extract)
        for one in spec.metrics:
            metric(one.metric)
        for name in (*spec.aggregate, *(m.repeat_aggregation for m in spec.metrics if m.repeat_aggregation)):
            aggregator(REPEATS.get(name, name))
    except InputError as problem:
        raise InputError(f"{task.source}: {problem}") from None
    return task


def _imported(target: str) -> Any:
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
