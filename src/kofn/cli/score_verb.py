"""`kofn score FILE...`: scores outputs that exist already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kofn import api
from kofn.api.options import ScoreKeywords
from kofn.cli.verb_options import (
    VerbCommand,
    api_options,
    checklist_option,
    leave_if_dipping,
    output_options,
    parse_sinks,
    send_to,
    sink_option,
    strict_option,
    tell,
    tell_run,
)
from kofn.core.progress import Snapshot, show_progress

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.cli.verb_options import OutputTarget


@click.command("score", cls=VerbCommand)
@click.argument("files", metavar="FILE|RUN...", nargs=-1, required=True)
@api_options(ScoreKeywords)
@strict_option
@checklist_option
@sink_option
@output_options()
def score_command(
    files: tuple[str, ...], sinks: tuple[str, ...], strict: bool, output: OutputTarget, asked: dict[str, Any]
) -> None:
    """Score outputs you already have.

    FILE is JSON lines with one candidate per line (id, output, reference or pass or score), one case per line (id,
    outputs: [...]), or parallel lists (scores, passes, texts); CSV or Parquet with one candidate per row; or a log of
    another tool (`kofn list importers`). It may be compressed, a pattern, a folder, an address such as s3://..., or -
    for standard input. Common field names are recognised; --field names others.

    A single RUN is graded again: --extract, --metric or --threshold show which verdicts change, and --out writes a run
    that refers to the first.

    Large Parquet files and folders of them are read in parts, so memory use does not grow with their size; with
    --engine ray the nodes of a cluster read and score the parts.
    """
    targets = parse_sinks(sinks)
    out: Path | None = asked.get("out")
    if sinks and out is None:
        raise click.UsageError("--sink shapes the run directory: give --out DIR too")
    if out is None and "as_repeats" not in asked:
        asked.setdefault("part_size", "auto")
    began, done, total = time.monotonic(), 0, 0

    def on_part(*counted: int) -> None:
        nonlocal done, total
        done, total = counted

    with show_progress(lambda: Snapshot(done=done, total=total, seconds=time.monotonic() - began), "Scoring"):
        result = api.score(list(files), **asked, on_part=on_part, on_note=tell)
    output.show(result)
    if out is not None:
        tell_run(out)
        send_to(targets, out)
    leave_if_dipping(result, strict)
