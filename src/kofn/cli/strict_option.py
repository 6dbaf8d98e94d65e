"""Option `--strict`: exit code 1 where the judge or score that picks a candidate also grades it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kofn.core.escape import escape_controls

if TYPE_CHECKING:
    from kofn.analysis.compare.differences import ComparisonReport
    from kofn.scoring.result import Result


def leave_if_dipping(result: Result | ComparisonReport | None, strict: bool) -> None:
    """Exit code 1, with the reason, where --strict was given and the same judge picks and grades."""
    found = () if result is None else result.double_dipping
    if strict and found:
        click.echo(f"kofn: --strict: {escape_controls(str(found[0]))}", err=True)
        click.get_current_context().exit(1)
