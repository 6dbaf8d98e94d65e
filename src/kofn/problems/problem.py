"""`Problem`: the checkpoints of a problem in order, with their groups and cases, and a lint of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kofn.core.format import pluralize
from kofn.errors import UnknownName
from kofn.sandbox.process import ProgramLimits
from kofn.scoring.configuration import GroupType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kofn.problems.case import ProblemCase
    from kofn.sandbox.workspace import File

LAST, ALL = "last", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseGroup:
    """A named set of cases. One that was imported says from where.

    `isolated`: every case has a fresh work folder, and a fresh server where there is one.
    """

    name: str
    type: GroupType = GroupType.FUNCTIONALITY
    weight: float = 1.0
    isolated: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[ProblemCase, ...] = ()
    original_checkpoint: str | None = None
    original_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A version of the problem: its groups, those imported from earlier checkpoints among them.

    `imports` has the number of groups that each of its regressions brought.
    """

    name: str
    version: int = 1
    order: int = 1
    specification: str = ""
    groups: tuple[CaseGroup, ...] = ()
    imports: tuple[int, ...] = ()

    @property
    def n_cases(self) -> int:
        return sum(len(group.cases) for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem. `code` holds the author's Python by file name; `assets` are in every work folder."""

    name: str
    folder: Path
    entry: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
    version: int = 1
    description: str = ""
    tags: tuple[str, ...] = ()
    adapter: str = "cli"
    ready_path: str | None = None
    ready_seconds: float = 10.0
    limits: ProgramLimits = field(default_factory=ProgramLimits)
    assets: tuple[File, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)

    def select_checkpoints(self, which: str | int) -> list[Checkpoint]:
        """Checkpoints by name, by number (1 is the first), `last`, or `all`."""
        if which == ALL:
            return list(self.checkpoints)
        if which == LAST:
            return [self.checkpoints[-1]]
        for number, checkpoint in enumerate(self.checkpoints, 1):
            if which in (checkpoint.name, number) or which == str(number):
                return [checkpoint]
        known = [c.name for c in self.checkpoints]
        raise UnknownName("checkpoint", str(which), known, f"known: 1 to {len(known)}, {', '.join(known)}, last, all")

    @property
    def main_file(self) -> str | None:
        """What a submission of a single file is called in its work folder: the first file that the entry names.

        `python main.py` names main.py, and `./convert` convert; an option, a module and a program of the system are
        no files.
        """
        first, *rest = self.entry
        if first.startswith("./"):
            return first.removeprefix("./")
        return next((w for w in rest if "." in w and " " not in w and not w.startswith(("-", "/", "{", "."))), None)


MAX_SECONDS = 60.0  # seconds
MAX_WEIGHT_RATIO = 100.0  # the largest weight over the smallest
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
            if not group.original_checkpoint:
                found += _group(problem, checkpoint, group)
            elif not group.cases:
                place = f"{checkpoint.name}/{group.name}"
                found.append(f"{place}: imported without a case: exclude the group, or fewer of its cases")
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
    yield from _uneven_weights(name, {f"group {group.name}": group.weight for group in checkpoint.groups})


def _group(problem: Problem, checkpoint: Checkpoint, group: CaseGroup) -> Iterator[str]:
    place = f"{checkpoint.name}/{group.name}"
    if not group.cases:
        yield f"{place}: no cases: write some to {group.name}/cases.yaml beside the checkpoint's file, or take it out"
    folded: dict[str, list[str]] = {}
    for case in group.cases:
        folded.setdefault(case.id.casefold(), []).append(case.id)
    for ids in folded.values():  # some file systems do not tell them apart
        if len(ids) > 1:
            yield f"{place}: cases {', '.join(ids)} differ only in upper and lower case: rename all but one"
    slow = [case for case in group.cases if case.seconds > MAX_SECONDS]
    if slow:
        longest, more = max(case.seconds for case in slow), f" and {len(slow) - 3} more" if len(slow) > 3 else ""
        names = f"{pluralize(len(slow), 'case')} {', '.join(case.id for case in slow[:3])}{more}"
        yield f"{place}: {names} may take {longest:g} s: a program that hangs takes as long; lower the timeout"
    assets = {asset.name for asset in problem.assets}
    for case in group.cases:
        here = f"{place}/{case.id}"
        if not case.checks and "verifier.py" not in problem.code:
            yield f"{here}: nothing is verified: name what it is to show in `expected`"
        yield from _uneven_weights(here, {check.attribute: check.weight for check in case.checks})
        for file in case.files:
            if file.name in assets:
                yield f"{here}: file {file.name} takes the place of the static asset {file.name}: rename one of them"


def _uneven_weights(place: str, weights: dict[str, float]) -> Iterator[str]:
    if not weights:
        return
    low, high = min(weights, key=weights.__getitem__), max(weights, key=weights.__getitem__)
    # far from zero: loading has refused weights that are not positive
    if weights[high] > MAX_WEIGHT_RATIO * weights[low]:
        both = f"{high} weighs {weights[high]:g} and {low} {weights[low]:g}"
        yield f"{place}: {both}: the lighter one hardly counts; bring them closer"


def _assets(problem: Problem) -> Iterator[str]:
    """Assets in the place of the program, with answers in them, or that no specification mentions."""
    specified = "\n".join(checkpoint.specification for checkpoint in problem.checkpoints)
    unmentioned = []
    for asset in problem.assets:
        path = PurePosixPath(asset.name)
        if asset.name == problem.main_file:
            yield f"static asset {asset.name} takes the place of every submission's own {asset.name}: rename it"
        elif path.name in _ANSWERS:
            yield f"static asset {asset.name} gives expected answers to the programs: leave it out of static_assets"
        elif path.parts[0] not in specified and path.name not in specified:
            unmentioned.append(path.parts[0])
    for name in dict.fromkeys(unmentioned) if specified.strip() else ():
        yield f"static asset {name}: no specification names it, so no submission can know of it: say what it is"


def _secrets(problem: Problem) -> Iterator[str]:
    """Names in an environment that look like secrets, each with the checkpoints and cases that set it."""
    found: dict[str, dict[str, None]] = {}
    own = [(c.name, group) for c in problem.checkpoints for group in c.groups if group.original_checkpoint is None]
    for checkpoint, group in own:
        environments = [(checkpoint, group.env)]
        environments += [(f"{checkpoint}/{group.name}/{case.id}", case.env) for case in group.cases]
        for place, env in environments:
            for name in filter(_SECRET.search, env):
                found.setdefault(name, {})[place] = None
    for name, places in found.items():
        yield f"{', '.join(places)}: env {name} looks like a secret, and every program can read it: take it out"
