"""Checks that verifier.py and custom matchers can be imported and called, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.errors import InputError, WorldError
from kofn.parallel import engine as make_engine
from kofn.parallel.base import FailedItem
from kofn.problems.case import WorkContext
from kofn.problems.case_files import is_custom
from kofn.problems.execute import try_author_code
from kofn.sandbox.limits_only import LimitsOnly
from kofn.sandbox.workspace import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.parallel.base import ParallelEngine
    from kofn.problems.problem import Checkpoint, Problem


def check_author_code(
    context: WorkContext, checkpoints: Sequence[Checkpoint], engine: ParallelEngine, folder: Path
) -> None:
    """Import verifier.py and every matcher of the author's in a worker, which is where they are used."""
    checks = [check for c in checkpoints for group in c.groups for case in group.cases for check in case.checks]
    custom = {f"{c.matcher} {sorted(c.params)}": (c.matcher, dict(c.params)) for c in checks if is_custom(c.matcher)}
    if not custom and not context.code:
        return
    (problem,) = engine.map(try_author_code, [list(custom.values())], shared=context)
    if isinstance(problem, FailedItem):
        raise WorldError(f"{folder}: the author's code cannot be tried: {problem.reason}")
    if problem is not None:
        raise InputError(f"{folder}: {problem}")


def check_problem_code(problem: Problem) -> None:
    """The same for a problem of which nothing is run."""
    with make_engine("local", workers=1) as engine, scratch_folder() as scratch:
        context = WorkContext(trees=(), entries=(), sandbox=LimitsOnly(), code=problem.code, scratch=scratch)
        check_author_code(context, problem.checkpoints, engine, problem.folder)
