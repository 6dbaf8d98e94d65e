"""The command line. A verb's module is imported when that verb is called, so `kofn --help` stays cheap."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from kofn.core.escape import escape_controls
from kofn.errors import KofnError, UnknownName

VERBS = {
    "run": "Run a task on a model: generate, score, report.",
    "score": "Score outputs you already have, in files and logs of other tools.",
    "verify": "Run programs against the cases of a problem, in a sandbox.",
    "judge": "Let a model grade the outputs of a run or a file.",
    "new": "Start a problem of your own: a folder that passes.",
    "view": "Look at runs in a browser.",
    "report": "Show a run again: in the terminal, as HTML, CSV, JSON or markdown.",
    "export": "Write candidates and grades for other tools: JSON lines, Parquet, CSV, records.",
    "check": "Decide about a run: exit code 0 or 1 for CI.",
    "calibrate": "A judge against people: its errors, and rates corrected for them.",
    "compare": "Compare runs, files, extractors, metrics or selectors case by case.",
    "extract-audit": "Compare extractors on the same outputs, a model among them.",
    "curve": "Best of n: what each further candidate adds and costs, and the n to choose.",
    "plan": "How many cases, repeats and labels a question needs, and the cheapest mix.",
    "trend": "Runs of a task over time: what changed, and what is noise.",
    "list": "List tasks, models, aggregators, extractors and metrics.",
    "explain": "What a warning means, why it matters and what to do, by its code.",
    "describe": "What a task asks, of which data, and how it is graded.",
    "doctor": "What this machine can run: backends, extras, keys, hardware.",
}


# verbs that share a module; each of the others has one of its own, NAME_verb
_TOGETHER = {
    **dict.fromkeys(("check", "compare", "curve", "extract-audit", "plan", "trend"), "analysis_verbs"),
    **dict.fromkeys(("list", "describe", "explain"), "catalog_verbs"),
    **dict.fromkeys(("judge", "calibrate"), "judge_verbs"),
    **dict.fromkeys(("verify", "new"), "problem_verbs"),
}


class _Verbs(click.Group):
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
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="kofn", message="kofn %(version)s")
def kofn() -> None:
    """Evaluate every output, not just the first.

    kofn takes all n outputs a language-model system gave for every input, scores each, combines them the way the
    product uses them, and reports numbers with intervals.
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
        code = kofn(standalone_mode=False)
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
    click.echo(f"kofn: {escape_controls(message)}", err=True)
    sys.exit(code)
