"""Writes the run directory: all files staged, then moved in at once; adds tags, parent and digests to run.json."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.errors import InputError, WorldError
from kofn.metrics import trait
from kofn.registry import aggregator, metric
from kofn.render.report_html import report_page
from kofn.runs.case_reports import case_scores, reports_frame
from kofn.runs.files import (
    CANDIDATES,
    CASES,
    CHECKS,
    MANIFEST,
    PAGE,
    RESULTS,
    SCHEMA_VERSION,
    digest,
    staging_folder,
    to_json,
    write_atomically,
)
from kofn.runs.manifest import checks_entry, common_manifest, manifest_of, with_digest
from kofn.runs.record import Run
from kofn.runs.report_builder import apply_rule, report_of, verdicts_of
from kofn.runs.run_tables import (
    is_large,
    layout_of,
    reference_to,
    with_references,
    write_evaluation_frame,
    write_tables,
)
from kofn.scoring.configuration import ReportConfig, validate_tags
from kofn.scoring.diagnostics import with_versioning
from kofn.scoring.grade import find_answers, score_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from kofn.analysis.checks import CheckReport
    from kofn.core.candidate_sets import CandidateSets
    from kofn.core.table import Table
    from kofn.runs.run_tables import CorrectnessResults
    from kofn.scoring.grade import Graded
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
    result = replace(result, checklist=with_versioning(result))
    report = report or ReportConfig()
    evaluation, reports = report_of(result, report)
    manifest = manifest_of(result, sources, options, generation) | ({} if parent is None else {"parent": parent})
    manifest |= {"tags": validate_tags(report.tags)} if report.tags else {}
    manifest |= {"verdict": {"policy": report.policy, "rule": report.verdict}}
    run = Run(name=directory.resolve().name, evaluation=evaluation, reports=reports, manifest=manifest, result=result)
    with staging_folder(directory) as folder:
        # first: the manifest holds the digest of every table
        manifest["files"] = write_tables(result, folder, tables or {})
        write_evaluation_frame(evaluation, _stored_reports(run), folder)
        line = _write_results(folder, run, report)
        _write_manifest_and_page(folder, run)
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
                _write_results(folder, again)
        _write_manifest_and_page(folder, again)
    return again


def _stored_reports(run: Run) -> pl.DataFrame:
    """The case reports as reports.parquet keeps them."""
    return with_references(run.reports, run.scored_result.scored[0].sets.answers, run.scored_result.table.cases)


def _write_results(folder: Path, run: Run, report: ReportConfig | None = None) -> dict[str, Any]:
    import orjson

    line = results_line(run, report, beside_tables=True)
    (folder / RESULTS).write_bytes(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    return line


def _write_manifest_and_page(folder: Path, run: Run) -> None:
    (folder / MANIFEST).write_bytes(to_json(with_digest(run.manifest)))
    (folder / PAGE).write_text(report_page(run), encoding="utf-8")


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
        slim = evaluation.model_copy(update={"reports": []})
        run = Run(name=directory.resolve().name, evaluation=slim, reports=reports, manifest=whole, result=None)
        _write_manifest_and_page(folder, run)
    return run


def record_checks(run: Run, report: CheckReport) -> str | None:
    """Write the outcome of a check into the directory of a stored run, and its page again.

    What is returned says why not, where the directory cannot be written to.
    """
    directory = run.directory
    entry = checks_entry(run.manifest, {"summary": report.summary, **report.to_dict()})
    try:
        write_atomically(directory / CHECKS, lambda partial: partial.write_bytes(to_json(entry)))
        if (directory / PAGE).is_file():
            page = report_page(run)
            write_atomically(directory / PAGE, lambda partial: partial.write_text(page, encoding="utf-8"))
    except OSError as problem:
        return f"{directory}: the outcome is not recorded in the run: {problem.strerror}"
    return None


MOST_CANDIDATES = 200_000  # beyond this the details stay in candidates.parquet, and the line says so
# the rules of the documented older scripts, whose numbers people still compare with
LEGACY = {"letter": "letter_first", "number": "number_simple"}


def results_line(run: Run, plan: ReportConfig | None = None, *, beside_tables: bool = False) -> dict[str, Any]:
    """The line: a summary, and what every case was asked, said and got.

    `accuracy` is the share of the verified cases that pass; `accuracy_legacy` the same with the answers that the older
    documented rule finds (`letter_first`, `number_simple`), none where there is no such rule. A case's
    `generated_answer`, `reasoning` and `predicted` are its first candidate's, `correct` is the case's verdict, and
    `repeats` holds every candidate. With `beside_tables` the line lies in the run directory: columns of texts that are
    large are not repeated, `texts_in` names the file and column of each, and repeats have the `index` to find them by.
    """
    plan = plan or ReportConfig()
    result = run.scored_result
    scores = case_scores(run.reports)
    verified = scores.filter(scores["score"].is_not_null())
    line: dict[str, Any] = {
        "timestamp": run.evaluation.timestamp.isoformat(),
        "task_type": run.task,
        **({} if plan.batch_index is None else {"batch_index": plan.batch_index}),
        "accuracy": verified["passed"].mean(),
        "accuracy_legacy": legacy_accuracy(result, plan),
    }
    if extraction := (run.manifest.get("generation") or {}).get("llm_extraction"):
        # these names are those of the older files, whatever model was asked
        line |= {f"haiku_{name}": extraction[name] for name in ("accuracy", "cost_usd", "num_calls")}
    line |= {
        "num_examples": result.n_cases,
        "num_unverified": scores.height - verified.height,
        "verdict": run.evaluation.verdict,
    }
    if result.n_candidates > MOST_CANDIDATES:
        return {**line, "detailed_results": [], "detailed_results_in": "candidates.parquet"}
    passed = scores.select(passed=scores["passed"].set(scores["score"].is_null(), None))["passed"]
    left_out = _texts_in(result) if beside_tables else {}
    if left_out:
        line["texts_in"] = left_out
    return {**line, "detailed_results": list(_case_details(result, passed, left_out))}


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Append one line and flush it to the disk. A last line that a killed writer left open is closed first."""
    import orjson

    text = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # append mode: two processes do not overwrite each other's lines
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                text = text if file.read(1) == b"\n" else b"\n" + text
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise WorldError(f"{path}: cannot append: {problem.strerror}") from None


def legacy_accuracy(result: ScoredResult, plan: ReportConfig) -> float | None:
    """The share of the verified cases that pass when answers are found by the older rule of the same kind.

    None where there is no such rule.
    """
    extractor = str(result.extraction.get("extractor")).partition("(")[0]
    if extractor not in LEGACY or "reference" not in result.table.candidates.columns:
        return None
    return accuracy_with(result, plan, find_answers(result.table, LEGACY[extractor]))


def accuracy_with(result: ScoredResult, plan: ReportConfig, answers: Graded) -> float | None:
    """The share of the verified cases that pass with other answers.

    The metrics, the verdict and the threshold stay what they are. None where a metric looks at something else than
    answers, and where nothing is verified.
    """
    table = result.table
    verdicts = verdicts_of(result, plan)
    try:
        again = _rescore(table, answers, [v.metric for v in verdicts], plan.threshold)
        verdict_values = [
            apply_rule(v.rule, aggregator(v.rule.name)(sets)) for v, sets in zip(verdicts, again, strict=True)
        ]
    except InputError:
        return None  # a function of the user's own has no name to find it by
    table_of = np.array(verdict_values).reshape(len(verdict_values), table.n_cases)
    known = np.flatnonzero((~np.isnan(table_of)).any(axis=0))
    # a case passes if every metric that has a verdict says so; NaN is no veto
    passes = np.nan_to_num(table_of, nan=1.0)[:, known].min(axis=0, initial=1.0)
    return float(passes.mean()) if known.size else None


def _rescore(table: Table, answers: Graded, metrics: list[str], threshold: float | None) -> list[CandidateSets]:
    """The sets under the same metrics with other answers; refused where a metric reads no answers."""
    for name in metrics:
        if name in ("pass", "score") or trait(metric(name), "uses") != "answer":
            raise InputError(f"metric {name} does not look at answers")
    return [one.sets for one in score_table(table, answers, metrics, threshold)]


def _texts_in(result: ScoredResult) -> dict[str, dict[str, str]]:
    """The fields of a case that are not repeated: where each is."""
    table = result.table
    columns = {
        "question": (table.cases, CASES, "input"),
        "reasoning": (table.candidates, CANDIDATES, "reasoning"),
        "generated_answer": (table.candidates, CANDIDATES, "text"),
        "answer": (table.cases, CASES, "reference"),
    }
    large = {
        field: reference_to(file, name)
        for field, (frame, file, name) in columns.items()
        if name in frame.columns and is_large(frame[name])
    }
    return large | (
        {"predicted": reference_to(CANDIDATES, "answer")} if is_large(result.scored[0].sets.answers) else {}
    )


def _case_details(result: ScoredResult, passed: pl.Series, left_out: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """A dictionary a case, without the fields that are left out."""
    table = result.table
    cases, rows = table.cases, table.candidates
    sets, offsets = result.scored[0].sets, table.offsets.tolist()
    columns = {
        "index": [j - start for start, end in pairwise(offsets) for j in range(start, end)],
        "reasoning": _values(rows, "reasoning"),
        "generated_answer": _values(rows, "text"),
        "predicted": [None] * rows.height if sets.answers is None else sets.answers.to_list(),
        "correct": [None if p < 0 else bool(p) for p in sets.passes.tolist()],
        "score": [None if v != v else v for v in sets.values.tolist()],
    }
    unused = left_out or ("index",)  # a line with all texts has them in order, and needs no index
    columns = {name: column for name, column in columns.items() if name not in unused}
    questions, answers = _values(cases, "input"), _values(cases, "reference")
    for i, (case_id, (start, end)) in enumerate(zip(cases["case_id"].to_list(), pairwise(offsets), strict=True)):
        repeats = [{name: column[j] for name, column in columns.items()} for j in range(start, end)]
        first = repeats[0] if repeats else dict.fromkeys(columns)
        fields = {
            "id": case_id,
            "question": questions[i],
            "reasoning": first.get("reasoning"),
            "generated_answer": first.get("generated_answer"),
            "predicted": first.get("predicted"),
            "answer": answers[i],
            "correct": passed[i],
            "repeats": repeats,
        }
        yield {name: value for name, value in fields.items() if name not in left_out}


def _values(frame: pl.DataFrame, name: str) -> list[Any]:
    return frame[name].to_list() if name in frame.columns else [None] * frame.height
