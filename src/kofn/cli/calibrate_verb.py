"""`kofn calibrate LABELS`: measures a judge against human labels, and corrects rates for its errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kofn import judge, stats
from kofn.cli.colors import style
from kofn.core.escape import escape_controls
from kofn.errors import UnknownName

if TYPE_CHECKING:
    from kofn.judge.labels import LabelRows
    from kofn.judge.verdict_source import VerdictRows

_PATH = click.Path(path_type=Path)
_FOR_SHEETS = {"output": "-o", "candidates": "--candidates"}
_FOR_LABELS = {
    "apply": "--apply",
    "by": "--by",
    "known_rates": "--known-rates",
    "method": "--method",
    "level": "--level",
    "as_json": "--json",
    "save": "--save",
}


@click.command("calibrate")
@click.argument("labels", metavar="LABELS", type=_PATH, required=False)
@click.option("--apply", "apply", type=_PATH, metavar="RUN|FILE", help="Correct the judge's rate there: a run, a file "
              "of outputs, or lines {id, judge}.")  # fmt: skip
@click.option("--metric", metavar="NAME", help="Which metric of RUN has the judge's verdicts; the one called judge, "
              "else the first.")  # fmt: skip
@click.option("--aggregate", metavar="NAME", help="What makes a set of candidates pass; any_pass unless given.")
@click.option("--threshold", type=float, metavar="X", help="Scores of at least X pass.")
@click.option("--by", multiple=True, metavar="FIELD", help="Also in each segment; repeatable. The labels' own column "
              "segment unless given.")  # fmt: skip
@click.option("--known-rates", metavar="S,T", help="Sensitivity and specificity, taken as exact.")
@click.option("--method", default="auto", show_default=True, metavar="M", help="Of the corrected interval: auto, "
              "bootstrap or lang_reiczigel.")  # fmt: skip
@click.option("--level", default=0.95, show_default=True, type=float, help="Of every interval.")
@click.option("--seed", default=0, show_default=True, type=int, help="Of every draw.")
@click.option("--sample", type=int, metavar="N", help="Draw N cases of a run to label, and write a sheet: LABELS is "
              "then the run or file.")  # fmt: skip
@click.option("-o", "output", type=_PATH, metavar="FILE", help="The sheet: .csv, .jsonl or .html (a page to label in).")
@click.option("--candidates", is_flag=True, help="Sample candidates, not sets.")
@click.option("--selected", is_flag=True, help="Sample what the selector picks; with labels, correct the rate of its "
              "picks.")  # fmt: skip
@click.option("--by-selector", metavar="NAME", help="Which selector.")
@click.option("--save", is_flag=True, help="Keep the corrected rate in the run of --apply: its reports show both.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(labels: Path | None, sample: int | None, **options: Any) -> None:
    """Compare a judge with people, and correct the rates it measured.

    LABELS has a line a case or candidate: id, human, judge, and perhaps index, segment, cluster, weight. It is JSON
    lines, CSV or Parquet; `kofn calibrate --sample 100 RUN -o sheet.csv` makes one to fill in.
    """
    given = {
        name
        for name in options
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if sample is not None:
        _refuse(given, _FOR_LABELS, "is for labels: --sample only draws what to label")
        if labels is None or options["output"] is None:
            raise click.UsageError("--sample N takes a run or file to draw from and -o FILE for the sheet")
        if options["output"].exists():
            raise click.UsageError(f"{options['output']}: already there, perhaps with labels in it: give another name")
        _sample(labels, sample, options)
        return
    _refuse(given, _FOR_SHEETS, "is for a sheet to label: give --sample N too")
    _calibrate(labels, options)


def _refuse(given: set[str], names: dict[str, str], why: str) -> None:
    for name, flag in names.items():
        if name in given:
            raise click.UsageError(f"{flag} {why}")


def _sample(source: Path, n: int, options: dict[str, Any]) -> None:
    if options["by_selector"] and not options["selected"]:
        raise click.UsageError("--by-selector says whose picks --selected draws: give --selected too")
    judged = judge.open_verdicts(
        source, metric=options["metric"], aggregate=options["aggregate"], threshold=options["threshold"]
    )
    sheet = judge.draw_label_sheet(
        judged,
        n,
        candidates=options["candidates"],
        selected=options["selected"],
        selector=options["by_selector"],
        seed=options["seed"],
    )
    judge.write_sheet(sheet, options["output"], judged.name)
    click.echo(f"the question: {sheet.question}", err=True)
    click.echo(
        f"{len(sheet.rows)} {sheet.of}s to label in {escape_controls(str(options['output']))}: "
        f"{sheet.n_passing} the judge passes, {sheet.n_failing} it fails; {sheet.n_left:,} left"
    )


def _calibrate(labels: Path | None, options: dict[str, Any]) -> None:
    known = _known(options["known_rates"])
    if known is not None and options["apply"] is None:
        raise click.UsageError("--known-rates correct a judged rate: give --apply RUN too")
    if labels is None and known is None:
        raise click.UsageError("give LABELS (or --known-rates S,T with --apply RUN)")
    if options["apply"] is None and (options["metric"] or options["aggregate"]):
        raise click.UsageError("--metric and --aggregate are about a run: give --apply RUN too")
    settings = judge.calibration.CalibrationSettings(
        method=options["method"], level=options["level"], seed=options["seed"], known=known, by=options["by"]
    )
    _check(settings.method, settings.level)
    rows = None if labels is None else judge.read_labels(labels, options["threshold"])
    _check_picks(rows, options)
    judged = _judged(options, scores=rows is not None and rows.scores)
    found = judge.calibrate(None if rows is None else judge.labels_on_run_scale(rows, judged), judged, settings)
    if options["save"]:
        _save(found, judged, labels, options)
    _tell(found, judged, as_json=options["as_json"])


def _save(found: Any, judged: VerdictRows | None, labels: Path | None, options: dict[str, Any]) -> None:
    """Keep the calibration before it is shown, so that what is wrong with that is said first."""
    if judged is None:
        raise click.UsageError("--save keeps what --apply RUN corrects: give --apply too")
    judge.calibration_record.save_calibration(options["apply"], found, judged, labels)
    directory = escape_controls(str(options["apply"]))
    click.echo(
        f"kept in {directory}; open {escape_controls(str(options['apply'] / 'report.html'))}",
        err=True,
    )


def _check_picks(rows: LabelRows | None, options: dict[str, Any]) -> None:
    """Labels of what a selector picked say nothing of other candidates."""
    if options["by_selector"] and not options["selected"]:
        raise click.UsageError("--by-selector says whose picks are meant: give --selected too")
    if options["apply"] and rows is not None and "picked" in rows.fields and not options["selected"]:
        raise click.UsageError("these labels are of what a selector picked (column `picked`): give --selected too")
    if options["selected"] and options["apply"] is None:
        raise click.UsageError("--selected corrects the rate of a selector's picks: give --apply RUN too")


def _check(method: str, level: float) -> None:
    stats.check_level(level)
    if method not in stats.corrected_rates.METHODS:
        raise UnknownName("method of correction", method, list(stats.corrected_rates.METHODS))


def _known(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        s, t = (float(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"--known-rates {text!r}: expected sensitivity,specificity, such as 0.9,0.8") from None
    if not (0 <= s <= 1 and 0 <= t <= 1):
        raise click.UsageError(f"--known-rates {text!r}: both lie between 0 and 1")
    return s, t


def _judged(options: dict[str, Any], *, scores: bool) -> VerdictRows | None:
    if options["apply"] is None:
        return None
    return judge.open_verdicts(
        options["apply"],
        metric=options["metric"],
        aggregate=options["aggregate"],
        threshold=options["threshold"],
        scores=scores,
        selected=options["selected"],
        selector=options["by_selector"],
    )


def _tell(found: Any, judged: VerdictRows | None, *, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(judge.calibration_text.to_dict(found), option=orjson.OPT_INDENT_2).decode())
        return

    about = None if judged is None else {"name": judged.name, "metric": judged.metric}
    if judged is not None and about is not None and found.of == "set" and judged.aggregate is not None:
        about["metric"] = f"{judged.aggregate} by {judged.metric}"
    click.echo(judge.calibration_text.as_text(found, style, source=about))
