"""The command line. A verb's module is imported when that verb is called, so `kofn --help` stays cheap."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from kofn.errors import KofnError, UnknownName

SECTIONS = {
    "Evaluate": {
        "run": "Run a task on a model: generate, score, report",
        "score": "Score outputs you already have, in files of any tool",
        "judge": "Let a model grade the outputs of a run or a file",
        "verify": "Run programs against the cases of a problem, in a sandbox",
    },
    "Inspect": {
        "view": "Browse runs in a browser",
        "report": "Show a stored run, as text, HTML, CSV, JSON or Markdown",
        "export": "Write candidates and grades as files for other tools",
    },
    "Compare and decide": {
        "check": "Check a run against requirements: exit code 0 or 1 for CI",
        "compare": "Compare runs, extractors, metrics or selectors by case",
        "trend": "Follow the runs of a task over time",
        "curve": "Show what each further candidate adds and costs (best of n)",
        "plan": "Plan how many cases, repeats and labels a question needs",
    },
    "Validate graders": {
        "calibrate": "Measure a judge against people, and correct its rates",
        "extract-audit": "Compare extractors on the same outputs",
    },
    "Set up": {
        "new": "Start a task, rubric, problem or CI workflow of your own",
        "list": "List tasks, models, aggregators, extractors and metrics",
        "describe": "Describe a task: what it asks, its data, its grading",
        "explain": "Explain a warning by its code",
        "doctor": "Show what this machine can run",
        "completion": "Print a completion script for bash, zsh or fish",
    },
}
VERBS = {verb: text for verbs in SECTIONS.values() for verb, text in verbs.items()}


# verbs that share a module; each of the others has one of its own, NAME_verb
_TOGETHER = {
    **dict.fromkeys(("check", "compare", "curve", "extract-audit", "plan", "trend"), "analysis_verbs"),
    **dict.fromkeys(("list", "describe", "explain"), "catalog_verbs"),
    **dict.fromkeys(("judge", "calibrate"), "judge_verbs"),
}


class _Verbs(click.Group):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs first."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in VERBS:
            return None
        from importlib import import_module

        module = import_module(f"kofn.cli.{_TOGETHER.get(cmd_name, f'{cmd_name}_verb')}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(str(UnknownName("verb", args[0], list(VERBS))))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        width = max(map(len, VERBS))
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=_Verbs, context_settings=_SETTINGS, no_args_is_help=True)
@click.version_option(package_name="kofn", message="kofn %(version)s")
def kofn() -> None:
    """Evaluate every output, not just the first.

    kofn takes all n outputs a language-model system gave for every input, scores each, combines them the way the
    product uses them, and reports numbers with intervals.

    `kofn VERB --help` shows the options of a verb.
    """


_TERMINATED: list[int] = []


def _on_term(number: int, frame: Any) -> None:  # noqa: ARG001 - the signature of handlers
    """End as Ctrl-C does, so that what was answered is stored and told. A shell may have Ctrl-C ignored."""
    _TERMINATED.append(number)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def main() -> None:
    """Run, and turn what goes wrong into one line and an exit code.

    2 the input, 3 the world, 130 Ctrl-C, 143 SIGTERM: after 3, 130 and 143 the same command goes on where it was.
    """
    output = sys.stdout
    signal.signal(signal.SIGTERM, _on_term)
    try:
        code = kofn(standalone_mode=False, prog_name="kofn", complete_var="_KOFN_COMPLETE")
        sys.stdout.flush()
        if isinstance(code, int):  # what a verb gave to ctx.exit
            sys.exit(code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as help_of:
        click.echo(help_of.format_message())
        sys.exit(0)
    except click.ClickException as problem:
        where = f" ({problem.ctx.command_path} --help)" if isinstance(problem, click.UsageError) and problem.ctx else ""
        _stop(f"{problem.format_message()}{where}", problem.exit_code)
    except SystemExit as done:
        # click leaves with 1, and another stdout, when the reader of the output has gone; here 1 is what a check says
        sys.exit(done.code if sys.stdout is output else 0)
    except (click.Abort, KeyboardInterrupt):
        _stop("stopped", 143 if _TERMINATED else 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush has somewhere to go
        sys.exit(0)
    except KofnError as problem:
        _stop(str(problem), problem.exit_code)
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _stop(f"{problem.filename or 'output'}: {problem.strerror}", 3)


def _stop(message: str, code: int) -> None:
    from kofn.core.escape import escape_controls  # its patterns take time that --help does not have

    click.echo(f"kofn: {escape_controls(message)}", err=True)
    sys.exit(code)
