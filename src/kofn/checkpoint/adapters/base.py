"""What an adapter observes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.work import Ended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.checkpoint.box import Box
    from kofn.checkpoint.work import Job, Limits

FILES, HEADERS = "files/", "headers/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one case showed: attributes by name (bytes, a number, text, None where there is none), and how it ended.

    `log` is what a server wrote while the case ran.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    ended: Ended = field(default_factory=Ended)
    log: bytes | None = None


def tracked(box: Box, job: Job, limits: Limits) -> dict[str, Any]:
    """The files that a case looks at, as the program left them."""
    names = {c.attribute for c in job.checks if c.attribute.startswith(FILES)}
    return {name: box.folder.read(name.removeprefix(FILES), limits.output) for name in sorted(names)}
