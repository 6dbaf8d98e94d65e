"""`kofn describe TASK`: the data, prompts and grading of a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import tasks
from kofn.cli.verb_options import output_options, style
from kofn.core.escape import escape_controls
from kofn.errors import InputError

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget
    from kofn.models.base import Prompt
    from kofn.tasks import Task


@click.command("describe")
@click.argument("task", metavar="TASK")
@click.option("--data", type=click.Path(path_type=Path), metavar="PATH", help="The file or folder of its data.")
@output_options()
def command(task: str, data: Path | None, output: OutputTarget) -> None:
    """What a task asks, of which data, and how the answers are graded.

    TASK is a name of `kofn list tasks`, or a YAML file.
    """
    description = task_description(tasks.load_task(task), data)
    row = {name: description[name] for name in ("name", "version", "description", "output_type", "repeats", "items")}
    output.show_rows([row], description, "\n".join(_lines(description)))


def task_description(task: Task, data: Path | None = None) -> dict[str, Any]:
    """Everything there is to say of a task, as plain values; `example` and `items` only where the data is here."""
    spec = task.spec
    description: dict[str, Any] = {
        "name": spec.name,
        "version": spec.version,
        "description": spec.description,
        "fingerprint": task.fingerprint(),
        "output_type": spec.output_type,
        "repeats": spec.repeats,
        "stages": [stage.model_dump() for stage in spec.all_stages()],
        "fewshot": spec.fewshot.model_dump() if spec.fewshot else None,
        "grading": {
            "extract": spec.extract,
            "metrics": [m.model_dump() for m in spec.metrics],
            "aggregate": list(spec.aggregate),
            "verdict": tasks.verdict_of(spec),
            "policy": spec.policy,
        },
        "segments": list(spec.segments),
        "use": spec.use,
    }
    return description | _data(task, data)


def _data(task: Task, data: Path | None) -> dict[str, Any]:
    """Where the data is, how much of it, its groups, and the first item; or why there is none."""
    try:
        place = task.locate_data(data)
    except InputError as problem:
        if data is not None:
            raise
        return {"data": None, "missing": str(problem), "items": None, "groups": [], "example": None}
    items = task.items(data)
    spec = task.spec.groups
    names = [item.fields.get(spec.field, "(none)") for item in items] if spec else []
    types, weights = (spec.types, spec.weights) if spec else ({}, {})
    groups = [
        {"name": n, "type": types.get(n, "Core"), "weight": weights.get(n, 1.0), "items": names.count(n)}
        for n in dict.fromkeys(names)
    ]
    item, recipe = items[0], task.recipe(data)
    example = {
        "id": item.case.id,
        "references": list(item.case.references),
        "choices": list(item.case.choices),
        "prompt": _plain(recipe.prompt(item, 0, 0, {}, chat=True)),
        "options": recipe.options(item, 0, 0) if recipe.stages[0].kind != "generate" else [],
    }
    own = str(place) if place else task.spec.dataset.hf or "in the task file"
    return {"data": own, "missing": None, "items": len(items), "groups": groups, "example": example}


def _plain(prompt: Prompt) -> str | list[dict[str, str]]:
    return prompt if isinstance(prompt, str) else [{"role": m.role, "content": m.content} for m in prompt]


def _lines(description: dict[str, Any]) -> list[str]:
    lines = [f"{style(description['name'], 'strong')}  version {description['version']}  {description['fingerprint']}"]
    lines += [escape_controls(description["description"])] if description["description"] else []
    found = (
        f"{description['data']} ({description['items']:,} items)"
        if description["missing"] is None
        else description["missing"]
    )
    lines += ["", style("data", "strong"), f"  {escape_controls(found)}"]
    for group in description["groups"]:
        lines.append(f"  group {escape_controls(group['name'])}: {group['items']:,} items, {group['type']}")
    lines += ["", style(f"asked {description['repeats']} times ({description['output_type']})", "strong")]
    for stage in description["stages"]:
        lines += _stage(stage)
    if few := description["fewshot"]:
        lines.append(f"  {few['count']} examples before it, from {_source(few['source'])}")
    lines += ["", style("graded", "strong"), *_grading(description["grading"], description["segments"])]
    return lines + (_example(description["example"]) if description["example"] else [])


def _stage(stage: dict[str, Any]) -> list[str]:
    given = {k: stage[k] for k in ("temperature", "top_p", "max_tokens") if stage[k] is not None}
    settings = ", ".join(f"{name} {value}" for name, value in given.items())
    form = {True: ", in messages", False: ", as a text to continue", None: ""}[stage["chat"]]
    system = [f"  system | {stage['system']}"] if stage["system"] else []
    return [f"  {stage['name']}: {stage['model']}, {settings}{form}", *system, *_indented(stage["prompt"])]


def _source(source: Any) -> str:
    return source if isinstance(source, str) else "the task file"


def _grading(grading: dict[str, Any], segments: list[str]) -> list[str]:
    metrics = ", ".join(m["metric"] for m in grading["metrics"]) or "the one that suits the answers"
    lines = [f"  extract {grading['extract'] or 'chosen from the outputs'}, metric {metrics}"]
    lines.append(f"  a case passes by {grading['verdict'] or 'its first aggregator'}; policy {grading['policy']}")
    return lines + ([f"  by {', '.join(segments)}"] if segments else [])


def _example(example: dict[str, Any]) -> list[str]:
    lines = ["", style(f"the first item, {escape_controls(example['id'])}", "strong")]
    prompt = example["prompt"]
    turns = [{"role": "text", "content": prompt}] if isinstance(prompt, str) else prompt
    for turn in turns:
        lines += [f"  {turn['role']}", *_indented(turn["content"])]
    lines += [f"  scored {label}: {escape_controls(text)!r}" for label, text in example["options"]]
    expected = ", ".join(example["references"])
    return [*lines, f"  expected {escape_controls(expected)}"] if expected else lines


def _indented(text: str) -> list[str]:
    return [f"    | {escape_controls(line)}" for line in text.split("\n")]
