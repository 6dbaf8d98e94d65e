"""`kofn judge` and `kofn calibrate`: a model grades outputs, and is measured against human labels."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kofn import api, runs
from kofn.api.options import OTHER, SHEET, CalibrateKeywords, JudgeKeywords
from kofn.cli.verb_options import (
    PATH,
    VerbCommand,
    api_options,
    checklist_layout,
    checklist_option,
    leave_if_dipping,
    output_options,
    strict_option,
    style,
    tell_run,
    verb_option,
)
from kofn.core.escape import escape_controls
from kofn.core.format import format_count
from kofn.errors import WorldError
from kofn.judge import (
    draw_label_sheet,
    first_questions,
    judge_facts,
    judge_prompt,
    load_rubric,
    open_verdicts,
    write_sheet,
)
from kofn.judge.judge_run import Preference

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.api.judging import JudgedRun
    from kofn.cli.verb_options import OutputTarget


@click.command("judge", cls=VerbCommand)
@click.argument("source", metavar="RUN|FILE", type=PATH)
@api_options(JudgeKeywords)
@verb_option("--dry-run", is_flag=True, group=OTHER, help="Print the first prompts exactly as sent, and stop")
@strict_option
@checklist_option
@output_options()
def judge_command(source: Path, dry_run: bool, strict: bool, output: OutputTarget, asked: dict[str, Any]) -> None:
    """Let a model grade existing outputs. The grades become one more metric.

    A RUN is judged in place; a FILE (as in kofn score) becomes a new run directory. A reply without a verdict is
    repaired once, then left ungraded, never counted as 0. The same command again requests only what is new. With
    --against two systems are compared pair by pair, in both orders.
    """
    if dry_run:
        output.refuse("--dry-run prints prompts")
        _show_prompts(source, asked)
        return
    found = api.judge(source, **asked, progress=True)
    if isinstance(found, Preference):
        output.show(found)
        _check_any(found.judge, f"{source} against {asked['against']}")
        return
    _show(found, output)
    _leave(found, strict)


def _show_prompts(source: Path, asked: Any) -> None:
    """What a judge would be sent for the first candidates."""
    wanted = load_rubric(asked["rubric"])
    options = api.judging.judge_options(asked)
    for question in first_questions(runs.load_graded(source, options, fields=asked.get("field")), wanted)[:2]:
        click.echo(click.style(escape_controls(f"--- case {question.case_id}"), bold=True))
        for message in judge_prompt(question, wanted):
            click.echo("\n".join(escape_controls(line) for line in f"[{message.role}]\n{message.content}".split("\n")))


def _show(run: JudgedRun, output: OutputTarget) -> None:
    if output.form != "table":
        output.show(run)
        return
    result = run.scored_result
    facts = judge_facts(run.metric, result.judges)
    width = max(len(label) for label, _ in facts)
    lines = [result.to_text(style, **checklist_layout()), ""]
    for label, value in facts:
        wrapped = wrap(escape_controls(value), 108 - width, break_long_words=False) or [""]
        lines.append(f"{escape_controls(label).ljust(width)}  " + f"\n{' ' * (width + 2)}".join(wrapped))
    output.write("\n".join(lines))


def _leave(run: JudgedRun, strict: bool) -> None:
    """Say where it is, and end as the outcome asks for."""
    tell_run(run.directory)
    entry = run.scored_result.judges[run.metric]
    if entry["stopped"]:
        raise WorldError(f"{run.directory}: stopped: {entry['stopped']}; run the same command again to go on")
    _check_any(entry, str(run.directory))
    leave_if_dipping(run.scored_result, strict)


def _check_any(entry: Any, where: str) -> None:
    """A judge that gave no verdict at all is a failure of the world."""
    if entry["n_verdicts"] and entry["n_failed"] == entry["n_verdicts"]:
        raise WorldError(f"{where}: every call to the judge failed: {entry['error']}; --retry-errors asks again")
    if entry["n_verdicts"] and entry["n_unread"] + entry["n_failed"] == entry["n_verdicts"]:
        raise WorldError(
            f"{where}: no reply of the judge holds a verdict: look at one in verdicts.parquet; --choose needs no reply"
        )


_FOR_LABELS = ("apply", "by", "known_rates", "method", "level", "save")


@click.command("calibrate", cls=VerbCommand)
@click.argument("files", metavar="LABELS...", type=PATH, nargs=-1)
@api_options(CalibrateKeywords)
@verb_option("--sample", type=int, metavar="N", group=SHEET,
             help="Draw N cases of LABELS, a run, into a sheet: -o FILE.csv, .jsonl, .html")  # fmt: skip
@verb_option("--candidates", is_flag=True, group=SHEET, help="Sample candidates instead of cases")
@verb_option("--question", metavar="TEXT", group=SHEET, help="Question on the sheet (default: the rubric's)")
@output_options()
def calibrate_command(
    files: tuple[Path, ...], sample: int | None, output: OutputTarget, asked: dict[str, Any], **sheet: Any
) -> None:
    """Measure a judge against human labels, and correct the rates it measured.

    LABELS is JSON lines, CSV or Parquet with one row per case or candidate: id, human, judge, and optionally index,
    segment, cluster, weight, annotator. With several annotators (in one file, or one file each) the majority counts.
    `kofn calibrate --sample 100 RUN -o sheet.csv` draws a sheet to fill in.
    """
    if sample is None:
        unused = [f"--{name}" for name, value in sheet.items() if value]
        if unused:
            raise click.UsageError(f"{unused[0]} applies to a label sheet; add --sample N")
        output.show(api.calibrate((files[0] if len(files) == 1 else list(files)) if files else None, **asked))
        if asked.get("save"):
            place, page = (escape_controls(str(p)) for p in (asked["apply"], asked["apply"] / "report.html"))
            click.echo(f"saved to {place}; open {page}", err=True)
        return
    unused = [f"--{name.replace('_', '-')}" for name in _FOR_LABELS if name in asked]
    if click.get_current_context().get_parameter_source("as_json") is ParameterSource.COMMANDLINE:
        unused.append("--json")
    if unused:
        raise click.UsageError(f"{unused[0]} does not apply to --sample, which only draws a label sheet")
    if len(files) != 1 or output.path is None:
        raise click.UsageError("--sample N needs one run or file to draw from, and -o FILE for the sheet")
    if output.path.exists():
        raise click.UsageError(f"{output.path}: file exists and may hold labels; choose another name")
    _sample(files[0], sample, output.path, **sheet, **asked)


def _sample(source: Path, n: int, sheet_path: Path, *, candidates: bool, question: str | None, **asked: Any) -> None:
    selected, selector = asked.get("selected", False), asked.get("by_selector")
    if selector and not selected:
        raise click.UsageError("--by-selector names the selector of --selected; add --selected")
    verdicts: dict[str, Any] = {name: asked.get(name) for name in ("metric", "aggregate", "threshold")}
    judged = open_verdicts(source, **verdicts)
    seed = asked.get("seed", 0)
    drawing: dict[str, Any] = {"candidates": candidates, "selected": selected, "selector": selector, "seed": seed}
    sheet = draw_label_sheet(judged, n, question=question, **drawing)
    write_sheet(sheet, sheet_path, judged.name)
    click.echo(f"question: {escape_controls(sheet.question)}", err=True)
    click.echo(
        f"{format_count(len(sheet.rows), sheet.of)} to label in {escape_controls(str(sheet_path))}: "
        f"{sheet.n_passing} passed by the judge, {sheet.n_failing} failed; {sheet.n_left:,} not drawn"
    )
