"""`kofn extract-audit FILE|RUN...`: several extractors on the same outputs, and the score each would give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import analysis, generate, importers, render, runs, scoring
from kofn.cli.colors import style
from kofn.cli.model_options import LIMITS, asking_options
from kofn.cli.page_output import write_page
from kofn.core.fields import parse_field_options

if TYPE_CHECKING:
    from kofn.analysis.extraction_audit import ExtractionAudit
    from kofn.core.table import Table


@click.command("extract-audit")
@click.argument("files", metavar="FILE|RUN...", nargs=-1, required=True)
@click.option("--extract", "extractors", multiple=True, metavar="E",
              help="An extractor to compare; repeatable (default: the one that suits the outputs, and its relatives)."
              )  # fmt: skip
@click.option("--model", metavar="M", help="A model reads every output too, such as smollm2 or openai:MODEL.")
@click.option("--metric", metavar="M", help="What compares answers with references (default: what suits them).")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only N cases, drawn by --seed.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of whatever is drawn.")
@click.option("--show", default=5, show_default=True, type=click.IntRange(min=0), metavar="N",
              help="Show so many outputs that are read differently.")  # fmt: skip
@click.option("--format", "format_name", metavar="F", help="How to read the files (`kofn list importers`).")
@click.option("--field", "field_options", multiple=True, metavar="ROLE=NAME", help="A field's name in this file.")
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", help="Keep the model's replies, to go on.")
@asking_options
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every output that differs.")
def command(
    files: tuple[str, ...],
    extractors: tuple[str, ...],
    model: str | None,
    metric: str | None,
    limit: int | None,
    seed: int,
    show: int,
    format_name: str | None,
    field_options: tuple[str, ...],
    html: Path | None,
    as_json: bool,
    **asking: Any,
) -> None:
    """Compare extractors on the same outputs: where they disagree, what each misses, the score each would give.

    Errors of extraction are often larger than the difference between two models. With --model a language model reads
    every output as well, and calls go through the limits and the store of every other call.
    """
    table = _table(files, format_name, field_options)
    names = extractors or analysis.extractors_for(table)
    if limit is not None and limit < table.n_cases:
        table = scoring.draw_cases(table, limit, seed)
    read, notes = _read_by_model(table, names[0], model, asking)
    options = scoring.GradingConfig(metrics=() if metric is None else (metric,), seed=seed)
    audit = analysis.audit_extractors(table, names, options, read=read, notes=notes)
    _show(audit, show, as_json)
    if html is not None:
        write_page(render.audit_page(audit), html)


def _table(files: tuple[str, ...], format_name: str | None, field_options: tuple[str, ...]) -> Table:
    fields = parse_field_options(field_options)
    return runs.load_table(list(files), importers.ReadOptions(fields=fields, everything=True, format=format_name))


def _read_by_model(
    table: Table, extractor: str, model: str | None, asking: dict[str, Any]
) -> tuple[dict[str, tuple[str | None, ...]], tuple[str, ...]]:
    """The model's answers by its name, and what there is to say of the calls."""
    if model is None:
        return {}, ()

    found = generate.extract_table_with_llm(
        table,
        extractor,
        model,
        limits=generate.Limits(**{name: asking[name] for name in LIMITS}),
        prices=asking["prices"],
        store=asking["store"],
        cache=asking["cache"],
    )
    return {found.model: found.answers}, (str(found),)


def _show(audit: ExtractionAudit, show: int, as_json: bool) -> None:
    if as_json:
        click.echo(runs.to_json(audit.to_dict()))
        return

    click.echo(render.format_audit(audit, style, most=show))
