"""The adapter `cli`: one process per case; arguments and input in, output, errors, exit status and files out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kofn.problems.adapters.base import Observation, read_files
from kofn.sandbox.program import ProcessResult
from kofn.sandbox.work_folder import PathBlocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.problems.case import ProblemCase, WorkContext, WorkItem
    from kofn.sandbox.workspace import Workspace


def observe(workspace: Workspace, context: WorkContext, item: WorkItem) -> Iterator[tuple[ProblemCase, Observation]]:
    """Run the cases of an item one after the other."""
    tree = context.trees[item.submission]
    entry = context.entries[item.submission]
    for number, case in enumerate(item.cases):
        try:
            if item.reset or number == 0:
                workspace.folder.reset(tree, case.files)
            else:
                for file in case.files:
                    workspace.folder.put(file)
        except PathBlocked as problem:
            yield case, Observation(process=ProcessResult(stopped=str(problem)))
            continue
        limits = replace(context.limits, seconds=case.seconds)
        result = workspace.run((*entry, *case.args), limits=limits, env={**item.env, **case.env}, stdin=case.stdin)
        attributes = {"output": result.output, "stderr": result.stderr, "status_code": result.status}
        attributes |= read_files(workspace, case, limits)
        yield case, Observation(attributes=attributes, process=result)
