"""Options of verbs that read files: what their fields mean, which importer reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kofn import importers
from kofn.core.fields import parse_field_options

if TYPE_CHECKING:
    from collections.abc import Mapping


def where_of(given: tuple[str, ...]) -> dict[str, str]:
    """--where FIELD=VALUE, each field once.

    >>> where_of(("provider=openai:gpt-5",))
    {'provider': 'openai:gpt-5'}
    """
    out: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise click.UsageError(f"--where {text!r}: expected FIELD=VALUE")
        if name in out:
            raise click.UsageError(f"--where {name} is given twice: {out[name]} and {value}")
        out[name] = value
    return out


def reading_of(
    field_options: tuple[str, ...], format_name: str | None, where: Mapping[str, str], *, everything: bool
) -> importers.ReadOptions:
    """The options of a reader."""
    fields = parse_field_options(field_options)
    return importers.ReadOptions(fields=fields, format=format_name, where=where, everything=everything)
