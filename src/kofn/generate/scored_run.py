"""Scores the stored replies of a run and writes the run directory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import WorldError
from kofn.generate import markovian
from kofn.generate.adaptive import Adaptive, honest, keep
from kofn.generate.candidate_table import candidate_rows, table_of
from kofn.generate.llm_extract_run import extract_run_with_llm
from kofn.generate.manifest_entries import generation_entry, source_files
from kofn.generate.prepared_run import prices_of, repeats_of
from kofn.render.run_directory import write_run
from kofn.scoring.evaluate import default_aggregators, evaluate

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.generate.prepared_run import PreparedRun
    from kofn.generate.runner import GenerationOutcome
    from kofn.generate.store import Store
    from kofn.runs.record import Run
    from kofn.scoring.configuration import GradingConfig, ReportConfig
    from kofn.scoring.result import Result

# Diagnostics that in an adaptive run are over the first candidates alone: sets that stop when they agree would make
# models look more consistent than they are.
_OF_FIRST = ("votes", "diversity")
_MANY = 0.1  # the share of outputs above which a problem becomes a warning


def write_scored_run(
    prepared: PreparedRun,
    store: Store,
    directory: Path,
    outcome: GenerationOutcome,
    *,
    against: Run | None = None,
    keys: set[bytes] | None = None,
) -> Run:
    """Score what is stored and write the run.

    `against` is the run of the same reasoning answered with the question; `keys` are as in `candidate_rows`.
    """
    table = stored_table(prepared, store, directory, outcome.stopped, keys)
    options = prepared.grading
    result = evaluate_run(prepared, table, options)
    report = report_config(prepared, directory, table)
    extraction = extract_run_with_llm(prepared, store, result, report, prices_of(prepared))
    generation = generation_entry(prepared, table, outcome)
    comparison, notes = _compare_with(result, against)
    result = result.with_warnings([*_run_warnings(prepared, result, outcome), *extraction.warnings])
    return write_run(
        result,
        directory,
        sources=source_files(prepared),
        options=options.to_dict(),
        report=report,
        generation={
            **generation,
            **extraction.entry,
            **comparison,
            "notes": {**generation["notes"], **extraction.notes, **notes},
        },
    )


def report_config(prepared: PreparedRun, directory: Path, table: Table) -> ReportConfig:
    """What is reported of the run, without groups that no case belongs to: a run may be on a part of the data."""
    report = replace(prepared.config.report, name=directory.resolve().name)
    if report.group is None or report.group not in table.tags.columns:
        return report
    there = set(table.tags[report.group].cast(pl.String).to_list())
    return replace(
        report,
        types={group: kind for group, kind in report.types.items() if group in there},
        weights={group: weight for group, weight in report.weights.items() if group in there},
    )


def _compare_with(result: Result, against: Run | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The entry for run.json and the note on how the answers differ from those that saw the question."""
    found = None if against is None or against.result is None else markovian.compare_answers(result, against.result)
    if found is None:
        return {}, {}
    note = {"leans on the question": markovian.format_comparison(found)}
    return {"markovian": markovian.comparison_entry(found)}, note


def stored_table(
    prepared: PreparedRun, store: Store, directory: Path, stopped: str | None, keys: set[bytes] | None
) -> Table:
    """The candidates that are stored."""
    stages = prepared.recipe.stages
    ids = [item.case.id for item in prepared.items]
    rows = candidate_rows(store, stages, ids, prepared.repeats, keys)
    if rows.height == 0:
        why = f" ({stopped})" if stopped else ""
        raise WorldError(f"{directory}: no candidate is whole yet{why}: run the same command again to go on")
    if prepared.config.generation.adaptive:
        rows = _within_rule(prepared, rows)
    return table_of(rows, prepared.items, stages[-1].kind, source=str(directory))


def _within_rule(prepared: PreparedRun, rows: pl.DataFrame) -> pl.DataFrame:
    """The candidates that the rule of adaptive repeats draws: the store may hold more, from a run with another rule."""
    rule = repeats_of(prepared)
    assert isinstance(rule, Adaptive)
    texts = rows.group_by("id", maintain_order=True).agg("text")
    items = {item.case.id: item for item in prepared.items}
    sizes = [rule.drawn(items[case], of) for case, of in texts.iter_rows()]
    most = pl.DataFrame({"id": texts["id"], "most": sizes})
    return (
        rows.join(most, on="id", maintain_order="left")
        .filter(pl.int_range(pl.len()).over("id") < pl.col("most"))
        .drop("most")
    )


def evaluate_run(prepared: PreparedRun, table: Table, options: GradingConfig) -> Result:
    """Grade and aggregate. Of adaptive sets only the vote and the first candidate are over everything drawn."""
    if not prepared.config.generation.adaptive:
        return evaluate(table, options)
    first = repeats_of(prepared).first
    start = evaluate(table.truncate(first), options)
    names = [str(a) for a in options.aggregate or default_aggregators(start.scored[0])]
    over_all = tuple(name for name in names if keep(name, first) is None)
    whole = evaluate(table, replace(options, aggregate=over_all or ("first",)))
    estimates = {(e.metric, e.aggregator, e.segment): e for e in whole.estimates}
    return replace(
        whole,
        estimates=tuple(estimates.get((e.metric, e.aggregator, e.segment), e) for e in start.estimates),
        case_values={key: whole.case_values.get(key, values) for key, values in start.case_values.items()},
        extraction=start.extraction,
        diagnostics={**whole.diagnostics, **{k: start.diagnostics[k] for k in _OF_FIRST if k in start.diagnostics}},
    )


def _run_warnings(prepared: PreparedRun, result: Result, outcome: GenerationOutcome) -> list[CodedWarning]:
    """Warnings about how the outputs were made."""
    found = []
    if outcome.stopped:
        most = len(prepared.items) * prepared.repeats
        found.append(CodedWarning.of("run-stopped", reason=outcome.stopped, n=result.n_candidates, most=most))
    found += _output_warnings(prepared, result)
    if prepared.config.generation.adaptive:
        first = repeats_of(prepared).first
        names = dict.fromkeys(e.aggregator for e in result.estimates)
        biased = tuple(name for name in names if honest(name, first) is not None)
        if biased:
            found.append(CodedWarning.of("first-candidates-only", aggregators=biased, first=first))
    return found


def _output_warnings(prepared: PreparedRun, result: Result) -> list[CodedWarning]:
    """Warnings about failed calls, outputs that were cut off, and empty reasoning."""
    table = result.table
    assert table is not None
    rows, found = table.candidates, []
    if "error" in rows.columns and (failed := rows["error"].count()):
        error = most_frequent(rows["error"])
        found.append(CodedWarning.of("calls-failed", n=failed, of=rows.height, error=error))
    if "finish" in rows.columns and (cut := int((rows["finish"] == "length").sum())) > rows.height * _MANY:
        found.append(CodedWarning.of("outputs-cut-off", n=cut, of=rows.height))
    if len(prepared.recipe.stages) > 1 and "reasoning" in rows.columns:
        empty = int((rows["reasoning"].str.strip_chars() == "").sum())
        if empty > rows.height * _MANY:
            found.append(CodedWarning.of("empty-reasoning", n=empty, of=rows.height))
    return found


def most_frequent(errors: pl.Series) -> str:
    """The error seen most often, cut short."""
    return str(errors.drop_nulls().mode().sort()[0])[:200]
