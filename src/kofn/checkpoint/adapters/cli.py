"""A fresh process a case: arguments and standard input in; output, errors, exit status and files out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kofn.checkpoint.adapters.base import Observed, tracked
from kofn.checkpoint.folder import InTheWay
from kofn.checkpoint.work import Ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.checkpoint.box import Box
    from kofn.checkpoint.work import Context, Item, Job


def observe(box: Box, context: Context, item: Item) -> Iterator[tuple[Job, Observed]]:
    """Run the jobs of an item one after the other."""
    tree = context.trees[item.submission]
    entry = context.entries[item.submission]
    for number, job in enumerate(item.jobs):
        try:
            if item.reset or number == 0:
                box.folder.reset(tree, job.files)
            else:
                for file in job.files:
                    box.folder.put(file)
        except InTheWay as problem:
            yield job, Observed(ended=Ended(stopped=str(problem)))
            continue
        limits = replace(context.limits, seconds=job.seconds)
        ended = box.run((*entry, *job.args), limits=limits, env={**item.env, **job.env}, stdin=job.stdin)
        seen = {"output": ended.output, "stderr": ended.stderr, "status_code": ended.status}
        yield job, Observed(attributes={**seen, **tracked(box, job, limits)}, ended=ended)
