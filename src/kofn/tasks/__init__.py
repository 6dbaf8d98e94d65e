"""Tasks: what is asked of a model, on which data, and how the answers are graded."""

from __future__ import annotations

from kofn.tasks.load import load_task, names
from kofn.tasks.task import Task

__all__ = ["Task", "load_task", "names"]
