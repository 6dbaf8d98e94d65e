"""`kofn run TASK`: samples outputs from a model, scores them, and reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import generate, models, runs, scoring
from kofn.api.generation import run_config
from kofn.api.options import MODEL, OTHER, RunKeywords
from kofn.cli.verb_options import (
    VerbCommand,
    api_options,
    checklist_layout,
    checklist_option,
    output_options,
    parse_sinks,
    send_to,
    sink_option,
    style,
    tell,
    tell_run,
    verb_option,
)
from kofn.core.escape import escape_controls
from kofn.core.warnings import with_code
from kofn.errors import WorldError

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget
    from kofn.generate import PreparedRun
    from kofn.runs.record import Run
    from kofn.scoring import Config


@click.command("run", cls=VerbCommand)
@click.argument("task")
@api_options(RunKeywords)
@verb_option("--model-path", metavar="DIR", group=MODEL, help="Model or adapter folder; the same as --model hf:DIR")
@verb_option("--all-adapters", is_flag=True, group=MODEL, help="Run every adapter folder in --model-path, in order")
@checklist_option
@sink_option
@verb_option("--estimate", is_flag=True, group=OTHER, help="Estimate cost and time from a few requests first")
@verb_option("--yes", "-y", is_flag=True, group=OTHER, help="Run after --estimate without asking")
@verb_option("--dry-run", is_flag=True, group=OTHER, help="Print the first prompts exactly as sent, and stop")
@output_options()
def run_command(
    task: str,
    model_path: str | None,
    all_adapters: bool,
    estimate: bool,
    yes: bool,
    dry_run: bool,
    sinks: tuple[str, ...],
    output: OutputTarget,
    asked: Any,
) -> None:
    """Generate outputs for a task, score them, and report.

    TASK is a name (`kofn list tasks`) or a YAML file. Run the same command again to resume; with more --repeats or a
    higher --limit only the new candidates are requested.
    """
    targets = parse_sinks(sinks)
    if model_path is not None:
        if "model" in asked:
            raise click.UsageError("--model and --model-path both name the model: give one")
        asked["model"] = f"hf:{model_path}"
    asked["progress"] = True
    chosen = run_config(asked)
    if dry_run:
        output.refuse("--dry-run prints prompts")
        _show_prompts(task, chosen)
        return
    for config in _each(chosen, model_path) if all_adapters else [chosen]:
        prepared = generate.prepare(task, config)
        for line in prepared.task.notes:  # what was left out of the task's file
            tell(f"{prepared.task.source}: {line}")
        if not estimate or _agreed(prepared, yes=yes):
            send_to(targets, _run(prepared, output))


def _each(chosen: Config, model_path: str | None) -> list[Config]:
    """The same run of every adapter in a folder, each in a directory of its own."""
    if model_path is None:
        raise click.UsageError("--all-adapters needs --model-path: the folder that holds the adapters")
    found = models.find_adapters(Path(model_path))
    out = chosen.report.out
    return [
        scoring.configure(chosen, model=f"hf:{adapter}", out=None if out is None else out / adapter.name)
        for adapter in found
    ]


def _agreed(prepared: PreparedRun, *, yes: bool) -> bool:
    """Say what a run will cost and take; ask only where somebody is there to answer."""
    click.echo(str(generate.forecast(prepared)), err=True)
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return click.confirm("go on?", default=False, err=True)


def _run(prepared: PreparedRun, output: OutputTarget) -> Path:
    """Run, show, say where it is; a run that is not whole is a failure, and is not sent anywhere."""
    directory = generate.directory_of(prepared)
    try:
        done = generate.run_in(prepared, directory)
    except KeyboardInterrupt:
        tell(f"what was answered is kept in {directory}: the same command goes on")
        raise
    _show(done, output)
    tell_run(directory)
    if stopped := done.manifest["generation"]["stopped"]:
        raise WorldError(f"{directory}: stopped: {stopped}; run the same command again to go on")
    if done.manifest["generation"]["errors"] == done.scored_result.n_candidates:
        failed = with_code(done.scored_result.warnings, "calls-failed")[0]
        raise WorldError(f"{directory}: {failed}; --retry-errors asks again")
    return directory


def _show(done: Run, output: OutputTarget) -> None:
    if output.form != "table":
        output.show(done)
        return
    facts = runs.generation_facts(done.manifest)
    width = max(len(name) for name, _, _ in facts)
    lines = [f"{name.ljust(width)}  {value}" + (f" ({note})" if note else "") for name, value, note in facts]
    output.write("\n".join([done.scored_result.to_text(style, **checklist_layout()), "", *map(escape_controls, lines)]))


def _show_prompts(task: str, config: Config) -> None:
    """What would be sent for the first cases, and to whom."""
    for case, stage, model, prompt in generate.first_prompts(generate.prepare(task, config)):
        click.echo(click.style(escape_controls(f"--- case {case}, stage {stage}, to {model}"), bold=True))
        text = prompt if isinstance(prompt, str) else "\n".join(f"[{m.role}]\n{m.content}" for m in prompt)
        click.echo("\n".join(escape_controls(line) for line in text.split("\n")))
