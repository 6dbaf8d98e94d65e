"""Loads graded candidates from a run directory or from a file of outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kofn import importers
from kofn.core.document import Displayable
from kofn.core.table import case_codes, case_numbers
from kofn.errors import InputError, UnknownName
from kofn.importers import importer_of
from kofn.importers.base import ReadOptions
from kofn.importers.jsonl import read_records
from kofn.importers.reading import table_from_frame
from kofn.importers.recognition import Peek
from kofn.importers.sources import expand
from kofn.runs.files import MANIFEST, is_run
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.evaluate import evaluate, result_of
from kofn.scoring.result import Result, ScoredResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kofn.core.table import Table
    from kofn.runs.record import Run
    from kofn.scoring.grade import Graded


@dataclass(frozen=True, kw_only=True)
class GradedCandidates:
    """Graded candidates, and where they came from. `run` is None for a file."""

    name: str
    path: Path
    result: ScoredResult
    options: GradingConfig
    run: Run | None = None

    @property
    def table(self) -> Table:
        """The candidates as an importer hands them on, whatever they were read from."""
        return self.result.table

    @property
    def manifest(self) -> Mapping[str, Any]:
        return {} if self.run is None else self.run.manifest

    def metric(self, name: str | None = None) -> Graded:
        """The sets under this metric; without a name under the first."""
        if name is None:
            first = self.result.scored[0]
            if not first.metric:
                raise InputError(f"{self.path}: nothing is graded: it has no labels, scores or references")
            return first
        for one in self.result.scored:
            if one.metric == name:
                return one
        raise UnknownName("metric", name, [one.metric for one in self.result.scored if one.metric])

    def units(self) -> dict[str, Any]:
        """Weights and clusters of the cases, as the statistics take them."""
        cases = self.table.cases.columns
        weight = self.options.weight or ("weight" if "weight" in cases else None)
        cluster = self.options.cluster or ("cluster" if "cluster" in cases else None)
        return {"weights": case_numbers(self.table, weight), "clusters": case_codes(self.table, cluster)}


def load_graded(
    data: Any, options: GradingConfig | None = None, *, fields: Mapping[str, str] | None = None
) -> GradedCandidates:
    """Open a run directory, or read outputs (a file, rows or a frame) and score them; a loaded run is taken as it is.

    Of a run the stored grades are taken, and with `options` only what slices, weighs, splits or draws is changed; a
    run is graded again where an extractor or metrics are named. A file is always graded.
    """
    given = options or GradingConfig()
    if isinstance(data, Result):
        return _of_result(data, given)
    if not isinstance(data, (str, Path, Displayable)):
        return _load_file(data, given, fields)
    loaded = _run_of(data)
    path = (loaded.path or Path(loaded.name)) if loaded is not None else Path(data)  # type: ignore[arg-type]
    # a folder that is no run may be a log of another tool
    if loaded is None and (not path.is_dir() or (not is_run(path) and importer_of(Peek(path)) is not None)):
        return _load_file(path, given, fields)

    run, stored, table = _load_candidates(path, loaded)
    merged = _merge_options(run.options, given)
    # another extractor or metric makes other grades; anything else only other numbers of the same grades
    if given.extract or given.metrics:
        return GradedCandidates(name=run.name, path=path, run=run, options=merged, result=evaluate(table, merged))
    result = replace(stored, table=table)
    if any((given.by, given.aggregate, given.split, given.cluster, given.weight, given.use)):
        result = reestimate(result, merged)
    return GradedCandidates(name=run.name, path=path, run=run, options=merged, result=result)


def _run_of(data: Any) -> Run | None:
    """Data that is a loaded run; its class is known to pydantic, and not imported for data that is a path."""
    if not isinstance(data, Displayable):
        return None
    if not hasattr(data, "manifest"):
        raise InputError(f"expected a path, rows, a frame or a loaded run, not {type(data).__name__}")
    return cast("Run", data)


def _of_result(result: Result, given: GradingConfig) -> GradedCandidates:
    """A result of `kofn.score`, its numbers made again where they are asked for otherwise."""
    if not isinstance(result, ScoredResult):
        raise InputError("this result was read in parts and kept no candidates: give the files")
    stored = GradingConfig(cluster=result.understood.get("cluster"), weight=result.understood.get("weight"))
    merged = _merge_options(stored, given)
    if given.extract or given.metrics:
        result = evaluate(result.table, merged)
    elif given != GradingConfig():
        result = reestimate(result, merged)
    return GradedCandidates(name="result", path=Path("result"), options=merged, result=result)


def load_graded_files(
    paths: Sequence[Path | str], options: GradingConfig, *, reading: ReadOptions, as_repeats: bool = False
) -> GradedCandidates:
    """One run as it is stored, or whatever else `kofn score` reads, graded as `options` say."""
    places = expand(paths)
    if len(places) == 1 and is_run(places[0]):
        return load_graded(places[0], options)
    result = evaluate(load_table(places, reading, as_repeats=as_repeats), options)
    name = places[0].rstrip("/").rpartition("/")[2].partition(".")[0]
    return GradedCandidates(name=name, path=Path(places[0]), options=options, result=result)


def _load_file(data: Any, options: GradingConfig, fields: Mapping[str, str] | None) -> GradedCandidates:
    keep = tuple(n for n in (*options.by, options.cluster, options.weight) if n is not None)
    table = load_table(data, ReadOptions(fields=fields or {}, keep=keep, everything=True))
    result = evaluate(table, options)
    path = data if isinstance(data, Path) else Path("rows")
    return GradedCandidates(name=path.name.partition(".")[0], path=path, options=options, result=result)


def _merge_options(stored: GradingConfig, given: GradingConfig) -> GradingConfig:
    """How the run was evaluated, with what was asked for now."""
    from dataclasses import fields

    plain = GradingConfig()
    names = (f.name for f in fields(GradingConfig))
    # an option that differs from its default was given; the rest is as the run had it
    return replace(stored, **{n: v for n in names if (v := getattr(given, n)) != getattr(plain, n)})


def reestimate(result: ScoredResult, options: GradingConfig) -> ScoredResult:
    """The numbers of stored grades made again with other options."""
    table, scored = result.table, list(result.scored)
    if options.split is not None:
        # by id: the split returns a new table, and sets are cut to match it
        kept = np.isin(table.cases["case_id"].to_numpy(), options.split.of(table).cases["case_id"].to_numpy())
        table = table.select_cases(kept)
        scored = [replace(one, sets=one.sets.take(np.flatnonzero(kept))) for one in scored]
    found = result_of(table, scored, options, result.judges).with_warnings(result.source_warnings)
    return (
        found
        if options.split is not None or options.weight or options.cluster
        else with_stored_estimates(found, result, options)
    )


def with_stored_estimates(result: ScoredResult, stored: ScoredResult, options: GradingConfig) -> ScoredResult:
    """A result made again, with the estimates that were stored where it has the same ones.

    They are equal but for runs whose sets stopped early, where a mean over everything drawn would be biased; there the
    usual aggregators are those that were stored.
    """
    known = {(e.metric, e.aggregator, e.segment): e for e in stored.estimates}
    metrics = {metric for metric, _ in stored.case_values}
    kept = {
        key: stored.case_values.get(key, values)
        for key, values in result.case_values.items()
        if options.aggregate or key in stored.case_values or key[0] not in metrics
    }
    estimates = [known.get((e.metric, e.aggregator, e.segment), e) for e in result.estimates]
    return replace(result, estimates=tuple(e for e in estimates if (e.metric, e.aggregator) in kept), case_values=kept)


def load_table(data: Any, options: ReadOptions, *, as_repeats: bool = False) -> Table:
    """A table from whatever `score` takes."""
    if isinstance(data, (str, Path)):
        return importers.read([data], options, as_repeats=as_repeats, of_run=_load_run_outputs)
    if isinstance(data, ScoredResult):
        return data.table
    if (run := _run_of(data)) is not None:
        return _load_candidates(run.path or Path(run.name), run)[2]
    if type(data).__module__.partition(".")[0] == "polars":
        frame: pl.DataFrame = data.collect() if hasattr(data, "collect") else data
        return table_from_frame(frame, "frame", options, "frame")
    rows = list(rows_of(data))
    if rows and all(isinstance(row, (str, Path)) for row in rows):
        return importers.read(rows, options, as_repeats=as_repeats, of_run=_load_run_outputs)

    return read_records(rows, options)


def _load_run_outputs(path: Path) -> Table | None:
    """The outputs of a stored run, without its grades; None for any other folder."""
    if not (path / MANIFEST).is_file():
        return None
    return _load_candidates(path)[2]


def _load_candidates(path: Path, loaded: Run | None = None) -> tuple[Run, ScoredResult, Table]:
    """A run, its result, and the table that an importer would give of its outputs."""
    from kofn.runs.record import load_run, restore_table  # pydantic: only for runs, not for files

    run = loaded or load_run(path)
    if run.result is None:
        raise InputError(f"{path}: this run has no candidates: give one of kofn score --out, kofn run or kofn judge")
    return run, run.result, restore_table(run.result)


def rows_of(data: Any) -> Any:
    """The rows of a frame, of polars or pandas; other rows as they are, and what is no rows is refused.

    >>> rows_of([{"id": "q"}])
    [{'id': 'q'}]
    """
    # by the name of its module, so that neither is imported for a list of rows
    library = type(data).__module__.partition(".")[0]
    if library == "polars":
        return (data.collect() if hasattr(data, "collect") else data).to_dicts()
    if library == "pandas":
        return _without_arrays(data.astype(object).where(data.notna(), None).to_dict("records"))
    if not isinstance(data, Iterable) or isinstance(data, Mapping):
        raise InputError(f"expected a path, rows or a frame, not {type(data).__name__}")
    return data


def _without_arrays(value: Any) -> Any:
    """Lists in the place of numpy's arrays, at any depth: pandas reads lists from Parquet as such."""
    if isinstance(value, dict):
        return {name: _without_arrays(one) for name, one in value.items()}
    if type(value).__module__ == "numpy":
        value = value.tolist()
    return [_without_arrays(one) for one in value] if isinstance(value, list) else value
