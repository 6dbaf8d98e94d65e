"""Options of every verb that calls models: rate limits, retries, budgets, prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")
_COUNT = click.IntRange(min=1)
_ABOVE = click.FloatRange(min=0, min_open=True)

_OPTIONS = (
    click.option("--concurrency", type=_COUNT, help="Calls at the same time, to each model."),
    click.option("--requests-per-second", type=_ABOVE, help="At most, to each model."),
    click.option("--tokens-per-minute", type=_ABOVE, help="At most, to each model."),
    click.option("--timeout", type=_ABOVE, default=600.0, show_default=True, help="Seconds a call may take."),
    click.option("--retries", type=click.IntRange(min=0), default=6, show_default=True, help="Of a call that failed."),
    click.option("--retry-errors", is_flag=True, help="Ask again what failed in an earlier start."),
    click.option("--max-cost", type=_ABOVE, help="Stop when so many dollars are spent."),
    click.option("--max-tokens-total", type=_COUNT, help="Stop when so many tokens are used."),
    click.option("--max-time", type=_ABOVE, help="Stop after so many seconds."),
    click.option("--cache", is_flag=True, help="Share replies of deterministic requests across runs."),
    click.option("--prices", type=click.Path(path_type=Path), help="A YAML file of prices."),
)


LIMITS = (
    "concurrency",
    "requests_per_second",
    "tokens_per_minute",
    "timeout",
    "retries",
    "max_cost",
    "max_tokens_total",
    "max_time",
)  # those of them that are kofn.generate.limits.Limits


def asking_options(command: F) -> F:
    """Add them, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
