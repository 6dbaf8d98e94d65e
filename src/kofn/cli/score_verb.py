"""`kofn score FILE...`"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from kofn.evaluate import Result
    from kofn.report.convert import Plan


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
@click.option("--split", metavar="PART", help="Only design or test cases: design, test:0.3 (the share of design), "
              "test:0.3:SEED.")  # fmt: skip
@click.option("--use", metavar="USE", help="How outputs are used: any, vote, select, list or all; for the checklist.")
@click.option("--strict", is_flag=True, help="Exit code 1 where the same judge or score picks and grades.")
@click.option("--field", "field_options", multiple=True, metavar="ROLE=NAME", help="A field's name in this file.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N",
              help="Call metrics of your own, and those that take long, on so many processes.")  # fmt: skip
@click.option("--engine", "engine_name", metavar="E", help="Where: local or ray.")
@click.option("--ray-address", metavar="A", help="The Ray cluster, with --engine ray.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write a run directory, report.html in it.")
@click.option("--task", metavar="NAME", help="What is evaluated, in the run directory (default: the file's name).")
@click.option("--verdict", metavar="A", help="The aggregator that says whether a case passes, such as majority or "
              "'mean >= 0.8' (default: the first).")  # fmt: skip
@click.option("--group", metavar="FIELD", help="The field whose values are the report's groups of cases.")
@click.option("--group-type", "group_types", multiple=True, metavar="GROUP=TYPE",
              help="Core (default), Functionality, Regression or Error; repeatable.")  # fmt: skip
@click.option("--group-weight", "group_weights", multiple=True, metavar="GROUP=W", help="Weight of a group's score.")
@click.option("--metric-weight", "metric_weights", multiple=True, metavar="METRIC=W", help="Weight of a metric.")
@click.option("--batch-index", type=int, metavar="N", help="A number for results.jsonl, such as the training step.")
@click.option("--append-results", type=click.Path(path_type=Path), metavar="FILE",
              help="Append this run's line of results.jsonl to FILE too.")  # fmt: skip
@click.option("--policy", default="core-cases", show_default=True, metavar="P", help="When the whole run passes.")
def command(
    files: tuple[Path, ...],
    field_options: tuple[str, ...],
    aggregate: tuple[str, ...],
    metrics: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    task: str | None,
    verdict: str | None,
    group: str | None,
    group_types: tuple[str, ...],
    group_weights: tuple[str, ...],
    metric_weights: tuple[str, ...],
    policy: str,
    batch_index: int | None,
    append_results: Path | None,
    workers: int | None,
    engine_name: str | None,
    ray_address: str | None,
    strict: bool,
    **options: Any,
) -> None:
    """Score outputs you already have.

    FILE is JSON lines with a candidate a line (id, output, reference or pass or score), a case a line (id, outputs:
    [...]), or parallel lists (scores, passes, texts); or CSV or Parquet with a candidate a row. Field names are
    recognised; --field says what a file calls them otherwise.
    """
    from kofn.api import score
    from kofn.fields import parse_field_options

    plan = None
    if out is not None:
        from kofn.report.files import check_new

        check_new(out)
        plan = _plan(
            files, out, task, verdict, group, group_types, group_weights, metric_weights, policy, options["threshold"]
        )
    elif given := _only_with_out(click.get_current_context()):
        raise click.UsageError(f"{given} shapes the run directory: give --out DIR too")
    with _engine(workers, engine_name, ray_address) as engine:
        result = score(
            list(files),
            metric=metrics,
            aggregate=aggregate,
            fields=parse_field_options(field_options),
            everything=out is not None,
            engine=engine,
            **options,
        )
    if out is not None:
        from kofn.report.files import write_run

        stored = {**options, "metrics": metrics, "aggregate": aggregate, "fields": field_options}
        run = write_run(
            result, out, sources=files, options=stored, plan=plan, batch_index=batch_index, append_to=append_results
        )
        result = run.result or result
    _show(result, as_json)
    if out is not None:
        from kofn.present import safe

        click.echo(f"run written to {safe(str(out))}; open {safe(str(out / 'report.html'))}", err=True)
    if strict:
        from kofn.cli.strict import leave_if_dipping

        leave_if_dipping(result, strict)


def _engine(workers: int | None, name: str | None, ray_address: str | None) -> Any:
    """The engine that was asked for, if any."""
    if workers is None and name is None and ray_address is None:
        return nullcontext(None)
    from kofn.engine import engine

    return engine(name or ("ray" if ray_address else "local"), workers=workers, ray_address=ray_address)


_FOR_OUT = (
    "task",
    "verdict",
    "group",
    "group_types",
    "group_weights",
    "metric_weights",
    "policy",
    "batch_index",
    "append_results",
)


def _only_with_out(context: click.Context) -> str | None:
    """The first option given that means something only together with --out."""
    given = [name for name in _FOR_OUT if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return next((p.opts[0] for p in context.command.params if p.name in given), None)


def _plan(
    files: tuple[Path, ...],
    out: Path,
    task: str | None,
    verdict: str | None,
    group: str | None,
    group_types: tuple[str, ...],
    group_weights: tuple[str, ...],
    metric_weights: tuple[str, ...],
    policy: str,
    threshold: float | None,
) -> Plan:
    from kofn.policy import GroupType, PassPolicy
    from kofn.report.convert import Plan

    return Plan(
        task=task or ("stdin" if str(files[0]) == "-" else files[0].name.partition(".")[0]),
        name=out.resolve().name,
        verdict=verdict,
        group=group,
        types={name: GroupType(kind) for name, kind in _pairs("--group-type", group_types)},
        weights={name: _weight("--group-weight", name, w) for name, w in _pairs("--group-weight", group_weights)},
        metric_weights={
            name: _weight("--metric-weight", name, w) for name, w in _pairs("--metric-weight", metric_weights)
        },
        policy=PassPolicy(policy),
        threshold=threshold,
    )


def _pairs(option: str, given: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = [text.rpartition("=") for text in given]
    for text, (name, sign, value) in zip(given, pairs, strict=True):
        if not (name and sign and value):
            raise click.UsageError(f"{option} {text!r}: expected NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def _weight(option: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{option} {name}={text}: expected a number above 0") from None


def _show(result: Result, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(result.to_dict(), option=orjson.OPT_INDENT_2))
        return
    from kofn.cli.looks import style
    from kofn.present import as_text

    click.echo(as_text(result, style))
