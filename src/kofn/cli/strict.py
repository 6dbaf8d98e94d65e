"""What --strict means: a number that is picked and graded by the same judge or score is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kofn.differences import Compared
    from kofn.evaluate import Result


def leave_if_dipping(result: Result | Compared | None, strict: bool) -> None:
    """Exit code 1, with the reason, where --strict was given and the same judge picks and grades."""
    found = () if result is None else result.double_dipping
    if strict and found:
        from kofn.present import safe

        click.echo(f"kofn: --strict: {safe(found[0])}", err=True)
        click.get_current_context().exit(1)
