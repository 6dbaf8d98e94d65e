"""Writes an HTML page to the path that an option names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kofn import runs
from kofn.core.escape import escape_controls
from kofn.errors import WorldError

if TYPE_CHECKING:
    from pathlib import Path


def write_page(text: str, path: Path) -> None:
    """The page, whole or not at all."""
    data = text.encode()
    try:
        runs.write_atomically(path, lambda partial: partial.write_bytes(data))
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    click.echo(f"page written to {escape_controls(str(path))}", err=True)
