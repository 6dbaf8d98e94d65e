"""Programs against checkpoints: problems, sandboxed executions, verdicts. Names load when asked for.

A worker process imports parts of this package and must stay small, so nothing is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn.checkpoint.load import load_problem as load_problem
    from kofn.checkpoint.problem import Problem as Problem
    from kofn.checkpoint.run import Verification as Verification
    from kofn.checkpoint.run import run_checkpoint as run_checkpoint
    from kofn.checkpoint.work import Limits as Limits

_LAZY = {
    "load_problem": "kofn.checkpoint.load",
    "Problem": "kofn.checkpoint.problem",
    "Verification": "kofn.checkpoint.run",
    "run_checkpoint": "kofn.checkpoint.run",
    "Limits": "kofn.checkpoint.work",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
