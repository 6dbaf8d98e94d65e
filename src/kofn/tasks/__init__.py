"""Tasks: what is asked of a model, on which data, and how the answers are graded.

In: a task file (YAML, or one of lm-evaluation-harness), a mapping, or a name. Out: a `Task` with its items and prompts.
Imports models (the types alone), scoring and what lies below; it calls no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.tasks.load import load_task as load_task
    from kofn.tasks.load import names as names
    from kofn.tasks.task import Task as Task
    from kofn.tasks.task import repeat_aggregators as repeat_aggregators
    from kofn.tasks.task import verdict_of as verdict_of

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.tasks.load": (
            "load_task",
            "names",
        ),
        "kofn.tasks.task": (
            "Task",
            "repeat_aggregators",
            "verdict_of",
        ),
    },
)
