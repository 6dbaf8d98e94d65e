"""`kofn list [KIND]`: tasks, models, aggregators, extractors, metrics, importers and exporters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kofn import analysis, importers, registry, tasks
from kofn.cli.verb_options import output_options
from kofn.errors import KofnError
from kofn.judge import load_rubric, names
from kofn.registry import TABLES, entries, known

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget

KINDS = ("tasks", "models", "aggregators", "extractors", "metrics", "rubrics", "selectors", "importers", "exporters")


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@output_options()
def command(kind: str | None, output: OutputTarget) -> None:
    """List what can be named, with one line each."""
    found = {k: _rows(k) for k in KINDS if kind in (None, k)}
    width = max(len(row["name"]) for rows in found.values() for row in rows)
    lines = []
    for name, rows in found.items():
        lines.append(click.style(name, bold=True))
        lines += [f"  {row['name'].ljust(width)}  {row['summary']}{_more(row)}" for row in rows]
    output.show_rows([{"kind": k, **row} for k, rows in found.items() for row in rows], found, "\n".join(lines))


def _rows(kind: str) -> list[dict[str, Any]]:
    if kind == "tasks":
        return [_task(name) for name in tasks.names()]
    if kind == "rubrics":
        return _rubrics()
    if kind == "selectors":
        return [{"name": name, "summary": summary, "origin": ""} for name, summary in analysis.BUILT_IN.items()]
    if kind in ("importers", "exporters"):
        return _files(kind)

    return [entry._asdict() for entry in entries(kind.removesuffix("s"))]


def _files(kind: str) -> list[dict[str, Any]]:
    """What is read and written: kofn's own forms and those of other tools."""
    word = kind.removesuffix("s")
    plain = importers.PLAIN if kind == "importers" else {}
    found = registry.importers() if kind == "importers" else registry.exporters()
    return [{"name": name, "summary": what, "origin": ""} for name, what in plain.items()] + [
        {"name": n, "summary": one.what, "origin": "" if n in TABLES[word] else known(word)[n].partition(":")[0]}
        for n, one in found.items()
    ]


def _rubrics() -> list[dict[str, Any]]:
    found = [load_rubric(name) for name in names()]
    return [
        {"name": r.name, "summary": f"{r.description.rstrip('.')} ({r.kind}, version {r.version})", "origin": ""}
        for r in found
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
