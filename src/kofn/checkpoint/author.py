"""Whether the author's own code can be used at all: found out before anything is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.checkpoint.cases import is_own
from kofn.checkpoint.execute import try_author
from kofn.checkpoint.sandbox import Sandbox
from kofn.checkpoint.work import Context
from kofn.engine.base import Failed
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.checkpoint.problem import Checkpoint, Problem
    from kofn.engine.base import Engine


def check_author(context: Context, checkpoints: Sequence[Checkpoint], engine: Engine, folder: Path) -> None:
    """Import verifier.py and every matcher of the author's in a worker, which is where they are used."""
    checks = [check for c in checkpoints for group in c.groups for job in group.cases for check in job.checks]
    own = {f"{c.matcher} {sorted(c.params)}": (c.matcher, dict(c.params)) for c in checks if is_own(c.matcher)}
    if not own and not context.code:
        return
    (came,) = engine.map(try_author, [list(own.values())], shared=context)
    if isinstance(came, Failed):
        raise WorldError(f"{folder}: the author's code cannot be tried: {came.reason}")
    if came is not None:
        raise InputError(f"{folder}: {came}")


def check_alone(problem: Problem) -> None:
    """The same for a problem that is only looked at."""
    from kofn.checkpoint.scratch import scratch_folder
    from kofn.engine import engine

    with engine("local", workers=1) as used, scratch_folder() as scratch:
        context = Context(trees=(), entries=(), sandbox=Sandbox(bwrap=None), code=problem.code, scratch=scratch)
        check_author(context, problem.checkpoints, used, problem.folder)
