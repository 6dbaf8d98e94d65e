"""`kofn new problem NAME`: creates a small problem that passes."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kofn import problems


@click.group("new", no_args_is_help=True)
def command() -> None:
    """Start something of your own: a problem to verify programs against."""


@command.command("problem", no_args_is_help=True)
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--adapter",
    type=click.Choice(["cli", "api"]),
    default="cli",
    show_default=True,
    help="What a submission is: a program that is run for every case, or a server that is asked over HTTP.",
)
def problem(name: Path, adapter: str) -> None:
    """Write a small problem to the folder NAME, with a submission that passes it.

    The files say in comments what they are; change them into a problem of your own. A folder that is there is refused.
    """
    made = problems.new_problem(name, adapter=adapter)
    for path in made:
        click.echo(str(path))
    folder, example = shlex.quote(str(name)), shlex.quote(str(name / "submissions" / "example"))
    click.echo("\na problem that its example passes; try")
    click.echo(f"  kofn verify {folder} {example}")
    click.echo(f"  kofn verify --lint {folder}")
