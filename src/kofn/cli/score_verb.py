"""`kofn score FILE...`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kofn.evaluate import Result


@click.command("score")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--extract", metavar="E", help="Extractor of answers, such as number, letter or pattern('x=(.*)').")
@click.option("--metric", "metrics", multiple=True, metavar="M", help="Metric against the reference; repeatable.")
@click.option(
    "--aggregate",
    "-a",
    multiple=True,
    metavar="A",
    help="Aggregator, such as any_pass or pass@5; repeatable.",
)
@click.option("--threshold", type=float, help="A value passes from here on (default 1.0).")
@click.option("--top-k", type=click.IntRange(min=1), help="Keep the first K candidates of each set.")
@click.option("--by", multiple=True, metavar="FIELD", help="Also within each value of this field; repeatable.")
@click.option("--interval", default="auto", show_default=True, metavar="I",
              help="auto, bootstrap, expanded, bca, wilson, clopper_pearson, jeffreys, t or cluster.")  # fmt: skip
@click.option("--level", default=0.95, show_default=True, type=float, help="Level of the intervals.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of whatever is drawn.")
@click.option("--cluster", metavar="FIELD", help="Resample groups of cases that belong together.")
@click.option("--weight", metavar="FIELD", help="Weight of each case.")
@click.option("--field", "field_options", multiple=True, metavar="ROLE=NAME", help="A field's name in this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write a run directory.")
def command(
    files: tuple[Path, ...],
    field_options: tuple[str, ...],
    aggregate: tuple[str, ...],
    metrics: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    **options: Any,
) -> None:
    """Score outputs you already have.

    FILE is JSON lines with a candidate a line (id, output, reference or pass or score), a case a line (id, outputs:
    [...]), or parallel lists (scores, passes, texts); or CSV or Parquet with a candidate a row. Field names are
    recognised; --field says what a file calls them otherwise.
    """
    from kofn.api import score
    from kofn.fields import parse_field_options

    if out is not None:
        from kofn.report.files import check_new

        check_new(out)
    result = score(
        list(files),
        metric=metrics,
        aggregate=aggregate,
        fields=parse_field_options(field_options),
        everything=out is not None,
        **options,
    )
    if out is not None:
        _write(
            result,
            out,
            files,
            {**options, "metrics": metrics, "aggregate": aggregate, "fields": field_options},
        )
    _show(result, as_json)
    if out is not None:
        click.echo(f"run written to {out}", err=True)


def _write(result: Result, out: Path, files: tuple[Path, ...], options: dict[str, Any]) -> None:
    from kofn.report.files import write_run

    write_run(result, out, sources=files, options=options)


def _show(result: Result, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(result.to_dict(), option=orjson.OPT_INDENT_2))
        return
    from kofn.present import as_text

    click.echo(as_text(result, _style))


_LOOKS: dict[str, dict[str, Any]] = {
    "strong": {"bold": True},
    "head": {"dim": True},
    "dim": {"dim": True},
    "warn": {"fg": "yellow", "bold": True},
}


def _style(text: str, role: str) -> str:
    """Colour for a terminal; click takes it out again where the output is not one."""
    return click.style(text, **_LOOKS[role])
