"""The options of `kofn.api.options` as options of verbs, and those that the command line has alone."""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kofn import runs
from kofn.api.options import OptionError, options_of
from kofn.core.escape import escape_controls
from kofn.core.fields import parse_field_options
from kofn.errors import WorldError
from kofn.scoring.configuration import validate_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.api.options import Keyword
    from kofn.integrations.sinks import SinkAddress


def api_options(kind: type, *, without: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Give a verb the options of a class of `kofn.api.options`; it gets those that were given as `asked`.

    Options that do not go together are a mistake in the command.
    """
    known = {name: option for name, option in options_of(kind).items() if option is not None and name not in without}

    def decorate(verb: Any) -> Any:
        @wraps(verb)
        def wrapped(**values: Any) -> Any:
            context = click.get_current_context()
            given = {name: values.pop(name) for name in known}
            sources = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
            asked = {name: value for name, value in given.items() if context.get_parameter_source(name) in sources}
            try:
                return verb(asked=asked, **values)
            except OptionError as problem:
                raise click.UsageError(problem.for_terminal) from None

        for name, option in reversed(known.items()):
            wrapped = _click_option(name, option)(wrapped)
        return wrapped

    return decorate


def _click_option(name: str, option: Keyword) -> Callable[[Any], Any]:
    flag = f"--{name.replace('_', '-')}"
    settings: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "required": option.required}
    if option.kind is bool:
        if option.either:
            return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=option.help)
        return click.option(flag, name, is_flag=True, help=option.help)
    if option.many or option.pairs:
        settings["multiple"] = True
    if option.pairs or name == "tag":
        settings["callback"] = partial(_parsed, option)
    if option.default is not None:
        settings |= {"default": option.default, "show_default": True}
    if option.env is not None:
        settings |= {"envvar": option.env, "show_envvar": True}
    names = [flag, *([option.short] if option.short else []), name]
    return click.option(*names, type=_click_type(option), **settings)


def _click_type(option: Keyword) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    if option.kind is Path:
        return click.Path(path_type=Path, dir_okay=option.metavar != "FILE")
    if option.low is None and option.high is None:
        return option.kind
    if option.kind is int:
        return click.IntRange(min=None if option.low is None else int(option.low))
    return click.FloatRange(option.low, option.high, min_open=option.above, max_open=option.below)


def _parsed(option: Keyword, context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Any:  # noqa: ARG001
    """NAME=VALUE as a mapping; tags as they are stored."""
    if not option.pairs:
        return tuple(validate_tags(given)) if given else ()
    if parameter.name == "field":
        return parse_field_options(given)
    return parse_pairs(parameter.opts[0], option.metavar or "NAME=VALUE", given)


def parse_pairs(flag: str, form: str, given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each name once. What is left of the last sign is a group's or metric's name, which may hold one.

    >>> parse_pairs("--where", "FIELD=VALUE", ["provider=openai:gpt-5"])
    {'provider': 'openai:gpt-5'}
    """
    out: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=") if flag == "--where" else text.rpartition("=")
        if not (name and sign) or (flag != "--where" and not value):
            raise click.UsageError(f"{flag} {text!r}: expected {form}")
        if name in out:
            raise click.UsageError(f"{flag} {name} is given twice: {out[name]} and {value}")
        out[name] = value
    return out


strict_option = click.option(
    "--strict", is_flag=True, help="Exit code 1 where the same judge or score picks and grades."
)
sink_option = click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="SINK",
    help="Also send the run: mlflow:URI, wandb:PROJECT, wandb:ENTITY/PROJECT; repeatable.",
)


def parse_sinks(sinks: Sequence[str]) -> list[SinkAddress]:
    """The sinks that were asked for. A mistake in one, or a package that is not there, is told before any work."""
    if not sinks:
        return []
    from kofn.integrations.sinks import SinkAddress

    found = [SinkAddress.parse(text) for text in sinks]
    for one in found:
        one.check()
    return found


def send_to(sinks: Sequence[SinkAddress], directory: Path) -> None:
    """Send a run directory to each. One that fails does not keep it from the others; at the end that is exit code 3."""
    if not sinks:
        return
    from kofn.integrations.sinks import send_run

    run, failed = runs.load_run(directory), []
    for sink in sinks:
        try:
            click.echo(escape_controls(send_run(run, sink)), err=True)
        except WorldError as problem:
            failed.append(str(problem))
    if failed:
        raise WorldError("; ".join(failed))
