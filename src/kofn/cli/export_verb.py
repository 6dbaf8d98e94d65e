"""`kofn export RUN|FILE... --to PATH`: candidates and grades as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kofn import exporters, registry, runs, scoring
from kofn.cli.colors import style
from kofn.cli.read_options import reading_of, where_of
from kofn.core.escape import escape_controls
from kofn.errors import InputError, UnknownName, WorldError

if TYPE_CHECKING:
    from kofn.exporters.base import Exporter
    from kofn.runs.load import GradedCandidates


@click.command("export")
@click.argument("files", metavar="RUN|FILE...", nargs=-1, required=True)
@click.option("--to", "path", required=True, type=click.Path(path_type=Path), metavar="PATH", help="Where to write.")
@click.option("--as", "form", metavar="FORM", help="The form (default: by the ending of PATH; `kofn list exporters`).")
@click.option("--extract", metavar="E", help="Extractor of answers, where files are read.")
@click.option("--metric", "metrics", multiple=True, metavar="M", help="Metric, where files are read; repeatable.")
@click.option("--as-repeats", is_flag=True, help="The files are repeats of the same cases.")
@click.option("--format", "format_name", metavar="F", help="How to read the files (`kofn list importers`).")
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Only cases with this value; repeatable.")
@click.option("--field", "field_options", multiple=True, metavar="ROLE=NAME", help="A field's name in this file.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(
    files: tuple[str, ...],
    path: Path,
    form: str | None,
    extract: str | None,
    metrics: tuple[str, ...],
    as_repeats: bool,
    format_name: str | None,
    where: tuple[str, ...],
    field_options: tuple[str, ...],
    force: bool,
) -> None:
    """Write candidates, answers and grades for other tools.

    Whatever kofn reads can be written in each form; what a form has no place for is said.
    """
    exporter = _exporter(path, form)
    exporters.check_place(path)
    if path.exists() and not force:
        raise InputError(f"{path}: already there: give another name, or --force to write over it")
    found: GradedCandidates = runs.load_graded_files(
        files,
        scoring.GradingConfig(extract=extract, metrics=metrics),
        reading=reading_of(field_options, format_name, where_of(where), everything=True),
        as_repeats=as_repeats,
    )
    try:
        notes = exporter.write(found, path)
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    n, cases = found.table.n_candidates, found.table.n_cases
    click.echo(
        f"{n:,} candidates of {cases:,} cases written to {escape_controls(str(path))} ({exporter.name})", err=True
    )

    for line in (*map(str, found.table.notes), *notes):
        click.echo(f"{style('!', 'warn')} {escape_controls(line)}", err=True)


def _exporter(path: Path, form: str | None) -> Exporter:
    """The exporter asked for, or the one whose files end like this."""
    known: dict[str, Exporter] = registry.exporters()
    if form is not None:
        if form not in known:
            raise UnknownName("form", form, list(known), hint="`kofn list exporters` shows them all")
        return known[form]
    ending = sorted(((len(e), one) for one in known.values() for e in one.endings if path.name.endswith(e)), key=_size)
    if not ending:
        all_endings = ", ".join(e for one in known.values() for e in one.endings)
        raise InputError(f"{path}: no form is known by this ending: expected {all_endings}, or --as FORM")
    return ending[-1][1]


def _size(pair: tuple[int, Exporter]) -> int:
    return pair[0]
