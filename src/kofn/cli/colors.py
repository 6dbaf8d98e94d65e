"""Terminal colors of text by its role: header, dim, good, bad, warning."""

from __future__ import annotations

from typing import Any

import click

_LOOKS: dict[str, dict[str, Any]] = {
    "strong": {"bold": True},
    "head": {"dim": True},
    "dim": {"dim": True},
    "warn": {"fg": "yellow", "bold": True},
    "good": {"fg": "green", "bold": True},
    "bad": {"fg": "red", "bold": True},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
}


def style(text: str, role: str) -> str:
    """The text in the colour of its role; click takes it out again where the output is not a terminal."""
    return click.style(text, **_LOOKS[role])
