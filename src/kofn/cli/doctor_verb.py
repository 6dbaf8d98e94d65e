"""`kofn doctor`: prints what this machine can run."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from kofn.cli.colors import style
from kofn.cli.doctor import examine
from kofn.core.escape import escape_controls

if TYPE_CHECKING:
    from kofn.cli.doctor import Row

MARKS = {True: ("✓", "good"), False: ("✗", "bad"), None: ("·", "dim")}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def command(as_json: bool) -> None:
    """What this machine can run: backends, extras, keys (whether they are set, never more), hardware, programs.

    The exit code is 0 whatever is missing: nothing of it is needed by everybody.
    """
    rows = examine()
    if as_json:
        import orjson

        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    width = max(len(row.name) for row in rows)
    for section, members in groupby(rows, lambda row: row.section):
        click.echo(style(section, "strong"))
        for row in members:
            click.echo(_line(row, width))


def _line(row: Row, width: int) -> str:
    mark, role = MARKS[row.ready]
    install = f"  {style('→ ' + row.install, 'dim')}" if row.install else ""
    return f"  {style(mark, role)} {row.name.ljust(width)}  {escape_controls(row.found)}{install}"
