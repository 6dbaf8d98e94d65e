"""Writes the run directory: every file of a run, staged and then moved in at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kofn.render.report_html import report_page
from kofn.runs.evaluation_files import write_evaluation_frame
from kofn.runs.files import MANIFEST, PAGE, RESULTS, SCHEMA_VERSION, digest, to_json
from kofn.runs.manifest import common_manifest, manifest_of, with_digest
from kofn.runs.record import Run
from kofn.runs.report_builder import report_of
from kofn.runs.report_table import reports_frame
from kofn.runs.results_jsonl import append_line, results_line
from kofn.runs.run_tables import layout_of, with_references, write_tables
from kofn.runs.staging import staging_folder
from kofn.scoring.configuration import ReportConfig, validate_tags
from kofn.scoring.diagnostics import with_versioning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from kofn.runs.evaluation_files import CorrectnessResults
    from kofn.scoring.result import ScoredResult


def write_run(
    result: ScoredResult,
    directory: Path,
    *,
    sources: Sequence[Path | str],
    options: Mapping[str, Any],
    report: ReportConfig | None = None,
    generation: Mapping[str, Any] | None = None,
    tables: Mapping[str, pl.DataFrame] | None = None,
    parent: Mapping[str, Any] | None = None,
) -> Run:
    """Write the whole run directory. A run with run.json is whole.

    `options` are what run.json keeps of how it was graded, and `generation` of how the outputs were made, where kofn
    made them; `tables` are further files of the run; `parent` is what is to be said of the run that was graded again
    here. A finished run in the directory stays until all of the new one is there.
    """
    import orjson

    result = replace(result, checklist=with_versioning(result))
    report = report or ReportConfig()
    evaluation, reports = report_of(result, report)
    manifest = manifest_of(result, sources, options, generation) | ({} if parent is None else {"parent": parent})
    manifest |= {"tags": validate_tags(report.tags)} if report.tags else {}
    run = Run(name=directory.resolve().name, evaluation=evaluation, reports=reports, manifest=manifest, result=result)
    with staging_folder(directory) as folder:
        # first: the manifest holds the digest of every table
        manifest["files"] = write_tables(result, folder, tables or {})
        write_evaluation_frame(evaluation, _stored_reports(run), folder)
        line = results_line(run, report, beside_tables=True)
        (folder / RESULTS).write_bytes(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        (folder / MANIFEST).write_bytes(to_json(with_digest(manifest)))
        (folder / PAGE).write_text(report_page(run), encoding="utf-8")
    if report.append_results is not None:
        # after the run is whole: a shared file gets no line of a run that failed, and each line holds all of its texts
        append_line(report.append_results, results_line(run, report) if "texts_in" in line else line)
    return run


def update_run(
    run: Run,
    result: ScoredResult,
    *,
    tables: Mapping[str, pl.DataFrame] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Run:
    """Write a finished run again with a result that has more to say of the same cases and candidates.

    The case reports, and so whether the run passed, stay as they are: they follow from the metrics the run was made
    with. `manifest` is what is to be said beside what the run says already. A run of an earlier schema becomes one of
    the present schema.
    """
    import orjson

    directory = run.directory
    result = replace(result, checklist=with_versioning(result))
    updated = {**run.manifest, **(manifest or {}), "layout": layout_of(result), "result": result.to_dict()}
    migrates = run.manifest["schema_version"] < SCHEMA_VERSION
    updated["schema_version"] = SCHEMA_VERSION
    # `created` stays: it orders the runs of a trend
    updated["updated"] = datetime.now(UTC).isoformat(timespec="seconds")
    again = replace(run, manifest=updated, result=result)
    with staging_folder(directory) as folder:
        updated["files"] = {**run.manifest["files"], **write_tables(result, folder, tables or {})}
        if migrates:
            write_evaluation_frame(run.evaluation, _stored_reports(again), folder)
            if not (directory / RESULTS).exists():  # what earlier schemas appended, such as a step, stays
                (folder / RESULTS).write_bytes(
                    orjson.dumps(results_line(again, beside_tables=True), option=orjson.OPT_APPEND_NEWLINE)
                )
        (folder / MANIFEST).write_bytes(to_json(with_digest(updated)))
        (folder / PAGE).write_text(report_page(again), encoding="utf-8")
    return again


def _stored_reports(run: Run) -> pl.DataFrame:
    """The case reports as reports.parquet keeps them."""
    return with_references(run.reports, run.scored_result.scored[0].sets.answers, run.scored_result.table.cases)


def write_evaluation(
    evaluation: CorrectnessResults, directory: Path, manifest: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]
) -> Run:
    """Write the run directory of an evaluation that has case reports and no candidates.

    `manifest` is what is to be said beside what every run says; `tables` are further files of the run.
    """
    reports = reports_frame(evaluation)
    with staging_folder(directory) as folder:
        for name, table in tables.items():
            table.write_parquet(folder / name)
        whole = {**common_manifest(), **manifest, "files": {name: digest(folder / name) for name in tables}}
        write_evaluation_frame(evaluation, reports, folder)
        (folder / MANIFEST).write_bytes(to_json(with_digest(whole)))
        slim = evaluation.model_copy(update={"reports": []})
        run = Run(name=directory.resolve().name, evaluation=slim, reports=reports, manifest=whole, result=None)
        (folder / PAGE).write_text(report_page(run), encoding="utf-8")
    return run
