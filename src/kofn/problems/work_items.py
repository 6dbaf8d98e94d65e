"""Work items for the workers: the selected cases of every submission, with a key that says exactly what each runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.problems.case import WorkContext, WorkItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.problems.case import ProblemCase
    from kofn.problems.problem import CaseGroup, Checkpoint, Problem
    from kofn.problems.submissions import Submission
    from kofn.sandbox.base import Sandbox
    from kofn.sandbox.work_folder import Tree


def select_cases(checkpoints: Sequence[Checkpoint], groups: Sequence[str], cases: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints with only these groups and cases, where any are named; those left with nothing go.

    A case is named by its id, or as GROUP/ID.
    """
    known = [group.name for c in checkpoints for group in c.groups]
    ids = [name for c in checkpoints for g in c.groups for case in g.cases for name in (case.id, f"{g.name}/{case.id}")]
    for kind, names, known_names in (("group", groups, known), ("case", cases, ids)):
        for name in names:
            if name not in known_names:
                hint = f"known: {', '.join(dict.fromkeys(known_names))[:200]}"
                raise UnknownName(kind, name, known_names, hint)
    kept = [
        replace(c, groups=tuple(filter(None, (_select_in_group(g, groups, cases) for g in c.groups))))
        for c in checkpoints
    ]
    selected = [c for c in kept if c.groups]
    if not selected:
        raise InputError("no case is left: the group and the case that were asked for do not go together")
    return selected


def _select_in_group(group: CaseGroup, groups: Sequence[str], cases: Sequence[str]) -> CaseGroup | None:
    if groups and group.name not in groups:
        return None
    if not cases:
        return group
    selected = tuple(case for case in group.cases if case.id in cases or f"{group.name}/{case.id}" in cases)
    if selected and not group.isolated:
        last = max(group.cases.index(case) for case in selected)
        selected = group.cases[: last + 1]  # they share a work folder, so earlier cases have a part in the result
    return replace(group, cases=selected) if selected else None


def work_context(
    problem: Problem, submissions: Sequence[Submission], sandbox: Sandbox, scratch: str | None
) -> WorkContext:
    """The context that all items share."""
    return WorkContext(
        trees=tuple(one.tree for one in submissions),
        entries=(problem.entry,) * len(submissions),
        adapter=problem.adapter,
        limits=problem.limits,
        sandbox=sandbox,
        ready_path=problem.ready_path,
        ready_seconds=problem.ready_seconds,
        code=problem.code,
        scratch=scratch,
    )


def work_items(
    problem: Problem, submission: int, tree: Tree, group: CaseGroup, checkpoint: str, *, repeats: int, sandbox: Sandbox
) -> list[WorkItem]:
    """The items of a group: one per case where cases are isolated, else one with all of them; each `repeats` times."""
    # the key of a finished case in the store: a change of anything here runs the case again
    common = {
        "tree": tree.digest,
        "entry": problem.entry,
        "adapter": [problem.adapter, problem.ready_path, problem.ready_seconds],
        "limits": asdict(replace(problem.limits, seconds=0)),
        "code": problem.code,
        "env": dict(group.env),
        "isolated": group.isolated,
        "sandbox": sandbox.identity,
    }
    base = _digest(common)
    items = []
    for repeat in range(repeats):
        cases, before = [], base
        for case in group.cases:
            key = _digest([base if group.isolated else before, _case_identity(case), repeat])
            before = key  # a case that is not isolated depends on those before it
            cases.append(replace(case, key=key))
        parts = [(case,) for case in cases] if group.isolated else [tuple(cases)]
        items += [
            WorkItem(
                submission=submission,
                checkpoint=checkpoint,
                group=group.name,
                env=group.env,
                cases=part,
                reset=group.isolated,
            )
            for part in parts
            if part
        ]
    return items


def _case_identity(case: ProblemCase) -> Any:
    """Everything of a case that can change its outcome, by the names of its fields: renaming one changes all keys."""
    return {name: value for name, value in asdict(case).items() if name not in ("key", "summary")}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_as_text, ensure_ascii=True)
    return sha256(text.encode()).hexdigest()


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": sha256(value).hexdigest()}
    return repr(value)
