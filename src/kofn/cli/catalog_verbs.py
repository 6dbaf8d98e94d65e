"""`kofn list`, `describe` and `explain`: what can be named, what a task asks, and what a warning means."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from kofn import analysis, importers, registry, tasks
from kofn.api.options import INPUT
from kofn.cli.verb_options import PATH, VerbCommand, output_options, style, verb_option
from kofn.core.escape import escape_controls
from kofn.core.warnings import SEVERITIES, warning_kind, warning_kinds
from kofn.errors import InputError, KofnError
from kofn.judge import load_rubric, names
from kofn.registry import TABLES, entries, known

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.cli.verb_options import OutputTarget
    from kofn.tasks import Task

KINDS = ("tasks", "models", "aggregators", "extractors", "metrics", "rubrics", "selectors", "importers", "exporters")


@click.command("list", cls=VerbCommand)
@click.argument("kind", required=False, type=click.Choice(KINDS))
@output_options()
def list_command(kind: str | None, output: OutputTarget) -> None:
    """List what can be named, with one line each."""
    found = {k: _rows(k) for k in KINDS if kind in (None, k)}
    width = max(len(row["name"]) for rows in found.values() for row in rows)
    lines = []
    for name, rows in found.items():
        lines.append(click.style(name, bold=True))
        lines += [f"  {row['name'].ljust(width)}  {row['summary']}{_more(row)}" for row in rows]
    output.show_rows([{"kind": k, **row} for k, rows in found.items() for row in rows], found, "\n".join(lines))


def _rows(kind: str) -> list[dict[str, Any]]:
    word = kind.removesuffix("s")
    summaries: dict[str, str] = {}
    if kind == "tasks":
        return [_task(name) for name in tasks.names()]
    if kind == "rubrics":
        rubrics = map(load_rubric, names())
        summaries = {r.name: f"{r.description.rstrip('.')} ({r.kind}, version {r.version})" for r in rubrics}
    elif kind == "selectors":
        summaries = analysis.BUILT_IN
    elif kind == "importers":
        summaries = {**importers.PLAIN, **{name: one.what for name, one in registry.importers().items()}}
    elif kind == "exporters":
        summaries = {name: one.what for name, one in registry.exporters().items()}
    else:
        return [entry._asdict() for entry in entries(word)]
    added = {name: target for name, target in known(word).items() if name not in TABLES[word]} if word in TABLES else {}
    return [
        {"name": name, "summary": summary, "origin": added.get(name, "").partition(":")[0]}
        for name, summary in summaries.items()
    ]


def _task(name: str) -> dict[str, Any]:
    """A task, and how many items it has where its data is here."""
    task = tasks.load_task(name)
    try:
        here = len(task.items()) if task.locate_data() is not None else None
    except KofnError:
        here = None
    return {"name": name, "summary": task.spec.description.partition(". ")[0].rstrip("."), "items": here}


def _more(row: dict[str, Any]) -> str:
    if "items" in row:
        return f" ({row['items']:,} items)" if row["items"] is not None else " (its data is not here)"
    return f" (from {row['origin']})" if row["origin"] else ""


@click.command("describe", cls=VerbCommand)
@click.argument("task", metavar="TASK")
@verb_option("--data", type=PATH, metavar="PATH", group=INPUT, help="File or folder of its data")
@output_options()
def describe_command(task: str, data: Path | None, output: OutputTarget) -> None:
    """What a task asks, of which data, and how the answers are graded.

    TASK is a name of `kofn list tasks`, or a YAML file.
    """
    description = task_description(tasks.load_task(task), data)
    row = {name: description[name] for name in ("name", "version", "description", "output_type", "repeats", "items")}
    output.show_rows([row], description, "\n".join(_description_lines(description)))


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
            "verdict": spec.verdict or tasks.case_rule_of(spec),
            "policy": tasks.policy_of(spec),
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
    prompt = recipe.prompt(item, 0, 0, {}, chat=True)
    example = {
        "id": item.case.id,
        "references": list(item.case.references),
        "choices": list(item.case.choices),
        "prompt": prompt if isinstance(prompt, str) else [{"role": m.role, "content": m.content} for m in prompt],
        "options": recipe.options(item, 0, 0) if recipe.stages[0].kind != "generate" else [],
    }
    own = str(place) if place else task.spec.dataset.hf or "in the task file"
    return {"data": own, "missing": None, "items": len(items), "groups": groups, "example": example}


def _description_lines(description: dict[str, Any]) -> list[str]:
    lines = [f"{style(description['name'], 'strong')}  version {description['version']}  {description['fingerprint']}"]
    lines += [escape_controls(description["description"])] if description["description"] else []
    found = description["missing"]
    if found is None:
        found = f"{description['data']} ({description['items']:,} items)"
    lines += ["", style("data", "strong"), f"  {escape_controls(found)}"]
    for group in description["groups"]:
        lines.append(f"  group {escape_controls(group['name'])}: {group['items']:,} items, {group['type']}")

    lines += ["", style(f"asked {description['repeats']} times ({description['output_type']})", "strong")]
    for stage in description["stages"]:
        given = {k: stage[k] for k in ("temperature", "top_p", "max_tokens") if stage[k] is not None}
        settings = ", ".join(f"{name} {value}" for name, value in given.items())
        form = {True: ", in messages", False: ", as a text to continue", None: ""}[stage["chat"]]
        lines.append(f"  {stage['name']}: {stage['model']}, {settings}{form}")
        lines += [f"  system | {stage['system']}"] if stage["system"] else []
        lines += _indented(stage["prompt"])
    if few := description["fewshot"]:
        source = few["source"] if isinstance(few["source"], str) else "the task file"
        lines.append(f"  {few['count']} examples before it, from {source}")

    grading, segments = description["grading"], description["segments"]
    metrics = ", ".join(m["metric"] for m in grading["metrics"]) or "the one that suits the answers"
    lines += ["", style("graded", "strong")]
    lines.append(f"  extract {grading['extract'] or 'chosen from the outputs'}, metric {metrics}")
    use = f"intended use: {description['use'] or 'not set'}"
    ruled = [f"a case passes by {grading['verdict']}"] if grading["verdict"] else []
    ruled += [f"policy {grading['policy']}"] if grading["policy"] else []
    lines.append(f"  {'; '.join([use, *ruled])}")
    lines += [f"  by {', '.join(segments)}"] if segments else []
    return lines + (_example_lines(description["example"]) if description["example"] else [])


def _example_lines(example: dict[str, Any]) -> list[str]:
    lines = ["", style(f"the first item, {escape_controls(example['id'])}", "strong")]
    prompt = example["prompt"]
    for turn in [{"role": "text", "content": prompt}] if isinstance(prompt, str) else prompt:
        lines += [f"  {turn['role']}", *_indented(turn["content"])]
    lines += [f"  scored {label}: {escape_controls(text)!r}" for label, text in example["options"]]
    expected = ", ".join(example["references"])
    return [*lines, f"  expected {escape_controls(expected)}"] if expected else lines


def _indented(text: str) -> list[str]:
    return [f"    | {escape_controls(line)}" for line in text.split("\n")]


@click.command("explain", cls=VerbCommand)
@click.argument("code", required=False)
@output_options()
def explain_command(code: str | None, output: OutputTarget) -> None:
    """What a warning means, why it matters, and what to do.

    CODE is the code of a warning, as `--json` and run.json have it in `coded_warnings`. Without one all are listed.
    """
    kinds = warning_kinds() if code is None else {code: warning_kind(code)}
    found = [{"code": name, "severity": kind.severity, "explanation": kind.explanation} for name, kind in kinds.items()]
    width = max(map(len, kinds))
    lines = []
    for name, kind in kinds.items():
        role = {"info": "dim", "warning": "warn", "error": "bad"}[kind.severity]
        if code is None:
            severity = style(kind.severity.ljust(7), role)
            lines.append(f"{name.ljust(width)}  {severity}  {kind.explanation.partition('. ')[0]}")
        else:
            lines = [f"{style(code, 'strong')}  {style(kind.severity, role)}: {SEVERITIES[kind.severity]}", ""]
            lines += wrap(kind.explanation, 100)
    output.show_rows(found, {"warnings": found}, "\n".join(lines))
