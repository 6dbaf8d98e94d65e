"""`kofn calibrate LABELS`: measures a judge against human labels, and corrects rates for its errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kofn import api
from kofn.api.options import CalibrateKeywords
from kofn.cli.verb_options import api_options, output_options
from kofn.core.escape import escape_controls
from kofn.judge import draw_label_sheet, open_verdicts, write_sheet

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget

_FOR_LABELS = ("apply", "by", "known_rates", "method", "level", "save")


@click.command("calibrate")
@click.argument("labels", metavar="LABELS", type=click.Path(path_type=Path), required=False)
@api_options(CalibrateKeywords)
@click.option("--sample", type=int, metavar="N", help="Draw N cases of a run to label, and write a sheet to -o FILE "
              "(.csv, .jsonl or .html, a page to label in): LABELS is then the run or file.")  # fmt: skip
@click.option("--candidates", is_flag=True, help="Sample candidates, not sets.")
@output_options()
def command(
    labels: Path | None, sample: int | None, candidates: bool, output: OutputTarget, asked: dict[str, Any]
) -> None:
    """Compare a judge with people, and correct the rates it measured.

    LABELS has a line a case or candidate: id, human, judge, and perhaps index, segment, cluster, weight. It is JSON
    lines, CSV or Parquet; `kofn calibrate --sample 100 RUN -o sheet.csv` makes one to fill in.
    """
    if sample is None:
        if candidates:
            raise click.UsageError("--candidates is for a sheet to label: give --sample N too")
        output.show(api.calibrate(labels, **asked))
        if asked.get("save"):
            place, page = (escape_controls(str(p)) for p in (asked["apply"], asked["apply"] / "report.html"))
            click.echo(f"kept in {place}; open {page}", err=True)
        return
    unused = [f"--{name.replace('_', '-')}" for name in _FOR_LABELS if name in asked]
    if click.get_current_context().get_parameter_source("as_json") is ParameterSource.COMMANDLINE:
        unused.append("--json")
    if unused:
        raise click.UsageError(f"{unused[0]} is for labels: --sample only draws what to label")
    if labels is None or output.path is None:
        raise click.UsageError("--sample N takes a run or file to draw from and -o FILE for the sheet")
    if output.path.exists():
        raise click.UsageError(f"{output.path}: already there, perhaps with labels in it: give another name")
    _sample(labels, sample, output.path, candidates=candidates, **asked)


def _sample(source: Path, n: int, sheet_path: Path, *, candidates: bool, **asked: Any) -> None:
    selected, selector = asked.get("selected", False), asked.get("by_selector")
    if selector and not selected:
        raise click.UsageError("--by-selector says whose picks --selected draws: give --selected too")
    verdicts: dict[str, Any] = {name: asked.get(name) for name in ("metric", "aggregate", "threshold")}
    judged = open_verdicts(source, **verdicts)
    seed = asked.get("seed", 0)
    sheet = draw_label_sheet(judged, n, candidates=candidates, selected=selected, selector=selector, seed=seed)
    write_sheet(sheet, sheet_path, judged.name)
    click.echo(f"the question: {sheet.question}", err=True)
    click.echo(
        f"{len(sheet.rows)} {sheet.of}s to label in {escape_controls(str(sheet_path))}: "
        f"{sheet.n_passing} the judge passes, {sheet.n_failing} it fails; {sheet.n_left:,} left"
    )
