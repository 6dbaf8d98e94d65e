"""`kofn score FILE...`: scores outputs that exist already."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from kofn import analysis, importers, render, runs, scoring, tasks
from kofn.cli.colors import style
from kofn.cli.read_options import where_of
from kofn.cli.sink_options import parse_sinks, send_to, sink_option
from kofn.cli.strict_option import leave_if_dipping
from kofn.cli.tag_options import tag_option
from kofn.core.escape import escape_controls
from kofn.core.fields import parse_field_options
from kofn.core.progress import ProgressCount, ProgressDisplay

if TYPE_CHECKING:
    from kofn.analysis.rescore import RescoredRun
    from kofn.scoring.result import Result


@click.command("score")
@click.argument("files", metavar="FILE|RUN...", nargs=-1, required=True)
@click.option("--as-repeats", is_flag=True, help="The files are repeats of the same cases, matched by id or by place.")
@click.option("--format", "format_name", metavar="F", help="How to read the files (default: by their content; "
              "`kofn list importers`).")  # fmt: skip
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Only cases with this value; repeatable.")
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
@click.option("--part-size", type=click.IntRange(min=1), metavar="N",
              help="Read Parquet in parts of about N candidates and keep none of them (default: 1,000,000, from two "
              "million candidates on).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write a run directory, report.html in it.")
@click.option("--task", metavar="TASK", help="What is evaluated, in the run directory (default: the file's name); "
              "or a task file, kofn's or lm-eval's, whose extractor, metrics and aggregators are taken.")  # fmt: skip
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
@tag_option
@sink_option
@click.option("--policy", default="core-cases", show_default=True, metavar="P", help="When the whole run passes.")
def command(
    files: tuple[str, ...],
    as_repeats: bool,
    format_name: str | None,
    where: tuple[str, ...],
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
    tags: tuple[str, ...],
    sinks: tuple[str, ...],
    workers: int | None,
    engine_name: str | None,
    ray_address: str | None,
    strict: bool,
    part_size: int | None,
    **options: Any,
) -> None:
    """Score outputs you already have.

    FILE is JSON lines with a candidate a line (id, output, reference or pass or score), a case a line (id, outputs:
    [...]), or parallel lists (scores, passes, texts); CSV or Parquet with a candidate a row; or a log of another tool
    (`kofn list importers`). It may be compressed, a pattern, a folder, an address such as s3://..., or - for standard
    input. Field names are recognised; --field says what a file calls them otherwise.

    A RUN by itself is graded again: with --extract, --metric or --threshold it is shown which verdicts change, and
    --out writes a run that points at it.

    Large Parquet files, and folders of them, are read in parts and never held in memory whole; with --engine ray each
    part is read and scored by a node of the cluster.
    """
    targets = parse_sinks(sinks)
    places = importers.expand(files)
    if task is not None and task.endswith((".yaml", ".yml")):
        of_task = _of_task(task)
        task, verdict = of_task.name, verdict or of_task.verdict
        metrics, aggregate = metrics or of_task.metrics, aggregate or of_task.aggregate
        options["extract"] = options["extract"] or of_task.extract
        named: tuple[str, ...] = ()
    else:
        named = ("task",)
    report = None
    if out is not None:
        _hold(out)
        report = scoring.ReportConfig(
            task=task or _task_of(places[0]),
            name=out.resolve().name,
            verdict=verdict,
            group=group,
            types={name: scoring.GroupType(kind) for name, kind in _pairs("--group-type", group_types)},
            weights=_weights("--group-weight", group_weights),
            metric_weights=_weights("--metric-weight", metric_weights),
            policy=scoring.PassPolicy(policy),
            threshold=options["threshold"],
            out=out,
            batch_index=batch_index,
            append_results=append_results,
            tags=tags,
        )
    elif given := _only_with_out(click.get_current_context(), named):
        raise click.UsageError(f"{given} shapes the run directory: give --out DIR too")
    again: RescoredRun | None = None
    result: Result
    with _engine(workers, engine_name, ray_address) as engine:
        graded = {"metric": metrics, "aggregate": aggregate, "engine": engine, **options}
        if len(places) == 1 and analysis.is_run(places[0]):
            _check_reading(field_options, format_name, where, as_repeats, part_size)
            again = _again(Path(places[0]), **graded)
            result = again.result
        else:
            parts = _part_size(part_size, out, as_repeats)
            result = _score(places, out, field_options, format_name, where, as_repeats, part_size=parts, **graded)
    if out is not None and isinstance(result, scoring.ScoredResult):
        run = render.write_run(
            result,
            out,
            sources=places,
            options=_stored(again, metrics, aggregate, field_options, options),
            report=report,
            tables=None if again is None else again.tables(),
            parent=None if again is None else again.manifest()["parent"],
        )
        result = run.result or result
    _show(result, as_json, again)
    if out is not None:
        click.echo(
            f"run written to {escape_controls(str(out))}; open {escape_controls(str(out / 'report.html'))}", err=True
        )
        send_to(targets, out)
    if strict:
        leave_if_dipping(result, strict)


def _hold(out: Path) -> None:
    """Keep a new directory to this command until it ends."""
    runs.check_new(out)
    click.get_current_context().with_resource(runs.lock_directory(out))
    runs.check_new(out)  # another one may have been quicker


class _OfTask(NamedTuple):
    """What a task file says about grading."""

    name: str
    extract: str | None
    metrics: tuple[str, ...]
    aggregate: tuple[str, ...]
    verdict: str | None


def _of_task(path: str) -> _OfTask:
    task = tasks.load_task(path)
    for line in task.notes:
        click.echo(escape_controls(f"{path}: {line}"), err=True)
    spec = task.spec
    aggregate = tuple(dict.fromkeys((*spec.aggregate, *tasks.repeat_aggregators(spec))))
    return _OfTask(spec.name, spec.extract, tuple(m.metric for m in spec.metrics), aggregate, tasks.verdict_of(spec))


def _score(
    places: list[str],
    out: Path | None,
    field_options: tuple[str, ...],
    format_name: str | None,
    where: tuple[str, ...],
    as_repeats: bool,
    **options: Any,
) -> Result:
    from kofn.api import score

    count = ProgressCount()
    with ProgressDisplay(count.snapshot, "Scoring"):
        return score(
            places,
            fields=parse_field_options(field_options),
            everything=out is not None,
            format=format_name,
            where=where_of(where),
            as_repeats=as_repeats,
            on_part=count.tell,
            **options,
        )


def _part_size(given: int | None, out: Path | None, as_repeats: bool) -> int | str | None:
    """In parts of what size; a run directory keeps every candidate, and repeats are put together, so neither is."""
    if given is not None and (out is not None or as_repeats):
        raise click.UsageError(f"--part-size keeps no candidate, which {'--out' if out else '--as-repeats'} needs")
    return None if out is not None or as_repeats else given or "auto"


def _check_reading(
    field_options: tuple[str, ...],
    format_name: str | None,
    where: tuple[str, ...],
    as_repeats: bool,
    part_size: int | None,
) -> None:
    """A run is read as it is."""
    given = {
        "--field": field_options,
        "--format": format_name,
        "--where": where,
        "--as-repeats": as_repeats,
        "--part-size": part_size,
    }
    if wrong := next((name for name, value in given.items() if value), None):
        raise click.UsageError(f"{wrong} says how to read files, and a run is read as it is")


def _again(path: Path, **given: Any) -> RescoredRun:
    """A stored run graded again."""
    split, use = given.pop("split"), given.pop("use")
    names = {"metric": "metrics"}
    options = scoring.GradingConfig(
        **{names.get(name, name): value for name, value in given.items()},
        use=use,
        split=None if split is None else scoring.Split.parse(split),
    )
    return analysis.rescore.rescore(path, options)


def _stored(
    again: RescoredRun | None,
    metrics: tuple[str, ...],
    aggregate: tuple[str, ...],
    field_options: tuple[str, ...],
    options: dict[str, Any],
) -> dict[str, Any]:
    """How the run was evaluated, as run.json keeps it."""
    if again is None:
        return {**options, "metrics": metrics, "aggregate": aggregate, "fields": field_options}
    used = again.options
    kept = {name: getattr(used, name) for name in options if name not in ("split", "use")}
    return {**kept, "use": used.use, "split": options["split"], "metrics": used.metrics, "aggregate": used.aggregate}


def _engine(workers: int | None, name: str | None, ray_address: str | None) -> Any:
    """The engine that was asked for, if any."""
    if workers is None and name is None and ray_address is None:
        return nullcontext(None)
    from kofn.parallel import engine

    return engine(name or ("ray" if ray_address else "local"), workers=workers, ray_address=ray_address)


_FOR_OUT = (
    "verdict",
    "group",
    "group_types",
    "group_weights",
    "metric_weights",
    "policy",
    "batch_index",
    "append_results",
    "tags",
    "sinks",
)


def _only_with_out(context: click.Context, also: tuple[str, ...]) -> str | None:
    """The first option given that means something only together with --out."""
    given = [name for name in (*also, *_FOR_OUT) if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return next((p.opts[0] for p in context.command.params if p.name in given), None)


def _task_of(place: str) -> str:
    """What is evaluated, where nobody says: the task of a run, else what the file is called."""
    if analysis.is_run(place):
        return runs.load_run(place).task
    return "stdin" if place == "-" else place.rstrip("/").rpartition("/")[2].partition(".")[0]


def _pairs(option: str, given: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = [text.rpartition("=") for text in given]
    for text, (name, sign, value) in zip(given, pairs, strict=True):
        if not (name and sign and value):
            raise click.UsageError(f"{option} {text!r}: expected NAME=VALUE")
    return [(name, value) for name, _, value in pairs]


def _weights(option: str, given: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for name, text in _pairs(option, given):
        try:
            found[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{option} {name}={text}: expected a number above 0") from None
    return found


def _show(result: Result, as_json: bool, again: RescoredRun | None) -> None:
    parent_entry = None if again is None else again.manifest()["parent"]
    if as_json:
        import orjson

        parent = {} if parent_entry is None else {"parent": parent_entry}
        click.echo(orjson.dumps({**result.to_dict(), **parent}, option=orjson.OPT_INDENT_2))
        return

    click.echo(render.format_result(result, style))
    if again is not None and again.changes:
        click.echo("\n" + "\n".join(render.parent_lines(parent_entry, style)))
