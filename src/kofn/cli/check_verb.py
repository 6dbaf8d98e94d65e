"""`kofn check RUN`: requirements on a run, with an exit code for CI, JUnit XML and a step summary."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import api
from kofn.api.options import CheckKeywords
from kofn.cli.verb_options import api_options, output_options

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget


@click.command("check")
@click.argument("run", type=click.Path(path_type=Path))
@api_options(CheckKeywords)
@output_options()
def command(run: Path, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Check a run against requirements: exit 0 when all are met, 1 when one is not.

    RUN is a directory of `kofn score --out` or of an evaluation of programs, or a file of outputs to score first.
    """
    report = api.check(run, **asked)
    try:
        output.show(report)
    except BrokenPipeError:  # whoever closed the pipe early must not change the exit code of a check
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0 if report.passed else 1)  # click would return the code to `main` instead, which is about errors
