"""`kofn new problem NAME`: creates a small problem that passes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kofn import problems
from kofn.cli.verb_options import output_options

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget


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
@output_options()
def problem(name: Path, adapter: str, output: OutputTarget) -> None:
    """Write a small problem to the folder NAME, with a submission that passes it.

    The files say in comments what they are; change them into a problem of your own. A folder that is there is refused.
    """
    files = [str(path) for path in problems.new_problem(name, adapter=adapter)]
    folder, example = shlex.quote(str(name)), shlex.quote(str(name / "submissions" / "example"))
    commands = [f"kofn verify {folder} {example}", f"kofn verify --lint {folder}"]
    text = [*files, "", "a problem that its example passes; try", *(f"  {one}" for one in commands)]
    data = {"problem": str(name), "files": files, "try": commands}
    output.show_rows([{"file": file} for file in files], data, "\n".join(text))
