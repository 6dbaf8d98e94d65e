"""`kofn run TASK`: samples outputs from a model, scores them, and reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import generate, models, render, runs, scoring
from kofn.cli.colors import style
from kofn.cli.model_options import asking_options
from kofn.cli.sink_options import parse_sinks, send_to, sink_option
from kofn.cli.tag_options import tag_option
from kofn.core.escape import escape_controls
from kofn.core.warnings import with_code
from kofn.errors import WorldError

if TYPE_CHECKING:
    from kofn.generate import PreparedRun
    from kofn.models.base import Prompt
    from kofn.runs.record import Run
    from kofn.scoring import Config

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)


@click.command("run")
@click.argument("task")
@click.option("--model", "-m", metavar="M", help="Model to evaluate, such as smollm2 (default), openai:NAME, "
              "openai:NAME@URL, anthropic:NAME, hf:FOLDER, gguf:FILE, replay:FILE; `kofn list models`.")  # fmt: skip
@click.option("--model-path", metavar="DIR", help="A model or adapter folder; the same as --model hf:DIR.")
@click.option("--all-adapters", is_flag=True, help="Run every adapter folder in --model-path, in order.")
@click.option("--answer-model", metavar="M", help="The critic, which answers after the actor has reasoned.")
@click.option("--repeats", "-n", type=_COUNT, help="Candidates a case (default: the task's).")
@click.option("--temperature", "-t", type=click.FloatRange(0, 5), help="Of every stage that is not fixed at 0.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Nucleus sampling of the first stage.")
@click.option("--max-tokens", type=_COUNT, help="Longest output of the first stage.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Where an output ends; repeatable.")
@click.option("--chat/--no-chat", default=None, help="Ask in messages, or as text to continue.")
@click.option("--two-stage", is_flag=True, help="Reason first, then answer from the reasoning.")
@click.option("--markovian/--no-markovian", default=None, help="Whether the answer is asked without the question.")
@click.option("--actor-reward-weight", type=click.FloatRange(min=0), help="0: the critic answers; above: the actor.")
@click.option("--compare-markovian", is_flag=True, help="Answer each reasoning without and with the question.")
@click.option("--adaptive", is_flag=True, help="Stop a case when its leading answer is safe.")
@click.option(
    "--max-repeats", type=_COUNT, help="With --adaptive: the most candidates a case; --repeats is then the fewest."
)
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), default=0.95,
              show_default=True, help="How safe, with --adaptive.")  # fmt: skip
@click.option("--data", type=_PATH, help="Another file or folder than the task's.")
@click.option("--limit", type=_COUNT, help="The first N cases.")
@click.option("--samples", metavar="ID,ID,...", help="Only these cases.")
@click.option("--sample", type=_COUNT, help="N cases, drawn with the seed, as many of each group as it has by share.")
@click.option("--extract", metavar="E", help="Extractor of answers; llm:MODEL lets a model read them too.")
@click.option("--metric", "metrics", multiple=True, metavar="M", help="Metric; repeatable.")
@click.option("--aggregate", "-a", multiple=True, metavar="A", help="Aggregator; repeatable.")
@click.option("--by", multiple=True, metavar="FIELD", help="Also within each value of this field; repeatable.")
@click.option("--threshold", type=float, help="A value passes from here on (default 1.0).")
@click.option("--verdict", metavar="A", help="The aggregator that says whether a case passes.")
@click.option("--policy", metavar="P", help="When the whole run passes.")
@click.option("--use", metavar="USE", help="How outputs are used: any, vote, select, list or all; for the checklist.")
@click.option("--interval", default="auto", show_default=True, metavar="I", help="As in kofn score.")
@click.option("--level", default=0.95, show_default=True, type=float, help="Level of the intervals.")
@click.option("--out", type=_PATH, metavar="DIR", help="The run directory (default: runs/TASK-MODEL).")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of whatever is drawn.")
@click.option("--reproducible", is_flag=True, help="Bit for bit the same candidates again; slower.")
@asking_options
@click.option("--batch-size", type=_COUNT, help="Requests computed together, for hf models.")
@click.option("--device", help="cpu, cuda or mps, for hf models.")
@click.option("--batch-index", type=int, metavar="N", help="A number for results.jsonl, such as the training step.")
@click.option("--append-results", type=_PATH, metavar="FILE", help="Append this run's line to FILE too.")
@tag_option
@sink_option
@click.option("--estimate", is_flag=True, help="First say what it will cost and take, from a few requests.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask after --estimate.")
@click.option("--dry-run", is_flag=True, help="Print the first prompts exactly as sent, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    task: str,
    estimate: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    all_adapters: bool,
    sinks: tuple[str, ...],
    **options: Any,
) -> None:
    """Generate the outputs of a task, score them, and report.

    TASK is a name (`kofn list tasks`) or a YAML file. The same command again takes a run up where it was; with more
    --repeats or a higher --limit only what is new is asked.
    """
    targets = parse_sinks(sinks)
    model_path = options.pop("model_path")
    chosen = _config(options, model_path)
    if dry_run:
        _show_prompts(task, chosen)
        return
    for config in _each(chosen, model_path) if all_adapters else [chosen]:
        prepared = generate.prepare(task, config)
        _tell(prepared)
        if not estimate or _agreed(prepared, yes=yes):
            send_to(targets, _run(prepared, as_json=as_json))


def _tell(prepared: PreparedRun) -> None:
    """What was left out of the task's file."""
    for line in prepared.task.notes:
        click.echo(escape_controls(f"{prepared.task.source}: {line}"), err=True)


def _config(options: dict[str, Any], model_path: str | None) -> Config:
    """Options as the run takes them; what was not given is left to the task."""
    extract = options.pop("extract")
    read_by = _reader(extract)
    samples = options.pop("samples")
    model = options.pop("model")
    if model_path is not None:
        if model is not None:
            raise click.UsageError("--model and --model-path both name the model: give one")
        model = f"hf:{model_path}"
    return scoring.configure(
        **{"model": model} if model else {},
        **options | {"stop": options["stop"] or None},
        extract=None if read_by is not None else extract,
        llm_extract=read_by,
        samples=tuple(s.strip() for s in samples.split(",") if s.strip()) if samples else (),
        progress=True,
    )


def _reader(extract: str | None) -> str | None:
    """The model of `--extract llm:MODEL`; `llm` alone is the default one."""
    if extract == "llm":
        return scoring.DEFAULT_READER
    return extract.removeprefix("llm:") if extract is not None and extract.startswith("llm:") else None


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


def _run(prepared: PreparedRun, *, as_json: bool) -> Path:
    """Run, show, say where it is; a run that is not whole is a failure, and is not sent anywhere."""
    directory = generate.directory_of(prepared)
    try:
        done = generate.run_in(prepared, directory)
    except KeyboardInterrupt:
        click.echo(
            f"what was answered is kept in {escape_controls(str(directory))}: the same command goes on", err=True
        )
        raise
    _show(done, as_json)
    click.echo(
        f"run written to {escape_controls(str(directory))}; open {escape_controls(str(directory / 'report.html'))}",
        err=True,
    )
    if stopped := done.manifest["generation"]["stopped"]:
        raise WorldError(f"{directory}: stopped: {stopped}; run the same command again to go on")
    if done.manifest["generation"]["errors"] == done.scored_result.n_candidates:
        failed = with_code(done.scored_result.warnings, "calls-failed")[0]
        raise WorldError(f"{directory}: {failed}; --retry-errors asks again")
    return directory


def _show(done: Run, as_json: bool) -> None:
    result = done.scored_result
    if as_json:
        import orjson

        printed = {**result.to_dict(), "generation": done.manifest["generation"]}
        click.echo(orjson.dumps(printed, option=orjson.OPT_INDENT_2))
        return

    click.echo(render.format_result(result, style))
    facts = runs.generation_facts(done.manifest)
    width = max(len(name) for name, _, _ in facts)
    click.echo()
    for name, value, note in facts:
        click.echo(escape_controls(f"{name.ljust(width)}  {value}" + (f" ({note})" if note else "")))


def _show_prompts(task: str, config: Config) -> None:
    """What would be sent for the first cases, and to whom."""
    for case, stage, model, prompt in generate.first_prompts(generate.prepare(task, config)):
        click.echo(click.style(escape_controls(f"--- case {case}, stage {stage}, to {model}"), bold=True))
        click.echo(_prompt_text(prompt))


def _prompt_text(prompt: Prompt) -> str:
    text = prompt if isinstance(prompt, str) else "\n".join(f"[{m.role}]\n{m.content}" for m in prompt)
    return "\n".join(escape_controls(line) for line in text.split("\n"))
