"""`kofn report RUN`: shows a stored run again, or writes it as HTML, CSV, JSON or Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn import render, runs, scoring
from kofn.cli.colors import style
from kofn.cli.sink_options import parse_sinks, send_to, sink_option
from kofn.cli.strict_option import leave_if_dipping
from kofn.core.escape import escape_controls
from kofn.core.warnings import warnings_dict
from kofn.errors import InputError, WorldError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.runs.record import Run

_FORMS = ("html", "csv", "json", "markdown")
_WIDEST, _NARROWEST = 100, 80


@click.command("report")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--detailed", is_flag=True, help="Also the failing cases with their diffs, the segments, the slowest "
              "cases; the case reports in --json.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), metavar="N",
              help="Failing cases to show (20 in --detailed, 10 in --markdown).")  # fmt: skip
@click.option("--html", is_flag=True, help="Make the page again: RUN/report.html.")
@click.option("--csv", is_flag=True, help="A row a case and attribute.")
@click.option("--json", is_flag=True, help="One JSON object: the evaluation, estimates, diagnostics and warnings.")
@click.option("--markdown", is_flag=True, help="Tables to paste into a pull request or a paper.")
@click.option("--strict", is_flag=True, help="Exit code 1 where the same judge or score picks and grades.")
@sink_option
@click.option("-o", "output", type=click.Path(path_type=Path), metavar="FILE",
              help="Where the one form chosen goes; - is standard output.")  # fmt: skip
def command(
    run: Path,
    detailed: bool,
    limit: int | None,
    output: Path | None,
    strict: bool,
    sinks: tuple[str, ...],
    **flags: bool,
) -> None:
    """Show a run again: whether it passed and why, its groups and its estimates.

    RUN is a directory that `kofn score --out` or `CorrectnessResults.save` wrote. Without a form the summary is
    printed. The exit code is 0 whether or not the run passed; `kofn check` is the gate.
    """
    forms = [form for form in _FORMS if flags[form]]
    _check(forms, output, limit, detailed=detailed)
    targets = parse_sinks(sinks)

    loaded = runs.load_run(run)
    if not forms:
        _show(loaded, detailed=detailed, limit=limit)
    for form in forms:
        data = _made(loaded, form, detailed=detailed, limit=limit)
        _deliver(data, loaded, output if output is not None else run / _page() if form == "html" else None)
    send_to(targets, run)
    if strict:
        leave_if_dipping(loaded.result, strict)


def _check(forms: Sequence[str], output: Path | None, limit: int | None, *, detailed: bool) -> None:
    """Refuse what cannot be meant, before anything is read."""
    printed = [f"--{form}" for form in forms if form != "html"]
    if output is not None and len(forms) != 1:
        raise click.UsageError("-o FILE takes one form: give one of --html, --csv, --json and --markdown")
    if len(printed) > 1:
        raise click.UsageError(f"{' and '.join(printed)} both go to standard output: give one, or -o FILE and one")
    if detailed and forms and not {"json", "markdown"} & set(forms):
        raise click.UsageError(f"--detailed is for the terminal, --json and --markdown: --{forms[0]} has all there is")
    if limit is not None and not ("markdown" in forms or (detailed and not forms)):
        raise click.UsageError("--limit says how many failing cases --detailed or --markdown shows: give one of them")


def _show(run: Run, *, detailed: bool, limit: int | None) -> None:
    import shutil

    wide = shutil.get_terminal_size((_WIDEST, 24)).columns if sys.stdout.isatty() else _WIDEST
    width = max(_NARROWEST, min(_WIDEST, wide))
    click.echo(
        render.format_run(
            run, style, detailed=detailed, limit=render.run_summary.LIMIT if limit is None else limit, width=width
        )
    )


def _made(run: Run, form: str, *, detailed: bool, limit: int | None) -> bytes:
    """The run in one form."""
    if form == "html":
        return render.report_page(run).encode()
    if form == "csv":
        return runs.flat_frame(run.reports).write_csv().encode()
    if form == "markdown":
        return render.run_markdown.run_markdown(
            run, detailed=detailed, limit=render.run_markdown.LIMIT if limit is None else limit
        ).encode()

    return runs.to_json(json_body(run, detailed=detailed)) + b"\n"


def json_body(run: Run, *, detailed: bool = False) -> dict[str, Any]:
    """evaluation.json's fields, then the status, the estimates, what explains them, and with `detailed` every case."""
    status, result = render.status_of(run), run.result
    return {
        **runs.evaluation_body(run.evaluation),
        "status": status.word.lower(),
        "reason": status.reason,
        "incomplete": list(status.gaps),
        "estimates": [] if result is None else [scoring.estimate_dict(e) for e in result.estimates],
        "extraction": {} if result is None else dict(result.extraction),
        "diagnostics": {} if result is None else dict(result.diagnostics),
        **warnings_dict(() if result is None else result.warnings),
        "judges": {} if result is None else dict(result.judges),
        "checklist": [] if result is None else [line.to_dict() for line in result.checklist],
        **({"reports": _case_bodies(run)} if detailed else {}),
    }


def _case_bodies(run: Run) -> list[dict[str, Any]]:
    """The case reports with the score and verdict of each."""
    scores = runs.case_scores(run.reports).select("score", "passed").iter_rows()
    pairs = zip(run.reports.iter_rows(named=True), scores, strict=True)
    stored = _stored()
    return [
        {
            **{name: row[name] for name in ("id", "group", "type")},
            "timestamp": row["timestamp"].isoformat().replace("+00:00", "Z"),
            "duration": row["duration"],
            "passed": passed,
            "score": score,
            "results": {
                r["attribute"]: {
                    **{name: r[name] for name in ("is_correct", "weight")},
                    **{name: stored(r[name]) for name in ("expected", "actual")},
                    "diff": r["diff"],
                }
                for r in row["results"]
            },
            "case": {f["attribute"]: stored(f["value"]) for f in row["case"]},
            **{name: row[name] for name in ("original_checkpoint", "original_group")},
        }
        for row, (score, passed) in pairs
    ]


def _stored() -> Callable[[str | None], Any]:
    """What passes a stored JSON text on as it is, so that an integer of a hundred digits stays one."""
    from orjson import Fragment

    def passed_on(text: str | None) -> Any:
        render.decode_stored(text)
        return None if text is None else Fragment(text)

    return passed_on


def _page() -> str:
    return runs.files.PAGE


def _deliver(data: bytes, run: Run, output: Path | None) -> None:
    """To a file, whole or not at all; without one to standard output."""
    if output is None or str(output) == "-":
        click.echo(_for_terminal(data) if sys.stdout.isatty() else data, nl=False)
        return

    if output.is_dir() or not output.parent.is_dir():
        what = "is a directory" if output.is_dir() else f"there is no directory {output.parent}"
        raise InputError(f"{output}: {what}: give the name of a file to write")
    own = run.path is not None and output.parent.samefile(run.path) and output.name in render.files_of(run)
    if own and output.name != runs.files.PAGE:
        raise InputError(f"{output}: holds the run itself: give another name")
    try:
        runs.write_atomically(output, lambda path: path.write_bytes(data))
    except OSError as problem:
        raise WorldError(f"{output}: cannot be written: {problem.strerror}") from None
    click.echo(f"report written to {output}", err=True)


def _for_terminal(data: bytes) -> str:
    """What a file would hold, without the characters that move a cursor."""
    return "\n".join(escape_controls(line) for line in data.decode().split("\n"))
