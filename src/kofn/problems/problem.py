"""`Problem`: the checkpoints of a problem in order, with their groups and cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kofn.errors import UnknownName
from kofn.sandbox.program import ProgramLimits
from kofn.scoring.policy import GroupType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kofn.problems.case import ProblemCase
    from kofn.sandbox.work_folder import File

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
