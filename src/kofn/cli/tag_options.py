"""Option `--tag` of the verbs that write a run."""

from __future__ import annotations

from typing import Any

import click

from kofn import scoring


def _checked(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001
    if not given:
        return ()

    return tuple(scoring.validate_tags(given))


_WORDS: dict[str, Any] = {"multiple": True, "metavar": "WORD", "callback": _checked}
tag_option = click.option("--tag", "tags", **_WORDS, help="A word to find the run by, in `kofn view`; repeatable.")
