"""What is odd about a problem that loads: one line each, with the place and what to do.

Loading refuses what cannot be run. What is here can be run, and is most likely not what its author means.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kofn.policy import GroupType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kofn.checkpoint.problem import Checkpoint, Group, Problem
    from kofn.checkpoint.work import Job

LONGEST = 60.0  # seconds
APART = 100.0  # how many times the smallest weight the largest may be
_SECRET = re.compile(r"(^|_)((api)?key|token|secret|password|passwd|credentials?)($|_)", re.IGNORECASE)
_ANSWERS = ("case.yaml", "cases.yaml", "cases.yml", "cases.jsonl")


def lint(problem: Problem) -> list[str]:
    """Findings in the order of the problem, none where all is well.

    An imported group is looked at in the checkpoint that it is from.
    """
    found = [*_assets(problem), *_secrets(problem)]
    for checkpoint in problem.checkpoints:
        found += _checkpoint(checkpoint)
        for group in checkpoint.groups:
            found += _imported(checkpoint, group) if group.original_checkpoint else _group(problem, checkpoint, group)
    return found


def _checkpoint(checkpoint: Checkpoint) -> Iterator[str]:
    name = checkpoint.name
    if not checkpoint.specification.strip():
        yield f"{name}: no specification: say what a submission has to do (specification: specification.md)"
    for number, count in enumerate(checkpoint.imports):
        if not count:
            yield f"{name}: regressions[{number}] brings no group: look at its groups, type_filter and exclude"
    if not checkpoint.n_cases:
        yield f"{name}: no cases: no policy can be met; add a group with cases"
    elif not any(group.type is GroupType.CORE and group.cases for group in checkpoint.groups):
        yield f"{name}: no Core group with cases: the policy core-cases is never met; give a group `type: Core`"
    weights = {f"group {group.name}": group.weight for group in checkpoint.groups}
    yield from _far_apart(name, weights)


def _imported(checkpoint: Checkpoint, group: Group) -> Iterator[str]:
    if not group.cases:
        yield f"{checkpoint.name}/{group.name}: imported without a case: exclude the group, or fewer of its cases"


def _group(problem: Problem, checkpoint: Checkpoint, group: Group) -> Iterator[str]:
    place = f"{checkpoint.name}/{group.name}"
    if not group.cases:
        yield f"{place}: no cases: write some to {group.name}/cases.yaml beside the checkpoint's file, or take it out"
    for ids in _alike(job.id for job in group.cases):
        yield f"{place}: cases {', '.join(ids)} differ only in upper and lower case: rename all but one"
    slow = [job for job in group.cases if job.seconds > LONGEST]
    if slow:
        longest = max(job.seconds for job in slow)
        yield f"{place}: {_listed(slow)} may take {longest:g} s: a program that hangs takes as long; lower the timeout"
    for job in group.cases:
        yield from _case(problem, f"{place}/{job.id}", job)


def _case(problem: Problem, place: str, job: Job) -> Iterator[str]:
    if not job.checks and "verifier.py" not in problem.code:
        yield f"{place}: nothing is verified: name what it is to show in `expected`"
    yield from _far_apart(place, {check.attribute: check.weight for check in job.checks})
    assets = {asset.name for asset in problem.assets}
    for file in job.files:
        if file.name in assets:
            yield f"{place}: file {file.name} takes the place of the static asset {file.name}: rename one of them"


def _alike(ids: Iterable[str]) -> list[list[str]]:
    """Names that are the same but for case, which some file systems do not tell apart.

    >>> _alike(["a", "B", "A"])
    [['a', 'A']]
    """
    found: dict[str, list[str]] = {}
    for name in ids:
        found.setdefault(name.casefold(), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _listed(jobs: list[Job]) -> str:
    more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
    return f"case{'s' if len(jobs) > 1 else ''} {', '.join(job.id for job in jobs[:3])}{more}"


def _far_apart(place: str, weights: dict[str, float]) -> Iterator[str]:
    if not weights:
        return
    low, high = min(weights, key=weights.__getitem__), max(weights, key=weights.__getitem__)
    if weights[high] > APART * weights[low]:
        told = f"{high} weighs {weights[high]:g} and {low} {weights[low]:g}"
        yield f"{place}: {told}: the lighter one hardly counts; bring them closer"


def _assets(problem: Problem) -> Iterator[str]:
    """Assets in the place of the program, with answers in them, or that no submission is told of."""
    specified = "\n".join(checkpoint.specification for checkpoint in problem.checkpoints)
    untold = []
    for asset in problem.assets:
        path = PurePosixPath(asset.name)
        if asset.name == problem.main_file:
            yield f"static asset {asset.name} takes the place of every submission's own {asset.name}: rename it"
        elif path.name in _ANSWERS:
            yield f"static asset {asset.name} gives expected answers to the programs: leave it out of static_assets"
        elif path.parts[0] not in specified and path.name not in specified:
            untold.append(path.parts[0])
    for name in dict.fromkeys(untold) if specified.strip() else ():
        yield f"static asset {name}: no specification names it, so no submission can know of it: say what it is"


def _secrets(problem: Problem) -> Iterator[str]:
    """Names in an environment that look like secrets, each with the checkpoints and cases that set it."""
    found: dict[str, dict[str, None]] = {}
    for checkpoint in problem.checkpoints:
        for group in checkpoint.groups:
            if group.original_checkpoint is not None:
                continue
            for name in filter(_SECRET.search, group.env):
                found.setdefault(name, {})[checkpoint.name] = None
            for job in group.cases:
                for name in filter(_SECRET.search, job.env):
                    found.setdefault(name, {})[f"{checkpoint.name}/{group.name}/{job.id}"] = None
    for name, places in found.items():
        yield f"{', '.join(places)}: env {name} looks like a secret, and every program can read it: take it out"
