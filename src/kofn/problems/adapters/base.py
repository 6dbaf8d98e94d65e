"""What every adapter observes of a case: output, exit status, files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.sandbox.program import ProcessResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.problems.case import ProblemCase
    from kofn.sandbox.program import ProgramLimits
    from kofn.sandbox.workspace import Workspace

FILES, HEADERS = "files/", "headers/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a case showed: attributes by name (bytes, a number, text, None where there is none), and how it ended.

    `log` is what a server wrote while the case ran.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    process: ProcessResult = field(default_factory=ProcessResult)
    log: bytes | None = None


def read_files(workspace: Workspace, case: ProblemCase, limits: ProgramLimits) -> dict[str, Any]:
    """The files that a case looks at, as the program left them."""
    names = {c.attribute for c in case.checks if c.attribute.startswith(FILES)}
    return {name: workspace.folder.read(name.removeprefix(FILES), limits.output) for name in sorted(names)}
