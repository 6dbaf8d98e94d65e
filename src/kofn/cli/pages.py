"""A page written where somebody asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path


def write_page(text: str, path: Path) -> None:
    """The page, whole or not at all."""
    from kofn.errors import WorldError
    from kofn.present import safe
    from kofn.report.files import atomic

    data = text.encode()
    try:
        atomic(path, lambda partial: partial.write_bytes(data))
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    click.echo(f"page written to {safe(str(path))}", err=True)
