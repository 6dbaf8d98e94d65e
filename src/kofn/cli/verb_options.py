"""What verbs share: the options of `kofn.api.options` as theirs, and where their output goes and in which form."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kofn import runs
from kofn.api.options import COMMON, GRADING, GROUPS, OTHER, OUTPUT, RUN, OptionError, options_of
from kofn.core.escape import escape_controls, escape_prose, markdown_table
from kofn.core.fields import parse_field_options
from kofn.errors import InputError, WorldError
from kofn.scoring.configuration import validate_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.api.options import Keyword
    from kofn.core.document import Displayable
    from kofn.integrations.sinks import SinkAddress


PATH = click.Path(path_type=Path)


class VerbOption(click.Option):
    """An option under a heading of its verb's help. `also` are further names, which are accepted and not shown."""

    def __init__(
        self, *args: Any, group: str = OTHER, common: bool = False, also: Sequence[str] = (), **settings: Any
    ) -> None:
        self.group, self.common, self.also = group, common, tuple(also)
        super().__init__(*args, **settings)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser know all names; help and completion read the others."""
        shown, self.opts = self.opts, [*self.opts, *self.also]
        super().add_to_parser(parser, ctx)
        self.opts = shown

    def get_help_extra(self, ctx: click.Context) -> Any:  # noqa: ARG002 - click's signature
        """Nothing after the text, which names the default itself; bounds are told by whoever breaks them."""
        return {}


def verb_option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.option` with `group`, `common` and `also`, as `VerbOption` has them."""
    return click.option(*names, cls=VerbOption, **settings)


MANY = 20  # options, from which on the common ones stand first


class VerbCommand(click.Command):
    """A verb whose help shows its options under headings, in one column, the common ones first where there are many."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option is answered with names that help shows."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            shown = [name for param in self.params for name in param.opts if name.startswith("--")]
            raise click.NoSuchOption(problem.option_name, possibilities=shown, ctx=ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, in the order of GROUPS."""
        shown = [p for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.hidden]
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in GROUPS}
        for param in shown:
            first = len(shown) > MANY and getattr(param, "common", False)
            record = param.get_help_record(ctx)
            assert record is not None
            sections[COMMON if first else getattr(param, "group", OTHER)].append((record[0], record[1].rstrip(".")))
        width = max(len(names) for records in sections.values() for names, _ in records)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl([(names.ljust(width), text) for names, text in records], col_max=width)


def api_options(kind: type) -> Callable[[Any], Any]:
    """Give a verb the options of a class of `kofn.api.options`; it gets those that were given as `asked`.

    Options that do not go together are a mistake in the command.
    """
    known = {name: option for name, option in options_of(kind).items() if option is not None}

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
    settings: dict[str, Any] = {"help": option.help, "group": option.group, "common": option.common}
    settings["also"] = tuple(f"--{one.replace('_', '-')}" for one in option.also)
    if option.kind is bool:
        if option.either:
            return verb_option(f"{flag}/--no-{flag[2:]}", name, default=None, **settings)
        return verb_option(flag, name, is_flag=True, **settings)
    settings |= {"metavar": option.metavar, "required": option.required}
    if option.many or option.pairs:
        settings["multiple"] = True
    if option.pairs or name == "tag":
        settings["callback"] = partial(_parsed, option)
    if option.default is not None:
        settings["default"] = option.default
        shown = option.default if isinstance(option.default, str) else f"{option.default:g}"
        settings["help"] = f"{option.help} (default: {shown})"
    if option.env is not None:
        settings |= {"envvar": option.env, "help": f"{option.help} (default: ${option.env})"}
    names = [flag, *([option.short] if option.short else []), name]
    return verb_option(*names, type=_click_type(option), **settings)


def _click_type(option: Keyword) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    if option.kind is Path:
        return click.Path(path_type=Path, dir_okay=option.metavar != "FILE")
    if option.least is None and option.most is None:
        return option.kind
    if option.kind is int:
        return click.IntRange(min=None if option.low is None else int(option.low))
    return click.FloatRange(
        option.least, option.most, min_open=option.above is not None, max_open=option.below is not None
    )


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


strict_option = verb_option(
    "--strict", is_flag=True, group=GRADING, help="Exit with 1 where one judge or score picks and grades"
)
_CHECKLIST = "kofn.checklist"


def _keep_checklist(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_CHECKLIST] = value


checklist_option = verb_option(
    "--checklist",
    is_flag=True,
    expose_value=False,
    callback=_keep_checklist,
    group=OUTPUT,
    help="Show the whole checklist instead of one line",
)


def checklist_layout() -> dict[str, bool]:
    """Whether a text shows the whole checklist, as keywords of it; nothing for verbs without the option."""
    meta = click.get_current_context().meta
    return {"checklist": bool(meta[_CHECKLIST])} if _CHECKLIST in meta else {}


sink_option = verb_option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="SINK",
    group=RUN,
    help="Also send the run: mlflow:URI, wandb:[ENTITY/]PROJECT (repeatable)",
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


FORMATS = ("table", "json", "csv", "markdown")
_BY_ENDING = {
    ".html": "html",
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".tex": "latex",
}
_RUN_FILES = ("run.json", "candidates.parquet", "cases.parquet", "evaluation.json", "reports.parquet", "results.jsonl")
_SHORT_HELP = {
    "json": "Print JSON",
    "csv": "Print CSV",
    "markdown": "Print Markdown",
    "latex": "Print a LaTeX table (booktabs)",
}
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


class OutputTarget:
    """The form and the place that were asked for. `page` is where an HTML page goes as well.

    `named` says whether there is a place, be it standard output; `what` is what is written, in words.
    """

    def __init__(self, form: str, path: Path | None, page: Path | None = None) -> None:
        self.form = form
        self.what = "output"
        self.named = path is not None
        self.path = None if path is None or str(path) == "-" else path
        self.page = page
        for place in (self.path, page):
            if place is not None:
                _check_place(place)

    def refuse(self, why: str) -> None:
        """Refuse a form or a place that was asked for, where nothing is written in it."""
        if self.form != "table" or self.named:
            raise click.UsageError(f"{why}: leave out --output-format, --json and -o")

    def show(self, found: Displayable, *, width: tuple[int, int] | None = None, **layout: Any) -> None:
        """Print or write a result. `width` is the least and the most that its text takes on a terminal."""
        if self.form == "table":
            if width is not None and self.path is None and sys.stdout.isatty():
                least, most = width
                layout["width"] = max(least, min(most, shutil.get_terminal_size((most, 24)).columns))
            # what a verb shows may be without one, such as a preference between two systems
            checked = checklist_layout() if hasattr(found, "checklist") or hasattr(found, "manifest") else {}
            self.write(found.to_text(style, **layout, **checked))
        elif self.form == "json":
            self.write(found.to_dict())
        elif self.form == "csv":
            self.write(csv_text(found.rows()))
        else:
            self.write(found.to_markdown())

    def write(self, content: str | bytes | dict[str, Any] | list[Any]) -> None:
        """Print text, or plain data as JSON; into the file whole or not at all, where one was named."""
        if isinstance(content, (dict, list)):
            content = runs.to_json(content)
        text = content.decode() if isinstance(content, bytes) else content
        text = text if text.endswith("\n") or self.form == "html" else f"{text}\n"
        if self.path is not None:
            write_file(self.path, click.unstyle(text) if self.form == "table" else text, self.what)
        elif self.form == "table":
            click.echo(text, nl=False)
        elif not sys.stdout.isatty():  # as bytes, from which click takes no colour away
            click.echo(text.encode(), nl=False)
        else:  # without the characters that move a cursor
            click.echo("\n".join(escape_controls(line) for line in text.split("\n")), nl=False)

    def show_rows(self, rows: Sequence[dict[str, Any]], data: Any, text: str, *, names: Sequence[str] = ()) -> None:
        """The same for what is no result: its rows, its data as JSON, its text; `names` are columns without rows."""
        if self.form == "json":
            self.write(runs.to_json(data))
        elif self.form == "csv":
            self.write(csv_text(rows, names))
        elif self.form == "markdown":
            columns = columns_of(rows, names)
            cells = [[escape_prose(_cell(row.get(name))) for name in columns] for row in rows]
            self.write("\n".join(markdown_table(columns, [False] * len(columns), cells)))
        else:
            self.write(text)

    def write_page(self, page: Callable[[], str]) -> None:
        """Write the page where one was asked for."""
        if self.page is not None:
            write_file(self.page, page(), "page")


def write_file(path: Path, text: str, what: str, *, own: bool = False) -> None:
    """A file, whole or not at all; that it was there already is told, but of a run's `own` page."""
    _check_place(path)
    replaced = ", over the file that was there" if path.exists() and not own else ""
    data = text.encode()
    try:
        runs.write_atomically(path, lambda partial: partial.write_bytes(data))
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    click.echo(f"{what} written to {escape_controls(str(path))}{replaced}", err=True)


def _check_place(path: Path) -> None:
    """A mistake in the name of a file is told before any work."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise InputError(f"{path}: {what}: give the name of a file to write")
    if path.name in _RUN_FILES and any((path.parent / name).is_file() for name in ("run.json", "evaluation.json")):
        raise InputError(f"{path}: holds the run itself: give another name")
    runs.check_writable(path)


def columns_of(rows: Sequence[dict[str, Any]], names: Sequence[str] = ()) -> list[str]:
    """The columns of rows in the order in which they first occur."""
    return list(dict.fromkeys([*names, *(name for row in rows for name in row)]))


def _cell(value: Any) -> str:
    """A value as a cell: numbers in full, nothing for None, true and false, lists and mappings as JSON."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return " ".join(runs.to_json(value).decode().split())


def csv_text(rows: Sequence[dict[str, Any]], names: Sequence[str] = ()) -> str:
    """Rows as CSV: numbers in full, nothing for None, lists and mappings as JSON.

    >>> print(csv_text([{"name": "=a", "point": 0.5, "n": None, "passed": True}]), end="")
    name,point,n,passed
    '=a,0.5,,true
    """
    from kofn.judge.label_sheet import guard_formula  # numpy: only where CSV is written

    columns = columns_of(rows, names)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(guard_formula, columns))
    for row in rows:
        cells = [row.get(name) for name in columns]
        writer.writerow([guard_formula(cell) if isinstance(cell, str) else _cell(cell) for cell in cells])
    return out.getvalue()


def output_options(*more: str, short: Sequence[str] = ("json",), page: bool = False) -> Callable[[Any], Any]:
    """Give a verb `--output-format`, `-o` and the short forms named; it gets an `OutputTarget` as `output`.

    `more` are formats of this verb alone. With `page` there is `--html FILE` too, and `-o FILE.html` means the same.
    """

    def decorate(verb: Any) -> Any:
        @wraps(verb)
        def wrapped(output_format: str | None, output: Path | None, **values: Any) -> Any:
            html = values.pop("html") if page else None
            flags = [name for name in short if values.pop(f"as_{name}")]
            given = [f"--{name}" for name in flags]
            given += [f"--output-format {output_format}"] if output_format and output_format not in flags else []
            if len(given) > 1:
                raise click.UsageError(f"{', '.join(given[:-1])} and {given[-1]} are forms of one output: give one")
            form = output_format or (flags[0] if flags else None)
            ending = "" if output is None else output.suffix.lower()
            if page and ending == ".html" and form is None:
                output, html = None, output
            known = _BY_ENDING.get(ending, "table")
            form = form or (known if known in (*FORMATS, *more) else "table")
            return verb(output=OutputTarget(form, output, html), **values)

        options = [
            verb_option("--output-format", type=click.Choice([*FORMATS, *more]), metavar="FORM", group=OUTPUT,
                        help=f"{', '.join([*FORMATS, *more])} (default: by the ending of FILE)"),
            verb_option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", group=OUTPUT,
                        help="Write the output to FILE; - is standard output"),
            *(verb_option(f"--{name}", f"as_{name}", is_flag=True, group=OUTPUT, common=name == "json",
                          help=_SHORT_HELP[name]) for name in short),
        ]  # fmt: skip
        if page:
            kind = click.Path(path_type=Path, dir_okay=False)
            options.append(verb_option("--html", type=kind, metavar="FILE", group=OUTPUT, help="Also write a page"))
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def leave_if_dipping(found: Any, strict: bool) -> None:
    """Exit code 1, with the reason, where --strict was given and the same judge picks and grades."""
    dipping = () if found is None else found.double_dipping
    if strict and dipping:
        if not isinstance(dipping, bool):
            click.echo(f"kofn: --strict: {escape_controls(str(dipping[0]))}", err=True)
        sys.exit(1)  # click would return the code to `main` instead, which is about errors


def tell(text: str) -> None:
    """A note beside the output."""
    click.echo(escape_controls(text), err=True)


def tell_run(directory: Path) -> None:
    """Say where a run was written."""
    place, page = escape_controls(str(directory)), escape_controls(str(directory / "report.html"))
    click.echo(f"run written to {place}; open {page}", err=True)
