"""What verbs that read files are told about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.importers.rows import ReadOptions


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
) -> ReadOptions:
    """The options of a reader."""
    from kofn.fields import parse_field_options
    from kofn.importers.rows import ReadOptions

    fields = parse_field_options(field_options)
    return ReadOptions(fields=fields, format=format_name, where=where, everything=everything)
