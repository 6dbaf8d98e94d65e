"""`kofn export RUN|FILE... --to PATH`: candidates and grades as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import exporters, importers, registry, runs, scoring
from kofn.api.options import EXPORT, ExportKeywords, settle
from kofn.cli.verb_options import VerbCommand, api_options, output_options, style, verb_option
from kofn.core.escape import escape_controls
from kofn.core.warnings import OTHER, CodedWarning
from kofn.errors import InputError, UnknownName, WorldError

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget
    from kofn.exporters.base import Exporter


@click.command("export", cls=VerbCommand)
@click.argument("files", metavar="RUN|FILE...", nargs=-1, required=True)
@verb_option("--to", "path", required=True, type=click.Path(path_type=Path), metavar="PATH", group=EXPORT,
             help="File or folder to write")  # fmt: skip
@verb_option("--as", "form", metavar="FORM", group=EXPORT,
             help="Format (default: by the ending of PATH; `kofn list exporters`)")  # fmt: skip
@api_options(ExportKeywords)
@verb_option("--force", is_flag=True, group=EXPORT, help="Overwrite an existing file")
@output_options()
def export_command(
    files: tuple[str, ...], path: Path, form: str | None, force: bool, output: OutputTarget, asked: dict[str, Any]
) -> None:
    """Write candidates, answers and grades for other tools.

    Whatever kofn reads can be written in each form; what a form has no place for is said.
    """
    exporter = _exporter(path, form)
    exporters.check_place(path)
    if path.exists() and not force:
        raise InputError(f"{path}: already there: give another name, or --force to write over it")
    given = settle(ExportKeywords, asked)
    found = runs.load_graded_files(
        files,
        scoring.GradingConfig(extract=given.extract, metrics=given.metric),
        reading=importers.ReadOptions(fields=given.field, format=given.format, where=given.where, everything=True),
        as_repeats=given.as_repeats,
    )
    try:
        said = [*found.table.notes, *exporter.write(found, path)]
    except OSError as problem:
        raise WorldError(f"{path}: cannot be written: {problem.strerror}") from None
    # exporters of other packages may say sentences
    notes = [w if isinstance(w, CodedWarning) else CodedWarning(OTHER, text=w) for w in said]
    n, cases = found.table.n_candidates, found.table.n_cases
    if output.form == "table":
        place = escape_controls(str(path))
        click.echo(f"{n:,} candidates of {cases:,} cases written to {place} ({exporter.name})", err=True)
        for line in notes:
            click.echo(f"{style('!', 'warn')} {escape_controls(str(line))}", err=True)
        return
    row = {"path": str(path), "form": exporter.name, "n_candidates": n, "n_cases": cases}
    output.show_rows([row], {**row, "notes": list(map(str, notes)), "coded_notes": [w.to_dict() for w in notes]}, "")


def _exporter(path: Path, form: str | None) -> Exporter:
    """The exporter asked for, or the one whose files end like this."""
    known: dict[str, Exporter] = registry.exporters()
    if form is not None:
        if form not in known:
            raise UnknownName("form", form, list(known), hint="`kofn list exporters` shows them all")
        return known[form]
    by_ending = {ending: one for one in known.values() for ending in one.endings}
    longest = max((ending for ending in by_ending if path.name.endswith(ending)), key=len, default=None)
    if longest is None:
        raise InputError(f"{path}: no form is known by this ending: expected {', '.join(by_ending)}, or --as FORM")
    return by_ending[longest]
