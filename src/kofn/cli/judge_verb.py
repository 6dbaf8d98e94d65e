"""`kofn judge RUN|FILE`: lets a model grade outputs, as a new metric or selector."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from kofn import api, runs
from kofn.api.options import JudgeKeywords
from kofn.cli.verb_options import api_options, leave_if_dipping, output_options, strict_option, style, tell_run
from kofn.core.escape import escape_controls
from kofn.errors import WorldError
from kofn.judge import first_questions, judge_facts, judge_prompt, load_rubric
from kofn.judge.pairwise import Preference

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget
    from kofn.runs.record import Run


@click.command("judge")
@click.argument("source", metavar="RUN|FILE", type=click.Path(path_type=Path))
@api_options(JudgeKeywords)
@click.option("--dry-run", is_flag=True, help="Print the first prompts exactly as sent, and stop.")
@strict_option
@output_options()
def command(source: Path, dry_run: bool, strict: bool, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Let a model grade outputs that are there: one metric more, and nothing is generated again.

    A RUN is judged in place; a FILE (as in kofn score) becomes a new run directory. A reply that holds no verdict is
    not graded after one repair, never 0. The same command again asks only for what is new. With --against two systems
    are compared pair by pair, in both orders.
    """
    if dry_run:
        _show_prompts(source, asked)
        return
    found = api.judge(source, **asked, progress=True)
    if isinstance(found, Preference):
        output.show(found)
        _check_any(found.judge, f"{source} against {asked['against']}")
        return
    name = asked.get("name") or load_rubric(asked["rubric"]).name
    _show(found, name, output)
    _leave(found, name, strict)


def _show_prompts(source: Path, asked: Any) -> None:
    """What a judge would be sent for the first candidates."""
    wanted = load_rubric(asked["rubric"])
    options = api.judging.judge_options(asked)
    for question in first_questions(runs.load_graded(source, options, fields=asked.get("field")), wanted)[:2]:
        click.echo(click.style(escape_controls(f"--- case {question.case_id}"), bold=True))
        for message in judge_prompt(question, wanted):
            click.echo("\n".join(escape_controls(line) for line in f"[{message.role}]\n{message.content}".split("\n")))


def _show(run: Run, name: str, output: OutputTarget) -> None:
    result = run.scored_result
    if output.form == "json":
        output.write({**run.to_dict(), "judge": result.judges[name]})
        return
    if output.form != "table":
        output.show(run)
        return
    facts = judge_facts(name, result.judges)
    width = max(len(label) for label, _ in facts)
    lines = [result.to_text(style), ""]
    for label, value in facts:
        wrapped = wrap(escape_controls(value), 108 - width, break_long_words=False) or [""]
        lines.append(f"{escape_controls(label).ljust(width)}  " + f"\n{' ' * (width + 2)}".join(wrapped))
    output.write("\n".join(lines))


def _leave(run: Run, name: str, strict: bool) -> None:
    """Say where it is, and end as the outcome asks for."""
    where = run.path or Path(run.name)
    tell_run(where)
    entry = run.scored_result.judges[name]
    if entry["stopped"]:
        raise WorldError(f"{where}: stopped: {entry['stopped']}; run the same command again to go on")
    _check_any(entry, str(where))
    leave_if_dipping(run.scored_result, strict)


def _check_any(entry: Any, where: str) -> None:
    """A judge that gave no verdict at all is a failure of the world."""
    if entry["n_verdicts"] and entry["n_failed"] == entry["n_verdicts"]:
        raise WorldError(f"{where}: every call to the judge failed: {entry['error']}; --retry-errors asks again")
    if entry["n_verdicts"] and entry["n_unread"] + entry["n_failed"] == entry["n_verdicts"]:
        raise WorldError(
            f"{where}: no reply of the judge holds a verdict: look at one in verdicts.parquet; --choose needs no reply"
        )
