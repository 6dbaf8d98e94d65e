"""`kofn new task|rubric|problem|ci`: commented files that run as they are, to begin with."""

# without `from __future__ import annotations`: all that annotations name is imported anyway
import re
import shlex
from pathlib import Path

import click

from kofn.api.options import INPUT
from kofn.cli.verb_options import PATH, OutputTarget, VerbCommand, output_options, verb_option
from kofn.errors import InputError, WorldError

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = "__NAME__"


@click.group("new", no_args_is_help=True)
def new_command() -> None:
    """Start something of your own: a commented file that runs as it is."""


@new_command.command("task", cls=VerbCommand, no_args_is_help=True, short_help="Write a task, NAME.yaml")
@click.argument("name", type=PATH)
@output_options()
def task(name: Path, output: OutputTarget) -> None:
    """Write a task to NAME.yaml: a prompt, a few cases, and how answers are graded.

    It runs on the built-in model without a key. An existing file is not overwritten.
    """
    path = _write("task.yaml", name.with_suffix("") if name.suffix in (".yaml", ".yml") else name)
    file = shlex.quote(str(path))
    _show("task", path, [f"kofn run {file} --dry-run", f"kofn run {file} --limit 2", f"kofn describe {file}"], output)


@new_command.command("rubric", cls=VerbCommand, no_args_is_help=True, short_help="Write a rubric, NAME.yaml")
@click.argument("name", type=PATH)
@output_options()
def rubric(name: Path, output: OutputTarget) -> None:
    """Write a rubric to NAME.yaml: what a judge is asked, and how its verdict is read.

    An existing file is not overwritten.
    """
    path = _write("rubric.yaml", name.with_suffix("") if name.suffix in (".yaml", ".yml") else name)
    judge = f"kofn judge RUN --rubric {shlex.quote(str(path))} --model openai:NAME"
    _show("rubric", path, [f"{judge} --dry-run", judge], output)


@new_command.command("ci", cls=VerbCommand, short_help="Write a GitHub workflow")
@click.argument("path", type=PATH, default=Path(".github/workflows/kofn.yml"), required=False)
@verb_option("--task", "given", default="starter", metavar="TASK", group=INPUT,
             help="Task that the workflow runs (default: starter)")  # fmt: skip
@output_options()
def ci(path: Path, given: str, output: OutputTarget) -> None:
    """Write a GitHub workflow that runs a task and checks the result.

    PATH is .github/workflows/kofn.yml unless given. The summary is added to the job's page; requirements that are not
    met fail the job. An existing file is not overwritten.
    """
    written = _write("ci.yml", path.with_suffix(""), name=shlex.quote(given), suffix=path.suffix or ".yml")
    _show("workflow", written, [f"kofn run {shlex.quote(given)} --limit 8 --out runs/ci"], output)


@new_command.command("problem", cls=VerbCommand, no_args_is_help=True, short_help="Write a problem, a folder")
@click.argument("name", type=PATH)
@verb_option(
    "--adapter",
    type=click.Choice(["cli", "api"]),
    default="cli",
    metavar="ADAPTER",
    group=INPUT,
    help="Kind of submission: cli, a program, or api, a server (default: cli)",
)
@output_options()
def problem(name: Path, adapter: str, output: OutputTarget) -> None:
    """Write a small problem to the folder NAME, with a submission that passes it.

    Comments in the files explain them; change them into a problem of your own. An existing folder is not overwritten.
    """
    from kofn import problems

    files = [str(path) for path in problems.new_problem(name, adapter=adapter)]
    folder, example = shlex.quote(str(name)), shlex.quote(str(name / "submissions" / "example"))
    commands = [f"kofn verify {folder} {example}", f"kofn verify --lint {folder}"]
    text = [*files, "", "a problem that its example passes; try", *(f"  {one}" for one in commands)]
    data = {"problem": str(name), "files": files, "try": commands}
    output.show_rows([{"file": file} for file in files], data, "\n".join(text))


def _write(template: str, stem: Path, *, name: str = "", suffix: str = ".yaml") -> Path:
    """Write a template beside its name, which it holds; a file that exists stays."""
    if not name and not re.fullmatch(r"[\w.-]+", stem.name):
        raise InputError(f"{stem.name!r} is not a valid name: use letters, digits, _, - and .")
    path = stem.with_name(f"{stem.name}{suffix}")
    text = (_TEMPLATES / template).read_text(encoding="utf-8").replace(_NAME, name or stem.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path}: already exists: give another name") from None
    except OSError as trouble:
        raise WorldError(f"{path}: cannot be written: {trouble.strerror}") from None
    return path


def _show(kind: str, path: Path, commands: list[str], output: OutputTarget) -> None:
    """Name the file, and what to try with it."""
    text = [str(path), "", "try", *(f"  {one}" for one in commands)]
    data = {kind: path.stem, "files": [str(path)], "try": commands}
    output.show_rows([{"file": str(path)}], data, "\n".join(text))
